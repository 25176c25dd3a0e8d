"""Bootstrap of the top of a ranking: how many images of each group are among the k best of a resample.

A resample of n images draws n ranks with replacement. As points of (0, 1) they are n uniform numbers, rank r being
the interval from (r - 1)/n to r/n. The k-th smallest of them is Beta(k, n - k + 1), and given its value u the k - 1
below it are independent and uniform on (0, u). So k draws and the beta one replace n draws and a sort.

They are draws of ranks, not of images, so the same serve every prompt, group and encoder. And the ranks above the
boundary's are exchangeable: for each ranking they may be taken in the order of their groups. A group's count is then
how many draws lie between two ranks, which is looked up in the cumulative counts of the draws.

Images that come in sets have no such shortcut: there whole sets are drawn, and the ranking is walked by weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from plumbline.errors import MetricError
from plumbline.statistics.seeds import generator

SET_RESAMPLES = 1_000
"""Replicates at most where whole sets are drawn: each costs as much as its top of the ranking is long."""
_DRAWN_AT_ONCE, _WALKED_AT_ONCE = 32, 64
"""Replicates of one step: few enough that its numbers stay in the cache of a core."""


@dataclass(frozen=True)
class TopDraws:
    """What resampling n images does to the first ranks, whatever the images.

    Attributes
    ----------
    before : (r, length) int32
        How many of the k best draws of each replicate fell on a rank above each rank; column 0 is the first rank.
    rank : (r,) int64
        Rank of the k-th best draw, from 0.
    at_rank : (r,) int64
        How many of the k best draws fell on that rank, at least 1.
    boundary : (r,) float64
        n·u: where the k-th best draw lies within its rank, in (0, n).
    n, k : int
    """

    before: NDArray[np.int32]
    rank: NDArray[np.int64]
    at_rank: NDArray[np.int64]
    boundary: NDArray[np.float64]
    n: int
    k: int


@lru_cache(maxsize=4)
def top_draws(n: int, k: int, *, resamples: int, seed: int) -> TopDraws:
    """Draw how often each rank is among the k best of a resample of n images.

    Parameters
    ----------
    n, k : int
        1 <= k <= n.
    resamples : int
        Replicates, at least 1.
    seed : int
        The draws depend on it and on n, k and resamples alone: every encoder and prompt is resampled alike.

    Returns
    -------
    TopDraws
        Some 45 MB for k = 1,000 and 10,000 replicates.

    Raises
    ------
    MetricError
        If k or `resamples` is out of range.
    """
    if not 1 <= k <= n or resamples < 1:
        raise MetricError(
            "the top of a ranking cannot be resampled so", found=f"k {k}, n {n}, {resamples} resamples"
        )
    rng = generator(seed, "top of a ranking", n, k, resamples)
    boundary = n * rng.beta(k, n - k + 1, size=resamples)
    # The largest float below n, so that no draw falls past the last rank.
    boundary = np.minimum(boundary, np.nextafter(n, 0))
    rank = boundary.astype(np.int64)
    length = int(rank.max()) + 1
    before = np.zeros((resamples, length), dtype=np.int32)
    for start in range(0, resamples, _DRAWN_AT_ONCE):
        ends = boundary[start : start + _DRAWN_AT_ONCE, None]
        drawn = (rng.random((len(ends), k - 1)) * ends).astype(np.int64)
        drawn += length * np.arange(len(ends))[:, None]
        on_rank = np.bincount(drawn.ravel(), minlength=len(ends) * length).reshape(len(ends), length)
        np.cumsum(on_rank[:, :-1], axis=1, out=before[start : start + _DRAWN_AT_ONCE, 1:])
    at_rank = k - before[np.arange(resamples), rank].astype(np.int64)
    for array in (before, rank, at_rank, boundary):
        array.flags.writeable = False
    return TopDraws(before, rank, at_rank, boundary, n, k)


def resample_top_counts(ranked: NDArray[np.integer], draws: TopDraws, *, n_groups: int) -> NDArray[np.int32]:
    """Return how many images of each group are among the k best of every replicate of every ranking.

    Parameters
    ----------
    ranked : (m, n) int
        Group code at every rank, best first.
    draws : TopDraws
        Of the same n.

    Returns
    -------
    (m, g, r) int32
        Sums to k over the groups.
    """
    _check_length(ranked, draws)
    resamples, length = draws.before.shape
    counts = np.empty((len(ranked), n_groups, resamples), dtype=np.int32)
    row = length * np.arange(resamples)
    everyone = (draws.k - draws.at_rank).astype(np.int32)
    for codes, out in zip(ranked[:, :length], counts):
        earlier: NDArray[np.int32] | int = 0
        for group in range(n_groups - 1):
            # Images of this group and the ones before it above each rank: where the next group's ranks begin.
            member = codes <= group
            ends = np.cumsum(member) - member
            reached = draws.before.ravel().take(row + ends[draws.rank])
            np.subtract(reached, earlier, out=out[group])
            earlier = reached
        np.subtract(everyone, earlier, out=out[-1])
        out[codes[draws.rank], np.arange(resamples)] += draws.at_rank.astype(np.int32)
    return counts


def resample_group_totals(
    ranked: NDArray[np.integer],
    top_counts: NDArray[np.int32],
    draws: TopDraws,
    *,
    n_groups: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return how many images of each group the replicates of `resample_top_counts` hold in all.

    Given the k-th smallest number u, the n - k above it are independent and uniform on (u, 1): their groups are
    multinomial with the shares of the ranks beyond the boundary.

    Returns
    -------
    (m, g, r) int64
        Sums to n over the groups.
    """
    _check_length(ranked, draws)
    rank = draws.rank
    beyond = (rank + 1 - draws.boundary)[:, None]
    totals = top_counts.astype(np.int64)
    for codes, total in zip(ranked, totals):
        # Images of each group at the ranks after each rank that can be the boundary.
        first = np.eye(n_groups)[codes[: rank.max() + 1]]
        after = np.bincount(codes, minlength=n_groups) - np.cumsum(first, axis=0)
        weight = after[rank] + beyond * first[rank]
        rest = rng.multinomial(draws.n - draws.k, weight / weight.sum(axis=1, keepdims=True))
        total += rest.T
    return totals


