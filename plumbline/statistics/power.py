"""Power of tests: the smallest difference that 80% of audits of the same size would find.

The alternative is one group apart from the others, at the pooled level that was observed; the group is the smallest
that is not flagged as small, so that the same difference of a larger group would be found more often. Power is
computed at some levels of p (`LEVELS`) beside the row; which p an audit requires is known when all its rows are there
(`required_p`), and `value_at` carries the value over. Cohen (1988), Statistical Power Analysis, ch. 1, 2, 6 and 8.

The power of a permutation test is the share of simulated alternatives beyond its critical value; a critical value below
1 / (1 + draws) comes from the tail that is fitted to the draws, as p does there. Where few draws or a fitted tail
decide, audits differ in their critical value, and in some there is none: each alternative then meets that of another
audit. Alternatives are the first draws, moved by a few differences; values in between are interpolated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.statistics.permutation import critical_values_elsewhere

POWER = 0.8
"""Share of audits that would find the difference."""
LEVELS = (0.05, 0.002, 1e-4, 1e-5)
"""Two-sided levels at which power is computed: of a test alone, and of one among many."""
COLUMNS = ("detectable_05", "detectable_002", "detectable_0001", "detectable_00001")
"""The columns of the metric table for these."""
LEAST_EVENTS = 5.0
"""Expected events of every group, and images without, below which no ratio of rates is told as detectable."""
FEWEST_SETS = 10
"""Sets of which fewer leave so few assignments that alternatives cannot be made from them."""
_ATOM = 0.01
"""Share of the draws from which on a value that so many have, and none exceeds, is the largest that there can be."""
_SHIFTS = np.array([0, 2, 2.8, 3.6, 4.5, 5.5, 7, 9, 12])
"""Differences that are tried, in standard errors."""
_TRIED = np.linspace(0, _SHIFTS[-1], 241)
_DRAWS = 400
_FOR_RATES = 2_500
_NEVER = 1e9
_NEAR = 0.05
"""By how much of its distance from no difference a value is carried beyond .002, where nothing is known of .0001."""


CountStatistic = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
"""A function of counts and sizes of k tables that gives (k,) values."""


class Detectable(NamedTuple):
    """Smallest value of a statistic that `POWER` of the audits find, at each of `LEVELS`.

    nan where none is found, None where nothing is told: a ratio that is larger than any tried one may be found.
    """

    at_05: float | None = np.nan
    at_002: float | None = np.nan
    at_0001: float | None = np.nan
    at_00001: float | None = np.nan


def detectable_value(
    counts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    statistic: CountStatistic,
    *,
    apart: int,
    parity: float = 0.0,
    ratio: bool = False,
    least_p: float = 0.0,
    clusters: int | None = None,
    null: NDArray[np.float64] | None = None,
    mixing: NDArray[np.float64] | None = None,
) -> Detectable:
    """Return the smallest value that a permutation test of counts finds; see `Alternatives` for the parameters."""
    alternatives = Alternatives(counts, sizes, apart=apart, clusters=clusters, mixing=mixing)
    return alternatives.detectable(statistic, parity=parity, ratio=ratio, least_p=least_p, null=null) or Detectable()


class Alternatives:
    """Counts where one group is apart from the others, and what permutation tests of them find.

    The permuted counts are those that the test compares with. Counts of the alternative are permuted ones whose rates
    are moved, with deviations scaled to the binomial variance of the new rates: clusters, strata and events of the
    same images keep the dependence that the permutations have, and groups the rates that their strata give them. How
    many audits find what is told is simulated in benchmarks/calibration/power.py.

    Parameters
    ----------
    counts : (r, e, g) int
        Counts of e events, as if groups did not differ. All events are moved, each by as many of its standard errors,
        or as far as its pooled rate allows.
    sizes : (r, e, g) or (r, 1, g) int
        Group sizes.
    apart : int
        The group that is apart: above the others where the pooled rate is at most one half, otherwise below; where
        strata alone set it apart, further away, unless nothing would be found that way.
    clusters : int, optional
        Clusters whose blocks are dealt out: a difference between groups then widens what the test compares with.
    mixing : (g, g) or (e, g, g) float, optional
        Which share of the images of a group comes from which group, where labels are permuted within strata, see
        `strata_mixing`; of each event, where labels are permuted by event. A group that is apart raises the rates of
        its strata, and thereby what the test compares with.
    """

    def __init__(
        self,
        counts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        *,
        apart: int,
        clusters: int | None = None,
        mixing: NDArray[np.float64] | None = None,
    ) -> None:
        self._counts, self._sizes, self._apart, self._clusters = counts, sizes, apart, clusters
        size = self._size = sizes[0].astype(np.float64)
        total = size.sum(axis=-1)
        pooled, share = counts[0].sum(axis=-1) / np.maximum(total, 1), size[:, apart] / np.maximum(total, 1)
        varies = (pooled > 0) & (pooled < 1) & (share > 0) & (share < 1)
        self._none = not varies.any()
        if self._none:
            return
        alike = self._alike = _rates_alike(counts, sizes, pooled)
        there = self._there = size > 0
        absorbed = np.broadcast_to(share[:, None] if mixing is None else mixing[..., apart], size.shape)
        absorbed = self._absorbed = np.where(there, np.nan_to_num(absorbed), 0.0)
        varies &= absorbed[:, apart] < 1
        self._varies, self._kept = varies, np.where(varies, 1 - absorbed[:, apart], 1.0)
        self._error = (counts[..., apart] / np.maximum(sizes[..., apart], 1)).std(axis=0) / self._kept
        usual, away = np.where(pooled <= 0.5, 1.0, -1.0), np.sign(alike[:, apart] - pooled)
        self._ways = [np.where(away == 0, usual, away)]
        if (away * usual < 0).any():
            self._ways.append(usual)
        self._furthest: dict[tuple[int, bool], tuple[float, ...]] = {}
        self._moved: dict[tuple[int, tuple[float, ...]], _Moved] = {}

    def detectable(
        self,
        statistic: CountStatistic,
        *,
        parity: float = 0.0,
        ratio: bool = False,
        least_p: float = 0.0,
        null: NDArray[np.float64] | None = None,
    ) -> Detectable | None:
        """Return the smallest value of a statistic that its permutation test finds; None of fewer than `FEWEST_SETS`.

        Parameters
        ----------
        statistic : callable
            Of counts and sizes of k tables to (k,).
        parity : float
            The statistic's value without differences: 0, or 1 for a ratio of the smaller to the larger.
        ratio : bool
            Whether the statistic is of ratios of rates: of alternatives in which a group would have fewer than
            `LEAST_EVENTS` nothing is told.
        least_p : float
            How small p can become at all.
        null : (r,) float, optional
            The statistic of the permuted counts, where it is known.

        Returns
        -------
        Detectable
            nan where fewer than `POWER` of the audits would find the largest difference that is tried (12 standard
            errors, or what the pooled rate allows), and at levels that p cannot reach; None where larger ratios are
            possible than those of `LEAST_EVENTS`.
        """
        if self._clusters is not None and self._clusters < FEWEST_SETS:
            return None
        if self._none:
            return Detectable()
        null = statistic(self._counts, self._sizes) if null is None else null
        detectable, beyond = Detectable(), False
        for way in range(len(self._ways)):
            moved = self._moved_by(way, ratio=ratio)
            beyond |= ratio and self._furthest_of(way, ratio=True) != self._furthest_of(way, ratio=False)
            detectable = Detectable()
            if moved is not None:
                shifts, values = len(moved.wider), statistic(moved.counts, moved.sizes)
                simulated, true = values[shifts:].reshape(shifts, -1), values[:shifts]
                detectable = detectable_of(null, simulated, true, parity=parity, least_p=least_p, wider=moved.wider)
            if not np.isnan(detectable.at_05):  # type: ignore[arg-type]
                break
        if not beyond:
            return detectable
        least_p = _least_p(null if parity == 0 else -null, least_p)
        known = np.isfinite(np.array(detectable, np.float64)) | (np.array(LEVELS) < least_p)
        return Detectable(*(value if is_known else None for value, is_known in zip(detectable, known)))

    def _rates(
        self, way: int, shifts: NDArray[np.float64], furthest: tuple[float, ...] | None = None
    ) -> NDArray[np.float64]:
        """Return the (k, e, g) rates where the group moves this way in each event, by so many standard errors."""
        moved = np.minimum(shifts[:, None], np.inf if furthest is None else furthest)
        by = moved * (self._error * self._varies * self._ways[way] / np.sqrt(self._counts.shape[1]))
        rates = self._alike - by[..., None] * self._absorbed
        rates[..., self._apart] = self._alike[:, self._apart] + by * (1 - self._absorbed[:, self._apart])
        return rates

    def _furthest_of(self, way: int, *, ratio: bool) -> tuple[float, ...]:
        """Return by how many standard errors each event can be moved; of ratios as many as all of them can."""
        if (way, ratio) in self._furthest:
            return self._furthest[way, ratio]
        least = LEAST_EVENTS / np.maximum(self._size, 1e-9) if ratio else np.zeros(1)
        rates = self._rates(way, _TRIED)
        enough = ~self._there | (np.minimum(rates, 1 - rates) >= least - 1e-12)
        possible = enough.all(axis=-1)
        if ratio:
            possible = np.broadcast_to(possible.all(axis=-1, keepdims=True), possible.shape)
        furthest = np.where(possible, _TRIED[:, None], 0.0).max(axis=0)
        moved = tuple(np.where(possible[:2].all(axis=0) & self._varies, furthest, 0.0).tolist())
        self._furthest[way, ratio] = moved
        return moved

    def _moved_by(self, way: int, *, ratio: bool) -> _Moved | None:
        """Return the alternatives at the shifts that are possible; None where none is."""
        furthest = self._furthest_of(way, ratio=ratio)
        if any(furthest) and (way, furthest) not in self._moved:
            self._moved[way, furthest] = self._moved_to(way, furthest)
        return self._moved.get((way, furthest))

    def _moved_to(self, way: int, furthest: tuple[float, ...]) -> _Moved:
        shifts = np.unique(np.minimum(_SHIFTS, max(furthest)))
        rates, alike = self._rates(way, shifts, furthest), self._alike
        variance = np.where((alike > 0) & (alike < 1), alike * (1 - alike), np.inf)
        spread = np.sqrt(np.maximum(rates * (1 - rates), 0.0) / variance)
        # Tables run along the last axis in memory, as the draws do: (e, g, k, d).
        drawn, of = (
            np.moveaxis(each[:_DRAWS], 0, -1).astype(np.float64)[:, :, None] for each in (self._counts, self._sizes)
        )
        by_shift, spread = (np.moveaxis(each, 0, -1)[..., None] for each in (rates, spread))
        tables = np.clip(of * by_shift + (drawn - of * alike[..., None, None]) * spread, 0, of)
        wider = np.ones(len(shifts))
        if self._clusters is not None:
            e, size = self._counts.shape[1], self._size[:, self._apart]
            of_sets = self._absorbed[:, self._apart], self._clusters * size / self._size.max(axis=-1), self._kept
            share_absorbed, units, left = (np.broadcast_to(each, e)[self._varies] for each in of_sets)
            in_errors = np.minimum(shifts[:, None], np.asarray(furthest)[self._varies]) / np.sqrt(e * left)
            wider = _widened(in_errors, absorbed=share_absorbed, units=units).mean(axis=-1)
        size = self._size[..., None]
        counts = _side_by_side(by_shift[..., 0] * size, tables)
        return _Moved(counts, _side_by_side(size, of, shape=tables.shape[2:]), wider)


class _Moved(NamedTuple):
    """Alternatives at k shifts.

    Attributes
    ----------
    counts, sizes : (k + k × d, e, g) and (k + k × d, 1 or e, g) float64
        First what is expected at each shift, then d draws of each.
    wider : (k,) float64
        See `detectable_of`.
    """

    counts: NDArray[np.float64]
    sizes: NDArray[np.float64]
    wider: NDArray[np.float64]


def _side_by_side(
    expected: NDArray[np.float64], drawn: NDArray[np.float64], *, shape: tuple[int, ...] | None = None
) -> NDArray[np.float64]:
    """Return (e, g, k) and (e, g, k, d) numbers, or what is broadcast to such a (k, d), as (k + k × d, e, g)."""
    k, d = shape or drawn.shape[2:]
    parts = np.broadcast_to(expected, (*drawn.shape[:2], k)), np.broadcast_to(drawn, (*drawn.shape[:2], k, d))
    return np.moveaxis(np.concatenate([each.reshape(*drawn.shape[:2], -1) for each in parts], axis=-1), -1, 0)


def _rates_alike(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], pooled: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the (e, g) rates of groups that do not differ within any stratum.

    That is the pooled rate, unless some groups are more often in strata in which the event is frequent. What lies
    within the error of the draws is no difference.
    """
    rates = counts[:_FOR_RATES] / np.maximum(sizes[:_FOR_RATES], 1)
    mean, error = rates.mean(axis=0), rates.std(axis=0) / np.sqrt(len(rates))
    return np.asarray(np.where(np.abs(mean - pooled[:, None]) > 6 * error, mean, pooled[:, None]))


