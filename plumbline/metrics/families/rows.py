"""What the rows of all families share."""

from __future__ import annotations

from typing import Any

import polars as pl

from plumbline.metrics.cell import Cell
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row


def base_row(cell: Cell, **columns: object) -> Row:
    """Return the columns that every plain estimate of a cell has."""
    row: Row = {
        "model": cell.model,
        "dataset": cell.dataset,
        "condition": "before",
        "statistic": "estimate",
    }
    return row | columns


def noting_sets(rows: list[Row], records: pl.DataFrame) -> list[Row]:
    """Say in every interval of images that come in sets that they were counted as independent.

    The images of a counterfactual set or of a CausalFace seed show one person with one thing changed: what is
    resampled should be whole sets, and is not yet.
    """
    if "set_id" not in records.columns:
        return rows
    sets = records["set_id"].drop_nulls()
    if sets.n_unique() == len(sets):
        return rows
    note = f"interval too narrow: {len(sets)} images of {sets.n_unique()} sets counted as independent"
    return [
        row if row.get("ci_low") is None else row | {"reason": joined(_text(row.get("reason")), note)}
        for row in rows
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def estimate_columns(estimate: Estimate, *reasons: str | None) -> dict[str, Any]:
    """Return the columns of an estimate; the given reasons come before its own."""
    return {
        "value": estimate.value,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "p": estimate.p,
        "reason": joined(*reasons, estimate.reason),
    }
