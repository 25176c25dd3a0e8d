"""Skew@k, MaxSkew@k and NDKL of many rankings of the same images, each with its interval and p-value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.desired_shares import equal_shares
from plumbline.metrics.ndkl import (
    AT_ONCE,
    CHANCE_PERMUTATIONS,
    jackknife_errors,
    ndkl_by_chance,
    ndkl_sums,
    ndkl_without_one,
    ndkl_without_sets,
)
from plumbline.metrics.ranking_samples import (
    LEAST_PERMUTATIONS,
    MOST_WALKED,
    RankedGroups,
    TopSample,
    dealt_labels,
    set_blocks,
)
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.bca_intervals import Intervals, acceleration, bca_intervals
from plumbline.statistics.intervals import wilson
from plumbline.statistics.linearised import t_intervals

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
