"""Rows of a large table, which is cut up by metric, are those of a plain filter."""

import polars as pl
import pytest

from plumbline.report.rows import where

LARGE = pl.DataFrame(
    {
        "metric": [["max_skew", "harm_rate", None][i % 3] for i in range(9_000)],
        "model": ["ab"[i % 2] for i in range(9_000)],
        "value": range(9_000),
    }
)


@pytest.mark.parametrize("metric", ["max_skew", "harm_rate", "absent", None, ("max_skew", "harm_rate")])
def test_they_are_the_same_in_the_same_order(metric):
    few = pl.concat([where(part, metric=metric, model="a") for part in LARGE.iter_slices(1_000)])
    assert where(LARGE, metric=metric, model="a").equals(few)


def test_another_table_has_its_own_rows():
    for table in [LARGE.with_columns(pl.col("value") + k) for k in range(12)]:
        assert where(table, metric="max_skew")["value"][0] == table["value"][0]
