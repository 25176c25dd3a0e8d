"""The command that looks back at an audit: where a number comes from."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.audit_file import stored_workspace_of
from plumbline.commands.terminal import ConfigOption, console, working

Filter = Annotated[str | None, typer.Option(help="Filter: value of the column of this name.")]


def explain_command(
    row: Annotated[str | None, typer.Argument(help="Row id, as the report shows it.")] = None,
    metric: Filter = None,
    definition: Filter = None,
    model: Filter = None,
    dataset: Filter = None,
    suite: Filter = None,
    attribute: Filter = None,
    group: Filter = None,
    event: Filter = None,
    probe: Filter = None,
    prompt: Filter = None,
    instruction: Filter = None,
    scorer: Filter = None,
    condition: Filter = None,
    statistic: Filter = None,
    audit: Annotated[str, typer.Option(help="Which audit: `newest`, `newest~1`, or the start of an id.")] = "newest",
    adjusted: Annotated[
        bool, typer.Option(help="Also its interval as that of a finding, adjusted for picking.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with the images to this file.")] = None,
    config: ConfigOption = None,
) -> None:
    """Explain one number: its chain back to weights, prompts and files, and the images that move it most.

    Name the row, or filter until one row is left. Everything upstream is compared with what is on disk now: what is
    gone or has changed since is said.
    """
    with working("reading …"):
        from orchestration.explained import explain_row

    named = {
        "metric": metric, "definition": definition, "model": model, "dataset": dataset, "suite": suite,
        "attribute": attribute, "group": group, "event": event, "probe": probe, "prompt": prompt,
        "instruction": instruction, "scorer": scorer, "condition": condition, "statistic": statistic,
    }  # fmt: skip
    filters = {column: value for column, value in named.items() if value is not None}
    explain_row(stored_workspace_of(config), row, filters, audit=audit, adjusted=adjusted, html=html, console=console)
