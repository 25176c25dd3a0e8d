"""How unequally an event falls on groups: Max Skew, parity difference, impact ratio; definition, inference, rows.

Source: Al Sahili et al., "Data Matters Most", section 3.4. All are functions of counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row
from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite
from plumbline.errors import MetricError
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.inputs import counted, draw_settings
from plumbline.reasons import Reason, Reasons, empty_groups_reason, joined, reason, small_groups_reason
from plumbline.statistics.bootstrap import TableStatistic, jackknife_tables, resample_tables
from plumbline.statistics.cluster_permutation import ClusterPermutation
from plumbline.statistics.clusters import cluster_tables, few_clusters_reason, jackknife_clusters, resample_clusters
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.groups import Groups, count_table, shares
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.maxima import Disparity, LevelErrors, Levels, Scale, estimate_disparity, level_errors
from plumbline.statistics.permutation import permute_tables
from plumbline.statistics.power import COLUMNS, Alternatives, detectable_value, value_at
from plumbline.statistics.seeds import generator

_NETWORK = 32
"""More groups than that are sorted by numpy."""

FOUR_FIFTHS = 0.8
"""Impact ratios below this are flagged by the four-fifths rule (29 CFR 1607.4 D), a screening heuristic."""

# --- Definitions.


@dataclass(frozen=True)
class MaxSkew:
    """Relative gap between groups: by default the mean over all pairs, see `max_skew`.

    Attributes
    ----------
    value : float
        At least 0; 0 is parity. Of two groups, 0.5 is "50% more often". nan if no pair is defined.
    per_event : (e,) float64
        The same for each event alone.
    pairs : (p,) or (e, p) float64
        Gap of every unordered pair, nan where undefined; like the input, with or without an axis of events.
    pair_index : (p, 2) int64
        The two groups of each pair.
    reason : tuple of Reason
        Says that pairs are undefined, where some are.
    """

    value: float
    per_event: NDArray[np.float64]
    pairs: NDArray[np.float64]
    pair_index: NDArray[np.int64]
    reason: Reasons

    @property
    def undefined_pairs(self) -> int:
        """Return the number of event × pair cells without a defined gap."""
        return int(np.isnan(self.pairs).sum())


@overload
def max_skew(
    event_counts: ArrayLike,
    group_totals: ArrayLike | None = None,
    *,
    groups: Any = None,
    event: Collection[Any] | str | None = None,
    over_pairs: Literal["mean", "max"] = "mean",
    smoothing: float | None = None,
    interval: Literal[False] = False,
    seed: int | np.random.Generator = 0,
) -> MaxSkew: ...
@overload
def max_skew(
    event_counts: ArrayLike,
    group_totals: ArrayLike | None = None,
    *,
    groups: Any = None,
    event: Collection[Any] | str | None = None,
    over_pairs: Literal["mean", "max"] = "mean",
    smoothing: float | None = None,
    interval: Literal[True] | MetricSettings,
    seed: int | np.random.Generator = 0,
) -> Estimate: ...
def max_skew(
    event_counts: ArrayLike,
    group_totals: ArrayLike | None = None,
    *,
    groups: Any = None,
    event: Collection[Any] | str | None = None,
    over_pairs: Literal["mean", "max"] = "mean",
    smoothing: float | None = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> MaxSkew | Estimate:
    """Return the relative gap of selection rates between groups (Data Matters Most, section 3.4).

    Mean over pairs of groups of the larger relative gap; the paper calls it mean max skew.
    S_AB(E) = max(|p_A - p_B| / p_B, |p_B - p_A| / p_A), averaged over the defined event × pair cells. 12%
    against 8% gives 0.5.

    Parameters
    ----------
    event_counts : (g,) or (e, g) int, or (n,) predictions
        Images of each group whose top-1 is in the event; one row per event. Or what was predicted of each image.
    group_totals : (g,) int
        Images of each group; not with predictions.
    groups, event : (n,) labels, and predictions, optional
        With predictions: the group of each image, and which predictions are the event, where they are not true or
        false already; see `plumbline.metrics.inputs.counted`.
    over_pairs : {"mean", "max"}
        "mean" is the paper's mean max skew; "max" takes an event's largest pair (then the mean over events).
    smoothing : float, optional
        With 0.5, rates are (x + ½) / (n + 1): defined where a group has no event. In general
        (x + s) / (n + 2s).
    interval : bool or MetricSettings
        Whether to compute interval and p, by resampling images within groups and permuting group labels. Settings in
        place of True set the number of draws and the confidence; their seed is not used.
    seed : int or Generator
        Of resampling and permutations.

    Returns
    -------
    MaxSkew, or with `interval` an Estimate
        A pair with p = 0 in exactly one group, or with an empty group (also when smoothed), is undefined:
        nan, counted, and left out. Both zero: gap 0, unless one group alone has the event: then no pair is defined,
        since those of the others would read as parity.

    Notes
    -----
    The gap cannot be negative, so chance alone makes it positive: two groups with equal true rates measure above
    0. Interval and p take this into account, see `plumbline.statistics.estimate_disparity`.

    Raises
    ------
    MetricError
        If there are fewer than two groups, a count is outside 0 .. n, a parameter is unknown, or an interval is asked
        for of several events: counts do not say which images they share.

    Examples
    --------
    >>> import plumbline
    >>> plumbline.max_skew([12, 8], [100, 100]).value
    0.5
    >>> skew = plumbline.max_skew([60, 30], [200, 200], interval=True, seed=1)
    >>> skew.value, round(skew.ci_low, 1), round(skew.ci_high, 1), skew.p < 0.001
    (1.0, 0.3, 2.0, True)
    """
    counts, totals = checked_counts(*counted(event_counts, group_totals, groups=groups, event=event), least_groups=2)
    if over_pairs not in ("mean", "max") or (smoothing is not None and not smoothing > 0):
        raise MetricError(
            "Max Skew has no such variant",
            found=f"over_pairs={over_pairs!r}, smoothing={smoothing!r}",
            expected='over_pairs "mean" or "max"; smoothing None or positive',
        )
    variant = {"over_pairs": over_pairs, "smoothing": smoothing or 0.0}
    index = np.stack(np.triu_indices(len(totals), k=1), axis=1)
    pairs = skew_values(counts[..., index], totals[index], **variant)  # type: ignore[arg-type]
    if not smoothing:
        pairs = np.where(((counts > 0).sum(axis=-1) == 1)[..., None], np.nan, pairs)
    why = joined(undefined_pairs_reason(int(np.isnan(pairs).sum()), pairs.size))
    if interval is not False:
        over: Literal["pairs", "strata"] = "pairs" if over_pairs == "mean" else "strata"
        skew = Statistic("max_skew", over_pairs, _skew(**variant), over, "relative", pairs=not smoothing)  # type: ignore[arg-type]
        estimate = estimate_of_counts(skew, counts, totals, draw_settings(interval, seed))
        return replace(estimate, reason=(*why, *estimate.reason))
    sums = skew_sums(np.atleast_2d(counts), totals, **variant)  # type: ignore[arg-type]
    return MaxSkew(
        value=float(shares(sums.total.sum(), sums.cells.sum())),
        per_event=shares(*sums),
        pairs=pairs,
        pair_index=index,
        reason=why,
    )


class SkewSums(NamedTuple):
    """Max Skew as a sum over pairs of groups, for many tables.

    Attributes
    ----------
    total : (...) float64
        Sum of the gaps of the defined pairs (for "max": the largest).
    cells : (...) int64
        How many there are (for "max": 0 or 1).
    """

    total: NDArray[np.float64]
    cells: NDArray[np.int64]


def skew_sums(
    event_counts: NDArray[Any], group_totals: NDArray[Any], *, over_pairs: str = "mean", smoothing: float = 0.0
) -> SkewSums:
    """Return Max Skew as sum and number of defined cells, for many tables at once.

    The relative gap of two rates is larger / smaller - 1, so that over sorted rates all pairs of a group
    take one running sum of 1 / rate: g log g instead of g² for each replicate.

    Parameters
    ----------
    event_counts, group_totals : (..., g), broadcastable
        Replicates of the counts.
    """
    counts, totals = np.broadcast_arrays(event_counts, group_totals)
    # Groups first and contiguous: every step below then runs along the replicates.
    x, n = (np.ascontiguousarray(np.moveaxis(a, -1, 0)) for a in (counts, totals))
    # No rate is 0 or undefined in most tables: nothing is left out.
    every = n.min(initial=1) > 0 and (smoothing > 0 or x.min(initial=1) > 0)
    if every:
        rates = (x + smoothing) / (n + 2 * smoothing) if smoothing else x / n
        positive: Any = len(rates)
        cells = np.full(rates.shape[1:], positive * (positive - 1) // 2)
    else:
        rates = shares(x + smoothing, n + 2 * smoothing, empty=n == 0)
        zero, positive = (rates == 0).sum(axis=0), (rates > 0).sum(axis=0)
        # Where one group alone has the event nothing is known of it, and pairs of the others would read as parity.
        cells = np.where(positive == 1, 0, zero * (zero - 1) // 2 + positive * (positive - 1) // 2)
        # A rate of 0, and one of no image, which is nan, are in no pair.
        rates = np.where(rates > 0, rates, 0.0)
    if over_pairs == "max":
        least = (rates if every else np.where(rates > 0, rates, np.inf)).min(axis=0)
        gap = np.maximum(rates.max(axis=0) * (1.0 / least) - 1, 0.0)
        return SkewSums(np.where(positive > 1, gap, 0.0), (cells > 0).astype(np.int64))
    ratios, smaller = np.zeros(rates.shape[1:]), np.zeros(rates.shape[1:])
    for rate in sorted_groups(rates):
        ratios += rate * smaller
        smaller += 1.0 / rate if every else np.divide(1.0, rate, out=np.zeros_like(rate), where=rate > 0)
    # Equal rates can leave a rounding error below parity, which would not tie with an exact 0.
    return SkewSums(np.maximum(ratios - positive * (positive - 1) // 2, 0.0), cells)


def sorted_groups(rates: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return (g, ...) numbers in ascending order along the first axis: a network for many replicates of few groups.

    Odd-even merge sort (Batcher 1968; Knuth, The Art of Computer Programming 3, 5.3.4): every step runs along the
    replicates, half the time of `numpy.sort` for fourteen groups, a thirtieth for two.
    """
    if len(rates) > _NETWORK:
        return list(np.sort(rates, axis=0))
    rows = list(rates)
    for i, j in _comparisons(len(rows)):
        rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
    return rows


