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

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.seeds import generator

CHANCE_PERMUTATIONS = 2_000
"""Random rankings at most: each is a whole one, and p is then known to 0.0005."""
AT_ONCE = 100_000
"""Images × rankings of one step: few enough that its numbers stay in the cache of a core."""


@dataclass(frozen=True)
class RankWeights:
    """What depends on the length of a ranking alone.

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
        Σ_j V_j t(r_j) - C, one a ranking.
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
    weights = rank_weights(ranked.shape[1])
    sizes = np.bincount(ranked[0], minlength=n_groups)
    by_group = weights.suffix[_ranks_by_group(ranked, n_groups)]
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
    own = np.repeat(np.arange(n_groups), sizes)
    shares = sizes / (n - 1) if desired is None else desired
    steps = _steps(rank_weights(n), sizes)
    ranks = _ranks_by_group(ranked, n_groups)
    # Weight of each rank if nothing above it is left out, and if one image is.
    above, below = np.append(weights.suffix, 0.0), np.insert(weights.suffix, 0, 0.0)
    terms = np.empty((m, n))
    np.put_along_axis(terms, ranks, np.broadcast_to(steps - np.log(shares)[own], (m, n)), axis=1)
    others = _sum_before(terms * above) + _sum_behind(terms * below)
    values = np.take_along_axis(others, ranks, axis=1) - weights.constant
    earlier = np.concatenate([np.insert(weights.step, 0, 0.0)[:size] for size in sizes]) - steps
    values += _within_groups(_sum_behind, below[ranks] * earlier, sizes)
    if desired is None:
        # The share of the image's own group falls, from the size s to s - 1; a group of one leaves nothing behind.
        falls = np.log(np.maximum(sizes - 1, 1) / np.maximum(sizes, 1))
        mass = _within_groups(_sum_before, above[ranks], sizes) + _within_groups(
            _sum_behind, below[ranks], sizes
        )
        values -= mass * falls[own]
    return np.maximum(values, 0.0)


def ndkl_without_sets(
    ranked: NDArray[np.integer],
    ranked_sets: NDArray[np.integer],
    n_groups: int,
    desired: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return NDKL of each ranking without the images of one set, for every set, each ranked anew.

    Parameters
    ----------
    ranked, ranked_sets : (m, n) int
        Group code and set code at every rank; sets are 0 .. s - 1 and more than one.
    desired : (g,) float or None
        As in `ndkl_without_one`.

    Returns
    -------
    (m, s) float64
    """
    values = np.empty((len(ranked), int(ranked_sets.max()) + 1))
    for codes, sets, out in zip(ranked, ranked_sets, values):
        for each in range(len(out)):
            left = codes[sets != each][None]
            sizes = np.bincount(left[0], minlength=n_groups)
            # A group that is wholly in the set has no share and no image: its logarithm is multiplied by 0.
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
    codes = np.repeat(np.arange(len(sizes), dtype=np.uint8 if len(sizes) <= 256 else np.uint16), sizes)
    parts, step = [], max(1, AT_ONCE // codes.size)
    for start in range(0, permutations, step):
        rows = min(step, permutations - start)
        parts.append(ndkl_sums(rng.permuted(np.broadcast_to(codes, (rows, codes.size)), axis=1), len(sizes)))
    return NdklSums(
        np.concatenate([part.entropy for part in parts]), np.concatenate([part.weight for part in parts])
    )


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


def _sum_before(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of what stands before each entry of a row."""
    return np.cumsum(values, axis=1) - values


def _sum_behind(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of what stands behind each entry of a row."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1] - values


def _within_groups(
    total: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    by_group: NDArray[np.float64],
    sizes: NDArray[np.integer],
) -> NDArray[np.float64]:
    """Apply a running sum to the images of each group by themselves."""
    parts = np.split(by_group, np.cumsum(sizes)[:-1], axis=1)
    return np.concatenate([total(part) for part in parts], axis=1)
