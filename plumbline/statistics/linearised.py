"""Standard errors and intervals of smooth statistics from the influence of each image, no resampling needed.

The infinitesimal jackknife (Efron 1982, chapter 6): with ψ_i the influence of image i on the statistic θ, the
variance is Σ ψ_i². Images that come in sets are summed within their set first, which is the cluster-robust variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit


class StandardErrors(NamedTuple):
    """How sure statistics are.

    Attributes
    ----------
    error : (...) float64
        nan with fewer than two units.
    units : int
        Independent units behind them: images, or sets.
    """

    error: NDArray[np.float64]
    units: int


def standard_errors(
    influence: ArrayLike, clusters: NDArray[np.int64] | None = None, *, every_unit: bool = False
) -> StandardErrors:
    """Return the standard error of each statistic and the number of independent units behind it.

    Parameters
    ----------
    influence : (n, ...) float
        Influence of each image on each statistic, summing to zero over the images: for a mean, (x_i - mean) / n.
        Images without influence (of no group that is compared) hold 0.
    clusters : (n,) int, optional
        Set of each image; every image for itself by default.
    every_unit : bool
        Every image or set takes part, one whose influence happens to be 0 too (a value that equals the mean).

    Returns
    -------
    StandardErrors
        The small-sample factor u / (u - 1) is included.
    """
    values = np.asarray(influence, dtype=np.float64)
    if clusters is not None:
        order, units = np.unique(clusters, return_inverse=True)
        sums = np.zeros((len(order), *values.shape[1:]))
        np.add.at(sums, units, values)
        values = sums
    used = values.reshape(len(values), -1).any(axis=1)
    units_used = len(values) if every_unit else int(used.sum())
    if units_used < 2:
        return StandardErrors(np.full(values.shape[1:], np.nan), units_used)
    return StandardErrors(np.sqrt((values**2).sum(axis=0) * units_used / (units_used - 1)), units_used)


def t_intervals(
    estimate: ArrayLike, error: ArrayLike, *, units: int, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return estimate ± t × standard error, with units - 1 degrees of freedom.

    Parameters
    ----------
    estimate, error : (...) float
    units : int
        Independent units: images, or sets.

    Returns
    -------
    low, high : (...) float64
        nan where the error is.
    """
    value, se = np.asarray(estimate, dtype=np.float64), np.asarray(error, dtype=np.float64)
    factor = stdtrit(units - 1, (1 + confidence) / 2) if units > 1 else np.nan
    return value - factor * se, value + factor * se
