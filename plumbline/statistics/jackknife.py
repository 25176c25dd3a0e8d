"""Standard errors from the influence of every image (infinitesimal jackknife), and a joint test of several means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, stdtrit


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


# --- One test of several statistics at once, from the influence of each image: are they all zero?


def unit_sums(influence: NDArray[np.float64], clusters: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Return the (u, k) sums of the images' influence within each independent unit that has any.

    Parameters
    ----------
    influence : (n, k) float64
    clusters : (n,) int or None
        Set of each image; every image is a unit of its own without.
    """
    sums = influence
    if clusters is not None:
        _, units = np.unique(clusters, return_inverse=True)
        sums = np.stack([np.bincount(units, weights=column) for column in influence.T], axis=1)
    return sums[sums.any(axis=1)]


def hotelling_p_value(
    estimate: ArrayLike, influence: ArrayLike, clusters: NDArray[np.int64] | None = None
) -> float:
    """Return the p-value of "every statistic is zero", by Hotelling's T² (Hotelling 1931).

    For means of independent normal rows the test is exact; for other smooth statistics it is the Wald test with the
    same small-sample correction. Images that come in sets are summed within their set first.

    Parameters
    ----------
    estimate : (k,) float
    influence : (n, k) float
        Influence of each image on each statistic, summing to zero over the images, see
        `plumbline.statistics.jackknife`.
    clusters : (n,) int, optional
        Set of each image; every image for itself by default.

    Returns
    -------
    float
        nan where there are not more independent units than statistics, or where the statistics do not vary freely.
    """
    value = np.asarray(estimate, dtype=np.float64)
    rows = unit_sums(np.asarray(influence, dtype=np.float64), clusters)
    units_used, k = rows.shape
    if units_used <= k:
        return float("nan")
    covariance = rows.T @ rows * units_used / (units_used - 1)
    spread = np.sqrt(np.diag(covariance))
    # A constant statistic leaves rounding errors, which are no variation.
    if (spread <= 1e-12 * max(1.0, float(np.abs(value).max()))).any():
        return float("nan")
    if np.linalg.matrix_rank(covariance / np.outer(spread, spread), tol=1e-9, hermitian=True) < k:
        return float("nan")
    distance = float(value @ np.linalg.solve(covariance, value))
    free = units_used - k
    return float(fdtrc(k, free, distance * free / (k * (units_used - 1))))
