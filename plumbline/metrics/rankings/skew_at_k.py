"""Skew@k and MaxSkew@k: the share of a group among the k best of a ranking, over the share that it should have.

Source: Hausladen et al., appendix B.1, equation 8 (after Geyik et al. 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.inputs import draw_settings
from plumbline.metrics.rankings.ranking import (
    Desired,
    ImageClusters,
    RankedGroups,
    Shares,
    group_apart,
    in_rank_order,
    rank_labelled,
    require_k,
    shares_of_interval,
)
from plumbline.reasons import reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.intervals import bca_array, percentile_array, wilson
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.maxima import largest_low
from plumbline.statistics.permutation import upper_p_values
from plumbline.statistics.power import Detectable, detectable_value
from plumbline.statistics.rankings import (
    CLUSTER_RESAMPLES,
    cluster_resampled_top_counts,
    leave_one_out_top_counts,
    null_top_counts,
    resample_group_totals,
    resample_top_counts,
    top_count_p_values,
    top_counts,
    top_draws,
)
from plumbline.statistics.seeds import generator

PUBLISHED_K = 1_000
"""The k of the paper."""


def default_k(n: int) -> int:
    """Return the paper's k = 1,000, or half of the images where there are fewer than 2,000."""
    return PUBLISHED_K if n >= 2 * PUBLISHED_K else n // 2


@dataclass(frozen=True)
class GroupSkew:
    """Skew@k of one group, see `skew_at_k`.

    Attributes
    ----------
    group : label
    value : float
        ln(share / desired); -inf for a group that is absent from the top k.
    share, desired : float
        The group's share of the top k, and the share that it should have.
    count : int
        Images of the group among the top k.
    floored : float
        The same with the share floored at 1/k: finite for an absent group too.
    """

    group: Any
    value: float
    share: float
    desired: float
    count: int
    floored: float


@dataclass(frozen=True)
class SkewAtK:
    """Skew@k by group; index it with a group, or iterate over the groups' results.

    Attributes
    ----------
    groups : tuple
        Sorted, or in the order of the mapping of desired shares.
    value, share, desired, floored : (g,) float64
    count : (g,) int64
    k, n : int
        Length of the prefix, images that were ranked.
    """

    groups: tuple[Any, ...]
    value: NDArray[np.float64]
    share: NDArray[np.float64]
    desired: NDArray[np.float64]
    floored: NDArray[np.float64]
    count: NDArray[np.int64]
    k: int
    n: int

    def __getitem__(self, group: object) -> GroupSkew:
        """Return the result of one group."""
        i = self.groups.index(group)
        names = ("value", "share", "desired", "count", "floored")
        return GroupSkew(self.groups[i], *(getattr(self, name)[i].item() for name in names))

    def __iter__(self) -> Iterator[GroupSkew]:
        return (self[group] for group in self.groups)

    def __len__(self) -> int:
        return len(self.groups)


@overload
def skew_at_k(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    k: int,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
    interval: Literal[False] = False,
    seed: int | np.random.Generator = 0,
) -> SkewAtK: ...


@overload
def skew_at_k(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    k: int,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
    interval: Literal[True] | MetricSettings,
    seed: int | np.random.Generator = 0,
) -> dict[Any, Estimate]: ...


