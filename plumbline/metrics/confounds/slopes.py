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
from plumbline.reasons import Reason, Reasons, joined, reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.jackknife import standard_errors, t_intervals

Floats = NDArray[np.float64]
_NAN = float("nan")


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
        raise MetricError("every image needs its cluster", found=f"{np.shape(clusters)} clusters of {x.shape} images")
    if not (np.isfinite(x).all() and np.isfinite(table).all()):
        raise MetricError("a level or an outcome is not a finite number", hint="leave out images without a level")
    mean = table.mean(axis=1)
    # In one order, so that sums do not depend on the order of the images.
    order = np.lexsort((mean, x))
    spread = ((table - mean[:, None]) ** 2).mean(axis=1)
    codes = None if clusters is None else np.asarray(clusters)[order]
    return Moments(x[order], mean[order], spread[order], table.shape[1], codes)


# The mean at every level of a confound


def level_means(
    codes: ArrayLike,
    outcomes: ArrayLike,
    *,
    levels: Sequence[object],
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> EstimateArray:
    """Return the mean outcome at each level of a confound, with t-intervals over images or clusters.

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
        Confidence level of the intervals.

    Returns
    -------
    EstimateArray
        Over the levels; n counts images, and a level without images is nan.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or an outcome is not finite.
    """
    data = moments(codes, outcomes, clusters)
    means = [_level_mean(data, code, confidence) for code in range(len(levels))]
    return EstimateArray(
        value=np.array([mean.value for mean in means]),
        ci_low=np.array([mean.ci_low for mean in means]),
        ci_high=np.array([mean.ci_high for mean in means]),
        n=np.array([mean.n for mean in means], dtype=np.int64),
        reason=[mean.reason for mean in means],
    )


def _level_mean(data: Moments, code: int, confidence: float) -> Estimate:
    chosen = data.x == code
    outcomes, n = data.mean[chosen], int(chosen.sum())
    if n == 0:
        return Estimate(_NAN, _NAN, _NAN, 0, reason=joined(reason("empty_level")))
    value = float(outcomes.mean())
    clusters = None if data.clusters is None else data.clusters[chosen]
    error, units = standard_errors((outcomes - value) / n, clusters, every_unit=True)
    if units < 2:
        single = reason("single_unit", unit="image" if clusters is None else "set")
        return Estimate(value, _NAN, _NAN, n, reason=(single,))
    low, high = t_intervals(value, error, units=units, confidence=confidence)
    return Estimate(value, float(low), float(high), n)


# Linear fit along a confound


@dataclass(frozen=True)
class Coefficient(Estimate):
    """One coefficient of a straight line, its p two-sided against 0; nan where undefined.

    Attributes
    ----------
    error : float
        Standard error.
    """

    error: float = _NAN


@dataclass(frozen=True)
class ConfoundFit:
    """The line outcome = intercept + slope × level.

    Attributes
    ----------
    slope : Coefficient
        Change of the outcome a unit of the level; 0 where the confound does not matter.
    intercept : Coefficient
        Outcome at level 0.
    r_squared : Estimate
        Share of the outcome's variance that the line explains, in [0, 1].
    rows : int
        Rows that were fitted: images × words.
    units : int
        What the errors count as independent: the rows, or the clusters.
    reason : tuple of Reason
        Why something is undefined.
    """

    slope: Coefficient
    intercept: Coefficient
    r_squared: Estimate
    rows: int
    units: int
    reason: Reasons = ()


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
    df: int


def confound_fit(
    levels: ArrayLike, outcomes: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95
) -> ConfoundFit:
    """Fit outcome ~ 1 + level by least squares (Hausladen et al., appendix B.2).

    Every word of every image is a row, as in the paper. Without `clusters` the errors are the classical ones, with
    rows - 2 degrees of freedom: they treat the words of one image, and the images of one person, as independent.
    With `clusters` they are cluster-robust (Liang & Zeger 1986; the factor G/(G - 1) · (N - 1)/(N - 2) and G - 1
    degrees of freedom, as statsmodels' `cov_type="cluster"`). The interval of R² goes through Fisher's z of the
    correlation: 1/√(N - 3) classically, by the influence of each cluster with `clusters`.

    Parameters
    ----------
    levels : (n,) float
        Level of the confound in each image.
    outcomes : (n,) or (n, w) float
        Outcome of each image, or of each of its words.
    clusters : (n,) int, optional
        Set of each image.
    confidence : float
        Confidence level of the intervals.

    Returns
    -------
    ConfoundFit
        All nan, with the reason, without images or with a single level. A single cluster leaves the errors undefined,
        and so do two rows. Where the outcome does not vary the slope is 0 and R² and p are nan.

    Raises
    ------
    MetricError
        If the arrays do not describe the same images, or hold a value that is not finite: images without a level
        are left out by the caller.
    """
    data = moments(levels, outcomes, clusters)
    if (seen := len(np.unique(data.x))) < 2:
        return _no_line(data, reason("one_level" if seen else "no_level"))
    line = _line(data)
    # Rounding leaves some 1e-17 of a line that fits, or of an outcome that is constant.
    if line.whole <= 1e-24 * float((data.mean**2).sum()):
        return _no_line(data, reason("constant_outcome"), constant=line.intercept)
    errors = _errors(data, line)
    r = float(np.clip(line.slope * np.sqrt((line.x**2).sum() / line.whole), -1.0, 1.0))
    few = "one set" if clusters is not None else "two rows"
    return ConfoundFit(
        slope=_coefficient(line.slope, errors.slope, errors.df, confidence),
        intercept=_coefficient(line.intercept, errors.intercept, errors.df, confidence),
        r_squared=Estimate(r**2, *_r_squared_interval(data, line, r, confidence)),
        rows=data.rows,
        units=errors.units,
        reason=() if errors.df > 0 else (reason("no_error_units", units=few),),
    )


def _no_line(data: Moments, why: Reason, *, constant: float | None = None) -> ConfoundFit:
    """Return a fit of outcomes that have no line, or of a constant, along which nothing changes."""
    slope = intercept = Coefficient(_NAN, _NAN, _NAN, p=_NAN)
    if constant is not None:
        slope = Coefficient(0.0, 0.0, 0.0, p=_NAN, error=0.0)
        intercept = Coefficient(constant, constant, constant, p=_NAN, error=0.0)
    return ConfoundFit(slope, intercept, Estimate(_NAN, _NAN, _NAN), data.rows, 0, (why,))


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


def _coefficient(value: float, error: float, df: int, confidence: float) -> Coefficient:
    if not np.isfinite(error) or df < 1:
        return Coefficient(value, _NAN, _NAN, p=_NAN)
    low, high = t_intervals(value, error, units=df + 1, confidence=confidence)
    p = _NAN if error == value == 0 else 0.0 if error == 0 else float(2 * stdtr(df, -abs(value / error)))
    return Coefficient(value, float(low), float(high), p=p, error=float(error))


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


# Change of an outcome when one attribute of a face is changed


@dataclass(frozen=True)
class ChangeComparison(Estimate):
    """Mean absolute change by one attribute minus that by another, see `compare_changes`.

    Attributes
    ----------
    t : float
        t statistic; nan where undefined.
    """

    t: float = _NAN


def matched_pairs(records: pl.DataFrame, attribute: str, *, fixed: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the pairs of images that differ in `attribute` and agree in every column of `fixed`.

    Parameters
    ----------
    records : DataFrame
        One row per image.
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


def mean_change(changes: ArrayLike, *, clusters: NDArray[np.int64] | None = None, confidence: float = 0.95) -> Estimate:
    """Return the mean absolute change with its t-interval.

    Parameters
    ----------
    changes : (p,) float
        Absolute change of the outcome in every pair of images, at least 0.
    clusters : (p,) int, optional
        Set of each pair: the error is then cluster-robust. Otherwise every pair counts as independent.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    Estimate
        n counts pairs of images.

    Raises
    ------
    MetricError
        If a change is negative or not finite, or the lengths differ.
    """
    values, clusters = _checked(changes, clusters)
    if not len(values):
        return Estimate(_NAN, _NAN, _NAN, 0, reason=joined(reason("no_pair_of_images")))
    mean = _mean(values)
    error, units = standard_errors((values - mean) / len(values), clusters, every_unit=True)
    low, high = t_intervals(mean, error, units=units, confidence=confidence)
    few = reason("too_few_changes") if units < 2 else None
    return Estimate(mean, float(low), float(high), len(values), reason=joined(few))


def compare_changes(
    first: ArrayLike,
    second: ArrayLike,
    *,
    clusters: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    confidence: float = 0.95,
) -> ChangeComparison:
    """Test whether one attribute moves the outcome as much as another (Hausladen et al., table B.2).

    Without `clusters`: Student's two-sample t-test with equal variances, as scipy's default, every pair of images
    independent. With them: the same difference with its cluster-robust error and clusters - 1 degrees of freedom;
    where all clusters hold the same pairs that is the paired t-test on the clusters' means.

    Parameters
    ----------
    first, second : (p,), (r,) float
        Absolute changes of the outcome under each attribute.
    clusters : pair of (p,), (r,) int, optional
        Set of each pair, the same codes on both sides.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    ChangeComparison
        Below 0 where the first moves the outcome less than the second; n counts pairs of images.

    Raises
    ------
    MetricError
        As `mean_change`.
    """
    (a, sets_a), (b, sets_b) = (
        _checked(values, clusters[side] if clusters else None) for side, values in enumerate((first, second))
    )
    n = len(a) + len(b)
    if not (len(a) and len(b)):
        return ChangeComparison(_NAN, _NAN, _NAN, n, _NAN, joined(reason("no_pair_of_either")))
    mean_a, mean_b = _mean(a), _mean(b)
    influence = np.concatenate([(a - mean_a) / len(a), (mean_b - b) / len(b)])
    difference = mean_a - mean_b
    if sets_a is None or sets_b is None:
        df = n - 2
        pooled = ((a - mean_a) ** 2).sum() + ((b - mean_b) ** 2).sum()
        error = float(np.sqrt(pooled / df * (1 / len(a) + 1 / len(b)))) if df else _NAN
    else:
        robust, sets = standard_errors(influence, np.concatenate([sets_a, sets_b]), every_unit=True)
        error, df = float(robust), sets - 1
    if df < 1 or not error > 0:
        return ChangeComparison(difference, _NAN, _NAN, n, _NAN, joined(reason("untested_changes")))
    low, high = t_intervals(difference, error, units=df + 1, confidence=confidence)
    t = difference / error
    return ChangeComparison(difference, float(low), float(high), n, float(2 * stdtr(df, -abs(t))), t=t)


def _mean(values: NDArray[np.float64]) -> float:
    # Sorted, so that the sum does not depend on the order of the pairs.
    return float(np.sort(values).mean())


def _checked(
    changes: ArrayLike, clusters: NDArray[np.int64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    values = np.asarray(changes, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise MetricError("absolute changes must be finite numbers of at least 0", found=f"shape {values.shape}")
    if clusters is not None and np.shape(clusters) != values.shape:
        raise MetricError(
            "every change needs its cluster", found=f"{np.shape(clusters)} clusters of {values.shape} changes"
        )
    return values, clusters
