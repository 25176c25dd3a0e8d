"""Counts of groups among the top of a ranking: bootstrap, jackknife and what chance gives; overlap of two rankings."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.seeds import generator


def rank_order(scores: ArrayLike, ids: ArrayLike | NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return the images of every ranking from the highest score to the lowest.

    Parameters
    ----------
    scores : (n,) or (n, m) float
        One ranking per column. Compared as float64.
    ids : (n,) sortable, optional
        Equal scores are ordered by id; by position in the input where none are given, or where ids are equal too.

    Returns
    -------
    (m, n) int64
        Positions in the input; row j ranks column j.

    Raises
    ------
    MetricError
        If a score is not a finite number, or there is not one id per image.
    """
    columns = np.asarray(scores, dtype=np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or not np.isfinite(columns).all():
        raise MetricError(
            "a ranking needs one finite score per image",
            where="scores",
            found=f"shape {columns.shape}, {int((~np.isfinite(columns)).sum())} not finite",
            expected="(n,) or (n, m), no nan",
        )
    if ids is None:
        return _descending(np.ascontiguousarray(columns.T))
    names = np.asarray(ids)
    if names.shape != (len(columns),):
        raise MetricError("there must be one id per image", found=names.shape, expected=(len(columns),))
    by_id = np.argsort(names, kind="stable")
    return by_id[_descending(np.ascontiguousarray(columns[by_id].T))]


def _descending(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return `argsort(-rows, kind="stable")` of every row, in half its time.

    A float becomes a whole number of the same order, whose lowest bits give way to the position: plain sorting then
    does. Scores that come from float32 lose only zeros; a row that lost bits should have ordered is sorted as usual.
    """
    order = np.empty(rows.shape, dtype=np.int64)
    bits = max(1, (rows.shape[1] - 1).bit_length())
    position = (1 << bits) - 1
    # Row by row: the steps of one stay in the cache of a core.
    for row, out in zip(rows, order):
        # Subtracting from 0.0 makes -0.0, which equals 0.0, the same number.
        keys = (0.0 - row).view(np.int64)
        keys ^= (keys >> 63) & np.iinfo(np.int64).max
        lossy = (keys & position).any()
        keys &= ~position
        keys |= np.arange(row.size)
        keys.sort()
        np.bitwise_and(keys, position, out=out)
        keys >>= bits
        if lossy:
            alike = np.flatnonzero(keys[1:] == keys[:-1])
            if (row[out[alike]] < row[out[alike + 1]]).any():
                out[:] = np.argsort(-row, kind="stable")
    return order


# --- Bootstrap of top-k counts: images of each group among the k best of a resample.
#
# A resample of n images draws n ranks with replacement. As points of (0, 1) they are n uniform numbers,
# rank r being the interval from (r - 1)/n to r/n. The k-th smallest of them is Beta(k, n - k + 1), and
# given its value u the k - 1 below it are independent and uniform on (0, u). So k draws and the beta one
# replace n draws and a sort.
#
# They are draws of ranks, not of images, so the same serve every prompt, group and encoder. And the ranks
# above the boundary's are exchangeable: for each ranking they may be taken in the order of their groups.
# A group's count is then how many draws lie between two ranks, which is looked up in the cumulative
# counts of the draws.
#
# Clustered images have no such shortcut: whole clusters are drawn, and the k best are found by cumulative
# weights along the ranking.

CLUSTER_RESAMPLES = 1_000
"""Maximum number of replicates when whole clusters are drawn: the cost grows with k."""
_DRAWN_AT_ONCE, _WALKED_AT_ONCE, _READ_AT_ONCE = 32, 64, 128
"""Replicates of one step: few enough that its numbers stay in the cache of a core."""


@dataclass(frozen=True)
class TopDraws:
    """Bootstrap draws of the top ranks among n images; they do not depend on the images.

    Attributes
    ----------
    before : (r, length) int32
        How many of the k best draws of each replicate fell on a better rank than each; column 0 is the best rank.
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
        raise MetricError("the top of a ranking cannot be resampled so", found=f"k {k}, n {n}, {resamples} resamples")
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
    n_groups : int
        At least 2.

    Returns
    -------
    (m, g, r) int32
        Sums to k over the groups.
    """
    resamples, length = draws.before.shape
    # Whether an image at each rank is of a group or one before it, (length, g - 1, m), and how many such stand above.
    member = ranked[:, :length].T[:, None] <= np.arange(n_groups - 1, dtype=ranked.dtype)[:, None]
    above: NDArray[np.int64] = np.cumsum(member, axis=0) - member
    counts = np.empty((len(ranked), n_groups, resamples), dtype=np.int32)
    at_rank = draws.at_rank.astype(np.int32)
    for start in range(0, resamples, _READ_AT_ONCE):
        rows = slice(start, start + _READ_AT_ONCE)
        rank, before = draws.rank[rows], draws.before[rows]
        # The ranks above are in the order of their groups: here the next group's begin.
        reached = before.ravel().take(above[rank] + length * np.arange(len(rank))[:, None, None])
        reached += at_rank[rows, None, None] * member[rank]
        counts[:, 0, rows], counts[:, -1, rows] = reached[:, 0].T, draws.k - reached[:, -1].T
        counts[:, 1:-1, rows] = (reached[:, 1:] - reached[:, :-1]).T
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


def cluster_resampled_top_counts(
    ranked: NDArray[np.integer],
    ranked_clusters: NDArray[np.integer],
    weights: NDArray[np.integer],
    *,
    k: int,
    n_groups: int,
) -> NDArray[np.int32]:
    """Return the top-k counts where each image counts as often as its cluster was drawn.

    Parameters
    ----------
    ranked, ranked_clusters : (m, n) int
        Group code and cluster code at every rank, best first.
    weights : (r, s) int
        How often each cluster was drawn, or 0 and 1 to leave clusters out. Every row must give at least k images.

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
    for codes, clusters_of_rank, out in zip(ranked, ranked_clusters, counts):
        # Whole numbers below 2^24 are whole in float32 too.
        member = (codes == np.arange(n_groups, dtype=codes.dtype)[:, None]).astype(np.float32)
        for start in range(0, len(weights), _WALKED_AT_ONCE):
            taken = _taken(drawn[start : start + _WALKED_AT_ONCE], clusters_of_rank, k)
            out[:, start : start + _WALKED_AT_ONCE] = member[:, : taken.shape[1]] @ taken.T
    return counts


def _taken(drawn: NDArray[np.float32], clusters_of_rank: NDArray[np.integer], k: int) -> NDArray[np.float32]:
    """Return how often the image at each rank is among the k best, (r, length), as far down as is needed."""
    length = min(2 * k, len(clusters_of_rank))
    while True:
        times = drawn[:, clusters_of_rank[:length]]
        reached = np.cumsum(times, axis=1)
        if reached[:, -1].min() >= k:
            return np.clip(k - reached + times, 0, times)
        if length == len(clusters_of_rank):
            raise MetricError("a replicate has fewer than k images", found=int(reached[:, -1].min()), expected=k)
        length = min(2 * length, len(clusters_of_rank))


class JackknifeTopCounts(NamedTuple):
    """Top-k counts with one image removed, for each kind of image: its group, and whether it is in the top k.

    Attributes
    ----------
    counts : (m, 2, g, g) int64
        Last axis: the remaining count per group. [:, 0, h] without an image of group h among the k best,
        [:, 1, h] without one of the others.
    totals : (m, 2, g, g) int64
        Images of each group that are left.
    images : (m, 2, g) int64
        How many images each kind has.
    """

    counts: NDArray[np.int64]
    totals: NDArray[np.int64]
    images: NDArray[np.int64]


def leave_one_out_top_counts(ranked: NDArray[np.integer], *, k: int, n_groups: int) -> JackknifeTopCounts:
    """Return the top-k counts with one image removed, for each kind of image.

    Only two things about an image matter: its group, and whether it is among the k best, where the next in rank then
    takes its place.

    Parameters
    ----------
    ranked : (m, n) int
        With n > k.
    """
    if ranked.shape[1] <= k:
        raise MetricError("no image can be left out of the k best of k", found=f"k {k}, n {ranked.shape[1]}")
    one = np.eye(n_groups, dtype=np.int64)
    top = top_counts(ranked, k=k, n_groups=n_groups)
    size = np.bincount(ranked[0], minlength=n_groups)
    within = top[:, None, :] - one + one[ranked[:, k]][:, None, :]
    counts = np.stack([within, np.broadcast_to(top[:, None, :], within.shape)], axis=1)
    totals = np.broadcast_to(size - one, counts.shape)
    return JackknifeTopCounts(counts, totals, np.stack([top, size - top], axis=1))


def top_counts(ranked: NDArray[np.integer], *, k: int, n_groups: int) -> NDArray[np.int64]:
    """Return how many of the k best of each ranking are of each group: (m, n) codes to (m, g) int64."""
    counts = np.empty((len(ranked), n_groups), dtype=np.int64)
    for row, codes in zip(counts, ranked[:, :k]):
        row[:] = np.bincount(codes, minlength=n_groups)
    return counts


# --- Null distribution of top-k counts: a ranking that is independent of the groups.
#
# Every order of the images is then equally likely, so the k best are a draw without replacement: how many
# of them are of a group is hypergeometric. It depends on group sizes and k alone, not on prompts or
# encoders.

_TOSSED_AT_ONCE = 8_000_000
"""Images × rankings whose groups are drawn in one step."""
_TIES = 1 + 1e-7
"""Probabilities that are equal on paper differ in their last bits; the same slack as R's and scipy's Fisher test."""


def top_count_p_values(counts: NDArray[np.integer], sizes: NDArray[np.integer], *, k: int) -> NDArray[np.float64]:
    """Return the exact two-sided p of the top-k count of each group: Fisher's test of group against top k.

    The sum of the probabilities of all counts that are at most as likely as the observed one.

    Parameters
    ----------
    counts : (m, g) int
        Images of each group among the k best.
    sizes : (g,) int
        Images of each group.

    Returns
    -------
    (m, g) float64
        In (0, 1].
    """
    n = int(np.sum(sizes))
    columns = [_two_sided(n, int(size), k)[count] for size, count in zip(sizes, np.asarray(counts).T)]
    return np.stack(columns, axis=1)


@lru_cache(maxsize=256)
def _two_sided(n: int, size: int, k: int) -> NDArray[np.float64]:
    """Return p of every count 0 .. k; those that cannot occur have 0."""
    from scipy.stats import hypergeom

    pmf = hypergeom(n, size, k).pmf(np.arange(k + 1))
    order = np.argsort(pmf)
    total = np.cumsum(pmf[order])
    # Number of counts that are at most as likely as each count, up to rounding.
    reached = np.searchsorted(pmf[order], pmf * _TIES, side="right")
    p = np.minimum(total[np.maximum(reached, 1) - 1], 1.0)
    p[pmf == 0] = 0.0
    p.flags.writeable = False
    return p


@lru_cache(maxsize=16)
def null_top_counts(sizes: tuple[int, ...], k: int, *, permutations: int, seed: int) -> NDArray[np.int64]:
    """Draw the groups' counts among the first k of random rankings: multivariate hypergeometric.

    Parameters
    ----------
    sizes : tuple of int
        Images of each group.

    Returns
    -------
    (permutations, g) int64
        Not to be changed: the same array serves every prompt and encoder.
    """
    rng = generator(seed, "top of a random ranking", *sizes, k, permutations)
    drawn = rng.multivariate_hypergeometric(list(sizes), k, size=permutations, method="marginals")
    drawn.flags.writeable = False
    return drawn


def random_rankings(sizes: tuple[int, ...], *, rankings: int, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
    """Yield the groups by rank, (b, n) uint8 or uint16, of images in random orders, all equally likely.

    `rankings` rows in all, in blocks of bounded memory. Each image is of a group independently with about the right
    probability; then images that are picked at random go from groups of too many to groups of too few, in their order.
    Both steps treat every rank alike, so that every order of the sizes is as likely as any other. Shuffling takes ten
    times as long.

    Parameters
    ----------
    sizes : tuple of int
        Images of each group.
    """
    size = np.array(sizes)
    n, g = int(size.sum()), len(size)
    near = np.searchsorted(np.cumsum(size), (np.arange(2**16) + 0.5) * (n / 2**16), side="right")
    near = near.astype(np.uint8 if g <= 256 else np.uint16)
    step = max(1, _TOSSED_AT_ONCE // n)
    for start in range(0, rankings, step):
        rows = min(step, rankings - start)
        tossed = rng.integers(0, 2**64, size=rows * n // 4 + 1, dtype=np.uint64).view(np.uint16)
        codes = near[tossed[: rows * n].reshape(rows, n)]
        _deal_surplus(codes, size, rng)
        yield codes


def _deal_surplus(codes: NDArray[Any], size: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Change the groups of images that are picked at random, in place, until every row has the sizes."""
    rows, (n, g) = np.arange(len(codes)), (codes.shape[1], len(size))
    lacking = _lacking(codes, size)
    while (short := lacking.any(axis=1)).any():
        rows, lacking = rows[short], lacking[short]
        place = rng.integers(0, n, size=(len(rows), 3 * int(np.sqrt(n)) + 1))
        held = codes[rows[:, None], place]
        given = np.zeros(held.shape, dtype=bool)
        for group in range(g):
            # The first that are picked of a group, as many as it has too many.
            of_group = held == group
            given |= of_group & (np.cumsum(of_group, axis=1, dtype=np.int32) <= -lacking[:, group, None])
        row, _ = np.nonzero(given)
        taken = np.cumsum(given, axis=1)[given]
        to = (taken[:, None] > np.cumsum(np.maximum(lacking, 0), axis=1)[row]).sum(axis=1)
        codes[rows[row], place[given]] = to
        # An image that was picked twice changes once: what is still lacking is counted anew.
        lacking = _lacking(codes[rows], size)


def _lacking(codes: NDArray[Any], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many images (m, n) rows lack of each group, (m, g); negative where there are too many."""
    held = [np.bitwise_count(np.packbits(codes == group, axis=1)) for group in range(len(size))]
    return size - np.stack([each.sum(axis=1, dtype=np.int64) for each in held], axis=1)


def rank_biased_overlap(first: Sequence[Hashable], second: Sequence[Hashable], *, p: float = 0.9) -> float:
    """Return the extrapolated rank-biased overlap of two lists of any length (Webber, Moffat and Zobel 2010, eq. 32).

    The expected overlap of the two heads down to which a reader goes who stops after each rank with probability 1 - p,
    taking what lies beyond the lists to agree as far as what was seen.

    Parameters
    ----------
    first, second : sequence
        Distinct items, the first ranked first.
    p : float
        In (0, 1): how deep the reader goes; with 0.9 the first ten ranks carry 86% of the weight.

    Returns
    -------
    float
        In [0, 1]: 0 without a common item, 1 for equal lists; nan where a list is empty.

    Raises
    ------
    MetricError
        If an item stands twice in a list, or p is out of range.
    """
    if not 0 < p < 1 or len(set(first)) < len(first) or len(set(second)) < len(second):
        raise MetricError(
            "a rank-biased overlap is of two lists of distinct items",
            found=f"p = {p}, {len(first)} and {len(second)} items",
            expected="0 < p < 1, each item once",
        )
    short, long = sorted((first, second), key=len)
    if not short:
        return float("nan")
    s, n = len(short), len(long)
    depths = np.arange(1, n + 1)
    common = np.array([len({*short[:d]} & {*long[:d]}) for d in range(1, n + 1)], dtype=np.float64)
    beyond = np.where(depths > s, common[s - 1] * (depths - s) / (s * depths), 0.0)
    seen = float(((common / depths + beyond) * p**depths).sum())
    return (1 - p) / p * seen + float((common[n - 1] - common[s - 1]) / n + common[s - 1] / s) * p**n
