"""Confounds of a face picture (pose, lighting, a smile, age): how the perceived traits follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtr

from plumbline.errors import MetricError
from plumbline.statistics.linearised import standard_errors, t_intervals

Floats = NDArray[np.float64]
_NAN = float("nan")


@dataclass(frozen=True)
class Coefficient:
    """One coefficient of a straight line; nan where undefined.

    Attributes
    ----------
    value, error, ci_low, ci_high : float
        Estimate, standard error and t-interval.
    p : float
        Two-sided, against 0.
    """

    value: float = _NAN
    error: float = _NAN
    ci_low: float = _NAN
    ci_high: float = _NAN
    p: float = _NAN


@dataclass(frozen=True)
class ConfoundFit:
    """The line outcome = intercept + slope × level.

    Attributes
    ----------
    slope : Coefficient
        Change of the outcome a unit of the level; 0 where the confound does not matter.
    intercept : Coefficient
        Outcome at level 0.
    r_squared, r_squared_low, r_squared_high : float
        Share of the outcome's variance that the line explains, in [0, 1], with its interval.
    rows : int
        Rows that were fitted: images × words.
    units : int
        What the errors count as independent: the rows, or the sets.
    reason : str or None
        Why something is undefined.
    """

    slope: Coefficient
    intercept: Coefficient
    r_squared: float
    r_squared_low: float
    r_squared_high: float
    rows: int
    units: int
    reason: str | None = None


@dataclass(frozen=True)
class LevelMeans:
    """The mean outcome at every level, as arrays over the levels.

    Attributes
    ----------
    value, ci_low, ci_high : (l,) float64
        nan at a level without images.
    n : (l,) int64
        Images at the level.
    reasons : tuple of (str or None)
        Why a value or an interval is undefined.
    """

    value: Floats
    ci_low: Floats
    ci_high: Floats
    n: NDArray[np.int64]
    reasons: tuple[str | None, ...]


@dataclass(frozen=True)
class _Moments:
    """What a line needs of (n, w) outcomes: each image's mean over its words, and their spread around it."""

    x: Floats
    mean: Floats
    spread: Floats
    words: int
    clusters: NDArray[np.int64] | None

    @property
    def rows(self) -> int:
        return len(self.x) * self.words


