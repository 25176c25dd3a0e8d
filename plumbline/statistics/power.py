"""Power of tests: the smallest difference that 80% of audits of the same size would find.

The alternative is one group apart from the others, at the pooled rate that was observed; the group is the smallest
that is not flagged as small, so that the same difference of a larger group would be found more often. Power is
computed at two levels of p (`LEVELS`) beside the row; which p an audit requires is known when all its rows are there
(`required_p`), and `value_at` carries the value over. Cohen (1988), Statistical Power Analysis, ch. 1, 2 and 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

POWER = 0.8
"""Share of audits that would find the difference."""
LEVELS = (0.05, 0.002)
"""Two-sided levels at which power is computed: of a test alone, and of one among many."""
LEAST_EVENTS = 5.0
"""Expected events of every group, and images without, below which no ratio of rates is told as detectable."""
_SHIFTS = np.array([2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 8, 9, 10, 12])
"""Differences that are tried, in standard errors."""
_DRAWS = 400
_LEAST_BEYOND = 5


class Detectable(NamedTuple):
    """Smallest value of a statistic that `POWER` of the audits find, at each of `LEVELS`; nan where none is found."""

    at_05: float = np.nan
    at_002: float = np.nan


def detectable_value(
    permuted: NDArray[np.int64],
    statistic: Callable[[NDArray[Any]], NDArray[np.float64]],
    *,
    apart: int,
    parity: float = 0.0,
    ratio: bool = False,
) -> Detectable:
    """Return the smallest value that a permutation test of counts finds where one group is apart from the others.

    The permuted tables are those that the test compares with. A table of the alternative is a permuted one whose rates
    are moved, with deviations scaled to the binomial variance of the new rates: clusters, strata and events of the
    same images keep the dependence that the permutations have. Simulated power is 76-84% (tests/statistics).

    Parameters
    ----------
    permuted : (r, e + 1, g) int
        Counts of e events and, last, group sizes, as if groups did not differ.
    statistic : callable
        (k, e + 1, g) to (k,).
    apart : int
        The group that is apart: above the others where the pooled rate is at most one half, otherwise below.
    parity : float
        The statistic's value without differences: 0, or 1 for a ratio of the smaller to the larger.
    ratio : bool
        Whether the statistic is of ratios of rates: nan then where a group would have fewer than `LEAST_EVENTS`.

    Returns
    -------
    Detectable
        nan where fewer audits find even a difference of 12 standard errors, or the largest that the pooled rate
        allows; `at_002` is nan as well with fewer than 2,499 permutations.
    """
    null = np.sort(_scaled(statistic(permuted), parity))
    null = null[~np.isnan(null)]
    size, total = permuted[0, -1].astype(np.float64), float(permuted[0, -1].sum())
    pooled = permuted[0, :-1].sum(axis=-1) / total
    if not len(null) or not ((pooled > 0) & (pooled < 1)).all():
        return Detectable()
    others = 1 - size[apart] / total
    error = (permuted[:, :-1, apart] / np.maximum(permuted[:, -1:, apart], 1)).std(axis=0) / others
    shift = _SHIFTS[:, None] * error * np.where(pooled <= 0.5, 1.0, -1.0)
    rates = np.repeat((pooled - shift * (1 - others))[..., None], len(size), axis=-1)
    rates[..., apart] = pooled + shift * others
    least = LEAST_EVENTS / size if ratio else 0.0
    rates = rates[((rates >= least) & (rates <= 1 - least)).all(axis=(-2, -1))]
    if not len(rates):
        return Detectable()
    values = _scaled(statistic(_with_sizes(rates * size, size)), parity)
    drawn = permuted[:_DRAWS].astype(np.float64)
    sizes, deviation = drawn[:, -1:], drawn[:, :-1] - drawn[:, -1:] * pooled[:, None]
    spread = np.sqrt(rates * (1 - rates) / (pooled * (1 - pooled))[:, None])[:, None]
    tables = _with_sizes(np.clip(sizes * rates[:, None] + deviation * spread, 0, sizes), sizes)
    found = _scaled(statistic(tables.reshape(-1, *drawn.shape[1:])), parity).reshape(len(rates), -1)
    return Detectable(*(_unscaled(_crossing(found, values, _critical(null, level)), parity) for level in LEVELS))


def _with_sizes(events: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (..., e, g) counts with group sizes below them, (..., e + 1, g)."""
    return np.concatenate([events, np.broadcast_to(sizes, (*events.shape[:-2], 1, events.shape[-1]))], axis=-2)