def resample_top_counts_of_sets(
    ranked: NDArray[np.integer],
    ranked_sets: NDArray[np.integer],
    weights: NDArray[np.integer],
    *,
    k: int,
    n_groups: int,
) -> NDArray[np.int32]:
    """Return the top-k counts where each image counts as often as its set was drawn.

    Parameters
    ----------
    ranked, ranked_sets : (m, n) int
        Group code and set code at every rank, best first.
    weights : (r, s) int
        How often each set was drawn, or 0 and 1 to leave sets out. Every row must give at least k images.

    Returns
    -------
    (m, g, r) int32

    Raises
    ------
    MetricError
        If a replicate has fewer than k images.
    """
    drawn = weights.astype(np.float32)
    counts = np.empty((len(ranked), n_groups, len(weights)), dtype=np.int32)
    for codes, sets, out in zip(ranked, ranked_sets, counts):
        # Whole numbers below 2^24 are whole in float32 too.
        member = (codes == np.arange(n_groups, dtype=codes.dtype)[:, None]).astype(np.float32)
        for start in range(0, len(weights), _WALKED_AT_ONCE):
            taken = _taken(drawn[start : start + _WALKED_AT_ONCE], sets, k)
            out[:, start : start + _WALKED_AT_ONCE] = member[:, : taken.shape[1]] @ taken.T
    return counts


def _taken(drawn: NDArray[np.float32], sets: NDArray[np.integer], k: int) -> NDArray[np.float32]:
    """Return how often the image at each rank is among the k best, (r, length), as far down as is needed."""
    length = min(2 * k, len(sets))
    while True:
        times = drawn[:, sets[:length]]
        reached = np.cumsum(times, axis=1)
        if reached[:, -1].min() >= k:
            return np.clip(k - reached + times, 0, times)
        if length == len(sets):
            raise MetricError(
                "a replicate has fewer than k images", found=int(reached[:, -1].min()), expected=k
            )
        length = min(2 * length, len(sets))


def _check_length(ranked: NDArray[np.integer], draws: TopDraws) -> None:
    if ranked.ndim != 2 or ranked.shape[1] != draws.n:
        raise MetricError(
            "the draws are of rankings of another length", found=ranked.shape, expected=f"(m, {draws.n})"
        )


def leave_one_out_top_counts(
    ranked: NDArray[np.integer], *, k: int, n_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the top-k counts without one image, for every kind of image there is.

    Only two things about an image matter: its group, and whether it is among the k best, where the next in rank then
    takes its place.

    Parameters
    ----------
    ranked : (m, n) int
        With n > k.

    Returns
    -------
    counts : (m, 2, g, g) int64
        Last axis: the counts left. [:, 0, h] without an image of group h among the k best, [:, 1, h] without one
        of the others.
    totals : (m, 2, g, g) int64
        Images of each group that are left.
    images : (m, 2, g) int64
        How many images each kind has.
    """
    if ranked.shape[1] <= k:
        raise MetricError("no image can be left out of the k best of k", found=f"k {k}, n {ranked.shape[1]}")
    one = np.eye(n_groups, dtype=np.int64)
    top = top_counts(ranked, k=k, n_groups=n_groups)
    size = np.bincount(ranked[0], minlength=n_groups)
    within = top[:, None, :] - one + one[ranked[:, k]][:, None, :]
    counts = np.stack([within, np.broadcast_to(top[:, None, :], within.shape)], axis=1)
    totals = np.broadcast_to(size - one, counts.shape)
    return counts, totals, np.stack([top, size - top], axis=1)


def top_counts(ranked: NDArray[np.integer], *, k: int, n_groups: int) -> NDArray[np.int64]:
    """Return how many of the k best of each ranking are of each group: (m, n) codes to (m, g) int64."""
    return (ranked[:, :k, None] == np.arange(n_groups, dtype=ranked.dtype)).sum(axis=1)


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