def detectable_gap(
    means: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    apart: int,
    units: int,
    answers: int | None = None,
    parity: float = 0.0,
    least_p: float = 0.0,
    mixing: NDArray[np.float64] | None = None,
) -> Detectable:
    """Return the smallest value that a permutation test of group means finds where the mean of one group is apart.

    Parameters
    ----------
    means : (r, g) float
        As if groups did not differ.
    statistic : callable
        (k, g) to (k,), at least `parity`.
    apart : int
        The group that is apart: above the others, or below them where strata alone set it below.
    units : int
        Images or clusters of this group.
    answers : int, optional
        Of this group, where each is yes or no: their share varies more where it is nearer to a half.
    parity, least_p : float
        As in `detectable_value`; a parity of 1 is here that of a ratio of the larger to the smaller.
    mixing : (g, g) float, optional
        As in `detectable_value`; without it every group has the same share of each.
    """
    g = means.shape[1]
    absorbed = np.full(g, 1 / g) if mixing is None else mixing[:, apart]
    if not absorbed[apart] < 1:
        return Detectable()
    kept = np.sqrt(1 - absorbed[apart])
    # In standard errors of the mean of the group; permuted means spread less.
    shifts = _SHIFTS / kept
    alike = _means_alike(means)
    way = -1.0 if alike[apart] < np.delete(alike, apart).mean() else 1.0
    by = way * shifts[:, None] * means[:, apart].std() / kept * ((np.arange(g) == apart) - absorbed)
    moved = means[:_DRAWS] + by[:, None]
    if answers:
        share, shares = alike[apart], np.clip(alike[apart] + by[:, apart], 0.0, 1.0)
        more = np.sqrt(np.maximum(0.0, shares * (1 - shares) - share * (1 - share)) / answers)
        moved[..., apart] += more[:, None] * _normal_numbers(moved.shape[1])
    simulated = statistic(moved.reshape(-1, g)).reshape(len(by), -1)
    values, null = statistic(alike + by), statistic(means)
    wider = _widened(shifts, absorbed=absorbed[apart], units=units)
    simulated = _on_steps(simulated, null)
    detectable = detectable_of(null - parity, simulated - parity, values - parity, least_p=least_p, wider=wider)
    return Detectable(*(np.array(detectable, np.float64) + parity).tolist())


