"""How responses change with an attribute that is not protected: slopes, level means, paired changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtr

from plumbline.errors import MetricError
from plumbline.statistics.jackknife import standard_errors, t_intervals

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """What means and lines need of (n, w) outcomes: each image's mean over its words, and their spread around it.

    Attributes
    ----------
    x, mean, spread : (n,) float64
        Level of each image, mean and variance of its outcomes.
    words : int
    clusters : (n,) int64 or None
    """

    x: Floats
    mean: Floats
    spread: Floats
    words: int
    clusters: NDArray[np.int64] | None

    @property
    def rows(self) -> int:
        """Return the number of outcomes."""
        return len(self.x) * self.words


def moments(levels: ArrayLike, outcomes: ArrayLike, clusters: NDArray[np.int64] | None) -> Moments:
    """Return the moments of outcomes, in an order of the images' own.

    Parameters
    ----------
    levels : (n,) float
    outcomes : (n,) or (n, w) float
        Of each image, or of each of its words.
    clusters : (n,) int or None
        Set of each image.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or hold a value that is not finite.
    """
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
    return Moments(x[order], mean[order], spread[order], table.shape[1], codes)


# --- The mean of a perceived trait at every level of a confound.

_NAN = float("nan")


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
    data = moments(codes, outcomes, clusters)
    found = [_one_level(data, code, confidence) for code in range(len(levels))]
    return LevelMeans(
        value=np.array([level.value for level in found]),
        ci_low=np.array([level.low for level in found]),
        ci_high=np.array([level.high for level in found]),
        n=np.array([level.n for level in found], dtype=np.int64),
        reasons=tuple(level.reason for level in found),
    )


class _LevelMean(NamedTuple):
    value: float
    low: float
    high: float
    n: int
    reason: str | None


def _one_level(data: Moments, code: int, confidence: float) -> _LevelMean:
    chosen = data.x == code
    own, n = data.mean[chosen], int(chosen.sum())
    if n == 0:
        return _LevelMean(_NAN, _NAN, _NAN, 0, "no image at this level")
    value = float(own.mean())
    sets = None if data.clusters is None else data.clusters[chosen]
    error, units = standard_errors((own - value) / n, sets, every_unit=True)
    low, high = t_intervals(value, error, units=units, confidence=confidence)
    if units < 2:
        of = "image" if sets is None else "set"
        return _LevelMean(value, _NAN, _NAN, n, f"no interval: a single {of}")
    return _LevelMean(value, float(low), float(high), n, None)


# --- Confounds of a face picture (pose, lighting, a smile, age): how the perceived traits follow them.


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


# --- How much a perceived trait moves when one thing about a face is changed, and whether confounds move
# it less.


@dataclass(frozen=True)
class MeanChange:
    """The mean of absolute changes.

    Attributes
    ----------
    value, ci_low, ci_high : float
        nan where undefined.
    pairs, units : int
        Pairs of images, and what the error counts as independent: pairs or sets.
    reason : str or None
        Why something is undefined.
    """

    value: float
    ci_low: float
    ci_high: float
    pairs: int
    units: int
    reason: str | None = None


@dataclass(frozen=True)
class ChangeComparison:
    """Mean absolute change by one attribute minus that by another.

    Attributes
    ----------
    difference : float
        Below 0 where the first moves the outcome less than the second.
    ci_low, ci_high, t, p : float
        t-interval, t statistic and two-sided p; nan where undefined.
    units : int
        What the error counts as independent: pairs of images, or sets.
    reason : str or None
        Why something is undefined.
    """

    difference: float
    ci_low: float
    ci_high: float
    t: float
    p: float
    units: int
    reason: str | None = None


def matched_pairs(records: pl.DataFrame, attribute: str, *, fixed: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the pairs of images that differ in `attribute` and agree in every column of `fixed`.

    Parameters
    ----------
    records : DataFrame
        One row an image.
    attribute : str
        The column that is changed.
    fixed : tuple of str
        Columns that stay, the set among them. An image without one of these labels is in no pair.

    Returns
    -------
    (pairs, 2) int64
        Positions in `records`, each unordered pair once, in the order of the records.
    """
    known = (
        records.select(attribute, *fixed)
        .with_row_index("image")
        .drop_nulls()
        .with_columns(pl.col("image").cast(pl.Int64))
    )
    pairs = known.join(known, on=list(fixed), suffix="_other").filter(
        pl.col("image") < pl.col("image_other"), pl.col(attribute) != pl.col(f"{attribute}_other")
    )
    return pairs.select("image", "image_other").sort("image", "image_other").to_numpy()


