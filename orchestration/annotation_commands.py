"""The command that draws texts and words for people to annotate."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.audit_file import stored_workspace_of
from plumbline.commands.terminal import ConfigOption, say


def sample_annotations_command(
    to: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("annotations"),
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
    config: ConfigOption = None,
) -> None:
    """Draw texts and words for people to annotate: how well do the scorer and the judge agree with them?

    Fill in a label for each row and annotator, and name the file under `language.annotations` of the audit file. Exits
    with 2 where there is nothing to draw from.
    """
    from orchestration.annotation_files import write_annotation_sheets

    sheets = write_annotation_sheets(stored_workspace_of(config), to, seed=seed)
    for line in (*map(str, sheets.files), *sheets.shortfalls):
        say(line)
