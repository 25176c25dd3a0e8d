"""Small pictures of a cell's metrics: drawn once, shown in the UI, kept for the tracking run."""

import base64

import dagster as dg
import polars as pl

from plumbline.recording import unrecorded
from plumbline.report import thumbnails
from plumbline.report.thumbnails import NAMES
from resources.workspace import Workspace

# The tables of Trident, of 200 numbers each, are left to the report.
_OF_A_CELL = tuple(name for name in NAMES if name != "trident")
_SCHEMA = {"name": pl.String, "png": pl.Binary}


def draw_pictures(
    workspace: Workspace, frame: pl.DataFrame, *, asset: str, partition: str, names: tuple[str, ...] = _OF_A_CELL
) -> dict[str, dg.MetadataValue]:
    """Draw what a frame of one cell has to show, keep it in the lake, and return it as metadata.

    Each picture is under 30 KB, since metadata lives in the event database.
    """
    dataset, model = partition.split("|")
    # Looking for what an empty frame has to show costs as much as drawing it.
    with unrecorded():  # no result is computed from how it is drawn
        drawn = thumbnails(frame, dataset=dataset, model=model, names=names) if frame.height else {}
    table = pl.DataFrame({"name": list(drawn), "png": list(drawn.values())}, schema=_SCHEMA)
    workspace.lake.write_table("pictures", table, partition=f"{partition}|{asset}")
    return {
        f"picture_{name}": dg.MetadataValue.md(f"![{name}](data:image/png;base64,{base64.b64encode(png).decode()})")
        for name, png in drawn.items()
    }


def read_pictures(workspace: Workspace, *, assets: tuple[str, ...], partition: str) -> dict[str, bytes]:
    """Return the pictures of a cell by name."""
    with unrecorded():
        tables = [workspace.lake.read_table("pictures", partition=f"{partition}|{asset}") for asset in assets]
    return dict(pl.concat(tables).iter_rows())
