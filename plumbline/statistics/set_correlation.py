"""Correlations: of two numbers for each of many rows that come in sets, and of two numbers for each of a few units."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from plumbline.statistics.intervals import Interval
from plumbline.statistics.set_estimate import SetEstimate, checked_values, estimated, undefined

BLOCKS = 20
LEAST_UNITS = 3
CONSTANT = "undefined: one side does not vary"
PERFECT = "no interval: the sides agree exactly"


def set_correlation(
    first: ArrayLike,
    second: ArrayLike,
    sets: ArrayLike,
    *,
    kind: Literal["pearson", "spearman"],
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> SetEstimate:
    """Return the correlation of two columns with an interval by whole sets.

    Sets are dealt to 20 blocks; leaving out one block at a time gives the error of Fisher's z (the grouped jackknife,
    Efron & Tibshirani 1993, 11.5), and t with 19 degrees of freedom the interval. Ranks are made anew each time, which
    a bootstrap of millions of rows could not afford.

    Parameters
    ----------
    first, second : (n,) float
    sets : (n,) int
    kind : {"pearson", "spearman"}
        Spearman's ranks ties by their mean rank.

    Returns
    -------
    SetEstimate
        In [-1, 1]; nan where a side does not vary. n: sets.
    """
    columns, own = checked_values(
        np.stack([np.asarray(first), np.asarray(second)], axis=1), sets, resamples=1
    )
    n = int(own.max(initial=-1)) + 1
    value = _correlation(columns, kind)
    if np.isnan(value):
        return undefined(CONSTANT, n=n)
    if abs(value) > 1 - 1e-12:
        return SetEstimate(value, float("nan"), float("nan"), n, None, PERFECT)
    blocks = min(BLOCKS, n)
    block = (rng.permutation(n) % blocks)[own] if n else own
    left = np.array([_correlation(columns[block != each], kind) for each in range(blocks)])
    with np.errstate(divide="ignore"):
        z = np.arctanh(left)
    if blocks < LEAST_UNITS or not np.isfinite(z).all():
        return estimated(
            value, Interval(np.nan, np.nan, "no interval: too few sets, or a block decides"), n=n
        )
    error = np.sqrt((blocks - 1) / blocks * ((z - z.mean()) ** 2).sum())
    away = stats.t.ppf((1 + confidence) / 2, blocks - 1) * error
    low, high = np.tanh(np.arctanh(value) + np.array([-away, away]))
    return estimated(value, Interval(float(low), float(high)), n=n)


def unit_correlation(first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95) -> SetEstimate:
    """Return Pearson's correlation over a few units, with Fisher's interval and the t-test of 0, by scipy.

    Parameters
    ----------
    first, second : (n,) float
        One number a unit, such as an occupation's mean.

    Returns
    -------
    SetEstimate
        n: units. nan below three units, or where a side does not vary; no interval with three.
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if len(x) < LEAST_UNITS:
        return undefined(f"undefined: {len(x)} units, at least {LEAST_UNITS} are needed", n=len(x), p=np.nan)
    value = _correlation(np.stack([x, y], axis=1), "pearson")
    if np.isnan(value):
        return undefined(CONSTANT, n=len(x), p=np.nan)
    found = stats.pearsonr(x, y)
    if len(x) == LEAST_UNITS or abs(value) > 1 - 1e-12:
        reason = PERFECT if abs(value) > 1 - 1e-12 else "no interval: only three units"
        return SetEstimate(value, float("nan"), float("nan"), len(x), float(found.pvalue), reason)
    ends = found.confidence_interval(confidence)
    return SetEstimate(value, float(ends.low), float(ends.high), len(x), float(found.pvalue), None)


def _correlation(columns: NDArray[np.float64], kind: str) -> float:
    """Return the correlation of (n, 2) columns; nan where one does not vary beyond rounding."""
    ranked = stats.rankdata(columns, axis=0) if kind == "spearman" else columns
    away = ranked - ranked.mean(axis=0) if len(ranked) else ranked
    spread = np.sqrt((away**2).sum(axis=0))
    if not len(ranked) or (spread <= 1e-12 * np.maximum(1.0, np.abs(ranked).max(axis=0))).any():
        return float("nan")
    return float(np.clip((away[:, 0] / spread[0]) @ (away[:, 1] / spread[1]), -1.0, 1.0))
