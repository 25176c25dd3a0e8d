"""Rankings of the same images by many scores, and their k best: counted, resampled, and as chance would have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.concurrency import run_threads
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits, base_row
from plumbline.metrics.family import Family, MetricSettings, Traits
from plumbline.metrics.rankings.definitions import equal_shares, max_skew_at_k, ndkl, skew_at_k, skew_values
from plumbline.metrics.rankings.ndkl import (
    AT_ONCE,
    CHANCE_PERMUTATIONS,
    jackknife_errors,
    ndkl_by_chance,
    ndkl_sums,
    ndkl_without_one,
    ndkl_without_sets,
)
from plumbline.statistics.clusters import FEW_CLUSTERS, cluster_codes, few_clusters_reason, permute_labels
from plumbline.statistics.groups import AUDITED_ATTRIBUTES, Groups, attribute_groups
from plumbline.statistics.intervals import Intervals, acceleration, bca_intervals, wilson
from plumbline.statistics.jackknife import t_intervals
from plumbline.statistics.rankings import (
    CLUSTER_RESAMPLES,
    leave_one_out_top_counts,
    null_top_counts,
    rank_order,
    resample_group_totals,
    resample_top_counts,
    resample_top_counts_of_clusters,
    top_count_p_values,
    top_counts,
    top_draws,
)
from plumbline.statistics.reasons import group_size_reason, joined, small_groups_reason
from plumbline.statistics.seeds import generator

K = 1_000
"""The paper's k."""
MOST_BLOCKS = 100
"""Sets that are left out one by one at most; more sets are joined to this many blocks, of equal number of sets."""
MOST_WALKED = 60_000_000
"""Images × rankings × blocks or permutations of sets at most: about a second."""
SET_PERMUTATIONS = 1_000
"""Permutations at most where labels are shuffled within sets."""
LEAST_PERMUTATIONS = 100
"""Fewer cannot tell what is significant."""


def usual_k(n: int) -> int:
    """Return the paper's k = 1,000, or half of the images where there are fewer than 2,000."""
    return K if n >= 2 * K else n // 2


@dataclass(frozen=True)
class RankedGroups:
    """Rankings of the same labelled images.

    Attributes
    ----------
    order : (m, n) int64
        Images by rank, best first.
    groups : (n,) int64
        Group of each image, 0 .. g - 1; every group has an image.
    n_groups : int
    sets : (n,) int64 or None
        Set of each image, where images come in sets.
    dealt : (p, n) int or None
        Groups of the images after shuffling labels as the sets allow, see `deal_in_sets`; needed with sets.
    """

    order: NDArray[np.int64]
    groups: NDArray[np.int64]
    n_groups: int
    sets: NDArray[np.int64] | None = None
    dealt: NDArray[Any] | None = None

    @property
    def n(self) -> int:
        """Return the number of ranked images."""
        return len(self.groups)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Return (g,) images of each group."""
        return np.bincount(self.groups, minlength=self.n_groups)

    @cached_property
    def codes(self) -> NDArray[Any]:
        """Return (m, n) group codes by rank."""
        return self.groups.astype(np.uint8 if self.n_groups <= 256 else np.uint16)[self.order]

    def only(self, chosen: slice) -> RankedGroups:
        """Return some of the rankings."""
        return replace(self, order=self.order[chosen])


@dataclass(frozen=True)
class TopSample:
    """The k best of each ranking: as counted, resampled, with something left out, and as chance would have it.

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
        Counts with something left out: an image of each kind, or a block of sets.
    left_totals : (m, g, v) or (1, g, v) int64
    left_weight : (m, v) or (1, v) int64
        How many images are of the kind; 1 for a block.
    p : (m, g) float64
        Of each group's count, two-sided.
    chance : (1, g, p) or (m, g, p) int64
        Counts of random rankings.
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


def sample_top(
    ranked: RankedGroups,
    *,
    k: int,
    settings: MetricSettings,
    labels: Sequence[str],
    with_totals: bool = False,
) -> TopSample:
    """Count, resample, leave out and permute the k best of rankings.

    Parameters
    ----------
    k : int
        Less than the number of images.
    labels : sequence of str
        What the draws that are made for these rankings alone are named by.
    with_totals : bool
        Whether group totals are resampled too; with sets they always are.
    """
    if ranked.sets is not None:
        return _sample_top_of_sets(ranked, ranked.sets, k, settings, labels)
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


