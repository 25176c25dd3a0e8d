"""What two conditions have in common, and how much of it has no counterpart."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def with_counterparts(
    first: pl.DataFrame, second: pl.DataFrame, *, on: Sequence[str], by: Sequence[str]
) -> pl.DataFrame:
    """Join two conditions row by row, and keep what only one of them has, so that it can be counted.

    Parameters
    ----------
    first, second : DataFrame
        One row a value of `on`.
    on : sequence of str
        Columns that name a pair.
    by : sequence of str
        Columns of it that name a comparison; one that a condition has nothing of was not asked, and is left out.

    Returns
    -------
    DataFrame
        Sorted by `on`; the columns of the side that lacks a row are null.
    """
    sides = [side.join(other, on=list(by), how="semi") for side, other in ((first, second), (second, first))]
    return sides[0].join(sides[1], on=list(on), how="full", coalesce=True).sort(on)


def unpaired_reason(pairs: int, of: int, *, what: str) -> str | None:
    """Say how many had no counterpart; `what` names them, such as `answers`."""
    return None if pairs == of else f"{of - pairs} of {of} {what} left out without a counterpart"
