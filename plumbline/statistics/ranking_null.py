"""What the top of a ranking holds if the ranking has nothing to do with the groups.

Every order of the images is then equally likely, so the k best are a draw without replacement: how many of them are of
a group is hypergeometric. It depends on group sizes and k alone, not on prompts or encoders.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.seeds import generator

_TIES = 1 + 1e-7
"""Probabilities that are equal on paper differ in their last bits; the same slack as R's and scipy's Fisher test."""


def top_count_p_values(
    counts: NDArray[np.integer], sizes: NDArray[np.integer], *, k: int
) -> NDArray[np.float64]:
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
    columns = [_two_sided(n, int(size), k)[found] for size, found in zip(sizes, np.asarray(counts).T)]
    return np.stack(columns, axis=1)


@lru_cache(maxsize=256)
def _two_sided(n: int, size: int, k: int) -> NDArray[np.float64]:
    """Return p of every count 0 .. k; those that cannot occur have 0."""
    from scipy.stats import hypergeom

    chance = hypergeom(n, size, k).pmf(np.arange(k + 1))
    order = np.argsort(chance)
    total = np.cumsum(chance[order])
    # As many as are at most as likely, those a rounding error above it included.
    reached = np.searchsorted(chance[order], chance * _TIES, side="right")
    p = np.minimum(total[np.maximum(reached, 1) - 1], 1.0)
    p[chance == 0] = 0.0
    p.flags.writeable = False
    return p


@lru_cache(maxsize=16)
def top_counts_by_chance(
    sizes: tuple[int, ...], k: int, *, permutations: int, seed: int
) -> NDArray[np.int64]:
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