def _sample_top_of_sets(
    ranked: RankedGroups,
    sets: NDArray[np.int64],
    k: int,
    settings: MetricSettings,
    labels: Sequence[str],
) -> TopSample:
    """As `sample_top`, with whole sets drawn and left out, and labels shuffled within sets."""
    g, codes, blocks = ranked.n_groups, ranked.codes, set_blocks(sets, rankings=len(ranked.order))
    own = np.unique(sets, return_inverse=True)[1]
    of_set, of_block = _set_table(own, ranked), _set_table(blocks, ranked)
    rng = generator(settings.seed, *labels, "bootstrap")
    resamples = min(settings.resamples, CLUSTER_RESAMPLES)
    drawn = rng.multinomial(len(of_set), np.full(len(of_set), 1 / len(of_set)), size=resamples)
    # What holds fewer than k images cannot be ranked.
    drawn = drawn[(drawn @ of_set).sum(axis=1) >= k]
    without = 1 - np.eye(len(of_block), dtype=np.int64)
    without = without[(without @ of_block).sum(axis=1) >= k]
    # Where no set can be left out, the acceleration of BCa is that of values that do not vary: 0.
    without = without if len(without) else np.ones((1, len(of_block)), dtype=np.int64)
    counts = top_counts(codes, k=k, n_groups=g)
    chance = _chance_counts_of_sets(ranked, k)
    return TopSample(
        k=k,
        sizes=ranked.sizes,
        counts=counts,
        resampled=resample_top_counts_of_clusters(codes, own[ranked.order], drawn, k=k, n_groups=g),
        totals=(drawn @ of_set).T[None],
        left=resample_top_counts_of_clusters(codes, blocks[ranked.order], without, k=k, n_groups=g).astype(
            np.int64
        ),
        left_totals=(without @ of_block).T[None],
        left_weight=np.ones((1, len(without)), dtype=np.int64),
        p=_two_sided(counts, chance),
        chance=chance,
    )


def _set_table(sets: NDArray[np.int64], ranked: RankedGroups) -> NDArray[np.int64]:
    """Return (s, g) images of each set and group."""
    table = np.zeros((int(sets.max()) + 1, ranked.n_groups), dtype=np.int64)
    np.add.at(table, (sets, ranked.groups), 1)
    return table