def mean_change(
    changes: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> MeanChange:
    """Return the mean absolute change with its t-interval.

    Parameters
    ----------
    changes : (p,) float
        Absolute change of the outcome in every pair of images, at least 0.
    clusters : (p,) int, optional
        Set of each pair: the error is then cluster-robust. Otherwise every pair counts as independent.
    confidence : float
        Of the interval.

    Raises
    ------
    MetricError
        If a change is negative or not finite, or the lengths differ.
    """
    values, sets = _checked(changes, clusters)
    if not len(values):
        return MeanChange(_NAN, _NAN, _NAN, 0, 0, "no two images differ in this attribute alone")
    mean = _mean(values)
    error, units = standard_errors((values - mean) / len(values), sets, every_unit=True)
    low, high = t_intervals(mean, error, units=units, confidence=confidence)
    reason = "no interval: fewer than two independent changes" if units < 2 else None
    return MeanChange(mean, float(low), float(high), len(values), units, reason)


def compare_changes(
    first: ArrayLike,
    second: ArrayLike,
    *,
    clusters: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    confidence: float = 0.95,
) -> ChangeComparison:
    """Test whether one attribute moves the outcome as much as another (Hausladen et al., table B.2).

    Without `clusters`: Student's two-sample t-test with equal variances, as scipy's default, every pair of images
    independent. With them: the same difference with its cluster-robust error and sets - 1 degrees of freedom; where
    all sets hold the same pairs that is the paired t-test on the sets' means.

    Parameters
    ----------
    first, second : (p,), (r,) float
        Absolute changes of the outcome under each attribute.
    clusters : pair of (p,), (r,) int, optional
        Set of each pair, the same codes on both sides.
    confidence : float
        Of the interval.

    Raises
    ------
    MetricError
        As `mean_change`.
    """
    (a, sets_a), (b, sets_b) = (
        _checked(values, clusters[side] if clusters else None) for side, values in enumerate((first, second))
    )
    if not (len(a) and len(b)):
        return ChangeComparison(
            _NAN, _NAN, _NAN, _NAN, _NAN, 0, "no two images differ in one of the attributes alone"
        )
    mean_a, mean_b = _mean(a), _mean(b)
    influence = np.concatenate([(a - mean_a) / len(a), (mean_b - b) / len(b)])
    difference = mean_a - mean_b
    if sets_a is None or sets_b is None:
        free = len(a) + len(b) - 2
        pooled = ((a - mean_a) ** 2).sum() + ((b - mean_b) ** 2).sum()
        error = float(np.sqrt(pooled / free * (1 / len(a) + 1 / len(b)))) if free else _NAN
    else:
        robust, sets = standard_errors(influence, np.concatenate([sets_a, sets_b]), every_unit=True)
        error, free = float(robust), sets - 1
    if free < 1 or not error > 0:
        reason = "no test: fewer than two independent changes, or none that varies"
        return ChangeComparison(difference, _NAN, _NAN, _NAN, _NAN, max(free, 0), reason)
    low, high = t_intervals(difference, error, units=free + 1, confidence=confidence)
    t = difference / error
    units = len(a) + len(b) if sets_a is None else free + 1
    return ChangeComparison(difference, float(low), float(high), t, float(2 * stdtr(free, -abs(t))), units)


def _mean(values: NDArray[np.float64]) -> float:
    # Sorted, so that the sum does not depend on the order of the pairs.
    return float(np.sort(values).mean())


def _checked(
    changes: ArrayLike, clusters: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    values = np.asarray(changes, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise MetricError(
            "absolute changes must be finite numbers of at least 0", found=f"shape {values.shape}"
        )
    if clusters is not None and np.shape(clusters) != values.shape:
        raise MetricError(
            "every change needs its set", found=f"{np.shape(clusters)} sets of {values.shape} changes"
        )
    return values, clusters
