"""Intervals of maxima over groups: how far apart groups lie, where the data chose the groups that lie furthest apart.

A maximum of differences is not differentiable where two of them tie, nor a mean of absolute differences at 0. There the
estimate is biased upwards, its bootstrap replicates twice as much, and percentile intervals undercover, however many
images there are (Andrews 2000, Econometrica 68). So each end is bounded from the groups themselves, whose levels
(rates, means, log rates) are smooth:

- Which differences may be the largest is decided first: those whose upper end reaches the largest of all lower ends, at
  the simultaneous level (the contact set of Chernozhukov, Lee & Rosen 2013, Econometrica 81). A clear largest
  difference is left alone, and its interval is an ordinary one.
- A maximum is bounded below by the largest lower end of those, with Bonferroni's t quantile for their number. Above by
  their largest upper end, each at its own level: the true maximum is one of them, and its own end fails in
  (1 - confidence) / 2.
- A mean of maxima, such as a mean over pairs of groups, is recentred: differences that may tie are set equal, pairs
  that may not differ to 0, and the bootstrap errors are added to these. What a resample then exceeds them by is
  an upper bound of what the estimate exceeds the truth by.
- A permutation test that rejects gives a lower bound too: a level's error raises a difference by at most the
  difference of errors, so that what exceeds the permutations' quantile is not due to chance.

Coverage: benchmarks/calibration/maxima.py and docs/calibration.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.reasons import Reason, Reasons, joined, reason
from plumbline.statistics.bootstrap import TableStatistic, jackknife_tables
from plumbline.statistics.cluster_permutation import relabelling_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import MAX_UNDEFINED_SHARE, bca, percentile
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.permutation import p_value

Scale = Literal["difference", "relative", "ratio"]
"""What is told of a difference u of levels: u itself; of log levels exp(u) - 1 or exp(-u)."""

Levels = Callable[[NDArray[Any]], NDArray[np.float64]]
"""(k, ...) tables to (k, s, g) levels of g groups in each of s strata; nan for a group without images."""

NOTABLE_BIAS = 0.25
"""`reason` reports a bias of more than this share of the interval."""
_ZERO = 1e-12


@dataclass(frozen=True)
class Disparity:
    """A statistic of how far apart groups lie, with the levels of the groups behind it.

    Attributes
    ----------
    value : callable
        (k, ...) tables to (k,) values, nan where undefined.
    levels : callable
        (k, ...) tables to (k, s, g) levels of g groups in each of s strata, such as events or classes: rates or means
        for the scale "difference", else their logarithms, finite also where nothing was counted. nan for a group
        without images.
    over : {"pairs", "strata", "all"}
        The mean over all pairs of groups, of scale "relative"; the mean over strata of the largest difference of a
        pair; or the largest of all strata.
    scale : {"difference", "relative", "ratio"}
    most : float
        The largest value that there is, 1 of a difference of rates: an interval ends there.
    """

    value: TableStatistic
    levels: Levels
    over: Literal["pairs", "strata", "all"] = "strata"
    scale: Scale = "difference"
    most: float = np.inf

    @property
    def parity(self) -> float:
        """Return the value where groups do not differ."""
        return _PARITY[self.scale]


_PARITY: dict[Scale, float] = {"difference": 0.0, "relative": 0.0, "ratio": 1.0}
# How far a statistic lies from parity, at a difference u of levels: u, exp(u) - 1, or 1 - exp(-u).
_AWAY: dict[Scale, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "difference": lambda u: u,
    "relative": np.expm1,
    "ratio": lambda u: -np.expm1(-u),
}


def estimate_disparity(
    table: NDArray[np.int64],
    disparity: Disparity,
    *,
    resampled: NDArray[np.int64],
    permuted: NDArray[np.int64],
    jackknife: Callable[[TableStatistic], Jackknife] | None = None,
    least_p: float = 0.0,
    clusters: int | None = None,
    errors: Callable[[], LevelErrors | None] | None = None,
    chance: NDArray[np.float64] | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a disparity of a table of counts with its confidence interval and permutation p.

    Where the permutation test does not reject "no difference" (p > 1 - confidence), the interval reaches from parity to
    the further of the BCa and percentile ends. Elsewhere the near end is the nearer to parity of BCa's and the bound of
    this module, or where that does not leave parity what the permutations leave; the far end is the further of the two.
    So the interval holds parity exactly where the test does not reject. `reason` reports how large the bias of the
    estimate may be, where that is more than a quarter of the interval.

    Parameters
    ----------
    table : (g, c) int
        Or what `resampled` has per draw.
    disparity : Disparity
    resampled, permuted : (r, g, c) int
        Draws of `resample_tables` and `permute_tables`; several statistics may share them. Of a group whose resamples
        do not vary, since it has the event never or always, the errors are those of the permutations.
    jackknife : callable, optional
        Leaves out what was resampled: single images by default.
    least_p : float
        How small p can become at all (`plumbline.statistics.cluster_permutation`): it is no smaller, and `reason` says
        where that is no evidence.
    clusters : int, optional
        Number of clusters, where these were resampled: t quantiles with one degree of freedom less.
    errors : callable, optional
        Gives the `level_errors` of the same draws, where several statistics share them.
    chance : (r,) float, optional
        The value of `permuted`, where it is known.
    """
    value = float(disparity.value(table[None])[0])
    if np.isnan(value):
        return Estimate(value, np.nan, np.nan, p=np.nan)
    replicates = disparity.value(resampled)
    chance = disparity.value(permuted) if chance is None else chance
    left_out = jackknife_tables(table, disparity.value) if jackknife is None else jackknife(disparity.value)
    estimate = bca(value, replicates, acceleration=float(left_out.acceleration), confidence=confidence)
    inverted = disparity.scale == "ratio"
    p = max(p_value(value, chance, alternative="less" if inverted else "greater"), least_p)
    estimate, few = replace(estimate, p=p), relabelling_reason(least_p, confidence)
    if np.isnan(estimate.ci_low):
        return replace(estimate, reason=joined(few, estimate.reason))
    away = abs(value - disparity.parity)
    # Where nothing differs, a disparity of chance alone is the bias.
    bias = float(np.nanmean(np.abs(chance - disparity.parity)))
    if p > 1 - confidence:
        wider = percentile(value, replicates, confidence=confidence)
        estimate = extend_to_parity(estimate, wider, parity=disparity.parity)
    else:
        of_levels = (
            errors() if errors else level_errors(disparity.levels, table, resampled, permuted, clusters=clusters)
        )
        bounds = _bounds(disparity, away, of_levels, confidence=confidence)
        low, high = sorted(abs(end - disparity.parity) for end in (estimate.ci_low, estimate.ci_high))
        low, high, bias = min(low, bounds.low), max(high, bounds.high, away), bounds.bias
        if low <= 0:
            low = beyond_chance(value, chance, scale=disparity.scale, confidence=confidence)
        low = min(max(low, 0.0), away)
        low, high = (1 - high, 1 - low) if inverted else (low, high)
        estimate = replace(estimate, ci_low=low, ci_high=high)
    reasons = joined(few, estimate.reason, bias_reason(estimate, bias))
    return replace(estimate, ci_high=min(estimate.ci_high, disparity.most), reason=reasons)


