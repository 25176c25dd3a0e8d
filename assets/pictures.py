"""Small pictures of a cell's metrics: drawn once, shown in the UI, kept for the tracking run."""

from collections.abc import Mapping

import dagster as dg
import polars as pl

from plumbline.recording import unrecorded
from plumbline.report import thumbnails
from plumbline.report.thumbnails import NAMES
from resources import served
from resources.workspace import Workspace

# The tables of Trident, of 200 numbers each, are left to the report.
_OF_A_CELL = tuple(name for name in NAMES if name != "trident")
WHOLE_AUDIT = "audit"
"""Stands for the cell of pictures that are of all of them."""
_SCHEMA = {"name": pl.String, "png": pl.Binary}


def draw_pictures(
    workspace: Workspace, frame: pl.DataFrame, *, asset: str, partition: str, names: tuple[str, ...] = _OF_A_CELL
) -> dict[str, dg.MetadataValue]:
    """Draw what a frame of one cell has to show, keep it in the lake, and return it as metadata."""
    dataset, model = partition.split("|")
    # Looking for what an empty frame has to show costs as much as drawing it.
    with unrecorded():  # no result is computed from how it is drawn
        drawn = thumbnails(frame, dataset=dataset, model=model, names=names) if frame.height else {}
    return keep_pictures(workspace, drawn, asset=asset, partition=partition)


def keep_pictures(
    workspace: Workspace, pictures: Mapping[str, bytes], *, asset: str, partition: str = WHOLE_AUDIT
) -> dict[str, dg.MetadataValue]:
    """Keep pictures by name in the lake, and return them as metadata.

    The metadata is their address: Dagster shows no more than a thousand characters of Markdown unless asked to.
    """
    table = pl.DataFrame({"name": list(pictures), "png": list(pictures.values())}, schema=_SCHEMA)
    workspace.lake.write_table("pictures", table, partition=f"{partition}|{asset}")
    shown = {name: served.picture(asset, partition, name) for name in pictures}
    return {
        f"picture_{name}": dg.MetadataValue.md(f"[![{name}]({address})]({address})") for name, address in shown.items()
    }


def read_pictures(workspace: Workspace, *, assets: tuple[str, ...], partition: str) -> dict[str, bytes]:
    """Return the pictures of a cell by name."""
    with unrecorded():
        tables = [workspace.lake.read_table("pictures", partition=f"{partition}|{asset}") for asset in assets]
    return dict(pl.concat(tables).iter_rows())


def read_picture(workspace: Workspace, *, asset: str, partition: str, name: str) -> bytes | None:
    """Return one picture of this audit or a cell of it; None where there is none, whatever was asked for."""
    dataset, _, model = partition.partition("|")
    known = partition == WHOLE_AUDIT or (dataset, model) in workspace.audit.cells
    if not known or not asset.isidentifier():
        return None
    committed = workspace.lake.committed("pictures", partition=f"{partition}|{asset}")
    if committed is None:
        return None
    return dict(workspace.lake.read_table("pictures", manifest=committed).iter_rows()).get(name)
