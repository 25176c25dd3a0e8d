"""How responses change with an attribute that is not protected: slopes, level means, paired changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import Reason, Reasons, joined, reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.jackknife import fisher_interval, standard_errors, t_intervals

Floats = NDArray[np.float64]
_NAN = float("nan")


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of (n, w) outcomes for means and lines: mean and variance over the words of each image.

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
        Cluster of each image.

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
        Cluster of each image: the errors are then cluster-robust.
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
    unit = "image" if clusters is None else "set"
    means = []
    for code in range(len(levels)):
        chosen = data.x == code
        clusters = None if data.clusters is None else data.clusters[chosen]
        empty, single = reason("empty_level"), reason("single_unit", unit=unit)
        means.append(_mean_estimate(data.mean[chosen], clusters, confidence, empty=empty, single=single))
    value, low, high = np.array([(mean.value, mean.ci_low, mean.ci_high) for mean in means]).reshape(-1, 3).T
    n = np.array([mean.n for mean in means], dtype=np.int64)
    return EstimateArray(value, low, high, n, reason=[mean.reason for mean in means])


def _mean_estimate(
    values: Floats, clusters: NDArray[np.int64] | None, confidence: float, *, empty: Reason, single: Reason
) -> Estimate:
    """Return the mean of some values with its t-interval over values or clusters; reasons are of none and of one."""
    if not len(values):
        return Estimate(_NAN, _NAN, _NAN, 0, reason=(empty,))
    mean = _mean(values)
    error, units = standard_errors((values - mean) / len(values), clusters, every_unit=True)
    low, high = t_intervals(mean, error, units=units, confidence=confidence)
    return Estimate(mean, float(low), float(high), len(values), reason=(single,) if units < 2 else ())


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
        Change of the outcome per unit of the level; 0 where the confound does not matter.
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
        Cluster of each image.
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
    nothing = Estimate(_NAN, _NAN, _NAN)
    if (seen := len(np.unique(data.x))) < 2:
        undefined = Coefficient(_NAN, _NAN, _NAN, p=_NAN)
        missing = joined(reason("one_level" if seen else "no_level"))
        return ConfoundFit(undefined, undefined, nothing, data.rows, 0, missing)
    centre, average = data.x.mean(), data.mean.mean()
    x, y = data.x - centre, data.mean - average
    per_slope = x / (x**2).sum()
    # Weight of each image's mean in slope and intercept, (n, 2).
    weights = np.stack([per_slope, 1 / len(x) - centre * per_slope], axis=1)
    slope = float((x * y).sum() / (x**2).sum())
    intercept = float(average - slope * centre)
    whole = float((y**2 + data.spread).sum())
    # Rounding leaves some 1e-17 of a line that fits, or of an outcome that is constant.
    if whole <= 1e-24 * float((data.mean**2).sum()):
        flat, height = (Coefficient(value, value, value, p=_NAN, error=0.0) for value in (0.0, intercept))
        return ConfoundFit(flat, height, nothing, data.rows, 0, joined(reason("constant_outcome")))
    errors, units, df = _line_errors(data, y - slope * x, weights)
    few = "one set" if clusters is not None else "two rows"
    return ConfoundFit(
        slope=_coefficient(slope, errors[0], df, confidence),
        intercept=_coefficient(intercept, errors[1], df, confidence),
        r_squared=_r_squared(data, x, y, slope, whole, confidence),
        rows=data.rows,
        units=units,
        reason=() if df > 0 else (reason("no_error_units", units=few),),
    )


def _line_errors(data: Moments, residual: Floats, weights: Floats) -> tuple[Floats, int, int]:
    """Return the standard errors of slope and intercept, the independent units behind them, and degrees of freedom."""
    rows = data.rows
    left = rows - 2 if rows > 2 else np.nan
    if data.clusters is None:
        variance = data.words * float((residual**2 + data.spread).sum()) / left
        return np.sqrt(variance * (weights**2).sum(axis=0) / data.words), rows, max(rows - 2, 0)
    errors, n_clusters = standard_errors(weights * residual[:, None], data.clusters, every_unit=True)
    return errors * np.sqrt((rows - 1) / left), n_clusters, n_clusters - 1


def _coefficient(value: float, error: float, df: int, confidence: float) -> Coefficient:
    from scipy.special import stdtr

    if not np.isfinite(error) or df < 1:
        return Coefficient(value, _NAN, _NAN, p=_NAN)
    low, high = t_intervals(value, error, units=df + 1, confidence=confidence)
    p = _NAN if error == value == 0 else 0.0 if error == 0 else float(2 * stdtr(df, -abs(value / error)))
    return Coefficient(value, float(low), float(high), p=p, error=float(error))


def _r_squared(data: Moments, x: Floats, y: Floats, slope: float, whole: float, confidence: float) -> Estimate:
    """Return R² of a line through centred levels and means, with the interval through Fisher's z."""
    r = float(np.clip(slope * np.sqrt((x**2).sum() / whole), -1.0, 1.0))
    if 1 - r**2 < 1e-12:
        return Estimate(r**2, 1.0, 1.0)
    n, error = data.rows, None
    if data.clusters is not None:
        u, v = x / np.sqrt((x**2).mean()), y / np.sqrt(whole / len(x))
        squares = v**2 + data.spread * len(x) / whole
        influence = (u * v - r * (u**2 + squares) / 2) / len(x) / (1 - r**2)
        error = standard_errors(influence, data.clusters, every_unit=True)
    low, high = fisher_interval(r, n, error=error, confidence=confidence)
    ends = (low**2, high**2)
    return Estimate(r**2, 0.0 if low <= 0 <= high else min(ends), max(ends))


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
        Cluster of each pair: the error is then cluster-robust. Otherwise every pair counts as independent.
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
    none, single = reason("no_pair_of_images"), reason("too_few_changes")
    return _mean_estimate(values, clusters, confidence, empty=none, single=single)


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
        Cluster of each pair, the same codes on both sides.
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
    from scipy.special import stdtr

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
        robust, n_clusters = standard_errors(influence, np.concatenate([sets_a, sets_b]), every_unit=True)
        error, df = float(robust), n_clusters - 1
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
