"""The commands that show an audit: as pages of Dagster and MLflow, and in the terminal."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from orchestration.audit_file import stored_workspace_of, workspace_of
from plumbline.commands.terminal import ConfigOption, console


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


def status_command(
    check: Annotated[
        bool, typer.Option("--check", help="End with exit code 1 where anything failed or is out of date, for alerts.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Show the status of checkpoints, datasets and their checks, cells and the report."""
    workspace = stored_workspace_of(config)
    # Importing the assets tells which version of the code each has.
    import orchestration.definitions  # noqa: F401
    from orchestration.status import print_status

    if not print_status(workspace, console=console) and check:
        raise typer.Exit(1)


def scorecard_command(
    csv: Annotated[Path | None, typer.Option(help="Also write every cell with its numbers to this file.")] = None,
    config: ConfigOption = None,
) -> None:
    """Print which model is worst, for whom, by how much and how sure: models x questions of the newest audit.

    Each cell is one row of the metric table; the file that `--csv` writes names it for `plumbline explain`.
    """
    workspace = stored_workspace_of(config)
    from assets.findings import headline_reading
    from plumbline.commands.scorecards import print_scorecard
    from plumbline.metrics.registry import current_table

    print_scorecard(current_table(workspace.lake.read_table("metric_table")), headline_reading(workspace), csv=csv)
