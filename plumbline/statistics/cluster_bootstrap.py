"""Means and quantiles of values that come in clusters, with bootstrap intervals from whole clusters.

The images of a counterfactual set show one scene with the person changed, and the seeds of an image share that image:
they are not independent. So whole clusters are resampled and left out. An image without a set is a cluster of its own:
give it a code of its own, as `plumbline.statistics.clusters.cluster_codes` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reason, joined, reason
from plumbline.statistics.bootstrap import bit_blocks, weight_blocks
from plumbline.statistics.clusters import FEW_CLUSTERS, cluster_count_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import shares
from plumbline.statistics.intervals import bootstrap_t_array, percentile
from plumbline.statistics.jackknife import standard_errors, t_intervals
from plumbline.statistics.permutation import p_value

FEW_BEYOND = 10
"""With fewer clusters beyond a quantile, `reason` reports it."""
# Half-widths of the bins around a quantile, in half standard deviations of its rank; the outer bins hold the rest.
_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 20, 40])


@dataclass(frozen=True)
class WeightedQuantile:
    """A linear quantile of values that belong to units, under bootstrap weights of the units.

    The values are sorted once and cut into bins, narrow around the quantile. One matrix product counts the bins of
    every draw, and only the bin that holds the draw's quantile is searched value by value: exact, at a hundredth of
    the cost of gathering and sorting the values of every draw.

    Attributes
    ----------
    quantile : float
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

    quantile: float
    values: NDArray[np.float64]
    units: NDArray[np.int64]
    edges: NDArray[np.int64]
    counts: NDArray[np.float32]

    @classmethod
    def from_values(
        cls, values: NDArray[np.float64], units: NDArray[np.int64], *, n_units: int, quantile: float
    ) -> WeightedQuantile:
        """Sort (n,) values of (n,) units, of which there are `n_units`."""
        n = len(values)
        order = np.argsort(values, kind="stable")
        away = np.maximum(1.0, np.sqrt(n) / 4) * np.concatenate([-_WIDTHS[::-1], _WIDTHS])
        edges = np.unique(np.clip(np.round(quantile * (n - 1) + away), 0, n).astype(np.int64))
        edges = np.unique(np.concatenate([[0], edges, [n]]))
        bins = len(edges) - 1
        cell = units[order] * bins + np.repeat(np.arange(bins), np.diff(edges))
        counts = np.bincount(cell, minlength=n_units * bins).reshape(n_units, bins)
        return cls(quantile, values[order], units[order], edges, counts.astype(np.float32))

    def at(self, weights: NDArray[np.float64] | NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the (b,) quantiles, as `numpy.quantile`, under (b, u) weights; nan without values."""
        if not self.values.size:
            return np.full(len(weights), np.nan)
        in_bins = weights.astype(np.float32, copy=False) @ self.counts
        until = np.cumsum(in_bins, axis=1, dtype=np.float64)
        last = np.maximum(until[:, -1], 1) - 1
        place = self.quantile * last
        low = np.floor(place)
        below = self._of_rank(low, weights, until)
        above = self._of_rank(np.minimum(low + 1, last), weights, until)
        return np.where(until[:, -1] > 0, below + (place - low) * (above - below), np.nan)

    def _of_rank(
        self, rank: NDArray[np.float64], weights: NDArray[np.float64] | NDArray[np.float32], until: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the value that has `rank` values before it, (b,)."""
        bins = len(self.edges) - 1
        bin_of = np.minimum((until <= rank[:, None]).sum(axis=1), bins - 1)
        value = np.empty(len(rank))
        for chosen in np.unique(bin_of):
            rows = np.flatnonzero(bin_of == chosen)
            start, end = self.edges[chosen], self.edges[chosen + 1]
            before = until[rows, chosen - 1] if chosen else np.zeros(len(rows))
            inside = np.cumsum(weights[rows[:, None], self.units[start:end]], axis=1)
            within = (inside <= (rank[rows] - before)[:, None]).sum(axis=1)
            value[rows] = self.values[start + np.minimum(within, end - start - 1)]
        return value


class MeanErrors(NamedTuple):
    """Means of k series and their standard errors, (b, k) each; nan where a series has no weight."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]


@dataclass(frozen=True)
class ClusterSeries:
    """Series of values in the same clusters, such as one per group or per scored attribute.

    Attributes
    ----------
    values : k arrays of (n,) float64
    clusters : k arrays of (n,) int64
        Cluster of each value, 0 .. c - 1.
    sums, sizes : (c, k) float64
        Sum and number of the values of each cluster in each series.
    """

    values: tuple[NDArray[np.float64], ...]
    clusters: tuple[NDArray[np.int64], ...]
    sums: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @classmethod
    def from_values(
        cls, values: tuple[NDArray[np.float64], ...], clusters: tuple[NDArray[np.int64], ...], count: int
    ) -> ClusterSeries:
        """Add up values in each of `count` clusters."""
        sums = [np.bincount(codes, weights=series, minlength=count) for series, codes in zip(values, clusters)]
        sizes = [np.bincount(codes, minlength=count) for codes in clusters]
        return cls(values, clusters, np.stack(sums, axis=1), np.stack(sizes, axis=1).astype(np.float64))

    @property
    def n(self) -> NDArray[np.int64]:
        """Return the (k,) number of clusters with a value of each series."""
        return np.count_nonzero(self.sizes, axis=0)

    @property
    def means(self) -> NDArray[np.float64]:
        """Return the (k,) means; nan without values."""
        return shares(self.sums.sum(axis=0), self.sizes.sum(axis=0))

    def weights(self, resamples: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
        """Yield bootstrap weights of the clusters, stratified by series if every cluster has values of one only."""
        held = self.sizes > 0
        strata = held.argmax(axis=1) if (held.sum(axis=1) == 1).all() else None
        return weight_blocks(len(self.sizes), resamples=resamples, rng=rng, strata=strata)

    def resampled_means(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the (b, k) means under (b, c) weights; nan where a series has no weight."""
        return shares(weights @ self.sums, weights @ self.sizes)

    def resampled_errors(self, weights: NDArray[np.float64]) -> MeanErrors:
        """Return the means under (b, c) weights and their linearised standard errors over clusters, (b, k) each."""
        k, size = self.sizes.shape[1], self.sizes
        rest = self.sums - np.where(self.n > 0, self.means, 0.0) * size
        columns = [rest, size, rest**2, rest * size, size**2]
        away, total, squares, mixed, sizes = np.split(weights @ np.hstack(columns), np.arange(k, 5 * k, k), axis=1)
        apart = shares(away, total)
        # Sums of squares of what is left of each cluster about the mean under the weights.
        variance = np.maximum(squares - 2 * apart * mixed + apart**2 * sizes, 0.0)
        return MeanErrors(self.means + apart, shares(np.sqrt(variance), total))

    def mean_estimates(
        self, drawn: Sequence[MeanErrors], *, confidence: float, null: float | None = None
    ) -> list[Estimate]:
        """Return the mean of each series with its bootstrap-t interval from the parts of `resampled_errors`."""
        means, errors = (np.concatenate(parts).T for parts in zip(*drawn))
        undrawn = self.resampled_errors(np.ones((1, len(self.sizes))))
        # Of the variance with one degree of freedom less: in the data as in every resample.
        scale = np.sqrt(self.n / np.maximum(self.n - 1, 1))
        estimates = bootstrap_t_array(
            self.means,
            scale * undrawn.error[0],
            means,
            scale[:, None] * errors,
            units=self.n,
            confidence=confidence,
            null=null,
        )
        return [of_clusters(each, n) for each, n in zip(estimates, self.n.tolist())]

    def quantile_estimates(self, quantile: float, *, confidence: float) -> list[Estimate]:
        """Return a linear quantile of each series with its interval, see `quantile_interval`."""
        estimates = [
            quantile_interval(series, codes, quantile=quantile, confidence=confidence)
            for series, codes in zip(self.values, self.clusters)
        ]
        return [of_clusters(each, n, quantile=quantile) for each, n in zip(estimates, self.n.tolist())]


def quantile_interval(
    values: NDArray[np.float64], clusters: NDArray[np.int64], *, quantile: float, confidence: float
) -> Estimate:
    """Return a linear quantile with Woodruff's interval (1952): the quantiles at level ± t × the error of the share.

    The share of values up to the quantile has a cluster-robust standard error; where several values tie with the
    quantile, the larger of those of the share up to and below it. Of 30 sets it holds 93-96%, where the percentiles of
    resampled quantiles hold 85-89%.

    Parameters
    ----------
    values : (n,) float
    clusters : (n,) int
    """
    if not values.size:
        return undefined()
    value = float(np.quantile(values, quantile))
    if values.min() == values.max():
        return Estimate(value, np.nan, np.nan, reason=(reason("constant_resamples"),))
    shares_of = [values <= value, values < value]
    errors = [standard_errors((hit - hit.mean()) / hit.size, clusters, every_unit=True) for hit in shares_of]
    low, high = t_intervals(
        quantile, max(float(each.error) for each in errors), units=errors[0].units, confidence=confidence
    )
    ends = np.quantile(values, np.clip([low, high], 0, 1)) if errors[0].units > 1 else (np.nan, np.nan)
    return Estimate(value, float(ends[0]), float(ends[1]))


def of_clusters(estimate: Estimate, n: int, *, quantile: float | None = None) -> Estimate:
    """Return an estimate with n clusters and the caveats of so many; `quantile` in [0, 1] if it is of one."""
    if n == 0:
        return undefined()
    if n == 1:
        return replace(estimate, n=n, reason=(reason("one_cluster"),))
    few = cluster_count_reason(n) or _few_beyond(n, quantile)
    if np.isnan(estimate.ci_low) and n >= FEW_CLUSTERS:
        few = None
    return replace(estimate, n=n, reason=joined(few, estimate.reason))


def undefined(why: Reason | None = None, *, n: int = 0, p: float | None = None) -> Estimate:
    """Return an undefined estimate; the default reason is that there are no values."""
    return Estimate(np.nan, np.nan, np.nan, n=n, p=p, reason=(why or reason("no_values"),))


def _few_beyond(clusters: int, quantile: float | None) -> Reason | None:
    """Reason that few clusters lie beyond a quantile, so that an end of its interval is one of the extreme values."""
    beyond = FEW_BEYOND if quantile is None else clusters * min(quantile, 1 - quantile)
    # 100 × (1 - 0.9) is a little less than 10.
    if beyond >= FEW_BEYOND - 1e-9:
        return None
    return reason("few_beyond_quantile", beyond=round(beyond), clusters=clusters)


def checked_values(
    values: ArrayLike, clusters: ArrayLike, *, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (n, k) values and the (n,) codes 0 .. c - 1 of their clusters.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, or there are no resamples.
    """
    columns, codes = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    if codes.ndim != 1 or columns.ndim not in (1, 2) or len(columns) != len(codes) or resamples < 1:
        raise MetricError(
            "values and clusters must describe the same rows, and there must be resamples",
            found=f"values {columns.shape}, clusters {codes.shape}, {resamples} resamples",
            expected="(n,) or (n, k), (n,), at least 1",
        )
    if np.isnan(columns).any():
        raise MetricError(
            "a value is nan",
            found=f"{int(np.isnan(columns).sum())} of {columns.size}",
            hint="leave out what is undefined, and say how many in the reason",
        )
    members = np.unique(codes, return_inverse=True)[1].reshape(-1)
    return columns.reshape(len(codes), columns.shape[1] if columns.ndim == 2 else 1), members


class ClusterSummary(NamedTuple):
    """The mean and a quantile of the same values."""

    mean: Estimate
    quantile: Estimate


def cluster_summaries(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    quantile: float,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[ClusterSummary]:
    """Return the mean and a linear quantile of columns of values.

    The means have bootstrap-t intervals from the same resamples of whole clusters: scores are skewed and sets few, and
    BCa is then too short. For the quantiles see `quantile_interval`.

    Parameters
    ----------
    values : (n,) or (n, k) float
        Such as one per set and seed. Clusters with more values weigh more, in the data and in every resample.
    clusters : (n,) int
        Any codes.
    quantile : float
        In [0, 1]: 0.9 is the 90th percentile.
    resamples : int
        Replicates, at least 1.

    Returns
    -------
    list of ClusterSummary
        One per column; n: clusters. nan without values; no interval with one cluster, or where all values are equal.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, or there are no resamples.
    """
    columns, codes = checked_values(values, clusters, resamples=resamples)
    k = columns.shape[1]
    if not codes.size:
        return [ClusterSummary(undefined(), undefined())] * k
    series = ClusterSeries.from_values(tuple(columns.T), (codes,) * k, int(codes.max()) + 1)
    weights = weight_blocks(len(series.sizes), resamples=resamples, rng=rng)
    means = series.mean_estimates([series.resampled_errors(block) for block in weights], confidence=confidence)
    quantiles = series.quantile_estimates(quantile, confidence=confidence)
    return [ClusterSummary(*pair) for pair in zip(means, quantiles)]


def group_means(
    values: ArrayLike,
    groups: ArrayLike,
    clusters: ArrayLike,
    *,
    n_groups: int,
    resamples: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> list[Estimate]:
    """Return each group's mean with its bootstrap-t interval from whole clusters.

    Parameters
    ----------
    values : (n,) float
    groups : (n,) int
        0 .. n_groups - 1; -1 is in no group and does not count.
    clusters : (n,) int
        Any codes. Where every cluster is of one group, clusters are drawn within groups, else from all.

    Returns
    -------
    list of Estimate
        One per group; n: clusters that hold it.

    Raises
    ------
    MetricError
        If shapes differ, a value is nan, a group is out of range, or there are no resamples.
    """
    series = group_series(values, groups, clusters, n_groups=n_groups, resamples=resamples)
    if not len(series.sizes):
        return [undefined()] * n_groups
    drawn = [series.resampled_errors(weights) for weights in series.weights(resamples, rng)]
    return series.mean_estimates(drawn, confidence=confidence)


def group_quantiles(
    values: ArrayLike,
    groups: ArrayLike,
    clusters: ArrayLike,
    *,
    quantile: float,
    n_groups: int,
    confidence: float = 0.95,
) -> list[Estimate]:
    """Return each group's linear quantile with its interval over clusters, see `quantile_interval`, `group_means`."""
    series = group_series(values, groups, clusters, n_groups=n_groups)
    return series.quantile_estimates(quantile, confidence=confidence)


def group_series(
    values: ArrayLike, groups: ArrayLike, clusters: ArrayLike, *, n_groups: int, resamples: int = 1
) -> ClusterSeries:
    """Check values, groups and clusters, and return one series per group; see `group_means`."""
    columns, _ = checked_values(values, clusters, resamples=resamples)
    codes = np.asarray(groups)
    if codes.shape != (len(columns),) or (codes.size and not -1 <= codes.min() <= codes.max() < n_groups):
        raise MetricError(
            "every value must have a group, or -1",
            found=f"{codes.shape} for {len(columns)} values, of {n_groups} groups",
            expected="(n,) codes from -1 to n_groups - 1",
        )
    used = codes >= 0
    kept, codes = columns[used, 0], codes[used]
    cluster_codes = np.unique(np.asarray(clusters)[used], return_inverse=True)[1].reshape(-1)
    members = [np.flatnonzero(codes == group) for group in range(n_groups)]
    count = int(cluster_codes.max(initial=-1)) + 1
    return ClusterSeries.from_values(tuple(kept[m] for m in members), tuple(cluster_codes[m] for m in members), count)


# --- The change of a mean or quantile between two conditions of the same clusters.

_SIDES: tuple[Literal["less", "greater"], ...] = ("less", "greater")


def paired_cluster_changes(
    before: ArrayLike,
    after: ArrayLike,
    clusters: ArrayLike,
    *,
    quantile: float | None,
    resamples: int,
    permutations: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
) -> Estimate:
    """Return the change of a mean or quantile between two conditions of the same clusters.

    Parameters
    ----------
    before, after : (n,) float
        Pairs, such as one per set and seed.
    clusters : (n,) int
    quantile : float or None
        None: mean(after) - mean(before), with a bootstrap-t interval. Else quantile(after) - quantile(before), both
        linear and each over all pairs (not a quantile of the pairs' changes), with a percentile interval.
    permutations : int
        Of the test: each swaps before and after in a random half of the clusters (all values of a cluster together),
        which is exact under "the condition changes nothing".

    Returns
    -------
    Estimate
        Positive: higher after; n: clusters. p (two-sided) is the maximum of the permutation p and the p from inverting
        the interval: for a quantile the test alone may reject because something else has changed. Where it does not
        reject, the interval reaches 0.

    Raises
    ------
    MetricError
        As `plumbline.statistics.cluster_bootstrap.cluster_summaries`; or if there are no permutations.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (before, after)]
    if sides[0].shape != sides[1].shape or sides[0].ndim != 1 or permutations < 1:
        raise MetricError(
            "a paired change needs pairs, and a permutation",
            found=f"{sides[0].shape}, {sides[1].shape}, {permutations} permutations",
            expected="(n,), (n,), at least 1",
        )
    pairs, codes = checked_values(np.stack(sides, axis=1), clusters, resamples=resamples)
    if not codes.size:
        return undefined(p=np.nan)
    count = int(codes.max()) + 1
    weights = weight_blocks(count, resamples=resamples, rng=rng)
    bits = bit_blocks(count, draws=permutations, rng=rng)
    if quantile is None:
        changes = ClusterSeries.from_values((pairs[:, 1] - pairs[:, 0],), (codes,), count)
        drawn = [changes.resampled_errors(block) for block in weights]
        swapped = np.concatenate([(2 * block - 1) @ changes.sums[:, 0] for block in bits]) / len(pairs)
        estimate = changes.mean_estimates(drawn, confidence=confidence, null=0.0)[0]
        reaches_zero = estimate.p
    else:
        first, second = (
            WeightedQuantile.from_values(side, codes, n_units=count, quantile=quantile) for side in pairs.T
        )
        replicates = np.concatenate([second.at(block) - first.at(block) for block in weights])
        # Each side of a cluster is its own unit: a bit chooses which of the two counts as "before".
        pooled = WeightedQuantile.from_values(
            pairs.T.ravel(), np.concatenate([codes, codes + count]), n_units=2 * count, quantile=quantile
        )
        swapped = np.concatenate([pooled.at(np.hstack([b, 1 - b])) - pooled.at(np.hstack([1 - b, b])) for b in bits])
        value = float(np.quantile(pairs[:, 1], quantile) - np.quantile(pairs[:, 0], quantile))
        estimate = of_clusters(percentile(value, replicates, confidence=confidence), count, quantile=quantile)
        reaches_zero = min(1.0, 2 * min(p_value(0.0, replicates, alternative=side) for side in _SIDES))
    p = float(np.nanmax([p_value(abs(estimate.value), np.abs(swapped)), reaches_zero]))
    low, high = estimate.ci_low, estimate.ci_high
    if p > 1 - confidence and (low > 0 or high < 0):
        reaches = joined(estimate.reason, reason("reaches_no_change"))
        return replace(estimate, ci_low=min(low, 0.0), ci_high=max(high, 0.0), p=p, reason=reaches)
    return replace(estimate, p=p)
