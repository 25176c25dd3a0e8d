"""The name of a metric row: what it measures, not what it found, so that it is the same in every audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from plumbline.digests import digest_json
from plumbline.tables.schema import ESTIMATE_COLUMNS

_ALL = tuple(ESTIMATE_COLUMNS)
IDENTIFYING = _ALL[: _ALL.index("value")]
"""The columns that say what a row measures; no two rows of a metric table agree in all of them."""
_LENGTH = 12


def row_id(row: Mapping[str, Any]) -> str:
    """Return the name of a metric row: 12 hexadecimal digits of the sha256 of what it measures.

    Columns that are null do not count, so that a column that the schema gains later changes no name.
    """
    return digest_json({name: row[name] for name in IDENTIFYING if row.get(name) is not None})[:_LENGTH]


def row_ids(table: pl.DataFrame) -> pl.Series:
    """Return the name of every row of a metric table, as a column `row_id`."""
    names = [row_id(row) for row in table.select(IDENTIFYING).iter_rows(named=True)]
    return pl.Series("row_id", names, dtype=pl.String)
