"""Intervals: Wilson's for proportions, MOVER for their means; BCa, bootstrap-t and percentile of resamples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.estimates import Estimate, EstimateArray

MAX_UNDEFINED_SHARE = 0.05
"""Above this share of undefined replicates no interval is given."""
LEAST_ERROR = 0.2
"""Of the standard error of the data, the least that a resample's counts as in `bootstrap_t_array`."""
_TIE = 1e-12
"""Tolerance for ties, relative above 1: equal statistics of different counts may differ in their last bits."""
_FEW_KINDS = 16
"""Whole numbers of which the replicates have fewer kinds than that part of their number are counted."""


def wilson(
    count: ArrayLike, n: ArrayLike, *, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Wilson's score interval of binomial proportions (Wilson 1927), as statsmodels has it.

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
    from scipy.special import ndtri

    counts, totals = np.broadcast_arrays(np.asarray(count, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if np.any(counts < 0) or np.any(counts > totals):
        raise MetricError("a count lies outside 0 .. n", found=f"counts {counts}, n {totals}")
    n_seen = np.where(totals > 0, totals, np.nan)
    share, z = counts / n_seen, -ndtri((1 - confidence) / 2)
    scale = 1 + z**2 / n_seen
    center = (share + z**2 / (2 * n_seen)) / scale
    distance = z * np.sqrt(share * (1 - share) / n_seen + z**2 / (4 * n_seen**2)) / scale
    # Rounding can leave an end a few 1e-17 outside the unit interval or past the estimate itself.
    return np.clip(np.minimum(center - distance, share), 0, 1), np.clip(np.maximum(center + distance, share), 0, 1)


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


def bca(
    value: float, replicates: ArrayLike, *, acceleration: float, confidence: float = 0.95, null: float | None = None
) -> Estimate:
    """Return a statistic with its BCa interval, and p where a null value is given; see `bca_array`."""
    drawn = np.asarray(replicates)[None]
    return bca_array([value], drawn, [acceleration], confidence=confidence, null=null)[0]


def bca_array(
    value: ArrayLike,
    replicates: NDArray[Any],
    acceleration: ArrayLike,
    *,
    confidence: float = 0.95,
    null: float | None = None,
) -> EstimateArray:
    r"""Return bias-corrected and accelerated bootstrap intervals (Efron & Tibshirani 1993, 14.3).

    With the bias z0 = Phi^-1(share of replicates below the value, ties half) and the acceleration a, the end of level
    alpha is the quantile of the replicates at Phi(z0 + z / (1 - a z)), z = z0 + Phi^-1(alpha). Max Skew is biased
    upwards under resampling, so that percentile intervals lie too high; BCa moves them back in part; of disparities
    see `plumbline.statistics.maxima`.

    One rule holds for degenerate cases (docs/decisions/0036-one-bca.md):

    - there is no interval where the value is undefined, where more than 5% of the replicates are (fewer are left out
      and counted in the reason), and where the replicates do not vary;
    - where all replicates lie on one side of the value, z0 is infinite: the interval is the percentile one, z0 = a = 0,
      and the reason says so;
    - where no leave-one-out value varies, a is 0: the interval is the bias-corrected one.

    Parameters
    ----------
    value : (...) float
        The statistic of the data.
    replicates : (..., r) float or int
        The statistic of each resample, r at least 1.
    acceleration : (...) float
        From the jackknife, see `plumbline.statistics.jackknife.Jackknife.acceleration`; nan counts as 0.
    confidence : float
    null : float, optional
        Value to test: two-sided p by inverting the interval, so p <= 0.05 if and only if the 95% interval excludes the
        null, up to the interpolation of quantiles.

    Returns
    -------
    EstimateArray
        p at least 1 / (r + 1), nan without an interval; None without `null`.
    """
    from scipy.special import ndtr, ndtri

    center, accel = np.asarray(value, dtype=np.float64), np.asarray(acceleration, dtype=np.float64)
    drawn = _Replicates(center, replicates)
    below = drawn.share_below(center)
    straddles = (below > 0) & (below < 1)
    bias = ndtri(np.where(straddles, below, 0.5))
    accel = np.where(straddles & ~np.isnan(accel), accel, 0.0)
    shifted = [bias + ndtri(tail) for tail in _tails(confidence)]
    low, high = drawn.quantiles(*(ndtr(bias + z / (1 - accel * z)) for z in shifted))
    p = None
    if null is not None:
        least, share = 0.5 / np.maximum(drawn.kept, 1), drawn.share_below(np.full(center.shape, null))
        shift = ndtri(np.clip(share, least, 1 - least)) - bias
        # Inverse of BCa's map from level to quantile; beyond its pole no level reaches the null value.
        stretch = 1 + accel * shift
        tail = ndtr(-np.abs(np.divide(shift, stretch, out=np.full(shift.shape, np.inf), where=stretch > 0) - bias))
        # The ends are replicates: where none reaches the null value, neither does the interval of any level.
        tail = np.where((share > 0) & (share < 1), tail, 0.0)
        p = np.where(drawn.usable, np.maximum(2 * tail, 1 / (drawn.kept + 1)), np.nan)
    return EstimateArray(center, low, high, p=p, reason=drawn.reasons(one_sided=~straddles))


def bootstrap_t_array(
    value: ArrayLike,
    error: ArrayLike,
    replicates: NDArray[np.float64],
    errors: NDArray[np.float64],
    *,
    units: ArrayLike,
    confidence: float = 0.95,
    null: float | None = None,
) -> EstimateArray:
    """Return the wider ends of bootstrap-t and Student's t intervals (Efron & Tibshirani 1993, 12.5).

    For means of few values, where BCa intervals are too short: the bootstrap-t, value - error × quantiles of the
    resampled t, holds means of skewed values, Student's those of symmetric ones with long tails. A resample of nearly
    equal values has an error near 0 and a t of any size: resampled errors count as at least `LEAST_ERROR` of that of
    the data.

    Parameters
    ----------
    value, error : (...) float
        Statistics of the data and their standard errors.
    replicates, errors : (..., r) float
        Of each resample. No interval where more than 5% are undefined, or where they do not vary, as in `bca_array`.
    units : (...) int
        Independent units, for the degrees of freedom.
    null : float, optional
        Value to test: two-sided p by inverting the interval.
    """
    from scipy.special import stdtr, stdtrit

    center, spread = np.asarray(value, dtype=np.float64), np.asarray(error, dtype=np.float64)
    freedom = np.maximum(np.asarray(units) - 1, 1)
    scale = np.maximum(errors, LEAST_ERROR * spread[..., None])
    pivot = np.divide(
        replicates - center[..., None], scale, out=np.where(np.isnan(replicates), np.nan, 0.0), where=scale > 0
    )
    drawn = _Replicates(center, pivot)
    lower, upper = drawn.quantiles(*(np.full(center.shape, tail) for tail in _tails(confidence)))
    student = stdtrit(freedom, (1 + confidence) / 2)
    low, high = center - spread * np.maximum(upper, student), center - spread * np.minimum(lower, -student)
    p = None
    if null is not None:
        observed = np.divide(center - null, spread, out=np.zeros(center.shape), where=spread > 0)
        below = drawn.share_below(observed)
        resampled = np.maximum(2 * np.minimum(below, 1 - below), 1 / (drawn.kept + 1))
        p = np.where(drawn.usable, np.maximum(resampled, 2 * stdtr(freedom, -np.abs(observed))), np.nan)
    return EstimateArray(center, low, high, p=p, reason=drawn.reasons(one_sided=np.zeros(center.shape, dtype=bool)))


def _tails(confidence: float) -> tuple[float, float]:
    return (1 - confidence) / 2, (1 + confidence) / 2


def percentile(value: float, replicates: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Return a statistic with its percentile bootstrap interval; see `percentile_array`."""
    return percentile_array([value], np.asarray(replicates)[None], confidence=confidence)[0]


def percentile_array(value: ArrayLike, replicates: NDArray[Any], *, confidence: float = 0.95) -> EstimateArray:
    """Return percentile bootstrap intervals of (...) values from (..., r) replicates; undefined as in `bca_array`."""
    center = np.asarray(value, dtype=np.float64)
    drawn = _Replicates(center, replicates)
    low, high = drawn.quantiles(*(np.full(center.shape, tail) for tail in _tails(confidence)))
    return EstimateArray(center, low, high, reason=drawn.reasons(one_sided=np.zeros(center.shape, dtype=bool)))


class _Replicates:
    """The (..., r) replicates of (...) statistics: their order statistics and the shares of them below a number.

    Whole numbers of few kinds, such as counts, are counted, which takes a tenth of the time of sorting them; of others
    the order statistics that are asked for are selected.

    Attributes
    ----------
    kept : (...) int64
        Replicates in which the statistic is defined.
    usable : (...) bool
        Whether there is an interval.
    """

    def __init__(self, value: NDArray[np.float64], replicates: NDArray[Any]) -> None:
        whole = replicates.dtype.kind in "iu"
        self._drawn: NDArray[Any] = replicates if whole else np.asarray(replicates, dtype=np.float64)
        self._value, self._resamples = value, replicates.shape[-1]
        # The undefined ones are passed over.
        first, last = (take.reduce(self._drawn, axis=-1) for take in (np.fmin, np.fmax))
        self.kept = self._resamples - np.isnan(self._drawn).sum(axis=-1)
        self._varies = last - first > _TIE * np.maximum(1.0, np.maximum(np.abs(first), np.abs(last)))
        self._known = self._resamples - self.kept <= MAX_UNDEFINED_SHARE * self._resamples
        self.usable = self._known & self._varies & ~np.isnan(value)
        # How many replicates are at most each of the numbers from the smallest to the largest, (..., kinds).
        self._first, self._reached = 0, None
        if whole and replicates.size:
            self._first = int(first.min())
            if (kinds := int(last.max()) - self._first + 1) <= self._resamples // _FEW_KINDS:
                self._reached = _cumulative_counts(replicates, self._first, kinds)

    def _at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Return the order statistics at (..., q) places, undefined replicates last."""
        if self._reached is not None:
            return self._first + (self._reached[..., None, :] <= places[..., None]).sum(axis=-1)
        values = np.empty(places.shape, dtype=self._drawn.dtype)
        for index in np.ndindex(places.shape[:-1]):
            values[index] = np.partition(self._drawn[index], places[index])[places[index]]
        return values

    def share_below(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of replicates below a number, those that tie with it counted half."""
        slack = _TIE * np.maximum(1.0, np.abs(at))
        if self._reached is None:
            below = (self._drawn < (at - slack)[..., None]).sum(axis=-1)
            not_above = (self._drawn <= (at + slack)[..., None]).sum(axis=-1)
        else:
            below, not_above = self._up_to(np.ceil(at - slack) - 1), self._up_to(np.floor(at + slack))
        return (below + not_above) / (2 * np.maximum(self.kept, 1))

    def _up_to(self, number: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return how many replicates are at most a whole number, which nan has none of."""
        assert self._reached is not None
        kinds = self._reached.shape[-1]
        place = np.clip(np.nan_to_num(number - self._first, nan=-1.0), -1, kinds - 1).astype(np.int64)
        count = np.take_along_axis(self._reached, np.maximum(place, 0)[..., None], axis=-1)[..., 0]
        return np.where(place < 0, 0, count)

    def quantiles(self, *levels: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return linear quantiles at each of the (...) levels, as `numpy.quantile`; nan without an interval."""
        last = np.maximum(self.kept - 1, 0)
        places = [np.where(self.usable, level, 0.0) * last for level in levels]
        lower = [np.floor(place).astype(np.int64) for place in places]
        upper = [np.minimum(each + 1, last) for each in lower]
        values = np.moveaxis(self._at(np.stack([*lower, *upper], axis=-1)), -1, 0)
        return [
            np.where(self.usable, at_lower + (place - below) * (at_upper - at_lower), np.nan)
            for place, below, at_lower, at_upper in zip(places, lower, values, values[len(levels) :])
        ]

    def reasons(self, *, one_sided: NDArray[np.bool_]) -> list[Reasons]:
        """Return the reasons of each interval; an empty list if none has any."""
        resamples = self._resamples
        if (self.usable & ~one_sided & (self.kept == resamples)).all():
            return []

        def of_one(value: float, kept: int, known: bool, varies: bool, one_sided: bool) -> Reasons:
            missing = {"undefined": resamples - kept, "resamples": resamples}
            if np.isnan(value):
                return (reason("estimate_undefined"),)
            if not known:
                return (reason("no_interval_undefined", **missing),)
            if not varies:
                return (reason("constant_resamples"),)
            return joined(
                reason("undefined_resamples", **missing) if kept < resamples else None,
                reason("percentile_interval") if one_sided else None,
            )

        entries = (self._value, self.kept, self._known, self._varies, one_sided)
        return [of_one(*entry) for entry in zip(*(each.ravel().tolist() for each in entries))]


def _cumulative_counts(drawn: NDArray[np.integer], first: int, kinds: int) -> NDArray[np.int64]:
    """Return how many of (..., r) whole numbers are at most first, first + 1 and so on, (..., kinds)."""
    rows = drawn.reshape(-1, drawn.shape[-1])
    counts = np.stack([np.bincount(row - first, minlength=kinds).cumsum() for row in rows])
    return counts.reshape(*drawn.shape[:-1], kinds)
