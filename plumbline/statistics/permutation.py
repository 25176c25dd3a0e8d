"""Permutation tests of "no difference between groups", and exact tests of sums."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.statistics.sampling import Whole, hypergeometric

MAX_ADDITIONS = 2_000_000_000
"""Maximum number of additions of the exact test, about two seconds; above it sums are drawn at random."""
_AT_ONCE = 4_000_000
SLACK = 1e-12
"""Values within this, in relation to their size where that is above 1, are ties."""


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
    size = counts.sum(axis=1).tolist()
    # Permutations run along the last axis in memory, so that later steps are vectorised over them.
    drawn = np.empty((*counts.shape, permutations), dtype=np.int64)
    # Of each outcome so many are left: the same in all permutations at first.
    left: list[Whole] = counts.sum(axis=0).tolist()
    for group, of_group in enumerate(size[:-1]):
        others: Whole = sum(size[group:])
        to_draw: Whole = of_group
        for outcome, good in enumerate(left[:-1]):
            drawn[group, outcome] = hypergeometric(good, others, to_draw, draws=permutations, rng=rng)
            others, to_draw = others - good, to_draw - drawn[group, outcome]
        drawn[group, -1] = to_draw
        left = [each - of for each, of in zip(left, drawn[group])]
    for outcome, rest in enumerate(left):
        drawn[-1, outcome] = rest
    return np.moveaxis(drawn, -1, 0)


_TAILS = (0.025, 0.02, 0.015, 0.01, 0.005)
"""Shares of the draws that a tail is fitted to, one after the other until one fits: 250 of 10,000, then fewer."""
_FEWEST = 50
"""Draws in a tail at least; with fewer, p stays at 1 / (1 + draws)."""
_MISFIT = 0.95, 3.0
"""Anderson-Darling statistic above which a tail is no generalised Pareto: 5% of true ones, of 50 to 250 draws; and of a
tail that ends, 1%, since an exponential one that takes its place errs upwards."""
_CURVED = 1e-6
"""A shape below this is that of an exponential tail."""
_FEW_BEYOND = 5
REACH = 100
"""A tail tells p down to this part of the smallest p that the draws themselves can give."""


def tail_p_values(observed: ArrayLike, draws: ArrayLike) -> NDArray[np.float64]:
    """Return the p-value of values that no draw reaches, from a generalised Pareto tail (Knijnenburg et al. 2009).

    The largest 2.5% of the draws, or fewer where these do not fit, less a threshold just below them, are fitted by
    probability-weighted moments (Hosking & Wallis 1987), with an exponential tail where the fitted one would end: p is
    never 0 and, for the bounded and normal statistics of permutation tests, errs upwards. It is no less than 1 /
    (`REACH` (1 + draws)).

    Parameters
    ----------
    observed : (m,) float
    draws : (m, r) float
        Under the null hypothesis.

    Returns
    -------
    (m,) float64
        nan where a draw is at least as large, where no tail is Pareto by the Anderson-Darling test (values of few
        kinds, such as small counts), or where each has fewer than 50 draws.
    """
    value, drawn = np.asarray(observed, dtype=np.float64), np.asarray(draws)
    p, r = np.full(value.shape, np.nan), drawn.shape[-1]
    longest = int(_TAILS[0] * r)
    if longest < _FEWEST or not len(value):
        return p
    # An undefined draw counts as extreme, and no tail is needed.
    left = np.flatnonzero(drawn.max(axis=1) < value)
    if not left.size:
        return p
    top = _top(drawn[left], longest + 1).astype(np.float64)
    for k in _lengths(r):
        if not left.size:
            break
        tail = _fitted_tail(value[left], top[:, -k - 1 :])
        fits = ~np.isnan(tail)
        p[left[fits]] = np.clip(k / r * tail[fits], 1 / (REACH * (1 + r)), 1 / (1 + r))
        left, top = left[~fits], top[~fits]
    return p


def _fitted_tail(value: NDArray[np.float64], top: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of more than (m,) values in the tails of (m, k + 1) largest draws; nan if not Pareto."""
    tail = _Tail.fitted(top)
    return np.where(tail.fits, np.exp(_log_survival(value - tail.threshold, tail.shape, tail.scale)), np.nan)