@lru_cache(maxsize=4)
def _normal_numbers(many: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal(many)


_STEPS = 200
"""Different values of a statistic up to which it moves in steps, as a share of few answers does."""


def _on_steps(simulated: NDArray[np.float64], null: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take simulated values down to the next that a statistic can have, where it has few.

    A mean that is moved by a fraction of one answer lies between them, and would exceed what no audit can.
    """
    steps = np.unique(null[np.isfinite(null)])
    if not 1 < len(steps) <= _STEPS:
        return simulated
    below = np.searchsorted(steps, simulated + 1e-12, side="right") - 1
    within = (below >= 0) & (simulated <= steps[-1])
    return np.where(within, steps[np.maximum(below, 0)], simulated)


def _means_alike(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (g,) means of groups that do not differ within any stratum, see `_rates_alike`."""
    centre, error = means.mean(axis=0), means.std(axis=0) / np.sqrt(len(means))
    return np.asarray(np.where(np.abs(centre - centre.mean()) > 6 * error, centre, centre.mean()))


def detectable_by_f(information: float, *, groups: int, df: float) -> Detectable:
    """Return the difference of one mean from the others that an F test of equal means finds.

    Parameters
    ----------
    information : float
        The test's noncentrality at a difference of 1.
    groups : int
    df : float
        Degrees of freedom of the denominator; the numerator has groups - 1.
    """
    if not information > 0 or not df > 0:
        return Detectable()
    # Of many degrees of freedom a fraction changes nothing.
    needed = _noncentralities(groups - 1, float(df) if df < 100 else float(round(df)))
    return Detectable(*(float(np.sqrt(each / information)) for each in needed))


@lru_cache(maxsize=256)
def _noncentralities(numerator: int, denominator: float) -> tuple[float, ...]:
    """Return the noncentralities at which `POWER` of F tests reject at `LEVELS`."""
    from scipy.special import fdtri, ncfdtrinc

    critical = (float(fdtri(numerator, denominator, 1 - level)) for level in LEVELS)
    return tuple(float(ncfdtrinc(numerator, denominator, 1 - POWER, f)) for f in critical)


def detectable_of(
    null: NDArray[np.float64],
    simulated: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    parity: float = 0.0,
    least_p: float = 0.0,
    wider: ArrayLike = 1.0,
) -> Detectable:
    """Return the true values at which `POWER` of what a test finds is beyond what each level requires.

    Parameters
    ----------
    null : (r,) float
        What the test compares with; nan is as extreme as can be.
    simulated : (s, d) float
        Values that tests meet, by shift away from the null; nan is found by none.
    values : (s,) float
        The true value at each shift.
    parity, least_p : float
        As in `detectable_value`.
    wider : (s,) float
        By which factor the critical value lies further from the true value without a shift, the first of `values`.
    """
    sign = 1.0 if parity == 0 else -1.0
    null, simulated = (
        np.where(np.isnan(null), np.inf, sign * null),
        np.where(np.isnan(simulated), -np.inf, sign * simulated),
    )
    required = critical_values_elsewhere(null, LEVELS, tests=simulated.shape[-1])
    # On the logarithmic scale ratios are near normal.
    with np.errstate(invalid="ignore"):
        needed, reached, true = (_scaled(each, parity) for each in (sign * required, sign * simulated, values))
    needed, reached = np.where(np.isnan(needed), np.inf, needed), np.where(np.isnan(reached), -np.inf, reached)
    alike, factor = float(np.nan_to_num(true[0])), np.asarray(wider, np.float64)
    least_p = _least_p(null, least_p)
    widened = alike + (needed[:, :1] - alike) * factor
    detectable = np.full(len(LEVELS), np.nan)
    exceeded = _scaled(sign * _of_most(simulated), parity)
    for i, level in enumerate(LEVELS):
        with np.errstate(invalid="ignore"):  # a ratio of 0, where no value exceeds that
            if (needed[i] != needed[i, 0]).any():
                # Each simulated audit has draws of its own.
                by_shift = alike + (needed[i] - alike) * factor.reshape(-1, 1)
                margin = _of_most(np.maximum(np.nan_to_num(reached - by_shift, nan=-_NEVER), -_NEVER))
            else:
                margin = np.nan_to_num(exceeded - widened[i], nan=-_NEVER)
        beyond = np.maximum.accumulate(margin)
        if level >= least_p and beyond[-1] > 1e-12:
            detectable[i] = np.interp(1e-12, beyond, true)
    return Detectable(*_unscaled(detectable, parity).tolist())


def _least_p(null: NDArray[np.float64], least_p: float) -> float:
    """Return how small p can become, where the largest values of the draws are the most extreme.

    Of three events in pairs of images the difference is always one or three: no test of them has a small p.
    """
    null = np.where(np.isnan(null), np.inf, null)
    largest = float((null >= null.max()).mean())
    return max(least_p, largest if largest >= _ATOM else 0.0)


def _of_most(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what `POWER` of (..., d) values reach: their quantile, as `numpy.quantile` has it."""
    place = (values.shape[-1] - 1) * (1 - POWER)
    below = int(place)
    above = min(below + 1, values.shape[-1] - 1)
    ordered = np.partition(values, [below, above], axis=-1)
    low, high, part = ordered[..., below], ordered[..., above], place - below
    with np.errstate(invalid="ignore"):
        return np.asarray(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))


def _widened(shifts: NDArray[np.float64], *, absorbed: ArrayLike, units: ArrayLike) -> NDArray[np.float64]:
    """Return by which factor permuted means spread more if a group is apart by so many standard errors of its mean.

    Its values then differ from the others, and permutations mix them: within a cluster of which a share is of the group
    the variance rises by the squared difference times this share, and a standard error squared is that variance over
    the `units` of the group.
    """
    return np.asarray(np.sqrt(1 + shifts**2 * np.asarray(absorbed) / np.asarray(units)))


def _scaled(value: ArrayLike, parity: float) -> NDArray[np.float64]:
    """Return log(1 + value), or for a ratio -log(value): 0 without differences, and near normal for ratios."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log1p(value) if parity == 0 else -np.log(value)


def _unscaled(value: NDArray[np.float64], parity: float) -> NDArray[np.float64]:
    return np.asarray(np.expm1(value) if parity == 0 else np.exp(-value))


def effect_size(level: ArrayLike) -> NDArray[np.float64]:
    """Return how many standard errors from the null a normal estimate is found by `POWER`, at two-sided levels."""
    from scipy.special import ndtri

    return np.asarray(ndtri(1 - np.asarray(level, np.float64) / 2) + ndtri(POWER))


def value_at(level: ArrayLike, found: ArrayLike, *, parity: float = 0.0) -> NDArray[np.float64]:
    """Return the values that are found at levels of p, given those found at `LEVELS`.

    On the scale of log(1 + value), or -log(value) for a ratio with parity 1, they are taken for a power of
    `effect_size` between two levels and beyond the last: the first power where a test compares two numbers with a
    normal error, a lower one where it takes the largest of many differences.

    Parameters
    ----------
    level : (...) float
    found : (..., 4) float
        nan or None from some level on: none is known at that level or a stricter one. Between .05 and a .002 at which
        none is, the power is the first. Below .002, where draws may allow no p before the next level, none is found
        there either, but for p down to .0011, whose values lie within a twentieth.
    """
    wanted, known, found = np.log(effect_size(level)), np.log(effect_size(LEVELS)), np.asarray(found, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(_scaled(found, parity))
    logs = np.broadcast_to(logs, (*wanted.shape, len(LEVELS)))
    value = logs[..., 0] + wanted - known[0]
    with np.errstate(invalid="ignore"):  # two levels at which nothing is found
        for i in range(len(LEVELS) - 1):
            slope = (logs[..., i + 1] - logs[..., i]) / (known[i + 1] - known[i])
            if i == 0:
                slope = np.where(np.isfinite(slope), slope, np.where(wanted < known[1], 1.0, np.nan))
            elif i == 1:
                near = wanted < known[1] + np.log(1 + _NEAR)
                slope = np.where(np.isfinite(slope) | ~near, slope, 1.0)
            value = np.where(wanted > known[i] + 1e-12, logs[..., i] + slope * (wanted - known[i]), value)
    return np.where(np.isnan(wanted), np.nan, _unscaled(np.exp(value), parity))


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
