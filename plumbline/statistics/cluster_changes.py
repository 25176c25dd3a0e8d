"""The change of a mean or quantile between two conditions of the same sets."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics.cluster_bootstrap import (
    NO_VALUES,
    SetEstimate,
    WeightedQuantile,
    bit_blocks,
    checked_values,
    estimated,
    mean_acceleration,
    sums_and_sizes,
    undefined,
    weight_blocks,
)
from plumbline.statistics.intervals import Interval, bca, bca_p_value, percentile
from plumbline.statistics.permutation import p_value


def paired_cluster_changes(
    before: ArrayLike,
    after: ArrayLike,
    sets: ArrayLike,
    *,
    share: float | None,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> SetEstimate:
    """Return the change of a mean or quantile between two conditions of the same sets.

    Parameters
    ----------
    before, after : (n,) float
        Pairs, such as one a set and seed.
    sets : (n,) int
    share : float or None
        None: mean(after) - mean(before), with a BCa interval. Else quantile(after) - quantile(before), both linear and
        each over all pairs (not a quantile of the pairs' changes), with a percentile interval.
    permutations : int
        Of the test: in each, before and after change places in a random half of the sets (all values of a set
        together), which is exact under "the condition changes nothing".

    Returns
    -------
    SetEstimate
        Positive: higher after. p, two-sided, is the larger of that test's and the level at which the interval just
        reaches 0: for a quantile the test alone may reject because something else than the quantile has changed.

    Raises
    ------
    MetricError
        As `plumbline.statistics.cluster_bootstrap.cluster_mean`; or if there are no permutations.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (before, after)]
    if sides[0].shape != sides[1].shape or sides[0].ndim != 1 or permutations < 1:
        raise MetricError(
            "a paired change needs pairs, and a permutation",
            found=f"{sides[0].shape}, {sides[1].shape}, {permutations} permutations",
            expected="(n,), (n,), at least 1",
        )
    pairs, own = checked_values(np.stack(sides, axis=1), sets, resamples=resamples)
    if not own.size:
        return undefined(NO_VALUES, p=np.nan)
    draws = {"resamples": resamples, "permutations": permutations, "rng": rng, "confidence": confidence}
    if share is None:
        return _mean_change(pairs[:, 1] - pairs[:, 0], own, **draws)  # type: ignore[arg-type]
    return _quantile_change(pairs, own, share=share, **draws)  # type: ignore[arg-type]


def _mean_change(
    changes: NDArray[np.float64],
    own: NDArray[np.int64],
    *,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float,
) -> SetEstimate:
    sums, sizes = sums_and_sizes(changes, own)
    draws = weight_blocks(len(sizes), resamples=resamples, rng=rng)
    replicates = np.concatenate([(times @ sums) / (times @ sizes) for times in draws])
    signs = bit_blocks(len(sizes), draws=permutations, rng=rng)
    flipped = np.concatenate([(2 * coins - 1) @ sums for coins in signs]) / len(changes)
    value, acceleration = float(changes.mean()), mean_acceleration(sums, sizes)
    interval = bca(value, replicates, acceleration=acceleration, confidence=confidence)
    reached = bca_p_value(value, replicates, acceleration=acceleration)
    p = float(np.nanmax([p_value(abs(value), np.abs(flipped)), reached]))
    return estimated(value, interval, n=len(sizes), p=p)


def _quantile_change(
    pairs: NDArray[np.float64],
    own: NDArray[np.int64],
    *,
    share: float,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float,
) -> SetEstimate:
    count = int(own.max()) + 1
    before, after = (WeightedQuantile.of(side, own, n_units=count, share=share) for side in pairs.T)
    draws = weight_blocks(count, resamples=resamples, rng=rng)
    replicates = np.concatenate([after.at(times) - before.at(times) for times in draws])
    # Each side of a set is a unit of its own: a coin says which of the two counts as "before".
    sides = np.concatenate([own, own + count])
    pooled = WeightedQuantile.of(pairs.T.ravel(), sides, n_units=2 * count, share=share)
    swapped = np.concatenate(
        [
            pooled.at(np.hstack([coins, 1 - coins])) - pooled.at(np.hstack([1 - coins, coins]))
            for coins in bit_blocks(count, draws=permutations, rng=rng)
        ]
    )
    value = float(np.quantile(pairs[:, 1], share) - np.quantile(pairs[:, 0], share))
    p = max(p_value(abs(value), np.abs(swapped)), _percentile_p_value(replicates))
    return estimated(value, percentile(replicates, confidence=confidence), n=count, p=p, share=share)


def _percentile_p_value(replicates: NDArray[np.float64]) -> float:
    """Return the level at which the percentile interval just reaches 0."""
    beyond = min((replicates <= 1e-12).sum(), (replicates >= -1e-12).sum())
    return float(min(1.0, 2 * (1 + beyond) / (1 + len(replicates))))


# --- Correlations: of two numbers for each of many rows that come in sets, and of two numbers for each of
# a few units.

BLOCKS = 20
LEAST_UNITS = 3
CONSTANT = "undefined: one side does not vary"
PERFECT = "no interval: the sides agree exactly"


def cluster_correlation(
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
