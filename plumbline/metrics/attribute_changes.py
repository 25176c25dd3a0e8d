"""How much a perceived trait moves when one thing about a face is changed, and whether confounds move it less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from plumbline.errors import MetricError
from plumbline.statistics.linearised import standard_errors, t_intervals

_NAN = float("nan")


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