def _scaled(value: ArrayLike, parity: float) -> NDArray[np.float64]:
    """Return log(1 + value), or for a ratio -log(value): 0 without differences, and near normal for ratios."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log1p(value) if parity == 0 else -np.log(value)


def _unscaled(value: float, parity: float) -> float:
    return float(np.expm1(value) if parity == 0 else np.exp(-value))


def _critical(null: NDArray[np.float64], level: float) -> float:
    """Return what a statistic must exceed for p = (1 + as extreme) / (1 + r) to be at most `level`; nan if unknown."""
    beyond = int(level * (len(null) + 1))
    return float(null[-beyond]) if beyond >= _LEAST_BEYOND else float("nan")


def _crossing(found: NDArray[np.float64], values: NDArray[np.float64], critical: float) -> float:
    """Return the value at which the share of `found` (shifts, draws) above `critical` reaches `POWER`."""
    from scipy.special import ndtri

    share = np.maximum.accumulate((found > critical + 1e-12).mean(axis=-1))
    if np.isnan(critical) or share[-1] < POWER:
        return float("nan")
    at = int(np.argmax(share >= POWER))
    if at == 0:
        return float(values[0])
    least = 0.5 / found.shape[-1]
    below, above = ndtri(np.clip(share[[at - 1, at]], least, 1 - least))
    return float(values[at - 1] + (ndtri(POWER) - below) / (above - below) * (values[at] - values[at - 1]))


def effect_size(level: ArrayLike) -> NDArray[np.float64]:
    """Return how many standard errors from the null a normal estimate is found by `POWER`, at two-sided levels."""
    from scipy.special import ndtri

    return np.asarray(ndtri(1 - np.asarray(level, np.float64) / 2) + ndtri(POWER))


def value_at(level: ArrayLike, first: ArrayLike, second: ArrayLike, *, parity: float = 0.0) -> NDArray[np.float64]:
    """Return the values that are found at levels of p, given those found at `LEVELS`.

    On the scale of log(1 + value), or -log(value) for a ratio with parity 1, they are taken for a power of
    `effect_size`: the first where a test compares two numbers with a normal error, a lower one where it takes the
    largest of many differences.

    Parameters
    ----------
    level, first, second : (...) float
        Where `second` is nan the first power is taken.
    """
    one, two = _scaled(first, parity), _scaled(second, parity)
    wanted, at_first, at_second = effect_size(level), *effect_size(LEVELS)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.log(two / one) / np.log(at_second / at_first)
        value = one * (wanted / at_first) ** np.where(np.isfinite(power), power, 1.0)
    return np.asarray(np.expm1(value) if parity == 0 else np.exp(-value))


def required_p(p: ArrayLike, *, level: float = 0.05) -> NDArray[np.float64]:
    """Return the largest p with which each test of a family would have been rejected (Benjamini & Hochberg 1995).

    The others keep their p-values. A test beside R rejected ones of m needs at most level (R + 1) / m, and exactly
    level k / m with the largest k of which k - 1 of the others have p at most that.

    Parameters
    ----------
    p : (m,) float
        nan is a test that was not made: it does not count in m, and its result is nan.
    """
    values = np.asarray(p, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(values))
    required, m = np.full(values.shape, np.nan), len(tested)
    order = tested[np.argsort(values[tested], kind="stable")]
    place = np.arange(1, m + 1)
    before = np.concatenate([[0.0], values[order][:-1]])
    for_null = np.maximum.accumulate(np.where(before <= level * place / m, place, 1)) if m else place
    # The others of a rejected test are as many as before, one fewer of them rejected.
    rejected = np.flatnonzero(values[order] <= level * place / m)
    steps = np.maximum(for_null, rejected[-1] + 1 if len(rejected) else 1)
    required[order] = level * steps / max(m, 1)
    return required
