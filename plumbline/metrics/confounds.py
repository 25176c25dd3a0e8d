"""Confounds of a face picture (pose, lighting, a smile, age): how the perceived traits follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtr

from plumbline.metrics.outcome_moments import Floats, Moments, moments
from plumbline.statistics.linearised import standard_errors, t_intervals

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


class _Line(NamedTuple):
    """The least-squares line through the images' means, and what its errors follow from.

    Attributes
    ----------
    slope, intercept : float
    x, y : (n,) float64
        Levels and means of outcomes, centred.
    residual : (n,) float64
    weights : (n, 2) float64
        What each mean adds to slope and intercept.
    whole : float
        Sum of squares of the outcomes, over the words.
    """

    slope: float
    intercept: float
    x: Floats
    y: Floats
    residual: Floats
    weights: Floats
    whole: float


class _Errors(NamedTuple):
    """Standard errors of slope and intercept, the independent units behind them, and their degrees of freedom."""

    slope: float
    intercept: float
    units: int
    free: int


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
    data = moments(levels, outcomes, clusters)
    if (seen := len(np.unique(data.x))) < 2:
        return _no_line(data, f"a line needs two levels, and {'there is one' if seen else 'there are none'}")
    line = _line(data)
    # Rounding leaves some 1e-17 of a line that fits, or of an outcome that is constant.
    if line.whole <= 1e-24 * float((data.mean**2).sum()):
        return _no_line(data, "the outcome does not vary", constant=line.intercept)
    errors = _errors(data, line)
    r = float(np.clip(line.slope * np.sqrt((line.x**2).sum() / line.whole), -1.0, 1.0))
    low, high = _r_squared_interval(data, line, r, confidence)
    return ConfoundFit(
        slope=_coefficient(line.slope, errors.slope, errors.free, confidence),
        intercept=_coefficient(line.intercept, errors.intercept, errors.free, confidence),
        r_squared=r**2,
        r_squared_low=low,
        r_squared_high=high,
        rows=data.rows,
        units=errors.units,
        reason=None
        if errors.free > 0
        else f"no error: {'one set' if clusters is not None else 'two rows'} only",
    )


def _no_line(data: Moments, reason: str, *, constant: float | None = None) -> ConfoundFit:
    """Return a fit of outcomes that have no line, or of a constant, along which nothing changes."""
    slope = intercept = Coefficient()
    if constant is not None:
        slope, intercept = Coefficient(0.0, 0.0, 0.0, 0.0), Coefficient(constant, 0.0, constant, constant)
    return ConfoundFit(slope, intercept, _NAN, _NAN, _NAN, data.rows, 0, reason)


def _line(data: Moments) -> _Line:
    centre, average = data.x.mean(), data.mean.mean()
    x, y = data.x - centre, data.mean - average
    slope = float((x * y).sum() / (x**2).sum())
    per_slope = x / (x**2).sum()
    return _Line(
        slope=slope,
        intercept=float(average - slope * centre),
        x=x,
        y=y,
        residual=y - slope * x,
        weights=np.stack([per_slope, 1 / len(x) - centre * per_slope], axis=1),
        whole=float((y**2 + data.spread).sum()),
    )


def _errors(data: Moments, line: _Line) -> _Errors:
    rows = data.rows
    if data.clusters is None:
        if rows < 3:
            return _Errors(_NAN, _NAN, rows, 0)
        left = float((line.residual**2 + data.spread).sum())
        variance = data.words * left / (rows - 2)
        slope, intercept = np.sqrt(variance * (line.weights**2).sum(axis=0) / data.words)
        return _Errors(slope, intercept, rows, rows - 2)
    sets = len(np.unique(data.clusters))
    if sets < 2:
        return _Errors(_NAN, _NAN, sets, 0)
    sums = np.zeros((sets, 2))
    codes = np.unique(data.clusters, return_inverse=True)[1]
    np.add.at(sums, codes, line.weights * line.residual[:, None])
    factor = sets / (sets - 1) * (rows - 1) / (rows - 2) if rows > 2 else np.nan
    slope, intercept = np.sqrt(factor * (sums**2).sum(axis=0))
    return _Errors(slope, intercept, sets, sets - 1)


def _coefficient(value: float, error: float, free: int, confidence: float) -> Coefficient:
    if not np.isfinite(error) or free < 1:
        return Coefficient(value)
    low, high = t_intervals(value, error, units=free + 1, confidence=confidence)
    p = _NAN if error == value == 0 else 0.0 if error == 0 else float(2 * stdtr(free, -abs(value / error)))
    return Coefficient(value, float(error), float(low), float(high), p)


def _r_squared_interval(data: Moments, line: _Line, r: float, confidence: float) -> tuple[float, float]:
    if 1 - r**2 < 1e-12:
        return 1.0, 1.0
    if data.clusters is None:
        if data.rows < 4:
            return _NAN, _NAN
        half = ndtri((1 + confidence) / 2) / np.sqrt(data.rows - 3)
        ends = np.tanh(np.arctanh(r) + half * np.array([-1.0, 1.0]))
    else:
        n, u = len(line.x), line.x / np.sqrt((line.x**2).mean())
        v = line.y / np.sqrt(line.whole / n)
        squares = v**2 + data.spread * n / line.whole
        influence = (u * v - r * (u**2 + squares) / 2) / n / (1 - r**2)
        error, sets = standard_errors(influence, data.clusters, every_unit=True)
        ends = np.tanh(np.array(t_intervals(np.arctanh(r), error, units=sets, confidence=confidence)))
    if np.isnan(ends).any():
        return _NAN, _NAN
    low = 0.0 if ends[0] <= 0 <= ends[1] else float((ends**2).min())
    return low, float((ends**2).max())
