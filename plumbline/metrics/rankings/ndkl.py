"""NDKL: how far the groups' shares in every prefix of a ranking are from the desired ones.

Source: Hausladen et al., appendix B.1, eqs 9 and 10 (after Geyik et al. 2019).

With c_g(i) the images of group g among the first i, and w_i = 1 / log2(i + 1), the definition
(1/Z) Σ_i w_i KL(D_i ‖ D) is

    (1/Z) Σ_i (w_i / i) Σ_g [c_g(i) ln c_g(i) - c_g(i) ln d_g]  -  (1/Z) Σ_i w_i ln i.

Stepping from i to i + 1 changes one count by one. So with t(r) = r ln r - (r - 1) ln(r - 1) and the suffix weights
V_j = (1/Z) Σ_{i ≥ j} w_i / i, the double sum over ranks and groups is one sum over the images,

    Σ_j V_j [t(r_j) - ln d_{g_j}]  -  C,    C = (1/Z) Σ_i w_i ln i,

where image j is the r_j-th of its group. Everything here follows from that: many rankings at once, any desired shares
from the same two sums, a ranking without one of its images, and the values that chance gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.metrics.family import MetricSettings
from plumbline.metrics.inputs import draw_settings
from plumbline.metrics.rankings.ranking import (
    MAX_WORK,
    MIN_PERMUTATIONS,
    Desired,
    ImageClusters,
    RankedGroups,
    Shares,
    few_permutations_reason,
    group_apart,
    in_rank_order,
    rank_labelled,
    shares_of_interval,
)
from plumbline.reasons import joined, reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.jackknife import t_intervals
from plumbline.statistics.permutation import upper_p_values
from plumbline.statistics.power import Detectable, detectable_of
from plumbline.statistics.rankings import random_rankings
from plumbline.statistics.seeds import generator

CHANCE_PERMUTATIONS = 2_000
"""Random rankings at most: the smallest p by counting is 1/2,001, and p = 0.05 has a Monte Carlo error of 0.005."""
AT_ONCE = 100_000
"""Images × rankings of one step: few enough that its numbers stay in the cache of a core."""


def ndkl(
    scores: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    desired: Desired = None,
    ids: ArrayLike | Sequence[Any] | None = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> NDArray[np.float64] | Estimate:
    """Return NDKL = (1/Z) Σ_i KL(D_i ‖ D) / log2(i + 1), Z = Σ_i 1 / log2(i + 1), of whole rankings (B.1, eq. 9).

    D_i are the groups' shares among the first i images, D the desired ones; natural logarithm, 0 ln 0 = 0. In nats, at
    least 0; 0 only if every prefix has the desired shares, which no ranking of several groups achieves: read it
    beside what chance gives.

    Parameters
    ----------
    scores : (n,) or (n, m) float
        One ranking per column.
    groups, desired, ids, interval, seed
        As in `max_skew_at_k`; an interval is that of a single ranking.

    Returns
    -------
    (m,) float64, or with `interval` an Estimate
        One value per column; (1,) for a single ranking.

    Raises
    ------
    MetricError
        As in `max_skew_at_k`.

    Examples
    --------
    >>> import plumbline
    >>> plumbline.ndkl([0.9, 0.8, 0.7, 0.1], ["man", "man", "woman", "woman"]).round(2).tolist()
    [0.45]
    """
    names, ranked, shares = rank_labelled(
        scores, groups, desired=desired, ids=ids, max_ndim=2 if interval is False else 1
    )
    if interval is not False:
        of_one, settings = in_rank_order(ranked[0], len(names)), draw_settings(interval, seed)
        return ndkl_estimates(of_one, shares_of_interval(desired, len(names)), settings=settings).estimate[0]
    return ndkl_sums(ranked, len(names)).against(shares)


@dataclass(frozen=True)
class RankWeights:
    """Weights of NDKL that depend only on the length of a ranking.

    Attributes
    ----------
    suffix : (n,) float64
        V_j of rank j + 1.
    step : (n,) float64
        t(r) of r = position + 1.
    constant : float
        C.
    """

    suffix: NDArray[np.float64]
    step: NDArray[np.float64]
    constant: float


@lru_cache(maxsize=16)
def rank_weights(n: int) -> RankWeights:
    """Return the weights of rankings of n images, at least one; each entry of the cache takes 16 n bytes."""
    i = np.arange(1, n + 1, dtype=np.float64)
    discount = 1 / np.log2(i + 1)
    total = discount.sum()
    suffix = np.cumsum((discount / i)[::-1])[::-1] / total
    products = i * np.log(i)
    step = np.diff(products, prepend=0.0)
    for array in (suffix, step):
        array.flags.writeable = False
    return RankWeights(suffix, step, float((discount * np.log(i)).sum() / total))


@dataclass(frozen=True)
class NdklSums:
    """The two sums from which NDKL follows for any desired shares.

    Attributes
    ----------
    entropy : (m,) float64
        Σ_j V_j t(r_j) - C, one per ranking.
    weight : (m, g) float64
        Σ V_j over the images of each group; sums to 1.
    """

    entropy: NDArray[np.float64]
    weight: NDArray[np.float64]

    def against(self, desired: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return NDKL, (m,) float64, against desired shares (g,), all positive."""
        # Rounding can leave a perfectly balanced ranking of one group a few 1e-17 below 0.
        return np.maximum(self.entropy - self.weight @ np.log(desired), 0.0)


