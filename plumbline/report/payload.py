"""What the script of a page reads: specifications of charts, the library that draws them, the table of all numbers.

Each is compressed (zlib) and in Base64, in a `<script>` of a type that no browser runs; `report.js` reads it back.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import polars as pl

from plumbline.catalog.schema import IDENTIFYING
from plumbline.metrics.evidence import states

MOST_ROWS = 150_000
"""Rows of the metric table that a page holds: about 2 MB. Of a larger table, rows are left out."""
DIGITS = 3
"""Significant digits of the numbers in the page; `plumbline explain` and the exports have all."""
NUMBERS = ("value", "ci_low", "ci_high", "p", "q", "smallest_detectable")
LITTLE_ENDIAN = "<u4"


def packed(data: bytes) -> bytes:
    """Return bytes compressed (zlib)."""
    return zlib.compress(data, 9)


@cache
def library() -> bytes:
    """Return Vega, Vega-Lite and Vega-Embed as one script that defines `vegaEmbed`, compressed (zlib).

    It is `vl_convert.javascript_bundle()` of the pinned version, kept in a file, since making it takes seconds.
    """
    return (files("plumbline.report") / "templates" / "vega.js.zlib").read_bytes()


def json_bytes(value: object) -> bytes:
    """Return a value as JSON; NaN and infinities, which JSON has not, are refused."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


# --- The table of all numbers, as columns.


@dataclass(frozen=True)
class LeftOut:
    """A kind of rows that are not in the page, and how many."""

    kind: str
    rows: int


@dataclass(frozen=True)
class Numbers:
    """The metric table as a page holds it.

    Attributes
    ----------
    data : bytes
        See `columns`.
    rows, whole : int
        Rows in the page, and in the metric table.
    left_out : tuple of LeftOut
        Which rows are only in the metric table; empty where the page holds it whole.
    """

    data: bytes
    rows: int
    whole: int
    left_out: tuple[LeftOut, ...]


def all_numbers(table: pl.DataFrame, *, significance: float, most: int = MOST_ROWS) -> Numbers:
    """Return a metric table as the page holds it.

    Parameters
    ----------
    significance : float
        Level of `plumbline.metrics.evidence.states`.
    most : int
        Rows that are kept at most, where leaving out whole kinds of rows allows it.
    """
    kept, left_out = fewer(table, most)
    shown = kept.select(
        *IDENTIFYING, *NUMBERS, "n", "reason", states(kept, significance=significance).alias("evidence")
    )
    undefined = pl.col("value").is_null() | pl.col("value").is_nan()
    state = pl.when(undefined).then(pl.lit("undefined")).otherwise(pl.col("evidence").fill_null("not_tested"))
    return Numbers(columns(shown.with_columns(evidence=state)), kept.height, table.height, left_out)


def fewer(table: pl.DataFrame, most: int) -> tuple[pl.DataFrame, tuple[LeftOut, ...]]:
    """Leave out kinds of rows until `most` are left: first what only supports other rows, then what has no test.

    In this order: other statistics than estimates and means; estimates on the images that mitigations are judged on,
    without a mitigation; metrics without any test, the one with the most rows first; metrics with tests likewise. A
    kind goes as a whole, so that what a reader sees of a metric is all of it.
    """
    left_out: list[LeftOut] = []

    def leave_out(kind: str, chosen: pl.Expr) -> None:
        nonlocal table
        if table.height <= most:
            return
        kept = table.filter(~chosen)
        if kept.height < table.height:
            left_out.append(LeftOut(kind, table.height - kept.height))
            table = kept

    leave_out("other statistics than estimates and means", ~pl.col("statistic").is_in(["estimate", "mean"]))
    leave_out("estimates before a mitigation, on its test images", pl.col("condition") == "before_test_rows")
    metrics = table.group_by("metric").agg(rows=pl.len(), tests=pl.col("p").is_finite().sum() > 0)
    for metric in metrics.sort("tests", "rows", "metric", descending=[False, True, False])["metric"]:
        leave_out(metric, pl.col("metric") == metric)
    return table, tuple(left_out)


def columns(table: pl.DataFrame) -> bytes:
    """Return a frame as columns of codes into their distinct values, ascending, which compress well.

    Four bytes give the length of a JSON header `{"rows": ..., "columns": [{"name", "values", "bytes"}, ...]}`; then
    come, of every column, the lowest bytes of all codes, then the next ones. A missing value is null and comes first;
    NaN is missing as well. Floats have `DIGITS` significant digits.
    """
    described, planes = [], []
    for series in table.get_columns():
        values, codes = _coded(series)
        width = max(1, (max(len(values) - 1, 0).bit_length() + 7) // 8)
        described.append({"name": series.name, "values": values, "bytes": width})
        planes += [codes.view(np.uint8)[at::4].tobytes() for at in range(width)]
    header = json_bytes({"rows": table.height, "columns": described})
    return len(header).to_bytes(4, "little") + header + b"".join(planes)


def _coded(series: pl.Series) -> tuple[list[str | float | None], np.ndarray]:
    if series.dtype.is_float():
        series = series.round_sig_figs(DIGITS).fill_nan(None).replace([float("inf"), float("-inf")], [None, None])
    distinct = series.unique().sort(nulls_last=False)
    order = pl.DataFrame({"value": distinct, "code": np.arange(len(distinct), dtype=np.uint32)})
    coded = series.to_frame("value").join(order, on="value", how="left", nulls_equal=True, maintain_order="left")
    return distinct.to_list(), coded["code"].to_numpy().astype(LITTLE_ENDIAN)


def data_element(name: str, compressed: bytes) -> str:
    """Return compressed bytes as an element that a browser neither shows nor runs: Base64 has no mark-up."""
    text = base64.b64encode(compressed).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{text}</script>'