def extend_to_parity(estimate: Estimate, wider: Estimate, *, parity: float) -> Estimate:
    """Extend an interval to parity and to the ends of a wider one; leave it where those are undefined."""
    if np.isnan(wider.ci_low):
        return estimate
    ends = [parity, wider.ci_low, wider.ci_high, estimate.ci_low, estimate.ci_high]
    low, high = float(min(ends)), float(max(ends))
    return replace(estimate, ci_low=low, ci_high=high, reason=joined(wider.reason, reason("reaches_parity")))


def bias_reason(estimate: Estimate, bias: float) -> Reason | None:
    """Return the reason that an estimate may lie too far from parity by more than a quarter of its interval, if so."""
    notable = bias > NOTABLE_BIAS * (estimate.ci_high - estimate.ci_low)
    return reason("biased_upwards", bias=bias) if notable else None


def beyond_chance(value: float, permuted: NDArray[np.float64], *, scale: Scale, confidence: float) -> float:
    """Return the lower bound, as a distance from parity, that a permutation test gives; above 0 where it rejects.

    By the triangle inequality a difference of estimates exceeds that of the truths by at most a difference of errors,
    and the k-th largest permuted value, k = (1 - confidence) (1 + permutations), is the quantile of those.
    """
    rank = int((1 - confidence) * (1 + len(permuted)) + 1e-9)
    if rank < 1:
        return 0.0
    inverted = scale == "ratio"
    away = np.where(np.isnan(permuted), np.inf, 1 - permuted if inverted else permuted)
    quantile = float(np.partition(away, len(away) - rank)[len(away) - rank])
    if scale == "difference":
        return value - quantile
    factor = 1 - quantile if inverted else 1 / (1 + quantile)
    if factor <= 0:
        return 0.0
    return float(1 - value / factor if inverted else (1 + value) * factor - 1)


