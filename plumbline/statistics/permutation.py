"""Tests of "no difference between groups", by dealing the images out to the groups at random."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError


def permute_tables(table: ArrayLike, *, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw tables with the same margins, as if group labels had been shuffled over the images.

    Shuffling labels fixes group sizes and outcome totals; the table is then multivariate hypergeometric,
    drawn here group by group and outcome by outcome, all permutations at once.

    Parameters
    ----------
    table : (g, c) int
    permutations : int
        At least 1.

    Returns
    -------
    (permutations, g, c) int64

    Raises
    ------
    MetricError
        If the table is not two-dimensional or a count is negative.
    """
    counts = np.asarray(table, dtype=np.int64)
    if counts.ndim != 2 or (counts < 0).any() or permutations < 1:
        raise MetricError(
            "a permutation needs one (g, c) table of counts", found=f"{counts.shape}, {permutations}"
        )
    size, total = counts.sum(axis=1), counts.sum(axis=0)
    # Permutations run along the last axis in memory, where all that follows is done for every one at once.
    drawn = np.empty((*counts.shape, permutations), dtype=np.int64)
    left = np.tile(total[:, None], (1, permutations))
    for group in range(counts.shape[0] - 1):
        drawn[group] = _deal(left, int(size[group]), rng)
        left -= drawn[group]
    drawn[-1] = left
    return np.moveaxis(drawn, -1, 0)


def _deal(left: NDArray[np.int64], hand: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `hand` images without replacement from what is left of each outcome (c, r), for all permutations."""
    given = np.empty_like(left)
    wanted = np.full(left.shape[1], hand)
    behind = left.sum(axis=0)
    for outcome in range(left.shape[0] - 1):
        behind = behind - left[outcome]
        given[outcome] = rng.hypergeometric(left[outcome], behind, wanted)
        wanted = wanted - given[outcome]
    given[-1] = wanted
    return given


def p_value(
    observed: float, permuted: ArrayLike, *, alternative: Literal["greater", "less"] = "greater"
) -> float:
    """Return (1 + permutations at least as extreme) / (1 + permutations) (Phipson & Smyth 2010).

    The +1 counts the data among the permutations, so that p is never 0 and the test keeps its level exactly.

    Parameters
    ----------
    observed : float
        nan gives nan.
    permuted : (r,) float
        The statistic of each permutation; ties within 1e-12 count as extreme. An undefined (nan) permutation
        counts as extreme: a relative gap is undefined when a group has no event at all, the largest gap
        there is.
    alternative : {"greater", "less"}
        Which side is extreme.
    """
    if np.isnan(observed):
        return float("nan")
    values = np.asarray(permuted, dtype=np.float64)
    slack = 1e-12 * max(1.0, abs(observed))
    extreme = values >= observed - slack if alternative == "greater" else values <= observed + slack
    return float((1 + np.count_nonzero(extreme | np.isnan(values))) / (1 + values.size))
