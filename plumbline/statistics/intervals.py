"""Confidence intervals: Wilson for proportions, BCa for everything that is not one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from plumbline.errors import MetricError

UNDEFINED_LIMIT = 0.05
"""Share of replicates in which a statistic may be undefined before its interval is."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval of one number; both ends nan, with the reason, where it is undefined.

    Attributes
    ----------
    low, high : float
    reason : str or None
        Why it is undefined, or what to know about it (some replicates undefined).
    """

    low: float
    high: float
    reason: str | None = None


def wilson(
    count: ArrayLike, n: ArrayLike, *, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Wilson's score interval of binomial proportions (Wilson 1927), by statsmodels.

    Parameters
    ----------
    count, n : (...) numbers
        Successes and trials, broadcast. Counts may be fractional (a mean count over trials).

    Returns
    -------
    low, high : (...) float64
        In [0, 1]; nan where n is 0.

    Raises
    ------
    MetricError
        If a count is negative or above its n.
    """
    from statsmodels.stats.proportion import proportion_confint

    counts, totals = np.broadcast_arrays(np.asarray(count, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if np.any(counts < 0) or np.any(counts > totals):
        raise MetricError("a count lies outside 0 .. n", found=f"counts {counts}, n {totals}")
    low, high = np.full(counts.shape, np.nan), np.full(counts.shape, np.nan)
    seen = totals > 0
    if seen.any():
        ends = proportion_confint(counts[seen], totals[seen], alpha=1 - confidence, method="wilson")
        # Rounding can leave an end a few 1e-17 outside the unit interval or past the estimate itself.
        share = counts[seen] / totals[seen]
        low[seen] = np.clip(np.minimum(ends[0], share), 0, 1)
        high[seen] = np.clip(np.maximum(ends[1], share), 0, 1)
    return low, high


def mean_of_proportions(
    count: ArrayLike, n: ArrayLike, *, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the interval of the mean of independent proportions, by recovering variances from Wilson's intervals.

    MOVER (Zou & Donner 2008; Newcombe's method for a difference is the same for two): the distances from each
    proportion to its Wilson ends add up in squares. Unlike a bootstrap it holds for small groups and for
    proportions near 0 and 1, and it costs nothing.

    Parameters
    ----------
    count, n : (..., g) numbers
        Successes and trials of each group; a group without trials is left out of the mean.

    Returns
    -------
    low, high : (...) float64
        In [0, 1]; nan where every group is empty.
    """
    hits, trials = np.broadcast_arrays(np.asarray(count, np.float64), np.asarray(n, np.float64))
    low, high = wilson(hits, trials, confidence=confidence)
    seen = trials > 0
    share = np.divide(hits, trials, out=np.zeros(hits.shape), where=seen)
    groups = seen.sum(axis=-1)
    below, above = (np.sqrt((np.where(seen, share - end, 0.0) ** 2).sum(axis=-1)) for end in (low, high))
    mean, below, above = (
        np.divide(total, groups, out=np.full(groups.shape, np.nan), where=groups > 0)
        for total in (share.sum(axis=-1), below, above)
    )
    return mean - below, mean + above


def percentile(replicates: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return the percentile bootstrap interval; nan replicates as in `bca`."""
    kept, reason = _usable(np.asarray(replicates, dtype=np.float64))
    if kept is None:
        return Interval(np.nan, np.nan, reason)
    low, high = np.quantile(kept, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high), reason)


def bca(
    estimate: float,
    replicates: ArrayLike,
    *,
    acceleration: float,
    confidence: float = 0.95,
) -> Interval:
    """Return the bias-corrected and accelerated bootstrap interval (Efron & Tibshirani 1993, 14.3 and eq.
    15.36).

    Max Skew is biased upward under resampling, so percentile intervals sit too high; BCa moves them back.

    Parameters
    ----------
    estimate : float
        The statistic of the data.
    replicates : (r,) float
        The statistic of each resample. Undefined (nan) replicates are left out as long as they are at most
        5%, and the reason says how many; beyond that the interval is undefined.
    acceleration : float
        From the jackknife, see `plumbline.statistics.bootstrap.Jackknife.acceleration`.

    Returns
    -------
    Interval
        Undefined where the estimate is, where the resamples do not vary, and where all lie on one side of the
        estimate (the bias correction is then infinite).
    """
    if np.isnan(estimate):
        return Interval(np.nan, np.nan, "estimate undefined")
    kept, reason = _usable(np.asarray(replicates, dtype=np.float64))
    if kept is None:
        return Interval(np.nan, np.nan, reason)
    below = _share_below(kept, estimate)
    if not 0 < below < 1 or np.isnan(acceleration):
        return Interval(np.nan, np.nan, "no interval: every resample lies on one side of the estimate")
    bias = ndtri(below)
    ends = bias + ndtri(np.array([(1 - confidence) / 2, (1 + confidence) / 2]))
    low, high = np.quantile(kept, ndtr(bias + ends / (1 - acceleration * ends)))
    return Interval(float(low), float(high), reason)


def bca_p_value(
    estimate: float, replicates: NDArray[np.float64], *, acceleration: float, null: float = 0.0
) -> float:
    """Return the level at which the BCa interval of `bca` just reaches a value, two-sided.

    So p <= 0.05 exactly where the 95% interval leaves the value out, up to the interpolation of quantiles.

    Parameters
    ----------
    estimate, acceleration : float
    replicates : (r,) float
        nan is left out, as in `bca`.
    null : float
        The value in question.

    Returns
    -------
    float
        At least 1 / (r + 1); nan where the interval is undefined.
    """
    kept = replicates[~np.isnan(replicates)]
    if (
        not kept.size
        or np.isnan(acceleration)
        or replicates.size - kept.size > UNDEFINED_LIMIT * replicates.size
    ):
        return float("nan")
    at_estimate, at_null = _share_below(kept, estimate), _share_below(kept, null)
    if not 0 < at_estimate < 1:
        return float("nan")
    bias = ndtri(at_estimate)
    least = 0.5 / kept.size
    shift = ndtri(min(max(at_null, least), 1 - least)) - bias
    # The inverse of BCa's map from levels to quantiles, which has a pole where no level reaches.
    stretch = 1 + acceleration * shift
    tail = float(ndtr(-abs(shift / stretch - bias))) if stretch > 0 else 0.0
    return max(2 * tail, 1 / (kept.size + 1))


def _share_below(values: NDArray[np.float64], at: float) -> float:
    """Return the share of values below a number, those that tie with it counted half."""
    # Equal statistics of different counts differ in the last bits; they are ties, not less-or-greater.
    slack = 1e-12 * max(1.0, abs(at))
    return float(((values < at - slack).mean() + (values <= at + slack).mean()) / 2)


def _usable(replicates: NDArray[np.float64]) -> tuple[NDArray[np.float64] | None, str | None]:
    undefined = np.isnan(replicates)
    missing = int(undefined.sum())
    kept = replicates[~undefined]
    if not replicates.size or missing > UNDEFINED_LIMIT * replicates.size:
        return None, f"no interval: undefined in {missing} of {replicates.size} resamples"
    if np.ptp(kept) <= 1e-12 * max(1.0, float(np.abs(kept).max())):
        return None, "no interval: the resamples do not vary"
    return kept, f"undefined in {missing} of {replicates.size} resamples" if missing else None


# --- BCa intervals of many statistics at once, such as the counts of every group in every ranking.


def acceleration(values: NDArray[np.float64], images: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the acceleration of BCa from leave-one-out values (Efron & Tibshirani 1993, eq. 14.15).

    Parameters
    ----------
    values : (..., v) float
        Statistic without an image of each kind.
    images : (..., v) int
        Images of each kind.

    Returns
    -------
    (...) float64
        0 where no value varies: BCa is then the bias-corrected interval.
    """
    weight = np.asarray(images, dtype=np.float64)
    value = np.where(weight > 0, values, 0.0)
    mean = (weight * value).sum(axis=-1, keepdims=True) / weight.sum(axis=-1, keepdims=True)
    lean = mean - value
    cubes, squares = (weight * lean**3).sum(axis=-1), (weight * lean**2).sum(axis=-1)
    spread = squares > 1e-24
    return np.divide(cubes, 6 * squares**1.5, out=np.zeros_like(cubes), where=spread)


@dataclass(frozen=True)
class Intervals:
    """Intervals of many statistics.

    Attributes
    ----------
    low, high : (...) float64
        BCa; the percentile interval where BCa is undefined (see `percentile`), nan where the replicates do not vary.
    percentile_low, percentile_high : (...) float64
    percentile : (...) bool
        Where every replicate lies on one side of the estimate, so that BCa does not exist.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    percentile_low: NDArray[np.float64]
    percentile_high: NDArray[np.float64]
    percentile: NDArray[np.bool_]


def bca_intervals(
    estimate: NDArray[np.float64],
    replicates: NDArray[Any],
    acceleration: NDArray[np.float64],
    *,
    confidence: float = 0.95,
) -> Intervals:
    """Return the BCa intervals of many statistics at once, as `plumbline.statistics.intervals.bca` does of one.

    Parameters
    ----------
    estimate, acceleration : (...) float
    replicates : (..., r) float or int
        Finite. They are sorted once; every quantile is then looked up.
    """
    values = np.sort(replicates, axis=-1)
    r = values.shape[-1]
    slack = 1e-12 * np.maximum(1.0, np.abs(estimate))[..., None]
    center = np.asarray(estimate)[..., None]
    below = ((values < center - slack).sum(axis=-1) + (values <= center + slack).sum(axis=-1)) / (2 * r)
    varies = values[..., -1] - values[..., 0] > slack[..., 0]
    usable = varies & (below > 0) & (below < 1) & ~np.isnan(acceleration)
    bias = ndtri(np.where(usable, below, 0.5))
    lean = np.where(usable, acceleration, 0.0)
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        shifted = bias + ndtri(tail)
        ends.append((_quantile(values, ndtr(bias + shifted / (1 - lean * shifted))), _quantile(values, tail)))
    (low, plain_low), (high, plain_high) = ends
    one_sided = varies & ~usable
    low, high = np.where(one_sided, plain_low, low), np.where(one_sided, plain_high, high)
    low, high, plain_low, plain_high = (
        np.where(varies, end, np.nan) for end in (low, high, plain_low, plain_high)
    )
    return Intervals(low, high, plain_low, plain_high, one_sided)


def _quantile(ordered: NDArray[np.float64], share: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return quantiles of sorted values (..., r), between neighbours in proportion, as numpy's default."""
    place = np.broadcast_to(np.asarray(share, dtype=np.float64), ordered.shape[:-1]) * (ordered.shape[-1] - 1)
    lower = np.floor(place).astype(np.int64)
    upper = np.minimum(lower + 1, ordered.shape[-1] - 1)
    at_lower, at_upper = (np.take_along_axis(ordered, i[..., None], axis=-1)[..., 0] for i in (lower, upper))
    return at_lower + (place - lower) * (at_upper - at_lower)