# --- Bounds of the largest of several differences.


class Contenders(NamedTuple):
    """Which of (p,) differences may be the largest, as they are and with the opposite sign."""

    upright: NDArray[np.bool_]
    mirrored: NDArray[np.bool_]

    @classmethod
    def of(cls, apart: NDArray[np.float64], wide: NDArray[np.float64]) -> Contenders:
        """Return those whose upper end reaches the largest lower end; `wide` is half the width of each interval."""
        least = (apart - wide).max()
        return cls(apart + wide >= least, wide - apart >= least)


class Ends(NamedTuple):
    """Bounds of the largest of several differences; the lower one may lie below 0."""

    low: float
    high: float


def largest_difference(apart: ArrayLike, error: ArrayLike, *, df: ArrayLike = np.inf, confidence: float = 0.95) -> Ends:
    """Return bounds of the largest absolute difference (Chernozhukov, Lee & Rosen 2013, section 3).

    Parameters
    ----------
    apart : (p,) float
        Absolute differences, such as of all pairs of groups.
    error : (p,) float
        Their standard errors.
    df : (p,) float
        Degrees of freedom of each; normal quantiles by default.

    Returns
    -------
    Ends
        Each fails in about (1 - confidence) / 2.
    """
    d, se = np.asarray(apart, dtype=np.float64), np.asarray(error, dtype=np.float64)
    tail = (1 - confidence) / 2
    contenders = Contenders.of(d, t_quantile(tail / len(d), df) * se)
    several = t_quantile(tail / (contenders.upright.sum() + contenders.mirrored.sum()), df)
    low, high = d - several * se, d + t_quantile(tail, df) * se
    return Ends(float(low[contenders.upright].max()), float(high[contenders.upright].max()))


def largest_low(value: NDArray[np.float64], error: NDArray[np.float64], *, confidence: float) -> NDArray[np.float64]:
    """Return the lower bounds of the largest of several values, as `largest_difference` has it for one of them.

    Parameters
    ----------
    value, error : (..., g) float
        Values, -inf where absent, and their standard errors.

    Returns
    -------
    (...) float64
    """
    from scipy.special import ndtri

    tail = (1 - confidence) / 2
    wide = float(t_quantile(tail / value.shape[-1], np.inf)) * error
    contends = value + wide >= (value - wide).max(axis=-1, keepdims=True)
    several = -ndtri(tail / contends.sum(axis=-1, keepdims=True))
    return np.asarray(np.where(contends, value - several * error, -np.inf).max(axis=-1))


def t_quantile(tail: float, df: ArrayLike) -> NDArray[np.float64]:
    """Return what Student's t exceeds with probability `tail`; the normal quantile at infinite degrees of freedom."""
    from scipy.special import ndtri, stdtrit

    degrees = np.asarray(df, dtype=np.float64)
    finite = np.where(np.isinf(degrees), 1.0, degrees)
    return np.asarray(np.where(np.isinf(degrees), -ndtri(tail), -stdtrit(finite, tail)))


# --- Bounds of a disparity, from the bootstrap errors of the groups' levels.


class _Bounds(NamedTuple):
    """Bounds of a disparity and the bias of its estimate, as distances from parity."""

    low: float
    high: float
    bias: float


