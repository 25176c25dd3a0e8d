"""One test of several statistics at once, from the influence of each image: are they all zero?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc


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


def joint_p_value(
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
        `plumbline.statistics.linearised`.
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