def ndkl_sums(ranked: NDArray[np.integer], n_groups: int) -> NdklSums:
    """Return the sums of NDKL of rankings.

    Parameters
    ----------
    ranked : (m, n) int
        Group code of the image at every rank, best first. Every ranking holds the same images, so the same number
        of each group.
    n_groups : int
    """
    return _sums_of_ranks(_ranks_by_group(ranked, n_groups), np.bincount(ranked[0], minlength=n_groups))


def _sums_of_ranks(ranks: NDArray[np.int64], sizes: NDArray[np.integer]) -> NdklSums:
    """Return the sums of NDKL of rankings by (m, n) ranks in the order of `_ranks_by_group`."""
    weights = rank_weights(ranks.shape[1])
    by_group = weights.suffix.take(ranks)
    # Not `@`: for one ranking at a time BLAS spends longer on waking its threads than on the sum.
    entropy = np.einsum("ij,j->i", by_group, _steps(weights, sizes)) - weights.constant
    return NdklSums(entropy, _sums_by_group(by_group, sizes))


def ndkl_without_one(
    ranked: NDArray[np.integer], n_groups: int, desired: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return NDKL of each ranking without one image, for every image, in O(n) a ranking.

    Without the image at rank j those above keep their ranks, those below move up by one, and those below of its own
    group become one earlier within it. So the sum over the images falls into a prefix with the weights of rankings of
    n - 1, a suffix with the same weights shifted, and a correction of the suffix of the image's own group.

    Parameters
    ----------
    ranked : (m, n) int
        As in `ndkl_sums`, n at least 2.
    desired : (g,) float or None
        Desired shares, all positive; None for those of the ranked set, which change with the image that is left out.

    Returns
    -------
    (m, n) float64
        Images ordered by group, and by rank within the group.
    """
    m, n = ranked.shape
    sizes = np.bincount(ranked[0], minlength=n_groups)
    weights = rank_weights(n - 1)
    group = np.repeat(np.arange(n_groups), sizes)
    shares = sizes / (n - 1) if desired is None else desired
    # The share of the image's own group falls, from the size s to s - 1; a group of one leaves nothing behind.
    left = np.maximum(sizes - 1, 1) / np.maximum(sizes, 1)
    falls = np.log(left)[group] if desired is None else np.zeros(n)
    steps = _steps(rank_weights(n), sizes)
    earlier = np.concatenate([np.insert(weights.step, 0, 0.0)[:size] for size in sizes]) - steps
    terms = steps - np.log(shares)[group]
    ranks = _ranks_by_group(ranked, n_groups)
    # Weight of each rank if nothing above it is left out, and if one image is.
    above, below = np.append(weights.suffix, 0.0), np.insert(weights.suffix, 0, 0.0)
    of_above, of_below = above.take(ranks), below.take(ranks)
    place = ranks + n * np.arange(m)[:, None]
    by_rank = np.empty((m, n))
    by_rank.ravel()[place] = terms
    constant = by_rank @ below - weights.constant
    by_rank *= above - below
    np.cumsum(by_rank, axis=1, out=by_rank)
    values = by_rank.ravel().take(place)
    # The image itself has been counted too, and images of its group above it as if its share did not fall.
    values += of_above * (falls - terms)
    of_below *= earlier - falls
    sums = _sums_by_group(of_below, sizes)
    of_above *= falls
    of_below += of_above
    both = _sums_by_group(of_below, sizes)
    sums += np.cumsum(both, axis=1) - both + constant[:, None]
    values -= np.cumsum(of_below, axis=1, out=of_below)
    values += np.repeat(sums, sizes, axis=1)
    return np.maximum(values, 0.0, out=values)


def ndkl_without_clusters(
    ranked: NDArray[np.integer],
    ranked_clusters: NDArray[np.integer],
    n_groups: int,
    desired: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return NDKL of each ranking without the images of one cluster, for every cluster, each ranked anew.

    Parameters
    ----------
    ranked, ranked_clusters : (m, n) int
        Group code and cluster code at every rank; clusters are 0 .. c - 1 and more than one.
    desired : (g,) float or None
        As in `ndkl_without_one`.

    Returns
    -------
    (m, c) float64
    """
    values = np.empty((len(ranked), int(ranked_clusters.max()) + 1))
    for codes, clusters, out in zip(ranked, ranked_clusters, values):
        for each in range(len(out)):
            left = codes[clusters != each][None]
            sizes = np.bincount(left[0], minlength=n_groups)
            # A group that is wholly in the cluster has no share and no image: its logarithm is multiplied by 0.
            shares = np.maximum(sizes, 1) / left.size if desired is None else desired
            out[each] = ndkl_sums(left, n_groups).against(shares)[0]
    return values


@lru_cache(maxsize=16)
def ndkl_by_chance(sizes: tuple[int, ...], *, permutations: int, seed: int) -> NdklSums:
    """Return the sums of NDKL of random rankings of groups of the given sizes.

    They depend on nothing else, so one draw serves every prompt, encoder and choice of desired shares.

    Parameters
    ----------
    sizes : tuple of int
        Images of each group.
    permutations : int
        Rankings.
    """
    rng = generator(seed, "NDKL by chance", *sizes, permutations)
    drawn = random_rankings(sizes, rankings=permutations, rng=rng)
    parts = [ndkl_sums(few, len(sizes)) for block in drawn for few in _few_at_once(block)]
    return NdklSums(np.concatenate([part.entropy for part in parts]), np.concatenate([part.weight for part in parts]))


def _few_at_once(rankings: NDArray[Any]) -> list[NDArray[Any]]:
    """Split (m, n) rankings into parts of `AT_ONCE`."""
    return np.split(rankings, range(0, len(rankings), max(1, AT_ONCE // rankings.shape[1]))[1:])


def jackknife_errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the jackknife standard error from leave-one-out values, (m, u) to (m,) (Efron 1982, eq. 3.3)."""
    units = values.shape[1]
    spread = values - values.mean(axis=1, keepdims=True)
    return np.sqrt((units - 1) / units * (spread**2).sum(axis=1))


def _ranks_by_group(ranked: NDArray[np.integer], n_groups: int) -> NDArray[np.int64]:
    """Return the ranks (m, n) of the first group, ascending, then of the second and so on."""
    # Small whole numbers are sorted by counting, in linear time.
    kind = np.uint8 if n_groups <= 256 else np.uint16
    return np.argsort(ranked.astype(kind, copy=False), axis=1, kind="stable")


def _steps(weights: RankWeights, sizes: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return t(r) of the images in the order of `_ranks_by_group`, the same in every ranking."""
    return np.concatenate([weights.step[:size] for size in sizes])


def _sums_by_group(by_group: NDArray[np.float64], sizes: NDArray[np.integer]) -> NDArray[np.float64]:
    sums = np.zeros((len(by_group), len(sizes)))
    occurring = np.flatnonzero(sizes)
    starts = np.cumsum(sizes)[occurring] - sizes[occurring]
    sums[:, occurring] = np.add.reduceat(by_group, starts, axis=1)
    return sums


# Inference: interval by the jackknife, p by random rankings.


class NdklEstimates(NamedTuple):
    """NDKL of many rankings, see `ndkl_estimates`.

    Attributes
    ----------
    estimate : EstimateArray of shape (m,)
    chance : (1, p) or (m, p) float64
        NDKL of p random rankings, which is positive; an empty array where they would take too long.
    """

    estimate: EstimateArray
    chance: NDArray[np.float64]


def ndkl_estimates(ranked: RankedGroups, desired: Shares, *, settings: MetricSettings) -> NdklEstimates:
    """Return NDKL, (m,), of rankings: interval by the jackknife, p by random rankings.

    The interval is NDKL ± t × the jackknife standard error over images, or over clusters, clipped at 0. Where images
    come in clusters, labels are permuted within them; p is nan where that cannot be done a hundred times in
    reasonable time.
    """
    shares = _shares(tuple(ranked.sizes.tolist()), desired)
    fixed = shares if desired == "equal" else None
    few = _few_at_once(ranked.codes)
    value = np.concatenate([ndkl_sums(codes, ranked.n_groups).against(shares) for codes in few])
    if ranked.clusters is None:
        units = ranked.n
        errors = [jackknife_errors(ndkl_without_one(codes, ranked.n_groups, fixed)) for codes in few]
        error = np.concatenate(errors)
        permutations = min(settings.permutations, CHANCE_PERMUTATIONS)
        sizes = tuple(ranked.sizes.tolist())
        random = ndkl_by_chance(sizes, permutations=permutations, seed=settings.seed)
        chance = random.against(shares)[None]
    else:
        blocks = ranked.clusters.blocks(rankings=len(ranked.order))
        # A single cluster cannot be left out: one unit has no standard error.
        left = (
            ndkl_without_clusters(ranked.codes, blocks[ranked.order], ranked.n_groups, fixed)
            if blocks.any()
            else value[:, None]
        )
        units, error = left.shape[1], jackknife_errors(left)
        chance = _permuted_ndkl(ranked, ranked.clusters, shares)
    low, high = t_intervals(value, error, units=units, confidence=settings.confidence)
    least_p = 0.0 if ranked.clusters is None else ranked.clusters.permutation.least_gap_p
    p = np.maximum(upper_p_values(value, chance), least_p) if chance.size else np.full(value.shape, np.nan)
    reasons = joined(
        reason("one_cluster_of_images") if np.isnan(low).any() else None,
        None if chance.size else reason("too_many_to_permute"),
        None if ranked.clusters is None else few_permutations_reason(chance.shape[1], settings),
    )
    n = np.full(value.shape, ranked.n)
    detectable = [_detectable(ranked, desired, chance[0], settings)] * len(value) if chance.size else []
    of_each = {"n": n, "p": p, "reason": [reasons] * len(value), "detectable": detectable}
    estimate = EstimateArray(value, np.maximum(low, 0.0), high, **of_each)  # type: ignore[arg-type]
    return NdklEstimates(estimate, chance)


def _permuted_ndkl(ranked: RankedGroups, clusters: ImageClusters, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return NDKL (m, p) under p permutations of the labels; an empty array where that would take too long."""
    work = ranked.order.size
    if work * MIN_PERMUTATIONS > 3 * MAX_WORK:
        return np.empty((len(ranked.order), 0))
    draws = min(len(clusters.drawn.labels), max(MIN_PERMUTATIONS, MAX_WORK // work))
    values, step = np.empty((len(ranked.order), draws)), max(1, AT_ONCE // ranked.n)
    for order, out in zip(ranked.order, values):
        for start in range(0, draws, step):
            rows = slice(start, min(start + step, draws))
            out[rows] = ndkl_sums(clusters.dealt(order, rows), ranked.n_groups).against(shares)
    return values


# --- What the test finds.

_POWER_DRAWS, _FEWEST_DRAWS, _RANKED = 100, 20, 2_000_000
"""Rankings of each preference: at most, at least, and images in all of them."""
_PREFERENCES = np.array([0, 2, 3, 4, 6, 9, 14])
"""Preferences that are tried, in standard errors of a difference of mean scores."""


def _detectable(
    ranked: RankedGroups, desired: Shares, chance: NDArray[np.float64], settings: MetricSettings
) -> Detectable:
    """Return the NDKL that the test finds in 80% of rankings that prefer one group; that of the first ranking for all.

    Its true value is the mean of such rankings, which as every NDKL is above 0 by chance too.
    """
    sizes = tuple(ranked.sizes.tolist())
    if ranked.clusters is None:
        return _detectable_by_chance(sizes, desired, len(chance), settings.seed)
    labels = ranked.clusters.dealt(ranked.order[0], slice(0, _draws(ranked.n)))
    return _of_rankings(labels, sizes, desired, chance, ranked.clusters.permutation.least_gap_p)


@lru_cache(maxsize=32)
def _detectable_by_chance(sizes: tuple[int, ...], desired: Shares, permutations: int, seed: int) -> Detectable:
    chance = ndkl_by_chance(sizes, permutations=permutations, seed=seed).against(_shares(sizes, desired))
    rng = generator(seed, "NDKL of a preference", *sizes)
    labels = np.concatenate([*random_rankings(sizes, rankings=_draws(sum(sizes)), rng=rng)])
    return _of_rankings(labels, sizes, desired, chance, 0.0)


def _of_rankings(
    labels: NDArray[Any], sizes: tuple[int, ...], desired: Shares, chance: NDArray[np.float64], least_p: float
) -> Detectable:
    """Return what is found of (d, n) groups by rank, of random rankings, if the scores of one group were higher.

    Scores are taken for normal, and those of the group are shifted: as much at the top as further down. Its images and
    the others then keep their order among themselves, and an image stands after as many of the other kind as have
    better scores.
    """
    from scipy.special import ndtri

    n, size, shares = labels.shape[1], np.array(sizes), _shares(sizes, desired)
    apart = group_apart(size, desired)
    ends = np.cumsum(size)
    of_apart = slice(ends[apart] - size[apart], ends[apart])
    score = ndtri(np.arange(1, n + 1) / (n + 1))
    preferences = _PREFERENCES * np.sqrt(1 / max(size[apart], 1) + 1 / max(n - size[apart], 1))
    blocks = []
    for few in _few_at_once(labels):
        ranks = _ranks_by_group(few, len(size))
        # How many images of the group stand above each rank of each ranking.
        of_group = np.zeros((len(few), n + 1), dtype=np.int64)
        np.cumsum(few == apart, axis=1, out=of_group[:, 1:])
        rows = (n + 1) * np.arange(len(few))[:, None]
        before = of_group.ravel().take(ranks + rows)
        simulated = []
        for preference in preferences:
            better = np.searchsorted(score - preference, score, side="right").take(ranks)
            better[:, of_apart] = np.searchsorted(score, score - preference).take(ranks[:, of_apart])
            others = of_group.ravel().take(better + rows)
            moved = ranks - before + others
            moved[:, of_apart] = (before + better - others)[:, of_apart]
            simulated.append(_sums_of_ranks(moved, size).against(shares))
        blocks.append(simulated)
    values = np.concatenate(blocks, axis=1)
    return detectable_of(chance, values, values.mean(axis=1), least_p=least_p)


def _draws(n: int) -> int:
    return max(_FEWEST_DRAWS, min(_POWER_DRAWS, _RANKED // n))


def _shares(sizes: tuple[int, ...], desired: Shares) -> NDArray[np.float64]:
    return np.full(len(sizes), 1 / len(sizes)) if desired == "equal" else np.array(sizes) / sum(sizes)
