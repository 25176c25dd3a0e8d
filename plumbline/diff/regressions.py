"""What got worse by more than is allowed."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from plumbline.diff.direction import headline_definitions
from plumbline.diff.schema import INDEPENDENT, PAIRED

BEFORE = "before"


def regressions(
    differences: pl.DataFrame, limits: Mapping[str, float], *, significance: float = 0.05
) -> pl.DataFrame:
    """Return the rows that moved away from what is fair by more than is allowed, clearly so, the furthest first.

    Clearly: q below `significance` where the same images or sets were compared; an interval without 0 where only the
    two intervals are known. Of a metric with a headline definition only that one counts, and only checkpoints as they
    are: what a mitigation does is judged elsewhere.

    Parameters
    ----------
    differences : DataFrame
        In `DIFF_SCHEMA`.
    limits : mapping of str to float
        Metric -> how far it may move.
    """
    headline = pl.col("metric").replace_strict(headline_definitions(), default=None, return_dtype=pl.String)
    limit = pl.col("metric").replace_strict(dict(limits), default=None, return_dtype=pl.Float64)
    excludes_zero = (pl.col("ci_low") > 0) | (pl.col("ci_high") < 0)
    clear = (
        pl.when(pl.col("compared") == PAIRED)
        .then(pl.col("q") < significance)
        .when(pl.col("compared") == INDEPENDENT)
        .then(excludes_zero)
        .otherwise(False)
    )
    return differences.filter(
        pl.col("condition") == BEFORE,
        headline.is_null() | (pl.col("definition") == headline),
        pl.col("worse") > limit,
        clear,
    ).sort(
        pl.col("worse") / limit,
        "metric",
        "dataset",
        "event",
        descending=[True, False, False, False],
        nulls_last=True,
    )
