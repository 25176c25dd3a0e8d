"""Cells of the sheets that annotators fill, safe to open in a spreadsheet."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from plumbline.storage.arrays import defused

_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


class Drawn(NamedTuple):
    """What was drawn for a sheet, and where there was too little to draw from, in words."""

    rows: pl.DataFrame
    shortfalls: tuple[str, ...]


def cells_to_fill(rows: pl.DataFrame) -> pl.DataFrame:
    """Add empty columns `annotator` and `label`, and defuse cells of text that a spreadsheet would run.

    Generated text is hostile: see `plumbline.storage.arrays.defused`; control characters become U+FFFD.
    """
    safe = defused(pl.col(pl.String).str.replace_all(_CONTROLS, "\ufffd"))
    return rows.with_columns(safe).with_columns(annotator=pl.lit(""), label=pl.lit(""))
