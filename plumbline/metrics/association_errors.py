"""How sure a difference of means and its effect size are, from the influence of every image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from plumbline.metrics.sc_weat import AssociationSizes, association_sizes
from plumbline.statistics.linearised import standard_errors, t_intervals
from plumbline.statistics.partition_tests import SLACK


@dataclass(frozen=True)
class Bounded:
    """Values with their intervals.

    Attributes
    ----------
    value, low, high : (m,) float64
        nan where undefined.
    p_value : (m,) float64
        Two-sided, of the t test that the value is 0 with the error of the interval; nan without one.
    """

    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    p_value: NDArray[np.float64]


@dataclass(frozen=True)
class BoundedAssociations:
    """Statistics and effect sizes of columns and of their means, see `bounded_associations`."""

    statistic: Bounded
    effect_size: Bounded
    mean_statistic: Bounded
    mean_effect_size: Bounded


def bounded_associations(
    columns: NDArray[np.float64],
    in_a: NDArray[np.bool_],
    means: NDArray[np.float64],
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> BoundedAssociations:
    """Return s and es of every column (`plumbline.metrics.sc_weat`) with linearised intervals.

    Parameters
    ----------
    columns : (n, m) float64
    in_a : (n,) bool
        Images of the first group; both groups have images.
    means : (m, c) float64
        Weights of the columns in each category, whose s and es are weighted sums (equations 3 and 5).
    clusters : (n,) int, optional
        Set of each image; errors are then cluster-robust.
    confidence : float

    Returns
    -------
    BoundedAssociations
        Group sizes count as given. The t quantile is that of the group with fewer images, or sets: cautious (Welch's
        degrees of freedom lie between that and all). No interval where a group has one image, or one set.
    """
    statistic, effect_size = association_sizes(columns, in_a)
    of_statistic, of_effect = influences(columns, in_a)
    units = min(_units(in_a, clusters), _units(~in_a, clusters))

    def bounded(value: NDArray[np.float64], influence: NDArray[np.float64]) -> Bounded:
        error, _ = standard_errors(influence, clusters)
        low, high = t_intervals(value, error, units=units, confidence=confidence)
        known = (error > 0) & ~np.isnan(low)
        score = np.divide(value, error, out=np.full(value.shape, np.nan), where=known)
        return Bounded(value, low, high, 2 * stdtr(max(units - 1, 1), -np.abs(score)))

    return BoundedAssociations(
        statistic=bounded(statistic, of_statistic),
        effect_size=bounded(effect_size, of_effect),
        mean_statistic=bounded(statistic @ means, of_statistic @ means),
        mean_effect_size=bounded(_weighted(effect_size, means), _weighted(of_effect, means)),
    )


def influences(columns: NDArray[np.float64], in_a: NDArray[np.bool_]) -> AssociationSizes:
    """Return the (n, m) influence of each image on s and on es, within its own group.

    The variance over both groups is the mean of the groups' variances, weighted by their shares, and the product of
    the shares times s²: an image moves it by its own square, and through s.
    """
    n = len(columns)
    share = in_a.mean()
    spread = np.where(np.ptp(columns, axis=0) > SLACK, columns.std(axis=0), np.nan)
    shift = columns[in_a].mean(axis=0) - columns[~in_a].mean(axis=0)
    of_statistic, of_effect = np.empty_like(columns), np.empty_like(columns)
    linear = (1 - share * (1 - share) * (shift / spread) ** 2) / spread
    quadratic = shift / (2 * spread**3 * n)
    for mask, sign in ((in_a, 1), (~in_a, -1)):
        centred = columns[mask] - columns[mask].mean(axis=0)
        squares = centred**2
        moved = centred * (sign / mask.sum())
        of_statistic[mask] = moved
        of_effect[mask] = moved * linear - (squares - squares.mean(axis=0)) * quadratic
    return AssociationSizes(of_statistic, of_effect)


def _weighted(values: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values @ means where nan counts only in the categories that hold it."""
    missing = np.isnan(values)
    if not missing.any():
        return values @ means
    total = np.where(missing, 0.0, values) @ means
    return np.where(missing.astype(np.float64) @ (means != 0) > 0, np.nan, total)


def _units(mask: NDArray[np.bool_], clusters: NDArray[np.int64] | None) -> int:
    return int(mask.sum()) if clusters is None else len(np.unique(clusters[mask]))
