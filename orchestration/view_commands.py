"""The commands that show an audit: as pages of Dagster and MLflow, and in the terminal."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.terminal import ConfigOption, console, safe, say, workspace_of

if TYPE_CHECKING:
    import polars as pl


def ui_command(
    config: ConfigOption = None,
    dagster_port: Annotated[int, typer.Option(help="Port of Dagster.")] = 3000,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = False,
) -> None:
    """Serve Dagster and MLflow side by side, on this machine only, over the same store as `plumbline audit`.

    On the page of the graph that is printed, expand a group, click an asset and pick a partition `dataset|encoder`.
    On MLflow's page that is printed, tick two runs and press *Compare*.
    """
    from orchestration.servers import dagster_pages, serve

    if browser:
        webbrowser.open(dagster_pages(dagster_port)["graph"])
    raise typer.Exit(serve(workspace_of(config), dagster_port=dagster_port, mlflow_port=mlflow_port, console=console))


def status_command(config: ConfigOption = None) -> None:
    """Show the status of checkpoints, datasets and their checks, cells and the report."""
    workspace = workspace_of(config)
    # Importing the assets tells which version of the code each has.
    import orchestration.definitions  # noqa: F401
    from orchestration.status import print_status

    print_status(workspace, console=console)


def scorecard_command(
    csv: Annotated[Path | None, typer.Option(help="Also write every cell with its numbers to this file.")] = None,
    config: ConfigOption = None,
) -> None:
    """Print which model is worst, for whom, by how much and how sure: models x questions of the newest audit.

    Each cell is one row of the metric table; the file that `--csv` writes names it for `plumbline explain`.
    """
    workspace = workspace_of(config)
    from upath import UPath

    from assets.findings import headline_reading
    from plumbline.report.front import verdict
    from plumbline.report.scorecard import scorecard
    from plumbline.storage.files import commit_bytes, csv_bytes

    reading = headline_reading(workspace)
    card = scorecard(workspace.lake.read_table("metric_table"), reading)
    for sentence in verdict(card, reading):
        console.print(safe(sentence), highlight=False)
    for kind in ("encoder", "generator"):
        _print_scorecard(card.filter(kind=kind))
    say(_KEY)
    if csv is not None:
        commit_bytes(UPath(csv), csv_bytes(card))
        say(f"Every cell: {csv}")


_MARKS = {"evidence": "●", "none": "○", "evidence_of_none": "■", "too_weak": "×"}
_KEY = (
    "● evidence of a difference, ○ no evidence, ■ evidence of none beyond the margin, × too few images to tell; "
    "without a mark nothing was tested. Below each value its interval."
)
_COLUMN = 18


def _print_scorecard(card: pl.DataFrame) -> None:
    """Print the scorecard of one kind of models, as many questions side by side as the terminal is wide."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from plumbline.report.scorecard import asked_models, interval_text, value_text

    models = asked_models(card)
    cells = {(cell["model"], cell["title"]): cell for cell in card.to_dicts()}
    titles = list(dict.fromkeys(title for _, title in cells))
    many = max(1, (console.width - max(map(len, models), default=0) - 4) // _COLUMN)
    for first in range(0, len(titles), many):
        shown = titles[first : first + many]
        table = Table(box=SIMPLE_HEAD)
        table.add_column("worst first", overflow="fold")
        for title in shown:
            table.add_column(title, overflow="fold", max_width=_COLUMN - 2)
        for model in models:
            asked = [cells[model, title] for title in shown]
            texts = [f"{_MARKS.get(cell['state'], ' ')} {value_text(cell)}\n  {interval_text(cell)}" for cell in asked]
            datasets = dict.fromkeys(cell["dataset"] for cell in asked if cell["dataset"])
            table.add_row(f"{safe(model)}\n{safe(', '.join(datasets))}", *(Text(text.rstrip()) for text in texts))
        console.print(table)