def skew_at_k(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    k: int,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> SkewAtK | dict[Any, Estimate]:
    """Return Skew_g@k = ln(share of g among the k best / desired share of g) for every group (B.1, eq. 8).

    0 is the desired share, ln 2 is twice that. Against equal shares a value other than 0 may come from group sizes
    alone: "ranked" asks whether the ranking prefers a group. p tests whether the ranking is independent of the groups,
    whatever is desired.

    Parameters
    ----------
    scores : (n,) float
        What ranks the images, highest first.
    groups : (n,) labels
        None (or nan) is an unlabelled image: in no group, and left out of the ranking.
    k : int
        Length of the prefix, 1 .. number of labelled images.
    desired : "equal", "ranked", mapping or (g,) float, optional
        Desired shares: equal ones for the groups that occur (default), those of the ranked set, or given: by group,
        or in the sorted order of the groups. Given shares are positive and sum to 1; a mapping may name groups that
        have no image.
    ids : (n,) sortable, optional
        Equal scores are ordered by id, by position where there are none.
    interval : bool or MetricSettings
        Whether interval and p of each group are computed, against equal shares or those of the ranked set; settings
        in place of True set the number of draws. k is then less than the number of images.
    seed : int or Generator
        Of the draws.

    Returns
    -------
    SkewAtK, or with `interval` a dict of group to Estimate
        A group that is absent from the top k has value -inf, count 0 and a finite `floored`.

    Raises
    ------
    MetricError
        If k is no whole number in its range, a score is not finite, lengths differ, a desired share is zero, the shares
        do not fit the groups, or an interval of one group or against other shares is asked for.

    Examples
    --------
    >>> import plumbline
    >>> skew = plumbline.skew_at_k([0.9, 0.8, 0.7, 0.1], ["man", "man", "woman", "woman"], k=3)
    >>> [(each.group, round(each.value, 2)) for each in skew]
    [('man', 0.29), ('woman', -0.41)]
    """
    names, ranked, shares = rank_labelled(scores, groups, desired=desired, ids=ids, max_ndim=1)
    if interval is not False:
        estimates = _estimates(ranked[0], len(names), desired, k=k, settings=draw_settings(interval, seed))
        return dict(zip(names, (estimates.by_group[0, i] for i in range(len(names)))))
    n = ranked.shape[1]
    require_k(k, n, "the labelled images")
    count = top_counts(ranked, k=k, n_groups=len(names))[0]
    return SkewAtK(
        groups=names,
        value=_log(share_ratios(count, k * shares)),
        share=count / k,
        desired=shares,
        floored=_log(share_ratios(np.maximum(count, 1), k * shares)),
        count=count,
        k=k,
        n=n,
    )


def max_skew_at_k(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    k: int,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> GroupSkew | Estimate:
    """Return the largest Skew@k over the groups (B.1), and whose it is: the first group's where several tie.

    It is never below 0: shares cannot all be under the desired ones. So chance alone makes it positive, and against
    equal shares group sizes do.

    Parameters
    ----------
    scores, groups, k, desired, ids : as in `skew_at_k`
    interval : bool or MetricSettings
        Whether interval and p are computed, against equal shares or those of the ranked set; settings in place
        of True set the number of draws. k is then less than the number of images.
    seed : int or Generator
        Of the draws.

    Returns
    -------
    GroupSkew, or with `interval` an Estimate

    Raises
    ------
    MetricError
        As `skew_at_k`, or if an interval against other shares is asked for.

    Examples
    --------
    >>> import plumbline
    >>> largest = plumbline.max_skew_at_k([0.9, 0.8, 0.7, 0.1], ["man", "man", "woman", "woman"], k=2)
    >>> largest.group, round(largest.value, 2)
    ('man', 0.69)
    """
    if interval is not False:
        names, by_rank, _ = rank_labelled(scores, groups, desired=desired, ids=ids, max_ndim=1)
        return _estimates(by_rank[0], len(names), desired, k=k, settings=draw_settings(interval, seed)).largest[0]
    skew = skew_at_k(scores, groups, k=k, desired=desired, ids=ids)
    # Equal shares over equal desired ones are ties on paper; rounding must not choose among them.
    largest = skew[skew.groups[np.flatnonzero(skew.value >= skew.value.max() - 1e-12)[0]]]
    return replace(largest, value=max(largest.value, 0.0))


def _estimates(
    by_rank: NDArray[np.int64], n_groups: int, desired: Desired, *, k: int, settings: MetricSettings
) -> SkewEstimates:
    """Return the estimates of one ranking, as an audit has them."""
    ranked, shares = in_rank_order(by_rank, n_groups), shares_of_interval(desired, n_groups)
    require_k(k, ranked.n - 1, "for an interval")
    top = sample_top(ranked, k=k, settings=settings, labels=["max_skew_at_k"], with_totals=shares == "ranked")
    return skew_estimates(top, shares, confidence=settings.confidence)


def share_ratios(counts: NDArray[Any], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return share / desired share among the k best: counts over those that the desired shares give.

    Parameters
    ----------
    counts : (...) int
    expected : broadcasts to counts
        k × desired share; the ratio is 0 where it is 0.
    """
    wanted = np.broadcast_to(expected, counts.shape)
    return np.divide(counts, wanted, out=np.zeros(counts.shape), where=wanted > 0)


def _log(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(ratio)


# Inference: bootstrap, jackknife and permutation of the k best of many rankings.


@dataclass(frozen=True)
class TopSample:
    """The k best of each ranking, counted by group, with bootstrap, jackknife and permutation replicates.

    Groups run along the second axis throughout; a first axis of 1 is the same for all rankings.

    Attributes
    ----------
    k : int
    sizes : (g,) int64
    counts : (m, g) int64
    resampled : (m, g, r) int32
    totals : (m, g, r) or (1, g, r) int64, or None
        Images of each group in the replicates, which the desired shares of the ranked set need.
    left : (m, g, v) int64
        Counts of the jackknife, which leaves out an image of each kind, or a block of clusters.
    left_totals : (m, g, v) or (1, g, v) int64
    left_weight : (m, v) or (1, v) int64
        How many images are of the kind; 1 for a block.
    p : (m, g) float64
        Of each group's count, two-sided.
    chance : (1, g, p) or (m, g, p) int64
        Counts of random rankings.
    least_p : float
        How small p of a statistic of all groups can become with so few clusters.
    """

    k: int
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    resampled: NDArray[np.int32]
    totals: NDArray[np.int64] | None
    left: NDArray[np.int64]
    left_totals: NDArray[np.int64]
    left_weight: NDArray[np.int64]
    p: NDArray[np.float64]
    chance: NDArray[np.int64]
    least_p: float = 0.0


def sample_top(
    ranked: RankedGroups, *, k: int, settings: MetricSettings, labels: Sequence[str], with_totals: bool = False
) -> TopSample:
    """Count, resample, leave out and permute the k best of rankings.

    Parameters
    ----------
    k : int
        Less than the number of images.
    labels : sequence of str
        What the draws that are made for these rankings alone are seeded by, beside the seed of the settings.
    with_totals : bool
        Whether group totals are resampled too; with clusters they always are.
    """
    if ranked.clusters is not None:
        return _sample_top_of_clusters(ranked, ranked.clusters, k, settings, labels)
    g, codes = ranked.n_groups, ranked.codes
    draws = top_draws(ranked.n, k, resamples=settings.resamples, seed=settings.seed)
    counts = top_counts(codes, k=k, n_groups=g)
    resampled = resample_top_counts(codes, draws, n_groups=g)
    totals = None
    if with_totals:
        rng = generator(settings.seed, *labels, "group totals")
        totals = resample_group_totals(codes, resampled, draws, n_groups=g, rng=rng)
    left, left_totals, images = leave_one_out_top_counts(codes, k=k, n_groups=g)
    sizes = tuple(ranked.sizes.tolist())
    chance = null_top_counts(sizes, k, permutations=settings.permutations, seed=settings.seed)
    return TopSample(
        k=k,
        sizes=ranked.sizes,
        counts=counts,
        resampled=resampled,
        totals=totals,
        left=np.swapaxes(left.reshape(-1, 2 * g, g), 1, 2),
        left_totals=np.swapaxes(left_totals.reshape(-1, 2 * g, g), 1, 2),
        left_weight=images.reshape(-1, 2 * g),
        p=top_count_p_values(counts, ranked.sizes, k=k),
        chance=chance.T[None],
    )


def _sample_top_of_clusters(
    ranked: RankedGroups, clusters: ImageClusters, k: int, settings: MetricSettings, labels: Sequence[str]
) -> TopSample:
    """As `sample_top`, with whole clusters drawn and left out, and labels permuted within clusters."""
    g, codes, blocks = ranked.n_groups, ranked.codes, clusters.blocks(rankings=len(ranked.order))
    by_cluster, by_block = (_cross_table(units, ranked) for units in (clusters.codes, blocks))
    rng = generator(settings.seed, *labels, "bootstrap")
    resamples = min(settings.resamples, CLUSTER_RESAMPLES)
    drawn = rng.multinomial(len(by_cluster), np.full(len(by_cluster), 1 / len(by_cluster)), size=resamples)
    # Resamples with fewer than k images have no top k.
    drawn = drawn[(drawn @ by_cluster).sum(axis=1) >= k]
    without = 1 - np.eye(len(by_block), dtype=np.int64)
    without = without[(without @ by_block).sum(axis=1) >= k]
    # Where no cluster can be left out, the acceleration of BCa is that of values that do not vary: 0.
    without = without if len(without) else np.ones((1, len(by_block)), dtype=np.int64)
    counts = top_counts(codes, k=k, n_groups=g)
    tops = (clusters.dealt(order, slice(None), top=k) for order in ranked.order)
    chance = np.stack([np.stack([(top == group).sum(axis=1) for group in range(g)]) for top in tops])
    least_p = np.array([clusters.permutation.least_count_p(group) for group in range(g)])
    left = cluster_resampled_top_counts(codes, blocks[ranked.order], without, k=k, n_groups=g)
    return TopSample(
        k=k,
        sizes=ranked.sizes,
        counts=counts,
        resampled=cluster_resampled_top_counts(codes, clusters.codes[ranked.order], drawn, k=k, n_groups=g),
        totals=(drawn @ by_cluster).T[None],
        left=left.astype(np.int64),
        left_totals=(without @ by_block).T[None],
        left_weight=np.ones((1, len(without)), dtype=np.int64),
        p=np.maximum(_two_sided(counts, chance), least_p),
        chance=chance,
        least_p=clusters.permutation.least_gap_p,
    )


def _cross_table(units: NDArray[np.int64], ranked: RankedGroups) -> NDArray[np.int64]:
    """Return (u, g) images of each cluster or block and group."""
    table = np.zeros((int(units.max()) + 1, ranked.n_groups), dtype=np.int64)
    np.add.at(table, (units, ranked.groups), 1)
    return table


def _two_sided(counts: NDArray[np.int64], chance: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return twice the smaller one-sided permutation p of counts (m, g) among (m, g, p), at most 1."""
    values, drawn = counts.ravel(), chance.reshape(-1, chance.shape[-1])
    one_sided = np.minimum(upper_p_values(values, drawn), upper_p_values(-values, -drawn))
    return np.minimum(2 * one_sided, 1.0).reshape(counts.shape)


class SkewEstimates(NamedTuple):
    """Skew@k of many rankings, see `skew_estimates`.

    Attributes
    ----------
    by_group : EstimateArray of shape (m, g)
    largest : EstimateArray of shape (m,)
        MaxSkew@k.
    chance : (1, p) or (m, p) float64
        MaxSkew@k of random rankings, which is positive.
    """

    by_group: EstimateArray
    largest: EstimateArray
    chance: NDArray[np.float64]


def skew_estimates(top: TopSample, desired: Shares, *, confidence: float = 0.95) -> SkewEstimates:
    """Return Skew@k and MaxSkew@k against equal desired shares or those of the ranked set.

    Intervals are BCa of share / desired share, which never is infinite, and then its logarithm: values and ends of
    absent groups are -inf.

    The largest of several ratios that are nearly equal is too large, and BCa corrects that only in part. So the
    interval of MaxSkew@k is joined with that from `plumbline.statistics.maxima.largest_low` of the groups' skews to the
    largest upper end of their own intervals. Under no preference the top k has the composition of the ranked set, and
    resampling biases MaxSkew@k upwards. If the permutation test does not reject "the ranking is independent of the
    groups" (p > 1 - confidence), the lower end is therefore at most the smallest MaxSkew@k compatible with the group
    sizes (`_null_ratio`), and the upper end the larger of the BCa and percentile ends.

    Coverage is measured in `tests/metrics/test_ranking_truth.py`.

    Parameters
    ----------
    desired : {"equal", "ranked"}
        The second needs `top.totals`; its shares are those of each replicate.
    """
    sizes = top.sizes[None, :, None]
    value = share_ratios(top.counts, _expected(sizes, top.k, desired)[..., 0])
    # What is resampled: the ratios, or against equal shares the counts themselves, since integers sort faster.
    scale, estimate = len(top.sizes) / top.k, top.counts.astype(np.float64)
    replicates: NDArray[Any] = top.resampled
    if desired == "ranked":
        if top.totals is None:
            raise MetricError("the shares of the ranked set need resampled group totals")
        scale, estimate = 1.0, value
        replicates = share_ratios(top.resampled, _expected(top.totals, top.k, desired))
    left = share_ratios(top.left, _expected(top.left_totals, top.k, desired))
    weight = np.broadcast_to(top.left_weight, (len(left), left.shape[2]))
    acceleration = Jackknife(left[:, :, None], weight[:, None, None]).acceleration
    each = bca_array(estimate, replicates, acceleration, confidence=confidence)
    spread = replicates.std(axis=-1)
    acceleration = Jackknife(left.max(axis=1)[:, None], weight[:, None]).acceleration
    replicates = replicates.max(axis=1)
    largest = bca_array(estimate.max(axis=1), replicates, acceleration, confidence=confidence)
    wider = percentile_array(largest.value, replicates, confidence=confidence)
    by_group = EstimateArray(
        value=_log(value),
        ci_low=_log(scale * each.ci_low),
        ci_high=_log(scale * each.ci_high),
        p=top.p,
        n=np.broadcast_to(top.sizes, value.shape),
        reason=each.reason,
    )
    chance = share_ratios(top.chance, _expected(sizes, top.k, desired)).max(axis=1)
    p = np.maximum(upper_p_values(value.max(axis=1), chance), top.least_p)
    # fmax and fmin pass over groups whose counts do not vary and have no interval.
    skews, error = _log(estimate), _log_error(estimate, spread)
    low = scale * np.fmin(largest.ci_low, np.exp(largest_low(skews, error, confidence=confidence)))
    high = scale * np.fmax(largest.ci_high, np.fmax.reduce(each.ci_high, axis=1))
    null = _null_ratio(top.sizes, confidence) if desired == "equal" else 1.0
    reaching = (p > 1 - confidence) & ~np.isnan(wider.ci_low)
    low = np.where(reaching, np.minimum(np.minimum(scale * wider.ci_low, null), low), low)
    high = np.where(reaching, np.maximum(np.maximum(scale * wider.ci_high, null), high), high)
    # The largest ratio is never below 1: rounding must not make its logarithm negative.
    skew, ci_low, ci_high = (np.maximum(_log(end), 0.0) for end in (value.max(axis=1), low, high))
    reasons = [
        # The interval may come from the groups' own where the largest ratio does not vary.
        (reason("reaches_no_preference"),) if reached else why if varies or np.isnan(end) else ()
        for reached, varies, end, why in zip(
            reaching, ~np.isnan(largest.ci_low), ci_low, largest.reason or [()] * len(ci_low)
        )
    ]
    n = np.full(len(skew), top.sizes.sum())
    detectable = [_detectable(each.T, top, desired) for each in top.chance]
    detectable *= len(skew) // len(detectable)
    largest_skew = EstimateArray(skew, ci_low, ci_high, n=n, p=p, reason=reasons, detectable=detectable)
    return SkewEstimates(by_group, largest_skew, _log(chance))


def _detectable(counts: NDArray[np.int64], top: TopSample, desired: Shares) -> Detectable:
    """Return the MaxSkew@k that the test finds: (p, g) counts are those of random rankings.

    The k best are an event with a rate in each group, and one group has it more often than the others.
    """
    totals, expected = (
        np.broadcast_to(top.sizes, (len(counts), 1, len(top.sizes))),
        _expected(top.sizes[None, :, None], top.k, desired),
    )

    def largest(chosen: NDArray[Any], _: NDArray[Any]) -> NDArray[np.float64]:
        return _log(share_ratios(chosen[..., 0, :], expected[0, :, 0]).max(axis=-1))

    apart = group_apart(top.sizes, desired)
    return detectable_value(counts[:, None], totals, largest, apart=apart, least_p=top.least_p)


def _log_error(value: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of a logarithm; 0 where it is -inf."""
    return np.divide(error, value, out=np.zeros(value.shape), where=value > 0)


def _expected(totals: NDArray[np.integer], k: int, desired: Shares) -> NDArray[np.float64]:
    """Return k × desired share of the groups, for totals (m, g, x) of images of each group."""
    if desired == "equal":
        return np.full((1, totals.shape[1], 1), k / totals.shape[1])
    return totals * (k / totals.sum(axis=1, keepdims=True))


def _null_ratio(sizes: NDArray[np.int64], confidence: float) -> float:
    """Return a lower bound on the largest group's share, relative to equal shares; at least 1.

    The ranked set is a sample itself, and groups may be nearer to equal in its population: the bound is the largest
    lower end of Bonferroni-corrected Wilson intervals of the groups' shares.
    """
    low, _ = wilson(sizes, sizes.sum(), confidence=1 - (1 - confidence) / len(sizes))
    return max(1.0, float(low.max()) * len(sizes))