@dataclass(frozen=True)
class _Differences:
    """The differences of pairs of groups, of which the largest is taken.

    Attributes
    ----------
    larger, smaller : (p,) int
        The groups of each pair, as rows of the errors.
    apart, error : (p,) float64
        The difference of their levels, at least 0, and its standard error.
    """

    larger: NDArray[np.int64]
    smaller: NDArray[np.int64]
    apart: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, rows: ArrayLike, levels: NDArray[np.float64], covariance: NDArray[np.float64]) -> _Differences:
        """Compare every two of the given rows of (g,) levels, whose errors have a (g, g) covariance."""
        chosen = np.asarray(rows)
        first, second = (chosen[place] for place in np.triu_indices(len(chosen), k=1))
        turned = levels[first] < levels[second]
        a, b = np.where(turned, second, first), np.where(turned, first, second)
        variance = covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]
        return cls(a, b, levels[a] - levels[b], np.sqrt(np.maximum(variance, 0.0)))

    def chosen(self, pairs: NDArray[Any] | list[int]) -> _Differences:
        """Return some of the pairs."""
        return _Differences(self.larger[pairs], self.smaller[pairs], self.apart[pairs], self.error[pairs])

    def __len__(self) -> int:
        return len(self.apart)

    def errors_of(
        self, found: Contenders, errors: NDArray[np.float64], away: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return by how much (r,) draws of (g, r) errors exceed the largest difference, and the errors of its pair.

        The first as if all contenders were tied.
        """
        top = int(self.apart.argmax())
        noise, start = self._noise(top, errors), self.apart[top]
        of_largest = away(start + noise) - away(start)
        if found.upright.sum() == 1 and not found.mirrored.any():
            return of_largest, of_largest
        most = np.abs(noise) if found.mirrored[top] else noise
        for pair in np.flatnonzero(found.upright).tolist():
            if pair != top:
                noise = self._noise(pair, errors)
                most = np.maximum(most, np.abs(noise) if found.mirrored[pair] else noise)
        # Where the order of a pair is open, it may be no difference at all, and its kink lies at 0.
        return away(most) if found.mirrored.any() else away(start + most) - away(start), of_largest

    def _noise(self, pair: int, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        return errors[self.larger[pair]] - errors[self.smaller[pair]]


class LevelErrors(NamedTuple):
    """The levels of groups with their bootstrap errors.

    Attributes
    ----------
    levels : (s, g) float64
        By stratum; nan for a group without images.
    errors : (s × g, r) float64
        Scaled to the variance that as few clusters have; 0 for a group without images.
    covariance : (s × g, s × g) float64
    df : float
        Degrees of freedom; infinite for single images.
    """

    levels: NDArray[np.float64]
    errors: NDArray[np.float64]
    covariance: NDArray[np.float64]
    df: float


def level_errors(
    levels: Levels,
    table: NDArray[np.int64],
    resampled: NDArray[np.int64],
    permuted: NDArray[np.int64],
    *,
    clusters: int | None = None,
) -> LevelErrors | None:
    """Return the errors of levels, see `Disparity.levels` and `estimate_disparity`; None with one cluster or draw."""
    value = levels(table[None])[0]
    draws, flat = _by_level(levels(resampled)), np.nan_to_num(value.ravel())
    present = np.flatnonzero(np.isfinite(value.ravel()))
    if not (known := np.isfinite(draws[present]).all(axis=0)).all():
        draws = draws[:, known]
    if draws.shape[1] < 2 or (clusters is not None and clusters < 2):
        return None
    errors = np.zeros_like(draws)
    errors[present] = draws[present] - flat[present, None]
    still = present[np.ptp(errors[present], axis=1) <= _ZERO * np.maximum(1.0, np.abs(flat[present]))]
    if len(still):
        shuffled = _by_level(levels(permuted))[still]
        shuffled = np.nan_to_num(shuffled - np.nanmean(shuffled, axis=1, keepdims=True))
        errors[still] = shuffled[:, np.arange(errors.shape[1]) % shuffled.shape[1]]
    factor, df = (1.0, np.inf) if clusters is None else (clusters / (clusters - 1), float(clusters - 1))
    errors *= np.sqrt(factor)
    return LevelErrors(value, errors, np.atleast_2d(np.cov(errors)), df)


def _bounds(disparity: Disparity, away: float, found: LevelErrors | None, *, confidence: float) -> _Bounds:
    """Return the bounds of a disparity; without errors those that say nothing."""
    nothing = _Bounds(np.inf, -np.inf, 0.0)
    if found is None:
        return nothing
    seen = np.isfinite(found.levels)
    flat = np.nan_to_num(found.levels.ravel())
    rows = [np.flatnonzero(of) + i * seen.shape[1] for i, of in enumerate(seen)]
    cells = [_Differences.of(each, flat, found.covariance) for each in rows if len(each) > 1]
    if not cells or max(cell.error.max() for cell in cells) <= _ZERO:
        return nothing
    of_errors = {"df": found.df, "confidence": confidence}
    if disparity.over == "strata":
        return _of_cells(cells, found.errors, disparity.scale, away, **of_errors)
    every = _Differences(*map(np.concatenate, zip(*((c.larger, c.smaller, c.apart, c.error) for c in cells))))
    if disparity.over == "all" or len(every) == 1:
        return _of_cells([every], found.errors, disparity.scale, away, **of_errors)
    return _of_pairs(every, found.errors, away, **of_errors)


def _by_level(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (k, s, g) levels as (s × g, k), contiguous."""
    return np.ascontiguousarray(np.moveaxis(levels, 0, -1)).reshape(-1, len(levels))


def _of_cells(
    cells: list[_Differences], errors: NDArray[np.float64], scale: Scale, value: float, *, df: float, confidence: float
) -> _Bounds:
    """Return the bounds of a mean over cells of the largest difference; `value` is its estimate."""
    away, tail = _AWAY[scale], (1 - confidence) / 2
    # Contenders are chosen at one simultaneous level over all cells.
    quantile = float(t_quantile(tail / sum(map(len, cells)), df))
    recentred, fixed = np.zeros((2, errors.shape[1]))
    for cell in cells:
        exceeding, of_largest = cell.errors_of(Contenders.of(cell.apart, quantile * cell.error), errors, away)
        recentred += exceeding
        fixed += of_largest
    recentred /= len(cells)
    fixed /= len(cells)
    bias = float(np.mean(recentred))
    if len(cells) == 1:
        ends = largest_difference(cells[0].apart, cells[0].error, df=df, confidence=confidence)
        low, high = away(np.array(ends)).tolist()
        return _Bounds(low, high, bias)
    return _of_mean(value, recentred, fixed, tail)


def _of_pairs(
    pairs: _Differences, errors: NDArray[np.float64], value: float, *, df: float, confidence: float
) -> _Bounds:
    """Return the bounds of a mean over pairs of relative differences, as `_of_cells` of a cell for each pair has them.

    The exponential of a difference of errors is a product of numbers of single groups, and the sum over pairs a product
    of matrices.
    """
    tail = (1 - confidence) / 2
    wide = float(t_quantile(tail / len(pairs), df)) * pairs.error
    mirrored = wide - pairs.apart >= pairs.apart - wide
    grown, factor = np.exp(errors), np.exp(pairs.apart)
    shrunk = 1 / grown

    def total(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the sum of the errors of some pairs."""
        weights = np.zeros((len(errors), len(errors)))
        weights[pairs.smaller[chosen], pairs.larger[chosen]] = factor[chosen]
        return np.asarray((shrunk * (weights @ grown)).sum(axis=0) - factor[chosen].sum())

    recentred = total(~mirrored)
    fixed = recentred + total(mirrored)
    for pair in np.flatnonzero(mirrored).tolist():
        a, b = pairs.larger[pair], pairs.smaller[pair]
        recentred += np.maximum(grown[a] * shrunk[b], grown[b] * shrunk[a]) - 1
    return _of_mean(value, recentred / len(pairs), fixed / len(pairs), tail)


def _of_mean(value: float, recentred: NDArray[np.float64], fixed: NDArray[np.float64], tail: float) -> _Bounds:
    low, high = value - float(np.quantile(recentred, 1 - tail)), value - float(np.quantile(fixed, tail))
    return _Bounds(low, high, float(np.mean(recentred)))


# --- Intervals of the spread of several means, from their replicates alone.


class Spread(NamedTuple):
    """The spread of several means with its interval, and the bias of the estimate."""

    estimate: Estimate
    bias: float


def max_min_ci(
    means: NDArray[np.float64],
    replicates: NDArray[np.float64],
    *,
    clusters: int,
    confidence: float,
    scale: Scale = "difference",
) -> Spread:
    """Return the gap between the largest and the smallest of several means, with its interval and bias.

    Parameters
    ----------
    means : (g,) float
        Of at least two groups; positive ones for another scale than "difference".
    replicates : (r, g) float
        Their bootstrap replicates, drawn together; nan where a draw lacks a group.
    clusters : int
        In the group with the fewest, for the degrees of freedom.
    scale : {"difference", "relative"}

    Returns
    -------
    Spread
        The interval holds the observed gap; undefined with one cluster, or where no difference varies.
    """
    levels, drawn, away = means, replicates, _AWAY[scale]
    if scale != "difference":
        levels = np.log(means)
        drawn = np.log(replicates, out=np.full(replicates.shape, np.nan), where=replicates > 0)
    gap = Estimate(away(np.array([np.ptp(levels)])).item(), np.nan, np.nan)
    errors, reasons = _errors(levels, drawn, clusters)
    if errors is None:
        return Spread(replace(gap, reason=reasons), 0.0)
    pairs = _Differences.of(np.arange(len(levels)), levels, np.cov(errors))
    # A difference with no estimated error, such as between two groups that never refuse, gives no bound.
    pairs = pairs.chosen(pairs.error > _ZERO * max(1.0, float(np.abs(levels).max())))
    if not len(pairs):
        return Spread(replace(gap, reason=(reason("constant_resamples"),)), 0.0)
    low, high, bias = _of_cells([pairs], errors, scale, gap.value, df=clusters - 1, confidence=confidence)
    low, high = max(0.0, low), max(gap.value, high)
    return Spread(replace(gap, ci_low=low, ci_high=high, reason=reasons), bias)


def deviation_ci(
    means: NDArray[np.float64], replicates: NDArray[np.float64], *, clusters: int, confidence: float
) -> Spread:
    """Return the standard deviation (ddof 0) of several groups' means, with its interval and bias; see `max_min_ci`.

    By the triangle inequality, errors of the means change their standard deviation by at most the standard deviation of
    the errors. The lower end subtracts a quantile of that, from centred resamples; the upper end adds t times the error
    in the direction of largest error variance. The errors' mean variance is what the observed one exceeds the true one
    by.
    """
    deviation = Estimate(float(means.std()), np.nan, np.nan)
    errors, reasons = _errors(means, replicates, clusters)
    if errors is None:
        return Spread(replace(deviation, reason=reasons), 0.0)
    around = errors - errors.mean(axis=0)
    largest = float(np.linalg.eigvalsh(np.cov(around))[-1])
    if largest <= (_ZERO * max(1.0, float(np.abs(means).max()))) ** 2:
        return Spread(replace(deviation, reason=(reason("constant_resamples"),)), 0.0)
    spread, tail = around.std(axis=0), (1 - confidence) / 2
    single = float(t_quantile(tail, clusters - 1))
    # The quantile of several normal errors, stretched as t is for a single one.
    simultaneous = float(np.quantile(spread, confidence)) * single / float(t_quantile(tail, np.inf))
    low = max(0.0, deviation.value - simultaneous)
    high = float(deviation.value + single * np.sqrt(largest / len(means)))
    bias = deviation.value - float(np.sqrt(max(0.0, deviation.value**2 - (spread**2).mean())))
    return Spread(replace(deviation, ci_low=low, ci_high=high, reason=reasons), bias)


def _errors(
    levels: NDArray[np.float64], replicates: NDArray[np.float64], clusters: int
) -> tuple[NDArray[np.float64] | None, Reasons]:
    """Return the (g, r) errors, for few clusters, without draws that lack a group, and reasons; None: no interval."""
    if clusters < 2:
        return None, (reason("no_interval_group_in_one_cluster"),)
    known = np.asarray(np.isfinite(replicates).all(axis=1))
    missing = int((~known).sum())
    counts = {"undefined": missing, "resamples": len(known)}
    if missing > MAX_UNDEFINED_SHARE * len(known) or known.sum() < 2:
        return None, (reason("no_interval_undefined", **counts) if missing else reason("no_interval_few_resamples"),)
    errors = (replicates[known] - levels).T * np.sqrt(clusters / (clusters - 1))
    return errors, joined(reason("undefined_resamples", **counts) if missing else None)