def set_blocks(sets: NDArray[np.int64], *, rankings: int) -> NDArray[np.int64]:
    """Return the block of each image, (n,): what is left out as a whole. A set, or where sets are many, several."""
    own = np.unique(sets, return_inverse=True)[1]
    most = max(FEW_CLUSTERS, min(MOST_BLOCKS, MOST_WALKED // max(rankings * len(own), 1)))
    return own % min(int(own.max()) + 1, most)


def deal_in_sets(
    groups: NDArray[np.int64], sets: NDArray[np.int64], *, settings: MetricSettings, labels: Sequence[str]
) -> NDArray[Any]:
    """Shuffle labels as the sets allow: within sets, or whole sets where each is of one group.

    Returns
    -------
    (p, n) uint8 or uint16
        Groups of the images; at most `SET_PERMUTATIONS` times, fewer for very many images.
    """
    fewer = max(LEAST_PERMUTATIONS, MOST_WALKED // len(groups))
    permutations = min(settings.permutations, SET_PERMUTATIONS, fewer)
    rng = generator(settings.seed, *labels, "permutation")
    dealt = np.empty((permutations, len(groups)), dtype=np.uint8 if groups.max() < 256 else np.uint16)
    for start in range(0, permutations, 50):
        rows = dealt[start : start + 50]
        rows[:] = permute_labels(groups, sets, permutations=len(rows), rng=rng)
    return dealt


def dealt_labels(ranked: RankedGroups) -> NDArray[Any]:
    """Return the shuffled labels (p, n) of rankings of sets; raises MetricError where none were given."""
    if ranked.dealt is None:
        raise MetricError("rankings of sets need shuffled labels", hint="give `dealt`, from deal_in_sets")
    return ranked.dealt


def _chance_counts_of_sets(ranked: RankedGroups, k: int) -> NDArray[np.int64]:
    """Return the top-k counts (m, g, p) after shuffling labels as the sets allow."""
    dealt = dealt_labels(ranked)
    groups = np.arange(ranked.n_groups, dtype=dealt.dtype)
    tops = (dealt[:, order[:k]] for order in ranked.order)
    return np.stack([np.stack([(top == group).sum(axis=1) for group in groups]) for top in tops])


def _two_sided(counts: NDArray[np.int64], chance: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return twice the smaller one-sided permutation p of counts (m, g) among (m, g, p), at most 1."""
    above = 1 + (chance >= counts[..., None]).sum(axis=-1)
    below = 1 + (chance <= counts[..., None]).sum(axis=-1)
    return np.minimum(2 * np.minimum(above, below) / (1 + chance.shape[-1]), 1.0)


# --- Skew@k, MaxSkew@k and NDKL of many rankings of the same images, each with its interval and p-value.

Desired = Literal["equal", "ranked"]


@dataclass(frozen=True)
class Estimates:
    """Values with their intervals and p-values, one an entry.

    Attributes
    ----------
    value, low, high : (...) float64
        Ends are nan where the resamples do not vary.
    p : (...) float64
        Against a ranking that has nothing to do with the groups.
    percentile : (...) bool
        Where the interval is the percentile one, since all resamples lie on one side of the estimate.
    widened : (...) bool
        Where the interval was widened to the value of a ranking without preference.
    chance : (1, p) or (m, p) float64, or None
        What random rankings give, for measures that chance makes positive.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p: NDArray[np.float64]
    percentile: NDArray[np.bool_]
    widened: NDArray[np.bool_]
    chance: NDArray[np.float64] | None = None


class SkewEstimates(NamedTuple):
    """Skew@k of every group, (m, g), and the largest, MaxSkew@k, (m,)."""

    by_group: Estimates
    largest: Estimates


def skew_estimates(top: TopSample, desired: Desired, *, confidence: float = 0.95) -> SkewEstimates:
    """Return Skew@k and MaxSkew@k against equal desired shares or those of the ranked set.

    Intervals are BCa of share / desired share, which never is infinite, and then its logarithm: values and ends of
    absent groups are -inf.

    The largest of several ratios that are nearly equal is too large, and BCa mends that only in part. So the interval
    of MaxSkew@k is joined with that from the largest lower to the largest upper end of the groups' own intervals. And
    a ranking without preference has the MaxSkew@k of a top that mirrors the ranked set, to which resampling only ever
    adds: as in `plumbline.statistics.estimates`, where the permutation test does not reject "the ranking has nothing
    to do with the groups" (p > 1 - confidence), the interval reaches from that value, as low as the composition of the
    set leaves open, to the further of the BCa and percentile ends.

    Coverage is measured in `tests/metrics/test_ranking_truth.py`.

    Parameters
    ----------
    desired : {"equal", "ranked"}
        The second needs `top.totals`; its shares are those of each replicate.
    """
    sizes = top.sizes[None, :, None]
    value = _ratios(top.counts[..., None], sizes, top.k, desired)[..., 0]
    left = _ratios(top.left, top.left_totals, top.k, desired)
    weight = np.broadcast_to(top.left_weight, (len(left), left.shape[2]))
    scale, found, replicates = _scored(top, value, desired)
    each = bca_intervals(found, replicates, acceleration(left, weight[:, None]), confidence=confidence)
    lean = acceleration(left.max(axis=1), weight)
    every = bca_intervals(found.max(axis=1), replicates.max(axis=1), lean, confidence=confidence)
    by_group = Estimates(
        value=_log(value),
        low=_log(scale * each.low),
        high=_log(scale * each.high),
        p=top.p,
        percentile=each.percentile,
        widened=np.zeros(value.shape, dtype=bool),
    )
    chance = _ratios(top.chance, sizes, top.k, desired).max(axis=1)
    p = p_above(value.max(axis=1), chance)
    mirrored = _mirrored(top.sizes, confidence) if desired == "equal" else 1.0
    # fmax and fmin pass over groups whose counts do not vary and have no interval.
    every = replace(
        every,
        low=np.fmin(every.low, np.fmax.reduce(each.low, axis=1)),
        high=np.fmax(every.high, np.fmax.reduce(each.high, axis=1)),
    )
    largest = _max_estimates(value.max(axis=1), p, every, scale, mirrored, confidence)
    return SkewEstimates(by_group, replace(largest, chance=_log(chance)))


def _scored(
    top: TopSample, value: NDArray[np.float64], desired: Desired
) -> tuple[float, NDArray[np.float64], NDArray[Any]]:
    """Return what is resampled: a factor, and found and replicated numbers of which the ratios are that multiple."""
    if desired == "equal":
        # The counts themselves: whole numbers sort faster.
        return len(top.sizes) / top.k, top.counts.astype(np.float64), top.resampled
    if top.totals is None:
        raise MetricError("the shares of the ranked set need resampled group totals")
    return 1.0, value, _ratios(top.resampled, top.totals, top.k, desired)


def _max_estimates(
    value: NDArray[np.float64],
    p: NDArray[np.float64],
    found: Intervals,
    scale: float,
    mirrored: float,
    confidence: float,
) -> Estimates:
    low, high, plain_low, plain_high = (
        scale * end for end in (found.low, found.high, found.percentile_low, found.percentile_high)
    )
    widened = (p > 1 - confidence) & ~np.isnan(plain_low)
    low = np.where(widened, np.minimum(np.minimum(plain_low, mirrored), low), low)
    high = np.where(widened, np.maximum(np.maximum(plain_high, mirrored), high), high)
    # The largest ratio is never below 1: rounding must not make its logarithm negative.
    value, low, high = (np.maximum(_log(end), 0.0) for end in (value, low, high))
    return Estimates(value, low, high, p, found.percentile & ~widened, widened)


def _mirrored(sizes: NDArray[np.int64], confidence: float) -> float:
    """Return the lowest largest share / equal share of a top that mirrors the ranked set.

    The set is a sample itself: in what it was drawn from the groups may be nearer to equal. The lower ends of Wilson's
    intervals of their shares, which together hold with the given confidence (Bonferroni).
    """
    low, _ = wilson(sizes, sizes.sum(), confidence=1 - (1 - confidence) / len(sizes))
    return max(1.0, float(low.max()) * len(sizes))


def _ratios(
    counts: NDArray[Any], totals: NDArray[np.integer], k: int, desired: Desired
) -> NDArray[np.float64]:
    """Return share / desired share of counts (m, g, x) and totals that broadcast to them.

    A group that a replicate does not hold at all has ratio 0.
    """
    if desired == "equal":
        return counts * (counts.shape[1] / k)
    wanted = np.broadcast_to(totals * (k / totals.sum(axis=1, keepdims=True)), counts.shape)
    return np.divide(counts, wanted, out=np.zeros(counts.shape), where=wanted > 0)


def ndkl_estimates(ranked: RankedGroups, desired: Desired, *, settings: MetricSettings) -> Estimates:
    """Return NDKL, (m,), of rankings: interval by the jackknife, p by random rankings.

    The interval is NDKL ± t × the jackknife standard error over images, or over sets, clipped at 0. Where images come
    in sets, labels are shuffled within them; p is nan where that cannot be done a hundred times in reasonable time.
    """
    shares = equal_shares(ranked.n_groups) if desired == "equal" else ranked.sizes / ranked.n
    given = shares if desired == "equal" else None
    value = ndkl_sums(ranked.codes, ranked.n_groups).against(shares)
    if ranked.sets is None:
        left = ndkl_without_one(ranked.codes, ranked.n_groups, given)
        permutations = min(settings.permutations, CHANCE_PERMUTATIONS)
        sizes = tuple(ranked.sizes.tolist())
        random = ndkl_by_chance(sizes, permutations=permutations, seed=settings.seed)
        chance = random.against(shares)[None]
    else:
        blocks = set_blocks(ranked.sets, rankings=len(ranked.order))
        # A single set cannot be left out: one unit has no standard error.
        left = (
            ndkl_without_sets(ranked.codes, blocks[ranked.order], ranked.n_groups, given)
            if blocks.any()
            else value[:, None]
        )
        chance = _ndkl_of_dealt(ranked, shares)
    low, high = t_intervals(
        value, jackknife_errors(left), units=left.shape[1], confidence=settings.confidence
    )
    neither = np.zeros(value.shape, dtype=bool)
    p = p_above(value, chance) if chance.size else np.full(value.shape, np.nan)
    return Estimates(value, np.maximum(low, 0.0), high, p, neither, neither, chance)


def _ndkl_of_dealt(ranked: RankedGroups, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return NDKL (m, p) after shuffling labels as the sets allow; p is 0 where that would take too long."""
    walked = ranked.order.size
    bearable = walked * LEAST_PERMUTATIONS <= 3 * MOST_WALKED
    dealt = dealt_labels(ranked)[: max(LEAST_PERMUTATIONS, MOST_WALKED // walked) if bearable else 0]
    values, step = np.empty((len(ranked.order), len(dealt))), max(1, AT_ONCE // ranked.n)
    for order, out in zip(ranked.order, values):
        for start in range(0, len(dealt), step):
            sums = ndkl_sums(dealt[start : start + step, order], ranked.n_groups)
            out[start : start + step] = sums.against(shares)
    return values


def p_above(value: NDArray[np.float64], chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p = (1 + draws at least as large) / (1 + draws) (Phipson & Smyth 2010) of many values at once.

    Parameters
    ----------
    value : (m,) float
    chance : (m, p) or (1, p) float
        Ties within 1e-12 count as at least as large.
    """
    slack = 1e-12 * np.maximum(1.0, np.abs(value))
    return (1 + (chance >= (value - slack)[:, None]).sum(axis=1)) / (1 + chance.shape[1])


def _log(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(ratio)


# --- Rows of the ranking metrics: who comes first when faces are ranked by how well a word fits them.

CHANCE = "chance"
"""Column `statistic` of what random rankings give: the mean as value, the middle of the draws as interval."""


@dataclass(frozen=True)
class Prompts:
    """What the faces are ranked by: the scales, then their words.

    A face's score is its cosine with a word, mean over the templates; that of a scale is the mean over its words.

    Attributes
    ----------
    records : DataFrame
        The faces that count, by image id.
    names : tuple of dict
        The columns `event` (a scale) or `probe` (a word) of each ranking.
    scales : int
        How many of the rankings are of scales; these come first.
    order : (m, n) int64
        Faces by rank, best first.
    """

    records: pl.DataFrame
    names: tuple[Row, ...]
    scales: int
    order: NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """The faces of one attribute's groups, ranked by every scale and word."""

    common: Row
    names: tuple[str, ...]
    ranked: RankedGroups
    prompts: Prompts
    k: int
    settings: MetricSettings

    @property
    def small(self) -> str | None:
        """Name the small groups."""
        return small_groups_reason(self.names, self.ranked.sizes.tolist(), self.settings.min_group)


def ranking_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return Skew@k, MaxSkew@k and NDKL of every attribute with labels, for every scale and word of `perception`.

    Images are ranked by cosine, equal ones by image id; unlabelled images take no rank. Scales have rows against equal
    desired shares, against the shares of the ranked set, and `floored` ones for groups that are absent from the top
    k; words against equal shares. None for an encoder without cosines.
    """
    prepared = [
        partial(_ranking, cell, logits, prompts, groups, settings)
        for logits in cell.logits.values()
        if logits.suite.family == "perception" and logits.cosine is not None
        for prompts in [_prompts(cell, logits)]
        for groups in attribute_groups(prompts.records)
        if groups.attribute in AUDITED_ATTRIBUTES
    ]
    rankings = [each for each in run_threads(prepared) if each is not None]
    parts: list[Callable[[], list[Row]]] = []
    for ranking in rankings:
        parts += [partial(_top_rows, ranking), partial(_whole_rows, ranking)]
    return metric_frame(list(chain.from_iterable(run_threads(parts))))


def _ranking(
    cell: Cell,
    logits: SuiteLogits,
    prompts: Prompts,
    groups: Groups,
    settings: MetricSettings,
) -> Ranking | None:
    """Leave the unlabelled images out of the rankings; None where nothing can be compared."""
    labelled = groups.codes >= 0
    k = usual_k(int(labelled.sum()))
    if len(groups.names) < 2 or k < 1:
        return None
    suite, codes = logits.suite, groups.codes[labelled]
    common = base_row(cell, suite=suite.id, suite_hash=suite.hash, attribute=groups.attribute)
    place, order = np.cumsum(labelled) - 1, prompts.order
    kept = place[order[labelled[order]].reshape(len(order), -1)]
    sets, dealt = cluster_codes(prompts.records), None
    if sets is not None:
        sets = sets[labelled]
        dealt = deal_in_sets(codes, sets, settings=settings, labels=_labels(common))
    ranked = RankedGroups(kept, codes, len(groups.names), sets, dealt)
    return Ranking(common, groups.names, ranked, prompts, k, settings)


def _labels(common: Row) -> list[str]:
    """Return what draws for these rankings alone are named by."""
    return [str(common[key]) for key in ("model", "dataset", "suite", "attribute")]


def _prompts(cell: Cell, logits: SuiteLogits) -> Prompts:
    """Return what the faces that count are ranked by."""
    suite = logits.suite
    labels = cell.labels(suite.id)
    # By id from here on: neither ties nor draws then depend on the order of the rows.
    rows = np.argsort(labels["image_id"].to_numpy(), kind="stable")
    rows = rows[cell.rows(suite.id)[rows]]
    words = list(dict.fromkeys(word for scale in suite.scales.values() for word in scale))
    by_word = logits.by_template(words)[rows].mean(axis=1)
    by_scale = [by_word[:, [words.index(word) for word in own]].mean(axis=1) for own in suite.scales.values()]
    names: list[Row] = [{"event": scale} for scale in suite.scales]
    names += [{"probe": word} for word in words]
    order = rank_order(np.column_stack([*by_scale, by_word]))
    return Prompts(labels[rows], tuple(names), len(by_scale), order)


def _top_rows(ranking: Ranking) -> list[Row]:
    """Return the rows of Skew@k and MaxSkew@k."""
    settings, k, labels = ranking.settings, ranking.k, _labels(ranking.common)
    scales = ranking.ranked.only(slice(0, ranking.prompts.scales))
    readings: tuple[tuple[TopSample, Desired], ...] = (
        (sample_top(ranking.ranked, k=k, settings=settings, labels=[*labels, "all"]), "equal"),
        (sample_top(scales, k=k, settings=settings, labels=[*labels, "scales"], with_totals=True), "ranked"),
    )
    rows: list[Row] = []
    for top, desired in readings:
        by_group, largest = skew_estimates(top, desired, confidence=settings.confidence)
        rows += _skew_rows(ranking, top, by_group, desired) + _max_rows(ranking, largest, desired)
        rows.append(_chance_row(ranking, "max_skew_at_k", desired, largest) | {"k": k})
    return rows


def _skew_rows(ranking: Ranking, top: TopSample, found: Estimates, desired: Desired) -> list[Row]:
    rows: list[Row] = []
    sizes = ranking.ranked.sizes
    few = few_clusters_reason(ranking.ranked.sets)
    small = [group_size_reason(int(size), ranking.settings.min_group) for size in sizes]
    shares = equal_shares(len(sizes))
    for i, j in np.ndindex(found.value.shape):
        row = _row(ranking, i, found, (i, j), metric="skew_at_k", definition=desired)
        row |= {"group": ranking.names[j], "k": ranking.k, "n": int(sizes[j])}
        absent = f"no image of the group among the {ranking.k} best" if top.counts[i, j] == 0 else None
        row["reason"] = joined(absent, small[j], few, _interval_reason(found, (i, j)))
        rows.append(row)
        if absent and desired == "equal" and i < ranking.prompts.scales:
            floor = float(skew_values(np.zeros(1), shares[:1], k=ranking.k, floor=True)[0])
            ends = [max(float(end), floor) for end in (found.low[i, j], found.high[i, j])]
            floored = {"definition": "floored", "value": floor, "ci_low": ends[0], "ci_high": ends[1]}
            rows.append(row | floored)
    return rows


def _max_rows(ranking: Ranking, found: Estimates, desired: Desired) -> list[Row]:
    rows: list[Row] = []
    few = few_clusters_reason(ranking.ranked.sets)
    for i in range(len(found.value)):
        row = _row(ranking, i, found, i, metric="max_skew_at_k", definition=desired)
        reason = joined(ranking.small, few, _interval_reason(found, i))
        rows.append(row | {"k": ranking.k, "n": ranking.ranked.n, "reason": reason})
    return rows


def _whole_rows(ranking: Ranking) -> list[Row]:
    """Return the rows of NDKL."""
    rows: list[Row] = []
    few = few_clusters_reason(ranking.ranked.sets)
    for desired, chosen in _chosen(ranking):
        ranked = ranking.ranked.only(chosen)
        found = ndkl_estimates(ranked, desired, settings=ranking.settings)
        untested = "not tested: too many images in sets to shuffle" if np.isnan(found.p).any() else None
        single = "no interval: all images are of one set" if np.isnan(found.low).any() else None
        reason = joined(ranking.small, few, single, untested)
        rows += [
            _row(ranking, chosen.start + i, found, i, metric="ndkl", definition=desired)
            | {"n": ranking.ranked.n, "reason": reason}
            for i in range(len(found.value))
        ]
        if chosen.start == 0 and untested is None:
            rows.append(_chance_row(ranking, "ndkl", desired, found))
    return rows


def _chosen(ranking: Ranking) -> Iterator[tuple[Desired, slice]]:
    """Give desired shares with the rankings that have rows for them; words apart, so that scales get more draws."""
    yield "equal", slice(0, ranking.prompts.scales)
    yield "ranked", slice(0, ranking.prompts.scales)
    yield "equal", slice(ranking.prompts.scales, None)


def _row(ranking: Ranking, i: int, found: Estimates, at: int | tuple[int, int], **columns: object) -> Row:
    return (
        ranking.common
        | ranking.prompts.names[i]
        | columns
        | {
            "value": float(found.value[at]),
            "ci_low": float(found.low[at]),
            "ci_high": float(found.high[at]),
            "p": float(found.p[at]),
        }
    )


def _interval_reason(found: Estimates, at: int | tuple[int, int]) -> str | None:
    if np.isnan(found.low[at]):
        return "no interval: the resamples do not vary"
    if found.percentile[at]:
        return "percentile interval: every resample lies on one side of the estimate"
    if found.widened[at]:
        return "interval reaches the value without preference: no significant difference"
    return None


def _chance_row(ranking: Ranking, metric: str, definition: str, found: Estimates) -> Row:
    """Return what random rankings give: neither measure is 0 by chance, so a reader needs it beside the values."""
    assert found.chance is not None
    tail = (1 - ranking.settings.confidence) / 2
    low, high = np.quantile(found.chance, [tail, 1 - tail])
    return ranking.common | {
        "metric": metric,
        "definition": definition,
        "statistic": CHANCE,
        "value": float(found.chance.mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "n": ranking.ranked.n,
        "reason": "random rankings of these groups: not an estimate of the model",
    }


# --- The ranking family: whose faces come first when faces are ranked by how well a word fits them.

_DESCRIPTION = """
Whose faces come first when all faces are ranked by how well an adjective of social perception fits them (warm,
competent, untrustworthy, ...). Skew@k: the logarithm of a group's share among the k best over the share it should
have, 0 is fair, ln 2 is twice as often. MaxSkew@k: the largest over groups. NDKL: how far all prefixes of the ranking
are from the desired shares, which chance alone makes positive. Desired are equal shares, or those of the ranked set.
Every number has a bootstrap or jackknife interval and an exact or permutation p-value.
"""

_TRAITS = (
    Traits(
        name="skew_at_k",
        meaning=(
            "Whether a group is more or less frequent among the k best matches of a word than it should "
            "be; ln 2 is twice."
        ),
        formula="ln(share of g among the k best / desired share of g)",
        source="Hausladen et al., Social perception of faces, B.1, equation 8; after Geyik et al. (2019)",
        function=skew_at_k,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="by id",
    ),
    Traits(
        name="max_skew_at_k",
        meaning="The most favoured group's Skew@k.",
        formula="max_g Skew_g@k",
        source="Hausladen et al., Social perception of faces, B.1; after Geyik et al. (2019)",
        headline="equal",
        function=max_skew_at_k,
        bounds=(0, np.inf),
        shape="scalar",
        when_identical=0.0,
        empty_group="left_out",
        ties="by id",
    ),
    Traits(
        name="ndkl",
        meaning=(
            "How far the groups' shares in every prefix of a ranking are from the desired ones, the top "
            "counting most. Never 0: read it beside what chance gives."
        ),
        formula="(1/Z) Σ_i KL(D_i ‖ D) / log2(i + 1), Z = Σ_i 1 / log2(i + 1)",
        source=(
            "Hausladen et al., Social perception of faces, B.1, equations 9 and 10; after Geyik et al. (2019)"
        ),
        headline="equal",
        function=ndkl,
        bounds=(0, np.inf),
        shape="scalar",
        # Even a ranking that deals the groups out in turn has a first image, of one group.
        when_identical=None,
        empty_group="left_out",
        ties="by id",
    ),
)

RANKINGS = Family(
    name="ranking_metrics",
    title="Social perception: rankings",
    description=" ".join(_DESCRIPTION.split()),
    code_version="1",
    needs=("perception",),
    traits=_TRAITS,
    compute=ranking_rows,
)
