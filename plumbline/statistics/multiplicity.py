"""What many tests and many intervals promise together: false discovery rate, false coverage rate.

q of a metric table is the Benjamini-Hochberg adjusted p among the rows that `CORRECTED_TOGETHER` names: the expected
share of false discoveries among those of them with q below 5% is 5% at most, where tests are independent or positively
dependent. A reader of the headlines reads across families: there q is over all rows that headlines are picked from, see
`plumbline.report.findings.as_picked`, and the intervals of what was picked hold the truth in 95% on average.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reason, decode, encode, in_words, joined, reason

SIGNIFICANCE = 0.05
"""Evidence is a q below it, whatever the confidence of the intervals."""

CORRECTED_TOGETHER: dict[str, tuple[str, ...]] = {
    "metric_table": ("metric", "definition", "condition", "statistic", "scorer"),
    "factor_effects": ("metric", "definition"),
    "bias_transfer": ("condition", "kind", "metric", "definition"),
    "audit_diff": ("metric", "definition", "condition", "statistic", "scorer"),
}
"""Table of tests -> the columns of which one combination is one family of tests, corrected together.

A reader scans one metric over all encoders, datasets, attributes, events and probes (or over all factors and pairs of
checkpoints) and picks out what is significant: that is the family. Of generated texts that holds for models, prompts,
instructions and occupations alike: who looks for an instruction that helps scans them all. Variants of one metric
(definitions, statistics, scorers of the same texts) are kept in separate families, because they retest the same
hypothesis; a condition (before, after a mitigation) is another question. `bias_transfer` is read for one mitigation at
a time, over all encoders and datasets; the parity differences of an outcome and of a Trident probe differ in `kind`.
`audit_diff` is read as `metric_table` is.
"""


def q_values(p: ArrayLike) -> NDArray[np.float64]:
    """Return Benjamini-Hochberg adjusted p-values of one family (Benjamini & Hochberg 1995).

    Those of `scipy.stats.false_discovery_control`, without importing all of `scipy.stats`, a second of every report.

    Parameters
    ----------
    p : (m,) float
        nan is a test that was not made: it stays nan and does not count in m.
    """
    values = np.asarray(p, dtype=np.float64)
    q = np.full(values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested])]
    rates = values[order] * (order.size / np.arange(1, order.size + 1))
    q[order] = np.minimum.accumulate(rates[::-1])[::-1].clip(0, 1)
    return q


def add_q_values(table: pl.DataFrame, *, of: str = "metric_table") -> pl.DataFrame:
    """Fill column `q` of a table from column `p`, as `CORRECTED_TOGETHER` says of it; row order is kept.

    Null and nan p-values give a null q.
    """
    family = CORRECTED_TOGETHER[of]
    p = table["p"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    order = table.select(family).with_row_index("row").group_by(family, maintain_order=True).agg("row")["row"]
    q = np.full(len(p), np.nan)
    for rows in order:
        index = rows.to_numpy()
        q[index] = q_values(p[index])
    return table.with_columns(pl.Series("q", q).fill_nan(None))


def add_floor_reasons(
    table: pl.DataFrame, *, draws: int, significance: float = 0.05, of: str = "metric_table"
) -> pl.DataFrame:
    """Return a table whose rows say where too few draws, and not the data, keep q from being below `significance`.

    That is where p is the smallest that so many draws can give, 1 / (1 + draws) or twice that for two sides, and q is
    not below the level all the same.
    """
    p, q = (table[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name in ("p", "q"))
    at_floor = np.isclose(p[:, None], np.array([1.0, 2.0]) / (1 + draws), rtol=1e-9, atol=0).any(axis=1)
    rows = np.flatnonzero(at_floor & (q >= significance))
    if not rows.size:
        return table
    tests = table.select(pl.col("p").is_not_nan().fill_null(value=False).sum().over(CORRECTED_TOGETHER[of]))["p"]
    return add_reasons(table, {int(row): reason("p_floor", draws=draws, tests=tests[int(row)]) for row in rows})


def add_reasons(table: pl.DataFrame, reasons: Mapping[int, Reason]) -> pl.DataFrame:
    """Return a table of which some rows, by their place, have one more reason."""
    texts, codes = table["reason"].to_list(), table["reason_codes"].to_list()
    for row, one in reasons.items():
        why = joined(decode(codes[row]), one)
        texts[row], codes[row] = in_words(why), encode(why)
    return table.with_columns(pl.Series("reason", texts, pl.String), pl.Series("reason_codes", codes, pl.String))


def fcr_confidence(told: int, rows: int, *, confidence: float = 0.95) -> float:
    """Return the level of the intervals of `told` estimates picked from `rows`, 1 - (1 - confidence) told / rows.

    Of the intervals of what is told then 1 - confidence at most miss on average: their false coverage rate (Benjamini &
    Yekutieli 2005, for estimates that are independent or positively dependent, picked in any simple way, such as the
    largest).

    Raises
    ------
    MetricError
        If more are told than there are, or none.
    """
    if not 0 < told <= rows:
        raise MetricError("intervals are adjusted for what was picked", found=f"{told} of {rows}", expected="1 .. rows")
    return 1 - (1 - confidence) * told / rows


def widened_intervals(
    value: ArrayLike, low: ArrayLike, high: ArrayLike, *, bounds: ArrayLike, confidence: float = 0.95, wanted: float
) -> NDArray[np.float64]:
    """Return intervals at another confidence than those that were stored, without drawing anew.

    Both arms grow by the ratio of the normal quantiles: of log(1 + x) for a measure that is at least 0 without an upper
    bound, such as a relative gap, and of the value itself otherwise, cut off at its bounds. In simulated groups of 50
    to 1,000 images at levels to 99.75% they miss by no more than intervals computed at that level (benchmark
    `selection`).

    Parameters
    ----------
    value, low, high : (m,) float
        nan where undefined.
    bounds : (m, 2) float
        Least and largest value of each measure.
    confidence, wanted : float
        Of the intervals given and returned.

    Returns
    -------
    (2, m) float64
        Lower and upper ends.
    """
    from scipy.special import ndtri

    ratio = ndtri((1 + wanted) / 2) / ndtri((1 + confidence) / 2)
    least, most = np.asarray(bounds, dtype=np.float64).T
    relative = (least == 0) & np.isinf(most)
    ends = [np.asarray(each, dtype=np.float64) for each in (value, low, high)]
    at, lower, upper = (np.where(relative, np.log1p(np.where(relative, each, 0)), each) for each in ends)
    wide = np.stack([at - np.maximum(at - lower, 0) * ratio, at + np.maximum(upper - at, 0) * ratio])
    return np.clip(np.where(relative, np.expm1(np.where(relative, wide, 0)), wide), least, most)
