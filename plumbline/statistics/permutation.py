"""Permutation tests of "no difference between groups", and exact tests of sums."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError

MAX_ADDITIONS = 2_000_000_000
"""Maximum number of additions of the exact test, about two seconds; above it sums are drawn at random."""
_AT_ONCE = 4_000_000


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
        raise MetricError("a permutation needs one (g, c) table of counts", found=f"{counts.shape}, {permutations}")
    size, total = counts.sum(axis=1), counts.sum(axis=0)
    # Permutations run along the last axis in memory, so that later steps are vectorised over them.
    drawn = np.empty((*counts.shape, permutations), dtype=np.int64)
    left = np.tile(total[:, None], (1, permutations))
    for group in range(counts.shape[0] - 1):
        drawn[group] = _hypergeometric(left, int(size[group]), rng)
        left -= drawn[group]
    drawn[-1] = left
    return np.moveaxis(drawn, -1, 0)


def _hypergeometric(left: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `size` images without replacement from what is left of each outcome (c, r), for all permutations."""
    drawn = np.empty_like(left)
    to_draw = np.full(left.shape[1], size)
    others = left.sum(axis=0)
    for outcome in range(left.shape[0] - 1):
        others = others - left[outcome]
        drawn[outcome] = rng.hypergeometric(left[outcome], others, to_draw)
        to_draw = to_draw - drawn[outcome]
    drawn[-1] = to_draw
    return drawn


def p_value(observed: float, permuted: ArrayLike, *, alternative: Literal["greater", "less"] = "greater") -> float:
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


def permute_strata(tables: NDArray[np.int64], *, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw tables of several strata, permuting group labels within each, with the same margins.

    An effect of the strata (a scene in which everyone is taken for a thief, and which shows more of one group) is then
    no evidence of a difference between groups.

    Parameters
    ----------
    tables : (s, g, c) int
        Counts of each stratum.
    permutations : int
        At least 1.

    Returns
    -------
    (permutations, s, g, c) int64
    """
    drawn = [permute_tables(table, permutations=permutations, rng=rng) for table in tables]
    return np.stack(drawn, axis=1) if drawn else np.empty((permutations, *tables.shape), dtype=np.int64)


def within_cluster_sum_test(
    amounts: ArrayLike, *, draws: int = 10_000, rng: np.random.Generator | None = None
) -> NDArray[np.float64]:
    """Return the exact two-sided p per group under exchangeability of amounts within each cluster.

    In a cluster each group has an amount, such as how often it had the maximum in three seeds. Under the null
    hypothesis a group has any of the cluster's amounts with equal probability, however dependent the seeds are, and
    independently of other clusters. Its sum over clusters is then a sum of independent draws, whose distribution is a
    convolution. Where one group of every cluster has 1 and the others 0, this is the binomial test against 1 / g.

    Parameters
    ----------
    amounts : (s, g) int
        By cluster and group, at least 0. Scale fractions, such as shares of a tie, to whole numbers: p is unchanged.
    draws : int
        Where the exact distribution would take more than `MAX_ADDITIONS` additions, so many sums are drawn instead.
    rng : Generator, optional
        For those; a fixed one by default.

    Returns
    -------
    (g,) float64
        Twice the smaller tail, at most 1. nan without clusters or with fewer than two groups.

    Raises
    ------
    MetricError
        If an amount is negative, or no whole number.
    """
    table = np.asarray(amounts)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer) or (table < 0).any():
        raise MetricError("amounts must be whole numbers from 0, (clusters, groups)", found=f"{table.shape}")
    if not len(table) or table.shape[1] < 2:
        return np.full(table.shape[1], np.nan)
    table = table // max(1, int(np.gcd.reduce(table, axis=None)))
    observed = table.sum(axis=0)
    longest = int(table.max(axis=1).sum()) + 1
    kinds = max(len(np.unique(row)) for row in table)
    if len(table) * longest * kinds > 2 * MAX_ADDITIONS:
        sums = _random_sums(table, draws, np.random.default_rng(0) if rng is None else rng)
        upper = np.array([1 + (sums >= each).sum() for each in observed]) / (1 + draws)
        lower = np.array([1 + (sums <= each).sum() for each in observed]) / (1 + draws)
    else:
        mass = _mass(table, longest)
        # Added from the small end, so that tails keep all their digits.
        upper, lower = np.cumsum(mass[::-1])[::-1][observed], np.cumsum(mass)[observed]
    return np.minimum(1.0, 2 * np.minimum(upper, lower))


def _mass(table: NDArray[np.integer], longest: int) -> NDArray[np.float64]:
    """Return the distribution of a sum of one random amount per cluster, by convolution."""
    mass, reached = np.zeros(longest), 1
    mass[0] = 1.0
    for row in np.sort(table, axis=1):
        values, times = np.unique(row, return_counts=True)
        before, mass[:reached] = mass[:reached].copy(), 0.0
        for value, share in zip(values.tolist(), (times / len(row)).tolist()):
            mass[value : value + reached] += share * before
        reached += int(values[-1])
    return mass


def _random_sums(table: NDArray[np.integer], draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    clusters, groups = table.shape
    step = max(1, _AT_ONCE // clusters)
    rows = np.arange(clusters)
    return np.concatenate(
        [
            table[rows, rng.integers(0, groups, (min(step, draws - start), clusters))].sum(axis=1)
            for start in range(0, draws, step)
        ]
    )