class _Tail(NamedTuple):
    """Generalised Pareto tails above thresholds, (m,) each, and whether they fit."""

    threshold: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]
    fits: NDArray[np.bool_]

    @classmethod
    def fitted(cls, top: NDArray[np.float64], *, least_shape: float = 0.0) -> _Tail:
        """Fit the tails of (m, k + 1) largest draws, ascending; the first lies below the threshold."""
        k = top.shape[1] - 1
        threshold = (top[:, 0] + top[:, 1]) / 2
        excess = top[:, 1:] - threshold[:, None]
        first = excess.mean(axis=1)
        second = 2 * (excess * np.arange(k) / (k - 1)).mean(axis=1) - first
        varies = second > SLACK * np.maximum(1.0, np.abs(threshold))
        ratio = np.divide(first, second, out=np.full(len(top), 2.0), where=varies)
        misfit = _anderson_darling(excess, 2 - ratio, first * (ratio - 1))
        fits = varies & (misfit <= np.where(ratio > 2, _MISFIT[1], _MISFIT[0]))
        shape = np.maximum(2 - ratio, least_shape)
        return cls(threshold, shape, first * (1 - shape), fits)


def _lengths(r: int, *, most: int | None = None) -> list[int]:
    """Return how many of r draws, or of the `most` largest that are known, tails are fitted to, one after the other."""
    return [k for k in (int(share * r) for share in _TAILS) if _FEWEST <= k <= (r if most is None else most)]