@cache
def _comparisons(n: int) -> tuple[tuple[int, int], ...]:
    """Return which places a network of n numbers compares, one after the other."""
    places = []
    merged = 1
    while merged < n:
        apart = merged
        while apart:
            for start in range(apart % merged, n - apart, 2 * apart):
                for i in range(start, min(start + apart, n - apart)):
                    if i // (2 * merged) == (i + apart) // (2 * merged):
                        places.append((i, i + apart))
            apart //= 2
        merged *= 2
    return tuple(places)


def skew_values(
    event_counts: NDArray[Any], group_totals: NDArray[Any], *, over_pairs: str = "mean", smoothing: float = 0.0
) -> NDArray[np.float64]:
    """Return Max Skew of one event for many tables at once, (..., g) to (...); nan where undefined."""
    total, cells = skew_sums(event_counts, group_totals, over_pairs=over_pairs, smoothing=smoothing)
    return shares(total, cells)


def undefined_pairs_reason(undefined: int, pairs: int) -> Reason | None:
    """Return the reason that pairs of groups have no defined gap, if some have none."""
    return reason("undefined_pairs", undefined=undefined, pairs=pairs) if undefined else None


def parity_difference(
    event_counts: ArrayLike,
    group_totals: ArrayLike | None = None,
    *,
    groups: Any = None,
    event: Collection[Any] | str | None = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> Estimate | EstimateArray:
    """Return the demographic-parity difference max p - min p over groups.

    Parameters
    ----------
    event_counts, group_totals, groups, event, interval, seed : as in `max_skew`

    Returns
    -------
    Estimate or EstimateArray
        One event, or (e,). In [0, 1], 0 is parity; an interval where it is asked for. Empty groups are left
        out and named in `reason`; nan with fewer than two others.

    Examples
    --------
    >>> import plumbline
    >>> round(plumbline.parity_difference([30, 10], [100, 100]).value, 2)
    0.2
    >>> found = plumbline.parity_difference([30, 10], [100, 100], interval=True, seed=1)
    >>> found.ci_low > 0, found.p < 0.01
    (True, True)
    """
    counts, totals = checked_counts(*counted(event_counts, group_totals, groups=groups, event=event), least_groups=2)
    if interval is not False:
        return estimate_of_counts(PARITY, counts, totals, draw_settings(interval, seed))
    return _per_event(counts, totals, batched_parity_difference, lambda _: joined(empty_groups_reason(totals)))


def batched_parity_difference(event_counts: NDArray[Any], group_totals: NDArray[Any]) -> NDArray[np.float64]:
    """Return max p - min p for many tables at once, (..., g) to (...); empty groups are left out."""
    low, high, groups = _rate_range(event_counts, group_totals)
    return np.where(groups > 1, high - low, np.nan)


def impact_ratio(
    event_counts: ArrayLike,
    group_totals: ArrayLike | None = None,
    *,
    groups: Any = None,
    event: Collection[Any] | str | None = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> Estimate | EstimateArray:
    """Return the impact ratio min p / max p over groups.

    Parameters
    ----------
    event_counts, group_totals, groups, event, interval, seed : as in `max_skew`

    Returns
    -------
    Estimate or EstimateArray
        One event, or (e,). In [0, 1], 1 is parity; an interval where it is asked for; `reason` says "below four fifths"
        under 0.8. The four-fifths rule is about favourable outcomes such as hiring; for a harmful event it only flags
        rows to look at. nan if the event never happens, or with fewer than two groups that have images.

    Examples
    --------
    >>> import plumbline
    >>> found = plumbline.impact_ratio([True, False, True, True], groups=["a", "a", "b", "b"])
    >>> found.value, str(found.reason[0])
    (0.5, 'below four fifths')
    """
    counts, totals = checked_counts(*counted(event_counts, group_totals, groups=groups, event=event), least_groups=2)
    if interval is not False:
        estimate = estimate_of_counts(IMPACT_RATIO, counts, totals, draw_settings(interval, seed))
        return replace(estimate, reason=joined(impact_ratio_reason(estimate.value, totals), estimate.reason))
    return _per_event(
        counts,
        totals,
        batched_impact_ratio,
        lambda value: joined(empty_groups_reason(totals), impact_ratio_reason(value, totals)),
    )


def batched_impact_ratio(event_counts: NDArray[Any], group_totals: NDArray[Any]) -> NDArray[np.float64]:
    """Return min p / max p for many tables at once, (..., g) to (...); nan where the event never happens."""
    low, high, groups = _rate_range(event_counts, group_totals)
    return np.divide(low, high, out=np.full(low.shape, np.nan), where=(high > 0) & (groups > 1))


def impact_ratio_reason(ratio: float, totals: NDArray[Any]) -> Reason | None:
    """Return the reason that an impact ratio of (g,) totals is undefined, or falls under the four-fifths rule."""
    if np.count_nonzero(totals) < 2:
        return reason("under_two_groups_with_images")
    if np.isnan(ratio):
        return reason("event_never_happens")
    # 80/1000 over 100/1000 is 0.8 on paper and a rounding error less in binary.
    return reason("below_four_fifths") if ratio < FOUR_FIFTHS - 1e-12 else None


def _rate_range(counts: NDArray[Any], totals: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the smallest and the largest rate of the groups that are not empty, and their number."""
    counts, totals = np.broadcast_arrays(counts, totals)
    seen = totals > 0
    if seen.all():
        rates = counts / totals
        return rates.min(axis=-1), rates.max(axis=-1), np.full(rates.shape[:-1], rates.shape[-1])
    rates = counts / np.where(seen, totals, 1)
    low = np.where(seen, rates, np.inf).min(axis=-1)
    high = np.where(seen, rates, -np.inf).max(axis=-1)
    groups = seen.sum(axis=-1)
    return np.where(groups > 0, low, 0.0), np.where(groups > 0, high, 0.0), groups


def _per_event(
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    values: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]],
    reasons: Callable[[float], Reasons],
) -> Estimate | EstimateArray:
    """Return estimates without interval of (e, g) event counts, or the one of (g,) counts."""
    value = np.atleast_1d(values(counts, totals))
    no_end, n = np.full(value.shape, np.nan), np.full(value.shape, totals.sum())
    estimates = EstimateArray(value, no_end, no_end, n, reason=[reasons(one) for one in value.tolist()])
    return estimates[0] if counts.ndim == 1 else estimates


def checked_counts(
    event_counts: ArrayLike, group_totals: ArrayLike, *, least_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return event counts (g,) or (e, g) and group totals (g,) as int64, or raise MetricError."""
    counts, totals = np.asarray(event_counts), np.asarray(group_totals)
    whole = all(a.size == 0 or (np.isfinite(a).all() and np.array_equal(a, np.trunc(a))) for a in (counts, totals))
    if totals.ndim != 1 or counts.ndim not in (1, 2) or counts.shape[-1:] != totals.shape or not whole:
        raise MetricError(
            "event counts and group totals must be whole numbers over the same groups",
            found=f"event_counts {counts.dtype} {counts.shape}, group_totals {totals.dtype} {totals.shape}",
            expected="(g,) or (e, g), and (g,)",
        )
    if totals.size < least_groups:
        raise MetricError("too few groups", found=totals.size, expected=f"at least {least_groups}")
    if (counts < 0).any() or (counts > totals).any():
        raise MetricError("an event count lies outside 0 .. n", found=counts.tolist(), expected=totals.tolist())
    return counts.astype(np.int64), totals.astype(np.int64)


# --- Inference: outcomes of images by group, and the replicates of their counts.


@dataclass(frozen=True)
class Resamples:
    """A table of counts with its replicates and its jackknife; see `estimate_disparity`.

    Attributes
    ----------
    table : (g, c) int64, or a view of it
    resampled, permuted : (r, g, c) int64, or views of them
    jackknife : callable
    clusters : int or None
        How many clusters were resampled; None: single images.
    mixing : (g, g) or (e, g, g) float or None
        [i, j]: share of the images dealt to group i that come from group j, see `strata_mixing`; by event where events
        are permuted apart. None: proportional to group sizes.
    errors, of_permuted : dict
        The errors of levels, and the values of permuted tables, that were asked for.
    """

    table: NDArray[Any]
    resampled: NDArray[Any]
    permuted: NDArray[Any]
    jackknife: Callable[[TableStatistic], Jackknife]
    least_p: float = 0.0
    clusters: int | None = None
    mixing: NDArray[np.float64] | None = None
    errors: dict[Levels, LevelErrors | None] = field(default_factory=dict, repr=False)
    of_permuted: dict[TableStatistic, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def mapped(self, view: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Resamples:
        """Apply `view` to every table: that of the data, the replicates and those of the jackknife."""
        table, resampled, permuted = map(view, (self.table, self.resampled, self.permuted))

        def jackknife(statistic: TableStatistic) -> Jackknife:
            return self.jackknife(lambda left: statistic(view(left)))

        return Resamples(table, resampled, permuted, jackknife, self.least_p, self.clusters, self.mixing)

    def estimate(self, disparity: Disparity, *, confidence: float) -> Estimate:
        """Return a disparity with its interval and permutation p."""
        return estimate_disparity(
            self.table,
            disparity,
            resampled=self.resampled,
            permuted=self.permuted,
            jackknife=self.jackknife,
            least_p=self.least_p,
            clusters=self.clusters,
            errors=partial(self._errors_of, disparity.levels),
            chance=self.chance(disparity.value),
            confidence=confidence,
        )

    def chance(self, statistic: TableStatistic) -> NDArray[np.float64]:
        """Return the (r,) values of a statistic where nothing but chance sets groups apart."""
        if statistic not in self.of_permuted:
            self.of_permuted[statistic] = statistic(self.permuted)
        return self.of_permuted[statistic]

    def _errors_of(self, levels: Levels) -> LevelErrors | None:
        if levels not in self.errors:
            draws = self.table, self.resampled, self.permuted
            self.errors[levels] = level_errors(levels, *draws, clusters=self.clusters)
        return self.errors[levels]


@dataclass(frozen=True)
class ImageOutcomes:
    """Outcome of every image, by group.

    Attributes
    ----------
    groups : Groups
        -1 for images that do not count.
    codes : (n,) int64
        Outcome of each image.
    event_membership : (e, c) int64
        1 where an outcome belongs to an event.
    clusters : (n,) int64 or None
        Cluster (counterfactual set, seed) of each image, where they come in clusters: these are then resampled.
    """

    groups: Groups
    codes: NDArray[np.int64]
    event_membership: NDArray[np.int64]
    clusters: NDArray[np.int64] | None

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Return the (g, c) counts."""
        return count_table(self.groups.codes, self.codes, n_groups=self.n_groups, n_outcomes=self.n_outcomes)

    @property
    def n_groups(self) -> int:
        """Return g."""
        return len(self.groups.names)

    @property
    def n_outcomes(self) -> int:
        """Return c."""
        return int(self.event_membership.shape[1])

    def events(self, tables: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return event counts and, last, group sizes of (..., g, c) tables: (..., e + 1, g), as rates need them."""
        events = np.empty((len(self.event_membership) + 1, tables.shape[-2], *tables.shape[:-2]))
        # Replicates run along the last axis in memory, as the draws have them.
        outcomes = np.moveaxis(tables, (-2, -1), (0, 1))
        for out, belongs in zip(events, (*self.event_membership, np.ones(self.n_outcomes))):
            first, *others = np.flatnonzero(belongs)
            out[...] = outcomes[:, first]
            for outcome in others:
                out += outcomes[:, outcome]
        return np.moveaxis(events, (0, 1), (-2, -1))

    def draws(self, names: list[str], settings: MetricSettings) -> Resamples:
        """Draw resamples and permutations, from generators seeded by `names`."""
        resampling, permuting = (generator(settings.seed, *names, use) for use in ("bootstrap", "permutation"))
        permuted = self.permuted(settings.permutations, permuting)
        if self.clusters is None:
            resampled = resample_tables(self.table, resamples=settings.resamples, rng=resampling)
            jackknife = partial(jackknife_tables, self.table)
            return Resamples(self.table, resampled, permuted, jackknife, mixing=self.mixing)
        tables = cluster_tables(
            self.groups.codes, self.codes, self.clusters, n_groups=self.n_groups, n_outcomes=self.n_outcomes
        )
        resampled = resample_clusters(tables, resamples=settings.resamples, rng=resampling)
        jackknife = partial(jackknife_clusters, tables)
        return Resamples(self.table, resampled, permuted, jackknife, self.least_p, len(tables), self.mixing)

    @cached_property
    def permutation(self) -> ClusterPermutation | None:
        """Return how labels of clustered images are dealt out."""
        return None if self.clusters is None else ClusterPermutation.of(self.groups.codes, self.clusters)

    @property
    def least_p(self) -> float:
        """Return how small p can become with so few clusters."""
        return self.permutation.least_gap_p if self.permutation else 0.0

    @property
    def mixing(self) -> NDArray[np.float64] | None:
        """Return which groups' images a group has after a permutation; None without clusters."""
        return self.permutation.mixing(self.n_groups) if self.permutation else None

    def permuted(self, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return (r, g, c) tables as if group labels were shuffled over all images, or dealt to blocks of clusters."""
        if self.permutation is None:
            return permute_tables(self.table, permutations=permutations, rng=rng)
        shape = {"n_groups": self.n_groups, "n_outcomes": self.n_outcomes}
        return self.permutation.tables(self.codes, **shape, permutations=permutations, rng=rng)


# --- Rows: one per statistic of the counts of events by group.


@dataclass(frozen=True)
class Statistic:
    """A number that depends on the images through the counts of some events by group.

    Attributes
    ----------
    metric, definition : str
        As in the columns of these names.
    value : callable
        (..., e, g) event counts and (..., 1, g) totals to (...): a mean over the events.
    over : {"pairs", "strata"} or None
        How gaps are combined: "pairs", the mean over pairs of groups; "strata", the largest pair of each event, then
        the mean over events; see `plumbline.statistics.maxima.Disparity`. None: no comparison of groups.
    scale : {"difference", "relative", "ratio"}
        How two rates are compared.
    pairs : bool
        Whether it is over pairs of groups, some of which may be undefined.
    """

    metric: str
    definition: str
    value: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
    over: Literal["pairs", "strata"] | None = "strata"
    scale: Scale = "difference"
    pairs: bool = False

    @property
    def smoothed(self) -> bool:
        """Whether it takes logarithms of rates that may be 0, since half an event is added."""
        return self.scale == "relative" and not self.pairs

    def of_events(self, events: NDArray[Any]) -> NDArray[np.float64]:
        """Return the value of event counts and, last, group sizes, (..., e + 1, g), see `ImageOutcomes.events`."""
        return self.value(events[..., :-1, :], events[..., -1:, :])

    def disparity_of_events(self) -> Disparity:
        """Return it as a function of what `of_events` takes."""
        levels = _rates_of_events if self.scale == "difference" else _log_rates_of_events
        most = 1.0 if self.scale == "difference" else np.inf
        return Disparity(self.of_events, levels, over=self.over or "strata", scale=self.scale, most=most)


def _rates_of_events(events: NDArray[Any]) -> NDArray[np.float64]:
    return group_rates(events[..., :-1, :], events[..., -1:, :])


def _log_rates_of_events(events: NDArray[Any]) -> NDArray[np.float64]:
    return log_rates(events[..., :-1, :], events[..., -1:, :])


def group_rates(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    """Return counts / totals, broadcast; nan without images."""
    counts, totals = np.broadcast_arrays(counts, totals)
    return shares(counts, totals)


def log_rates(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    """Return log((x + 1/2) / (n + 1)), finite where the event never happens; nan without images."""
    counts, totals = np.broadcast_arrays(counts, totals)
    return np.log(shares(counts + 0.5, totals + 1, empty=totals == 0))


def _skew(over_pairs: str = "mean", smoothing: float = 0.0) -> Callable[..., NDArray[np.float64]]:
    def value(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        total, cells = skew_sums(counts, totals, over_pairs=over_pairs, smoothing=smoothing)
        return shares(total.sum(axis=-1), cells.sum(axis=-1))

    return value


def without_interval(estimate: Estimate) -> Estimate:
    """Return a smoothed skew of a group that never has the event: with p, and without an interval.

    Every resample of such a group has no event either, so that the interval would know nothing of how rare it is.
    """
    of_test = [each for each in estimate.reason if each.code in _OF_TESTS]
    return replace(estimate, ci_low=np.nan, ci_high=np.nan, reason=(*of_test, reason("no_interval_no_event")))


_OF_TESTS = ("few_relabellings", "few_permutations", "p_floor")
"""Reasons that are of p, and of no interval."""


def group_without_event(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> bool:
    """Return whether a group with images has none with an event, of (..., g) counts of events some group has."""
    return bool(((counts == 0) & (totals > 0) & (counts.sum(axis=-1, keepdims=True) > 0)).any())


SKEW_STATISTICS = (
    Statistic("max_skew", "mean_over_pairs", _skew(), "pairs", "relative", pairs=True),
    Statistic("max_skew", "max_over_pairs", _skew("max"), "strata", "relative", pairs=True),
    Statistic("max_skew", "smoothed", _skew(smoothing=0.5), "pairs", "relative"),
)
PARITY = Statistic("parity_difference", "max_minus_min", lambda x, n: batched_parity_difference(x, n).mean(axis=-1))
IMPACT_RATIO = Statistic(
    "impact_ratio", "min_over_max", lambda x, n: batched_impact_ratio(x, n).mean(axis=-1), scale="ratio"
)
RANGE_STATISTICS = (PARITY, IMPACT_RATIO)


def estimate_of_counts(
    statistic: Statistic, counts: NDArray[np.int64], totals: NDArray[np.int64], settings: MetricSettings
) -> Estimate:
    """Return a disparity of one event with interval and p, as the rows of an audit have them.

    Parameters
    ----------
    counts, totals : (g,) int64

    Raises
    ------
    MetricError
        If there are several events.
    """
    if counts.ndim != 1:
        raise MetricError(
            "an interval is of one event: counts do not say which images several have in common",
            found=f"{len(counts)} events",
            expected="(g,) counts, or predictions of each image with `groups` and `event`",
        )
    outcomes = outcomes_of_counts(counts, totals)
    draws = outcomes.draws([statistic.metric, statistic.definition], settings).mapped(outcomes.events)
    estimate = draws.estimate(statistic.disparity_of_events(), confidence=settings.confidence)
    if statistic.smoothed and group_without_event(counts, totals):
        estimate = without_interval(estimate)
    return replace(estimate, n=int(totals.sum()), reason=joined(empty_groups_reason(totals), estimate.reason))


def outcomes_of_counts(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> ImageOutcomes:
    """Return images of which only (g,) counts of an event and totals are known."""
    groups = np.repeat(np.arange(len(totals)), totals)
    place = np.arange(len(groups)) - np.repeat(np.cumsum(totals) - totals, totals)
    outcome = np.where(place < np.repeat(counts, totals), 0, 1)
    names = tuple(map(str, range(len(totals))))
    return ImageOutcomes(Groups("groups", names, groups), outcome, np.array([[1, 0]]), None)


def disparity_rows(
    common: Row, outcomes: ImageOutcomes, statistics: tuple[Statistic, ...], settings: MetricSettings
) -> Iterator[Row]:
    """Give one row per statistic; none with fewer than two groups that have images."""
    sizes = outcomes.table.sum(axis=1)
    if np.count_nonzero(sizes) < 2:
        return
    named = ("model", "dataset", "suite", "event", "attribute", "probe")
    names = [str(common[key]) for key in named if key in common]
    # All statistics are functions of event counts and group sizes: compute these from the draws once.
    draws = outcomes.draws(names, settings).mapped(outcomes.events)
    permuted = draws.permuted[..., :-1, :], draws.permuted[..., -1:, :]
    alternatives = alternatives_of(*permuted, sizes, settings, clusters=draws.clusters, mixing=draws.mixing)
    small = small_groups_reason(outcomes.groups.names, sizes.tolist(), settings.min_group)
    for each in statistics:
        disparity = each.disparity_of_events()
        estimate = draws.estimate(disparity, confidence=settings.confidence)
        if each.smoothed and group_without_event(draws.table[:-1], sizes):
            estimate = without_interval(estimate)
        note = None
        if each.pairs:
            note = undefined_pairs_reason(*undefined_pairs(draws.table[:-1], sizes))
        elif each.metric == "impact_ratio":
            note = impact_ratio_reason(estimate.value, sizes)
        if not draws.table[:-1].any():
            note = reason("event_never_happens")
        columns = estimate.columns(empty_groups_reason(sizes), note, small, few_clusters_reason(outcomes.clusters))
        detectable = alternatives.detectable(
            each.value,
            parity=disparity.parity,
            ratio=each.scale != "difference",
            least_p=draws.least_p,
            null=draws.chance(disparity.value),
        )
        columns |= dict(zip(COLUMNS, detectable or ()))
        yield common | columns | {"metric": each.metric, "definition": each.definition, "n": int(sizes.sum())}


def detectable_columns(
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    statistic: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]],
    sizes: NDArray[np.int64],
    settings: MetricSettings,
    *,
    parity: float = 0.0,
    ratio: bool = False,
    least_p: float = 0.0,
    clusters: int | None = None,
    null: NDArray[np.float64] | None = None,
    mixing: NDArray[np.float64] | None = None,
) -> Row:
    """Return what a permutation test finds in 80% of audits, as columns of its row; see `alternatives_of`."""
    if np.count_nonzero(sizes) < 2:
        return {}
    alternatives = alternatives_of(counts, totals, sizes, settings, clusters=clusters, mixing=mixing)
    of_test = {"parity": parity, "ratio": ratio, "least_p": least_p, "null": null}
    return dict(zip(COLUMNS, alternatives.detectable(statistic, **of_test) or ()))  # type: ignore[arg-type]


def alternatives_of(
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    sizes: NDArray[np.int64],
    settings: MetricSettings,
    *,
    clusters: int | None = None,
    mixing: NDArray[np.float64] | None = None,
) -> Alternatives:
    """Return the alternatives in which the smallest of (g,) sizes that is not flagged as small is apart."""
    seen = np.flatnonzero(sizes > 0)
    enough = seen[sizes[seen] >= settings.min_group]
    among = enough if len(enough) else seen
    apart = int(np.searchsorted(seen, among[np.argmin(sizes[among])]))
    if len(seen) < len(sizes):
        counts, totals = counts[..., seen], totals[..., seen]
        mixing = None if mixing is None else mixing[..., seen[:, None], seen]
    return Alternatives(counts, totals, apart=apart, clusters=clusters, mixing=mixing)


def planned_detectable(
    sizes: NDArray[np.int64], *, rate: float, level: float, permutations: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Return the Max Skew and the parity difference that 80% of audits of such groups would find.

    Parameters
    ----------
    sizes : (g,) int
        Images of each group, counted as independent; at least two groups.
    rate : float
        Assumed share of the event over all images, in (0, 1).
    level : float
        p that the correction requires.
    permutations : int
        Of the audit: p is hardly below one over them.

    Returns
    -------
    skew, parity : float
        nan where no difference would be found, and of a skew where a group expects so few events that none is told.
    """
    count = np.round(sizes * rate).astype(np.int64)
    table = np.stack([count, sizes - count], axis=1)
    drawn = permute_tables(table, permutations=permutations, rng=generator(seed, "power"))
    counts, totals, apart = drawn[:, None, :, 0], drawn.sum(axis=-1)[:, None], int(sizes.argmin())
    skew, parity = (
        detectable_value(counts, totals, each.value, apart=apart, ratio=each.scale != "difference")
        for each in (SKEW_STATISTICS[0], PARITY)
    )
    return float(value_at(level, np.array(skew, float))), float(value_at(level, np.array(parity, float)))


def undefined_pairs(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many event × pair cells of (e, g) counts have no defined gap, and how many there are."""
    pairs = len(counts) * len(totals) * (len(totals) - 1) // 2
    return pairs - int(np.triu(_defined_pairs(counts, totals), k=1).sum()), pairs


def same_pairs(counts: NDArray[np.int64], others: NDArray[np.int64], totals: NDArray[np.int64]) -> bool:
    """Return whether the skews of two tables of (e, g) counts of the same images are over the same pairs of groups."""
    return bool((_defined_pairs(counts, totals) == _defined_pairs(others, totals)).all())


def _defined_pairs(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, (e, g, g), which pairs of groups have a defined gap; see `skew_sums`."""
    some, none = (counts > 0) & (totals > 0), (counts == 0) & (totals > 0)
    pairs = (some[:, :, None] & some[:, None]) | (none[:, :, None] & none[:, None])
    return np.where((some.sum(axis=1) == 1)[:, None, None], False, pairs)


# --- What an audit of so many images can find: known before anything is embedded.


@dataclass(frozen=True)
class PlannedPower:
    """What an audit can find between the groups of an attribute of a dataset.

    Attributes
    ----------
    sizes : tuple of int
        Images of each group.
    skew, parity : float
        Max Skew and parity difference that 80% of such audits find, see `planned_detectable`; nan for none.
    tests, level : int, float
        Tests of Max Skew that are corrected together, and the p that a lone difference among them needs.
    permutations : int
        Of the audit.
    """

    dataset: str
    attribute: str
    sizes: tuple[int, ...]
    skew: float
    parity: float
    tests: int
    level: float
    permutations: int = 10_000


def planned_power(
    cells: Mapping[tuple[str, str], Sequence[str]],
    groups: Mapping[str, Sequence[Groups]],
    *,
    rate: float,
    permutations: int = 10_000,
    suite: Callable[[str], Suite] = load_suite,
) -> Iterator[PlannedPower]:
    """Give what an audit can find between groups of the datasets that outcome suites are asked of.

    Parameters
    ----------
    cells : mapping of (str, str) to sequence of str
        (dataset, encoder) -> its suites.
    groups : mapping of str to sequence of Groups
        By dataset.
    rate : float
        Assumed share of images in an event.
    permutations : int
        Of the audit.
    suite : callable
        From the name of a suite to what it asks.
    """
    events = dict.fromkeys((dataset for dataset, _ in cells), 0)
    for (dataset, _), suites in cells.items():
        outcome_suites = [suite(name) for name in suites if name not in (*TRIDENT_SUITES, ZERO_SHOT)]
        events[dataset] += sum(len(suite.skewed_events) for suite in outcome_suites if suite.family == "outcomes")
    groups = {dataset: of_dataset for dataset, of_dataset in groups.items() if events.get(dataset)}
    tests = sum(events[dataset] * len(of_dataset) for dataset, of_dataset in groups.items())
    for dataset, of_dataset in groups.items():
        for each in of_dataset:
            sizes = np.bincount(each.codes[each.codes >= 0], minlength=len(each.names))
            if (sizes > 0).sum() > 1:
                level = 0.05 / tests
                sizes = sizes[sizes > 0]
                skew, parity = planned_detectable(sizes, rate=rate, level=level, permutations=permutations)
                yield PlannedPower(dataset, each.attribute, tuple(sizes), skew, parity, tests, level, permutations)
