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

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


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
    rankings, n = ranked.shape
    weights = rank_weights(n)
    sizes = np.bincount(ranked[0], minlength=n_groups)
    # Small whole numbers are sorted by counting, in linear time: ranks come out group by group, ascending.
    kind = np.uint8 if n_groups <= 256 else np.uint16
    by_group = weights.suffix[np.argsort(ranked.astype(kind, copy=False), axis=1, kind="stable")]
    steps = np.concatenate([weights.step[:size] for size in sizes])
    weight = np.zeros((rankings, n_groups))
    occurring = np.flatnonzero(sizes)
    starts = np.cumsum(sizes)[occurring] - sizes[occurring]
    weight[:, occurring] = np.add.reduceat(by_group, starts, axis=1)
    return NdklSums(by_group @ steps - weights.constant, weight)
