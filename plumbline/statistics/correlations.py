"""Correlation of two variables: of many rows that come in clusters, and of a few units."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.reasons import reason
from plumbline.statistics.cluster_bootstrap import checked_values, of_clusters, undefined
from plumbline.statistics.estimates import Estimate

_BLOCKS = 20
"""Largest number of blocks of clusters that the jackknife leaves out in turn."""
MIN_UNITS = 3
_PERFECT = 1 - 1e-12
"""Beyond it |r| counts as 1, where Fisher's interval does not exist."""


def cluster_correlation(
    first: ArrayLike,
    second: ArrayLike,
    clusters: ArrayLike,
    *,
    kind: Literal["pearson", "spearman"],
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Return the correlation of two columns with an interval from whole clusters.

    Clusters are assigned to 20 random blocks; leaving out one block at a time gives the standard error of Fisher's z
    (grouped jackknife, Efron & Tibshirani 1993, 11.5), and t with 19 degrees of freedom the interval. Ranks are
    recomputed each time, which a bootstrap of millions of rows could not afford.

    Parameters
    ----------
    first, second : (n,) float
    clusters : (n,) int
    kind : {"pearson", "spearman"}
        For Spearman's, tied values get their mean rank.

    Returns
    -------
    Estimate
        In [-1, 1]; nan where a side does not vary. n: clusters.
    """
    from scipy import stats

    columns, codes = checked_values(np.stack([np.asarray(first), np.asarray(second)], axis=1), clusters, resamples=1)
    n = int(codes.max(initial=-1)) + 1
    value = _correlation(columns, kind)
    if np.isnan(value):
        return undefined(reason("constant_side"), n=n)
    if abs(value) > _PERFECT:
        return Estimate(value, np.nan, np.nan, n=n, reason=(reason("no_interval_perfect"),))
    blocks = min(_BLOCKS, n)
    block = (rng.permutation(n) % blocks)[codes] if n else codes
    left = np.array([_correlation(columns[block != each], kind) for each in range(blocks)])
    with np.errstate(divide="ignore"):
        z = np.arctanh(left)
    if blocks < MIN_UNITS or not np.isfinite(z).all():
        few = Estimate(value, np.nan, np.nan, reason=(reason("no_interval_few_blocks"),))
        return of_clusters(few, n)
    error = np.sqrt((blocks - 1) / blocks * ((z - z.mean()) ** 2).sum())
    away = stats.t.ppf((1 + confidence) / 2, blocks - 1) * error
    low, high = np.tanh(np.arctanh(value) + np.array([-away, away]))
    return of_clusters(Estimate(value, float(low), float(high)), n)


def unit_correlation(first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Return Pearson's correlation over a few units, with Fisher's interval and the t-test of 0, by scipy.

    Parameters
    ----------
    first, second : (n,) float
        One number per unit, such as an occupation's mean.

    Returns
    -------
    Estimate
        n: units. nan with fewer than three units or if either input is constant; no interval with three.
    """
    from scipy import stats

    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(x) < MIN_UNITS:
        return undefined(reason("few_units", units=len(x), least=MIN_UNITS), n=len(x), p=np.nan)
    value = _correlation(np.stack([x, y], axis=1), "pearson")
    if np.isnan(value):
        return undefined(reason("constant_side"), n=len(x), p=np.nan)
    result = stats.pearsonr(x, y)
    n, p = len(x), float(result.pvalue)
    if abs(value) > _PERFECT or n == MIN_UNITS:
        why = reason("no_interval_perfect" if abs(value) > _PERFECT else "no_interval_three_units")
        return Estimate(value, np.nan, np.nan, n=n, p=p, reason=(why,))
    ends = result.confidence_interval(confidence)
    return Estimate(value, float(ends.low), float(ends.high), n=n, p=p)


def _correlation(columns: NDArray[np.float64], kind: str) -> float:
    """Return the correlation of (n, 2) columns; nan where one does not vary beyond rounding."""
    from scipy import stats

    ranked = stats.rankdata(columns, axis=0) if kind == "spearman" else columns
    away = ranked - ranked.mean(axis=0) if len(ranked) else ranked
    spread = np.sqrt((away**2).sum(axis=0))
    if not len(ranked) or (spread <= 1e-12 * np.maximum(1.0, np.abs(ranked).max(axis=0))).any():
        return float("nan")
    return float(np.clip((away[:, 0] / spread[0]) @ (away[:, 1] / spread[1]), -1.0, 1.0))
