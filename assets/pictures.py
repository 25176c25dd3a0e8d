"""The main charts of a cell's metrics: kept as specifications, drawn when the UI or an MLflow run is looked at."""

import json
from collections.abc import Mapping

import dagster as dg
import polars as pl

from plumbline.recording import unrecorded
from plumbline.report import Chart
from plumbline.report.chapters import NAMES, main_charts
from resources import served
from resources.workspace import Workspace

# The tables of Trident, of 200 numbers each, are left to the report.
_OF_A_CELL = tuple(name for name in NAMES if name != "trident")
WHOLE_AUDIT = "audit"
"""Stands for the cell of pictures that are of all of them."""
_SCHEMA = dict.fromkeys(("name", "chart", "title", "description", "spec"), pl.String)


def charts_of(
    workspace: Workspace, frame: pl.DataFrame, *, asset: str, partition: str, names: tuple[str, ...] = _OF_A_CELL
) -> dict[str, dg.MetadataValue]:
    """Make the charts that a frame of one cell has rows for, keep them in the lake, and return them as metadata."""
    dataset, model = partition.split("|")
    with unrecorded():  # no result is computed from how it is drawn
        # Looking for what an empty frame has to show costs as much as drawing it.
        charts = main_charts(frame.filter(model=model), dataset, names=names) if frame.height else {}
    return keep_charts(workspace, charts, asset=asset, partition=partition)


def keep_charts(
    workspace: Workspace, charts: Mapping[str, Chart], *, asset: str, partition: str = WHOLE_AUDIT
) -> dict[str, dg.MetadataValue]:
    """Keep charts by name in the lake, and return their pictures as metadata.

    The metadata is where `plumbline ui` draws them: Dagster shows no more than a thousand characters of Markdown unless
    asked to.
    """
    rows = [(name, one.name, one.title, one.description, json.dumps(one.spec)) for name, one in charts.items()]
    table = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    workspace.lake.write_table("pictures", table, partition=f"{partition}|{asset}")
    shown = {name: served.picture(asset, partition, name) for name in charts}
    return {
        f"picture_{name}": dg.MetadataValue.md(f"[![{name}]({address})]({address})") for name, address in shown.items()
    }


def read_charts(workspace: Workspace, *, assets: tuple[str, ...], partition: str) -> dict[str, Chart]:
    """Return the charts of a cell by name."""
    with unrecorded():
        tables = [workspace.lake.read_table("pictures", partition=f"{partition}|{asset}") for asset in assets]
    return _charts(pl.concat(tables))


def _charts(table: pl.DataFrame) -> dict[str, Chart]:
    return {name: Chart(*words, spec=json.loads(spec)) for name, *words, spec in table.iter_rows()}


def draw_picture(workspace: Workspace, *, asset: str, partition: str, name: str) -> bytes | None:
    """Return one picture of this audit or a cell of it; None where there is none, whatever was asked for."""
    dataset, _, model = partition.partition("|")
    known = partition == WHOLE_AUDIT or (dataset, model) in workspace.audit.cells
    if not known or not asset.isidentifier():
        return None
    committed = workspace.lake.committed("pictures", partition=f"{partition}|{asset}")
    if committed is None:
        return None
    table = workspace.lake.read_table("pictures", manifest=committed)
    chart = _charts(table.filter(name=name)).get(name)
    return None if chart is None else chart.png