def confound_fit(
    levels: ArrayLike,
    outcomes: ArrayLike,
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> ConfoundFit:
    """Fit outcome ~ 1 + level by least squares (Hausladen et al., appendix B.2).

    Every word of every image is a row, as in the paper. Without `clusters` the errors are the classical ones, with
    rows - 2 degrees of freedom: they take the words of one image, and the images of one person, for independent.
    With `clusters` they are cluster-robust (Liang & Zeger 1986; the factor G/(G - 1) · (N - 1)/(N - 2) and G - 1
    degrees of freedom, as statsmodels' `cov_type="cluster"`). The interval of R² goes through Fisher's z of the
    correlation: 1/√(N - 3) classically, by the influence of each set with `clusters`.

    Parameters
    ----------
    levels : (n,) float
        Level of the confound in each image.
    outcomes : (n,) or (n, w) float
        Outcome of each image, or of each of its words.
    clusters : (n,) int, optional
        Set of each image.
    confidence : float
        Of the intervals.

    Returns
    -------
    ConfoundFit
        All nan, with the reason, without images or with a single level. A single set leaves the errors undefined, and
        so do two rows. Where the outcome does not vary the slope is 0 and R² and p are nan.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or hold a value that is not finite: images without a level
        are left out by the caller.
    """
    data = _moments(levels, outcomes, clusters)
    seen = len(np.unique(data.x))
    if seen < 2:
        reason = "a line needs two levels, and " + ("there is one" if seen else "there are none")
        return ConfoundFit(Coefficient(), Coefficient(), _NAN, _NAN, _NAN, data.rows, 0, reason)
    centre, average = data.x.mean(), data.mean.mean()
    x, y = data.x - centre, data.mean - average
    slope = float((x * y).sum() / (x**2).sum())
    intercept = float(average - slope * centre)
    residual = y - slope * x
    per_slope = x / (x**2).sum()
    per_intercept = 1 / len(x) - centre * per_slope
    left = float((residual**2 + data.spread).sum())
    whole = float((y**2 + data.spread).sum())
    # Rounding leaves some 1e-17 of a line that fits, or of an outcome that is constant.
    scale = 1e-24 * float((data.mean**2).sum())
    if whole <= scale:
        flat, level = Coefficient(0.0, 0.0, 0.0, 0.0), Coefficient(intercept, 0.0, intercept, intercept)
        return ConfoundFit(flat, level, _NAN, _NAN, _NAN, data.rows, 0, "the outcome does not vary")
    errors, units, free = _errors(data, residual, np.stack([per_slope, per_intercept], axis=1), left)
    r = float(np.clip(slope * np.sqrt((x**2).sum() / whole), -1.0, 1.0))
    low, high = _r_squared_interval(data, x, y, r, whole, confidence)
    return ConfoundFit(
        slope=_coefficient(slope, errors[0], free, confidence),
        intercept=_coefficient(intercept, errors[1], free, confidence),
        r_squared=r**2,
        r_squared_low=low,
        r_squared_high=high,
        rows=data.rows,
        units=units,
        reason=None if free > 0 else f"no error: {'one set' if clusters is not None else 'two rows'} only",
    )


def _moments(levels: ArrayLike, outcomes: ArrayLike, clusters: NDArray[np.int64] | None) -> _Moments:
    x, y = np.asarray(levels, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    table = y[:, None] if y.ndim == 1 else y
    if x.ndim != 1 or table.ndim != 2 or len(table) != len(x) or not table.shape[1]:
        raise MetricError(
            "levels and outcomes must describe the same images",
            found=f"{x.shape} and {y.shape}",
            expected="(n,) and (n,) or (n, words)",
        )
    if clusters is not None and np.shape(clusters) != x.shape:
        raise MetricError("every image needs its set", found=f"{np.shape(clusters)} sets of {x.shape} images")
    if not (np.isfinite(x).all() and np.isfinite(table).all()):
        raise MetricError(
            "a level or an outcome is not a finite number", hint="leave out images without a level"
        )
    mean = table.mean(axis=1)
    # In one order, so that sums do not depend on the order of the images.
    order = np.lexsort((mean, x))
    spread = ((table - mean[:, None]) ** 2).mean(axis=1)
    codes = None if clusters is None else np.asarray(clusters)[order]
    return _Moments(x[order], mean[order], spread[order], table.shape[1], codes)


def _errors(data: _Moments, residual: Floats, weights: Floats, left: float) -> tuple[Floats, int, int]:
    """Return the standard errors of (n, 2) weighted sums of outcomes, the units, and the degrees of freedom."""
    rows = data.rows
    if data.clusters is None:
        if rows < 3:
            return np.full(2, np.nan), rows, 0
        variance = data.words * left / (rows - 2)
        return np.sqrt(variance * (weights**2).sum(axis=0) / data.words), rows, rows - 2
    sets = len(np.unique(data.clusters))
    if sets < 2:
        return np.full(2, np.nan), sets, 0
    sums = np.zeros((sets, 2))
    np.add.at(sums, np.unique(data.clusters, return_inverse=True)[1], weights * residual[:, None])
    factor = sets / (sets - 1) * (rows - 1) / (rows - 2) if rows > 2 else np.nan
    return np.sqrt(factor * (sums**2).sum(axis=0)), sets, sets - 1


def _coefficient(value: float, error: float, free: int, confidence: float) -> Coefficient:
    if not np.isfinite(error) or free < 1:
        return Coefficient(value)
    low, high = t_intervals(value, error, units=free + 1, confidence=confidence)
    p = _NAN if error == value == 0 else 0.0 if error == 0 else float(2 * stdtr(free, -abs(value / error)))
    return Coefficient(value, float(error), float(low), float(high), p)


def _r_squared_interval(
    data: _Moments, x: Floats, y: Floats, r: float, whole: float, confidence: float
) -> tuple[float, float]:
    if 1 - r**2 < 1e-12:
        return 1.0, 1.0
    if data.clusters is None:
        if data.rows < 4:
            return _NAN, _NAN
        half = ndtri((1 + confidence) / 2) / np.sqrt(data.rows - 3)
        ends = np.tanh(np.arctanh(r) + half * np.array([-1.0, 1.0]))
    else:
        n, u, v = len(x), x / np.sqrt((x**2).mean()), y / np.sqrt(whole / len(x))
        squares = v**2 + data.spread * n / whole
        influence = (u * v - r * (u**2 + squares) / 2) / n / (1 - r**2)
        error, sets = standard_errors(influence, data.clusters, every_unit=True)
        ends = np.tanh(np.array(t_intervals(np.arctanh(r), error, units=sets, confidence=confidence)))
    if np.isnan(ends).any():
        return _NAN, _NAN
    low = 0.0 if ends[0] <= 0 <= ends[1] else float((ends**2).min())
    return low, float((ends**2).max())


def level_means(
    codes: ArrayLike,
    outcomes: ArrayLike,
    *,
    levels: Sequence[object],
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> LevelMeans:
    """Return the mean outcome at each level of a confound, with t-intervals over images or sets.

    Parameters
    ----------
    codes : (n,) int
        Position of each image's level in `levels`; -1 for none.
    outcomes : (n,) or (n, w) float
        Outcome of each image, or of each of its words, which are averaged first.
    levels : sequence
        The levels, in the order of the result.
    clusters : (n,) int, optional
        Set of each image: the errors are then cluster-robust.
    confidence : float
        Of the intervals.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or an outcome is not finite.
    """
    data = _moments(codes, outcomes, clusters)
    found = [_one_level(data, code, confidence) for code in range(len(levels))]
    return LevelMeans(
        value=np.array([f[0] for f in found]),
        ci_low=np.array([f[1] for f in found]),
        ci_high=np.array([f[2] for f in found]),
        n=np.array([f[3] for f in found], dtype=np.int64),
        reasons=tuple(f[4] for f in found),
    )


def _one_level(data: _Moments, code: int, confidence: float) -> tuple[float, float, float, int, str | None]:
    chosen = data.x == code
    own, n = data.mean[chosen], int(chosen.sum())
    if n == 0:
        return _NAN, _NAN, _NAN, 0, "no image at this level"
    value = float(own.mean())
    sets = None if data.clusters is None else data.clusters[chosen]
    error, units = standard_errors((own - value) / n, sets, every_unit=True)
    low, high = t_intervals(value, error, units=units, confidence=confidence)
    if units < 2:
        of = "image" if sets is None else "set"
        return value, _NAN, _NAN, n, f"no interval: a single {of}"
    return value, float(low), float(high), n, None