def _largest(draws: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
    """Return the largest of (r,) draws, ascending: as many as a tail or a level needs."""
    r = len(draws)
    most = min(r - 1, max([int(_TAILS[0] * r) + 1, *(_reaching(level, r) for level in levels)]))
    return _top(draws, most + 1)


def _top(draws: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the k largest of (..., r) draws, ascending."""
    first = draws.shape[-1] - k
    # By two places numpy partitions in a seventh of the time that it takes by one.
    return np.sort(np.partition(draws, [first, -1], axis=-1)[..., first:], axis=-1)


def critical_values(top: NDArray[np.float64], r: int, levels: Sequence[float]) -> NDArray[np.float64]:
    """Return what a value must exceed for its p among r draws to be at most each of the levels.

    nan where no value has so small a p, see `tail_p_values`.

    Parameters
    ----------
    top : (k,) float
        The largest of the draws, ascending: as many as a tail or a level needs.
    r : int
    levels : (l,) float
    """
    critical = _critical(top[None], r, levels)[0]
    for i, level in enumerate(levels):
        # Of values of few kinds half way to the next, as in a correction for continuity.
        if _reaching(level, r) and len(above := top[top > critical[i] + SLACK]):
            critical[i] = (critical[i] + above[0]) / 2
    return critical


def critical_values_elsewhere(
    draws: NDArray[np.float64], levels: Sequence[float], *, tests: int = 400
) -> NDArray[np.float64]:
    """Return what a value must exceed in other tests of the same hypothesis, whose draws are others.

    Where fewer than five draws decide, what is required varies: the largest of 10,000 draws is exceeded with a
    probability of 1 in 200,000 to 1 in 3,300 in nine of ten tests. The largest draws of other tests are drawn here from
    the tail that fits these, in steps as coarse as these have; what each test requires follows from its own. Where five
    draws or more decide, it is taken to be what these require.

    Parameters
    ----------
    draws : (r,) float
        Under the null hypothesis.
    levels : (l,) float
    tests : int

    Returns
    -------
    (l, tests) float64
        inf in tests in which no value has so small a p.
    """
    r, top = len(draws), _largest(draws, levels)
    few = tuple(level for level in levels if _reaching(level, r) < _FEW_BEYOND)
    varying = _few_decide(top, r, few) if few else None
    if varying is None:
        few = ()
    alone = critical_values(top, r, [level for level in levels if level not in few])
    steady = iter(np.where(np.isnan(alone), np.inf, alone))
    required = np.empty((len(levels), tests))
    for row, level in zip(required, levels):
        row[:] = np.resize(varying[few.index(level)], tests) if varying is not None and level in few else next(steady)
    return required


def _few_decide(top: NDArray[np.float64], r: int, levels: tuple[float, ...]) -> NDArray[np.float64] | None:
    """Return what other tests require at levels at which few of their draws decide; None without a tail."""
    longest = int(_TAILS[0] * r)
    if longest < _FEWEST or not np.isfinite(top[-1]):
        return None
    fitted = cache(lambda k: _Tail.fitted(top[None, -k - 1 :], least_shape=-1.0))
    k = next((k for k in _lengths(r) if fitted(k).fits[0]), longest)
    threshold, shape, scale = (float(each[0]) for each in fitted(k)[:3])
    if not scale > SLACK:
        return None
    if shape < 0:
        # Draws may end, though the tail that tells p does not. Where is hardly known: half way between both.
        shape, scale = shape / 2, (scale + scale / (1 - shape)) / 2
    near = round(shape / _SHAPES_APART) * _SHAPES_APART
    above = _critical_above(k, r, near, _coarseness(top[-k:]), levels)
    at = np.array(levels) * r / k
    return np.asarray(threshold + scale * (_excess(at, shape) / _excess(at, near))[:, None] * above)


_SHAPES_APART, _SMOOTH, _STEPS_APART, _SIMULATED = 0.1, 0.02, 0.4, 200
"""Tails are simulated once for near shapes and for steps of near size, in units of their scale."""


def _coarseness(top: NDArray[np.float64]) -> float:
    """Return the step of (k,) ascending excesses of which as many are equal, for an exponential tail of scale 1.

    Two of its values are equal with probability tanh(step / 2).
    """
    starts = np.flatnonzero(np.r_[True, np.diff(top) > SLACK * np.maximum(1.0, np.abs(top[1:]))])
    equal = np.diff(np.r_[starts, len(top)]).astype(np.float64)
    step = 2 * np.arctanh(min((equal * (equal - 1)).sum() / (len(top) * (len(top) - 1)), 0.99))
    if step <= _SMOOTH:
        return 0.0
    return float(_SMOOTH * np.exp(_STEPS_APART * round(np.log(step / _SMOOTH) / _STEPS_APART)))


@lru_cache(maxsize=512)
def _critical_above(k: int, r: int, shape: float, step: float, levels: tuple[float, ...]) -> NDArray[np.float64]:
    """Return what tests require above the threshold that k of r draws exceed, in a tail of scale 1 and in steps."""
    times = np.cumsum(np.random.default_rng(0).exponential(size=(_SIMULATED, k + 1)), axis=1)
    top = _excess(times[:, ::-1] / k, shape)
    if step:
        top = step * np.round(top / step)
    above = _critical(top, r, levels).T
    counted = np.array([_reaching(level, r) > 0 for level in levels])
    # A value of few kinds exceeds one by a step: half of it, as in a correction for continuity.
    return np.where(np.isnan(above), np.inf, above + counted[:, None] * step / 2)


def _excess(survival: NDArray[np.float64], shape: float) -> NDArray[np.float64]:
    """Return what is exceeded with these probabilities under the generalised Pareto distribution of scale 1."""
    logs = -np.log(survival)
    return logs if abs(shape) <= _CURVED else np.expm1(shape * logs) / shape


def _reaching(level: float, r: int) -> int:
    """Return how many draws of r, and the value itself, may be as large as it for its p to be at most the level."""
    return int(level * (r + 1) + 1e-9)


def _critical(top: NDArray[np.float64], r: int, levels: Sequence[float]) -> NDArray[np.float64]:
    """Return the (m, levels) that values must exceed, by the (m, t) largest of r draws, ascending; nan if none can."""
    critical = np.full((len(top), len(levels)), np.nan)
    left = np.flatnonzero(np.isfinite(top[:, -1]))
    for i, level in enumerate(levels):
        if beyond := _reaching(level, r):
            critical[:, i] = top[:, -beyond]
    below = [i for i, level in enumerate(levels) if not _reaching(level, r) and level >= 1 / (REACH * (1 + r))]
    for k in _lengths(r, most=top.shape[1] - 1) if below else ():
        tail = _Tail.fitted(top[left, -k - 1 :])
        for i in below:
            logs = float(np.log(k / r / levels[i]))
            curved = tail.shape > _CURVED
            steps = np.where(curved, np.expm1(tail.shape * logs) / np.where(curved, tail.shape, 1.0), logs)
            value = np.maximum(tail.threshold + tail.scale * steps, top[left, -1])
            critical[left, i] = np.where(tail.fits, value, np.nan)
        left = left[~tail.fits]
        if not left.size:
            break
    return critical


def _log_survival(
    excess: NDArray[np.float64], shape: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the log of the probability of more under the generalised Pareto distribution, elementwise."""
    steps = excess / np.maximum(scale, 1e-300)
    curved = np.abs(shape) > _CURVED
    inside = np.maximum(shape * steps, -1 + 1e-12)
    return np.where(curved, -np.log1p(inside) / np.where(curved, shape, 1.0), -steps)


def _anderson_darling(
    excess: NDArray[np.float64], shape: NDArray[np.float64], scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distance of (m, k) ascending excesses from their generalised Pareto distributions."""
    k = excess.shape[1]
    survival = np.minimum(_log_survival(excess, shape[:, None], scale[:, None]), -1e-12)
    below = np.log(-np.expm1(survival))
    weight = (2 * np.arange(1, k + 1) - 1) / k
    return -k - (weight * (below + survival[:, ::-1])).sum(axis=1)


def upper_p_values(observed: ArrayLike, draws: ArrayLike) -> NDArray[np.float64]:
    """Return the p-values of (m,) values among (m, r) draws, or (1, r) that all share; see `p_value`."""
    value, drawn = np.asarray(observed, dtype=np.float64), np.asarray(draws)
    slack, drawn = SLACK * np.maximum(1.0, np.abs(value)), np.broadcast_to(drawn, (len(value), drawn.shape[1]))
    extreme = (drawn >= (value - slack)[:, None]) | np.isnan(drawn)
    p = (1 + np.count_nonzero(extreme, axis=1)) / (1 + drawn.shape[1])
    tail = tail_p_values(value - slack, drawn)
    return np.where(np.isnan(value), np.nan, np.where(np.isnan(tail), p, tail))


def p_value(observed: float, permuted: ArrayLike, *, alternative: Literal["greater", "less"] = "greater") -> float:
    """Return (1 + permutations at least as extreme) / (1 + permutations) (Phipson & Smyth 2010).

    The +1 counts the data among the permutations, so that p is never 0 and the test keeps its level. Where none of
    several thousand is as extreme, p is that of the fitted tail, an approximation, see `tail_p_values`.

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
    sign = 1 if alternative == "greater" else -1
    return float(upper_p_values([sign * observed], sign * np.asarray(permuted, dtype=np.float64)[None])[0])


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


def strata_mixing(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return which share of the images of a group comes from which group, on average, once labels were permuted.

    Parameters
    ----------
    sizes : (s, g) int
        Images of each stratum and group.

    Returns
    -------
    (g, g) float64
        Rows add up to 1; of a group without images they are nan.
    """
    of_stratum = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), 1)
    with np.errstate(invalid="ignore"):
        return np.asarray(sizes.T @ of_stratum / sizes.sum(axis=0)[:, None])


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
        upper, lower = (upper_p_values(sign * observed, np.tile(sign * sums, (len(observed), 1))) for sign in (1, -1))
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
