"""Texts and words that people annotate, drawn from an audit and written as sheets."""

from pathlib import Path
from typing import NamedTuple

from plumbline.errors import ConfigError
from plumbline.language.annotation_sheets import AnnotationSheets, annotation_sheets
from plumbline.storage.files import csv_bytes
from resources.workspace import Workspace


class WrittenSheets(NamedTuple):
    """The files that were written, and where there was too little to draw from."""

    files: list[Path]
    shortfalls: tuple[str, ...]


def write_annotation_sheets(workspace: Workspace, folder: Path, *, seed: int) -> WrittenSheets:
    """Write the sheets that people fill in, and the key that says where each text is from.

    Raises
    ------
    ConfigError
        If nothing was scored, or there is nothing to draw from.
    """
    import polars as pl

    from assets.answers import StoredAnswers

    models = [model for model in workspace.audit.asked_models if model not in workspace.audit.base_llms]
    cells = [StoredAnswers.find(workspace, model).cell() for model in models]
    if not cells or not cells[0].scorers:
        raise ConfigError(
            "there are no scored answers to annotate", expected="an audit file with `generate` and `scorers`"
        )
    drawn = annotation_sheets(
        pl.concat([cell.generations for cell in cells]),
        pl.concat([cell.scores for cell in cells]),
        pl.concat([workspace.lake.read_table("word_associations", partition=model) for model in models]),
        scorer=next(iter(cells[0].scorers)),
        seed=seed,
    )
    return write_sheets(drawn, folder)


def write_sheets(drawn: AnnotationSheets, folder: Path) -> WrittenSheets:
    """Write what was drawn; an empty sheet is not written.

    Raises
    ------
    ConfigError
        If all are empty.
    """
    if len(drawn.empty) == len(drawn.sheets):
        raise ConfigError(
            "there is nothing to annotate; no sheet was written",
            found="\n            ".join(drawn.empty.values()),
            hint="ask these prompts in `generate` of the audit file and run `plumbline audit`",
        )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in {**drawn.sheets, "key": drawn.key}.items():
        # The key is of texts: where only words were drawn it is empty.
        if frame.height:
            written.append(folder / f"{name}.csv")
            written[-1].write_bytes(csv_bytes(frame))
    return WrittenSheets(written, drawn.messages)
