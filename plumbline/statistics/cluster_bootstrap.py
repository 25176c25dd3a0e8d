"""Means and quantiles of values that come in clusters, with intervals from whole clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reason, Reasons
from plumbline.reasons import joined as all_reasons
from plumbline.statistics.bootstrap import Jackknife, bootstrap_weights, random_bits
from plumbline.statistics.clusters import FEW_CLUSTERS, few_clusters
from plumbline.statistics.counts import shares
from plumbline.statistics.intervals import Interval, bca, percentile
from plumbline.statistics.reasons import joined

# Numbers of times that exist at once: 16 MB, whatever the number of sets and resamples.
_AT_ONCE = 2_000_000
# Half-widths of the bins around a quantile, in half standard deviations of its rank; beyond lies all the rest.
_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 20, 40])


def weight_blocks(
    sets: int, *, resamples: int, rng: np.random.Generator, strata: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.float64]]:
    """Yield, in blocks, how often each set is drawn when as many sets as there are are drawn with replacement.

    Parameters
    ----------
    sets : int
        At least 1.
    strata : (sets,) int, optional
        Sets are drawn within their stratum, each of which keeps its size.

    Yields
    ------
    (b, sets) float64
        Whole numbers; the blocks have `resamples` rows in all.
    """
    parts = [np.arange(sets)] if strata is None else [np.flatnonzero(strata == s) for s in np.unique(strata)]
    step = max(1, _AT_ONCE // sets)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        times = np.empty((rows, sets))
        for part in parts:
            times[:, part] = bootstrap_weights(rows, len(part), rng=rng)
        yield times


def bit_blocks(units: int, *, draws: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yield (b, units) zeros and ones, each with probability ½, in blocks of `draws` rows in all."""
    step = max(1, _AT_ONCE // units)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        yield random_bits(rows, units, rng=rng).astype(np.float64)


@dataclass(frozen=True)
class WeightedQuantile:
    """A linear quantile of values that belong to units, when units count several times, or not at all.

    The values are sorted once and cut into bins, narrow where the quantile is. One matrix product counts the bins of
    every draw, and only the bin that holds the draw's quantile is looked at value by value: exact, and a hundredth of
    the work of gathering and sorting the values of every draw.

    Attributes
    ----------
    share : float
        In [0, 1]: 0.9 is the 90th percentile.
    values : (n,) float64
        Sorted.
    units : (n,) int64
        Unit of each.
    edges : (k + 1,) int64
        Where bins begin and end.
    counts : (u, k) float32
        Values of each unit in each bin; whole numbers, whose sums below 2^24 are exact.
    """

    share: float
    values: NDArray[np.float64]
    units: NDArray[np.int64]
    edges: NDArray[np.int64]
    counts: NDArray[np.float32]

    @classmethod
    def of(
        cls, values: NDArray[np.float64], units: NDArray[np.int64], *, n_units: int, share: float
    ) -> WeightedQuantile:
        """Sort (n,) values of (n,) units, of which there are `n_units`; n is at least 1."""
        n = len(values)
        order = np.argsort(values, kind="stable")
        away = np.maximum(1.0, np.sqrt(n) / 4) * np.concatenate([-_WIDTHS[::-1], _WIDTHS])
        edges = np.unique(np.clip(np.round(share * (n - 1) + away), 0, n).astype(np.int64))
        edges = np.unique(np.concatenate([[0], edges, [n]]))
        bins = len(edges) - 1
        cell = units[order] * bins + np.repeat(np.arange(bins), np.diff(edges))
        counts = np.bincount(cell, minlength=n_units * bins).reshape(n_units, bins)
        return cls(share, values[order], units[order], edges, counts.astype(np.float32))

    def at(self, times: NDArray[np.float64] | NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the (b,) quantiles, as `numpy.quantile`, when units count (b, u) times; nan without values."""
        counted = times.astype(np.float32, copy=False) @ self.counts
        upto = np.cumsum(counted, axis=1, dtype=np.float64)
        last = np.maximum(upto[:, -1], 1) - 1
        place = self.share * last
        low = np.floor(place)
        below = self._of_rank(low, times, upto)
        above = self._of_rank(np.minimum(low + 1, last), times, upto)
        found = below + (place - low) * (above - below)
        return np.where(upto[:, -1] > 0, found, np.nan)

    def _of_rank(
        self,
        rank: NDArray[np.float64],
        times: NDArray[np.float64] | NDArray[np.float32],
        upto: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the value that has `rank` values before it, (b,)."""
        bins = len(self.edges) - 1
        own = np.minimum((upto <= rank[:, None]).sum(axis=1), bins - 1)
        found = np.empty(len(rank))
        for chosen in np.unique(own):
            rows = np.flatnonzero(own == chosen)
            start, end = self.edges[chosen], self.edges[chosen + 1]
            before = upto[rows, chosen - 1] if chosen else np.zeros(len(rows))
            inside = np.cumsum(times[rows[:, None], self.units[start:end]], axis=1)
            within = (inside <= (rank[rows] - before)[:, None]).sum(axis=1)
            found[rows] = self.values[start + np.minimum(within, end - start - 1)]
        return found


# --- A number of values that come in sets, with everything that a metric row says about it.

NO_VALUES = "undefined: no values"
ONE_SET = "no interval: only one set"
FEW_BEYOND = 10
"""Sets beyond a quantile: fewer are said."""


@dataclass(frozen=True)
class SetEstimate:
    """A number of values that come in sets.

    Attributes
    ----------
    value, ci_low, ci_high : float
        nan where undefined.
    n : int
        Sets behind it.
    p : float or None
        None where nothing was tested, nan where it could not be.
    reason : str or None
        Why something is undefined, or what to know about the interval.
    """

    value: float
    ci_low: float
    ci_high: float
    n: int
    p: float | None
    reason: str | Reasons | None

    def columns(self, *reasons: Reason | Reasons | str | None) -> dict[str, object]:
        """Return the columns of a metric row; the given reasons come before its own."""
        return {
            "value": self.value,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "p": self.p,
            "n": self.n,
            "reason": all_reasons(*reasons, self.reason),
        }


def estimated(
    value: float, interval: Interval, *, n: int, p: float | None = None, share: float | None = None
) -> SetEstimate:
    """Return an estimate from `n` sets that says what there is to know about its interval; `share` of a quantile."""
    few = few_clusters(n) or _few_beyond(n, share)
    reasons = (
        [ONE_SET]
        if n == 1
        else [None if np.isnan(interval.low) and n >= FEW_CLUSTERS else few, interval.reason]
    )
    return SetEstimate(value, interval.low, interval.high, n, p, joined(*reasons))


def _few_beyond(sets: int, share: float | None) -> str | None:
    """Say that few sets lie beyond a quantile: an end of its interval is then one of the outermost values."""
    beyond = FEW_BEYOND if share is None else sets * min(share, 1 - share)
    # 100 × (1 - 0.9) is a little less than 10.
    if beyond >= FEW_BEYOND - 1e-9:
        return None
    return f"interval of a quantile with only about {beyond:.0f} of {sets} sets beyond it"


def undefined(reason: str = NO_VALUES, *, n: int = 0, p: float | None = None) -> SetEstimate:
    """Return an estimate of which there is none."""
    return SetEstimate(float("nan"), float("nan"), float("nan"), n, p, reason)


def sums_and_sizes(
    values: NDArray[np.float64], own: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the (s,) sum and number of the values of each set, which `own` names for each of (n,) values."""
    return np.bincount(own, weights=values).astype(np.float64), np.bincount(own).astype(np.float64)


def mean_acceleration(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    """Return BCa's acceleration of a mean from the (s,) sums and sizes of its sets, each left out once."""
    left = sizes.sum() - sizes
    values = shares(sums.sum() - sums, left)
    return Jackknife.of_units(values).acceleration


def checked_values(
    values: ArrayLike, sets: ArrayLike, *, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (n, k) values and the (n,) codes 0 .. sets - 1 of their sets.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, or there are no resamples.
    """
    columns, codes = np.asarray(values, dtype=np.float64), np.asarray(sets)
    if codes.ndim != 1 or columns.ndim not in (1, 2) or len(columns) != len(codes) or resamples < 1:
        raise MetricError(
            "values and sets must describe the same rows, and there must be resamples",
            found=f"values {columns.shape}, sets {codes.shape}, {resamples} resamples",
            expected="(n,) or (n, k), (n,), at least 1",
        )
    if np.isnan(columns).any():
        raise MetricError(
            "a value is nan",
            found=f"{int(np.isnan(columns).sum())} of {columns.size}",
            hint="leave out what is undefined, and say how many in the reason",
        )
    own = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return columns.reshape(len(codes), columns.shape[1] if columns.ndim == 2 else 1), own


# --- Means, quantiles, changes and gaps of numbers that come in sets, with intervals and tests by whole
# sets.
#
# The images of a counterfactual set show one scene with the person changed, and the three seeds of an
# image one image: none of them are independent. What is drawn, left out and swapped is therefore always a
# whole set. An image without a set is a set of its own: give it a code of its own, as
# `plumbline.statistics.clusters.cluster_codes` does.


class ClusterSummary(NamedTuple):
    """The mean and a quantile of the same values."""

    mean: SetEstimate
    quantile: SetEstimate


def cluster_mean(
    values: ArrayLike, sets: ArrayLike, *, resamples: int, rng: np.random.Generator, confidence: float = 0.95
) -> SetEstimate:
    """Return the mean of values with its BCa interval by whole sets.

    Parameters
    ----------
    values : (n,) float
        Such as one a set and seed. Sets with more values weigh more, in the mean and in every resample.
    sets : (n,) int
        Any codes.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    SetEstimate
        nan without values; no interval with one set, or where no value differs.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, or there are no resamples.
    """
    columns, own = checked_values(values, sets, resamples=resamples)
    if not own.size:
        return undefined(NO_VALUES)
    sums, sizes = sums_and_sizes(columns[:, 0], own)
    draws = weight_blocks(len(sizes), resamples=resamples, rng=rng)
    replicates = np.concatenate([(times @ sums) / (times @ sizes) for times in draws])
    mean = float(columns[:, 0].mean())
    interval = bca(mean, replicates, acceleration=mean_acceleration(sums, sizes), confidence=confidence)
    return estimated(mean, interval, n=len(sizes))


def cluster_quantile(
    values: ArrayLike,
    sets: ArrayLike,
    *,
    share: float,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> SetEstimate:
    """Return a linear quantile of values with its percentile interval by whole sets; see `cluster_mean`.

    BCa's acceleration comes from the jackknife, which is inconsistent for quantiles (Efron 1982, 3.4); the percentile
    interval holds its level for them.

    Parameters
    ----------
    share : float
        In [0, 1]: 0.9 is the 90th percentile.
    """
    found = cluster_summaries(values, sets, share=share, resamples=resamples, rng=rng, confidence=confidence)
    return found[0].quantile


def cluster_summaries(
    values: ArrayLike,
    sets: ArrayLike,
    *,
    share: float,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[ClusterSummary]:
    """Return the mean and a quantile of several columns of the same sets, in the same draws; see `cluster_mean`.

    Drawing costs more than the statistics do, so what belongs to the same sets is best asked for at once.

    Parameters
    ----------
    values : (n,) or (n, k) float

    Returns
    -------
    list of ClusterSummary
        One a column.
    """
    columns, own = checked_values(values, sets, resamples=resamples)
    if not own.size:
        return [ClusterSummary(undefined(NO_VALUES), undefined(NO_VALUES)) for _ in columns.T]
    sizes = np.bincount(own).astype(np.float64)
    sums = np.stack([np.bincount(own, weights=column) for column in columns.T], axis=1)
    in_order = [WeightedQuantile.of(column, own, n_units=len(sizes), share=share) for column in columns.T]
    means, quantiles = [], []
    for times in weight_blocks(len(sizes), resamples=resamples, rng=rng):
        means.append((times @ sums) / (times @ sizes)[:, None])
        quantiles.append(np.stack([column.at(times) for column in in_order], axis=1))
    found = []
    drawn = zip(columns.T, np.concatenate(means).T, np.concatenate(quantiles).T, sums.T)
    for column, of_mean, of_quantile, sums_of in drawn:
        mean, n = float(column.mean()), len(sizes)
        interval = bca(mean, of_mean, acceleration=mean_acceleration(sums_of, sizes), confidence=confidence)
        spread = percentile(of_quantile, confidence=confidence)
        quantile = float(np.quantile(column, share))
        found.append(
            ClusterSummary(estimated(mean, interval, n=n), estimated(quantile, spread, n=n, share=share))
        )
    return found


# --- Means and quantiles of each group of values that come in sets.


@dataclass(frozen=True)
class GroupedValues:
    """Values of groups, by set.

    Attributes
    ----------
    values : (n,) float64
    groups, sets : (n,) int64
        Of values in a group; sets are 0 .. s - 1.
    sums, sizes : (s, g) float64
    """

    values: NDArray[np.float64]
    groups: NDArray[np.int64]
    sets: NDArray[np.int64]
    sums: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @property
    def strata(self) -> NDArray[np.int64] | None:
        """Return the (s,) group of each set where every set is of one, within which sets are drawn; else None."""
        held = self.sizes > 0
        return held.argmax(axis=1) if (held.sum(axis=1) == 1).all() else None

    def draws(self, resamples: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
        """Yield how often each set is drawn, in blocks."""
        return weight_blocks(len(self.sizes), resamples=resamples, rng=rng, strata=self.strata)


def group_means(
    values: ArrayLike,
    groups: ArrayLike,
    sets: ArrayLike,
    *,
    n_groups: int,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[SetEstimate]:
    """Return each group's mean with its BCa interval by whole sets.

    Parameters
    ----------
    values : (n,) float
    groups : (n,) int
        0 .. n_groups - 1; -1 is in no group and does not count.
    sets : (n,) int
        Any codes. Where every set is of one group, sets are drawn within groups, else from all.

    Returns
    -------
    list of SetEstimate
        One a group; n: sets that hold it.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, a group is out of range, or there are no resamples.
    """
    data = grouped_values(values, groups, sets, n_groups=n_groups, resamples=resamples)
    if not data.values.size:
        return [undefined(NO_VALUES) for _ in range(n_groups)]
    replicates = resampled_means(data, resamples, rng)
    left_out = shares(data.sums.sum(axis=0) - data.sums, data.sizes.sum(axis=0) - data.sizes)
    means = shares(data.sums.sum(axis=0), data.sizes.sum(axis=0))
    found = []
    for group, mean in enumerate(means):
        holding = data.sizes[:, group] > 0
        if not holding.any():
            found.append(undefined(NO_VALUES))
            continue
        # Sets without the group take no part in its mean.
        acceleration = Jackknife.of_units(left_out[holding, group]).acceleration
        interval = bca(float(mean), replicates[:, group], acceleration=acceleration, confidence=confidence)
        found.append(estimated(float(mean), interval, n=int(holding.sum())))
    return found


def group_quantiles(
    values: ArrayLike,
    groups: ArrayLike,
    sets: ArrayLike,
    *,
    share: float,
    n_groups: int,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[SetEstimate]:
    """Return each group's linear quantile with its percentile interval by whole sets; see `group_means`."""
    data = grouped_values(values, groups, sets, n_groups=n_groups, resamples=resamples)
    members = [np.flatnonzero(data.groups == group) for group in range(n_groups)]
    present = [group for group in range(n_groups) if members[group].size]
    in_order = [
        WeightedQuantile.of(
            data.values[members[g]], data.sets[members[g]], n_units=len(data.sizes), share=share
        )
        for g in present
    ]
    # Whole numbers far below 2^24: one conversion for all groups.
    draws = (times.astype(np.float32) for times in (data.draws(resamples, rng) if present else ()))
    blocks = [np.stack([column.at(times) for column in in_order], axis=1) for times in draws]
    found = [undefined(NO_VALUES) for _ in range(n_groups)]
    for place, group in enumerate(present):
        interval = percentile(np.concatenate([block[:, place] for block in blocks]), confidence=confidence)
        value = float(np.quantile(data.values[members[group]], share))
        found[group] = estimated(value, interval, n=int((data.sizes[:, group] > 0).sum()), share=share)
    return found


def resampled_means(data: GroupedValues, resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (resamples, g) means in draws of whole sets."""
    return np.concatenate(
        [shares(times @ data.sums, times @ data.sizes) for times in data.draws(resamples, rng)]
    )


def grouped_values(
    values: ArrayLike, groups: ArrayLike, sets: ArrayLike, *, n_groups: int, resamples: int
) -> GroupedValues:
    """Check values, groups and sets, and add up each group's values in each set; see `group_means`."""
    columns, _ = checked_values(values, sets, resamples=resamples)
    codes = np.asarray(groups)
    if codes.shape != (len(columns),) or (codes.size and not -1 <= codes.min() <= codes.max() < n_groups):
        raise MetricError(
            "every value must have a group, or -1",
            found=f"{codes.shape} for {len(columns)} values, of {n_groups} groups",
            expected="(n,) codes from -1 to n_groups - 1",
        )
    used = codes >= 0
    kept, own = columns[used, 0], np.unique(np.asarray(sets)[used], return_inverse=True)[1].reshape(-1)
    codes = codes[used].astype(np.int64)
    count = int(own.max(initial=-1)) + 1
    cell, shape = own * n_groups + codes, (count, n_groups)
    sums = np.bincount(cell, weights=kept, minlength=count * n_groups).reshape(shape)
    sizes = np.bincount(cell, minlength=count * n_groups).reshape(shape)
    return GroupedValues(kept, codes, own, sums.astype(np.float64), sizes.astype(np.float64))
