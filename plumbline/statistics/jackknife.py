"""Leaving out one unit at a time, and influences: acceleration of BCa, standard errors, and Hotelling's test."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Jackknife(NamedTuple):
    """Leave-one-out values of a statistic of several samples, such as groups.

    Units that are alike, such as all images of one cell of a table, give the same value: it is computed once.

    Attributes
    ----------
    values : (..., g, v) float64
        Statistic with one unit of each kind removed; kinds where it is undefined (nan) are skipped.
    counts : (..., g, v) int64
        Units of each kind.
    """

    values: NDArray[np.float64]
    counts: NDArray[Any]

    @classmethod
    def from_units(cls, values: NDArray[np.float64]) -> Jackknife:
        """Return the jackknife of one sample from the (..., u) values without each of its units, such as clusters."""
        return cls(values[..., None, :], np.ones((1, values.shape[-1]), dtype=np.int64))

    @property
    def acceleration(self) -> NDArray[np.float64]:
        """Return the acceleration of BCa (Efron & Tibshirani 1993, eq. 14.15), (...) float64.

        With the influence l_gi = (n_g - 1) / n_g (mean_g - value_gi), sum l^3 / (6 (sum l^2)^1.5), as in
        `scipy.stats.bootstrap`; 0 where no value varies.
        """
        known = (self.counts > 0) & ~np.isnan(self.values)
        weight, value = np.where(known, self.counts, 0).astype(np.float64), np.where(known, self.values, 0.0)
        n = np.maximum(weight.sum(axis=-1, keepdims=True), 1)
        influence = (n - 1) * ((weight * value).sum(axis=-1, keepdims=True) / n - value) / n
        cubes, squares = ((weight * influence**power).sum(axis=(-2, -1)) for power in (3, 2))
        # Rounding is no variation.
        varies = squares > (1e-12 * np.maximum(1.0, np.abs(value).max(axis=(-2, -1)))) ** 2
        return np.divide(cubes, 6 * squares**1.5, out=np.zeros(np.shape(cubes)), where=varies)


class StandardErrors(NamedTuple):
    """Standard errors of statistics, and the number of units behind them.

    Attributes
    ----------
    error : (...) float64
        nan with fewer than two units.
    units : int
        Independent units: images, or clusters.
    """

    error: NDArray[np.float64]
    units: int


def standard_errors(
    influence: ArrayLike, clusters: NDArray[np.int64] | None = None, *, every_unit: bool = False
) -> StandardErrors:
    """Return the standard error of each statistic by the infinitesimal jackknife (Efron & Tibshirani 1993, 21.2).

    sqrt(u / (u - 1) sum of squared influence over the u independent units); of clusters it is the cluster-robust one.

    Parameters
    ----------
    influence : (n, ...) float
        Influence of each image on each statistic, which sums to 0: for a mean, (x_i - mean) / n.
    clusters : (n,) int, optional
        Cluster of each image; by default each image is its own cluster.
    every_unit : bool
        Count every unit. By default units without any influence are taken for images outside the compared groups and
        do not count: right for groups within all images, wrong for a mean of values that may equal it.
    """
    errors = ErrorSums(clusters)
    errors.add(np.asarray(influence, dtype=np.float64))
    return errors.total(every_unit=every_unit)


class ErrorSums:
    """The standard errors of many statistics, of which some are added at a time; see `standard_errors`."""

    def __init__(self, clusters: NDArray[np.int64] | None) -> None:
        self._clusters = clusters
        self._squares: list[NDArray[np.float64]] = []
        self._moved: NDArray[np.bool_] | None = None

    def add(self, influence: NDArray[np.float64]) -> None:
        """Add statistics by their (n, ...) influence."""
        sums = _summed(influence, self._clusters)
        moved = np.asarray(sums.reshape(len(sums), -1).any(axis=1))
        self._moved = moved if self._moved is None else np.logical_or(self._moved, moved)
        self._squares.append((sums**2).sum(axis=0))

    def total(self, *, every_unit: bool = False) -> StandardErrors:
        """Return the errors of all that were added, side by side: the units are those that move any of them."""
        if self._moved is None:
            raise ValueError("no statistic was added")
        squares = self._squares[0] if len(self._squares) == 1 else np.concatenate(self._squares)
        units = len(self._moved) if every_unit else int(self._moved.sum())
        if units < 2:
            return StandardErrors(np.full(squares.shape, np.nan), units)
        return StandardErrors(np.sqrt(squares * units / (units - 1)), units)


def unit_sums(influence: NDArray[np.float64], clusters: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Return the (u, k) sums of (n, k) influence per cluster, or per image without clusters, where not zero."""
    sums = _summed(influence, clusters)
    return sums[sums.any(axis=1)]


def _summed(influence: NDArray[np.float64], clusters: NDArray[np.int64] | None) -> NDArray[np.float64]:
    if clusters is None:
        return influence
    codes, units, _ = occurring_codes(clusters)
    sums = np.zeros((len(codes), *influence.shape[1:]))
    np.add.at(sums, units, influence)
    return sums


class OccurringCodes(NamedTuple):
    """Codes that occur, (u,) ascending; the place of each image's code among them, (n,); images of each, (u,)."""

    codes: NDArray[np.int64]
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]


def occurring_codes(codes: NDArray[np.int64]) -> OccurringCodes:
    """Return which of (n,) codes occur, as `np.unique` does; without sorting where they are about as many as images."""
    if not len(codes) or codes.min() < 0 or codes.max() > 4 * len(codes):
        return OccurringCodes(*np.unique(codes, return_inverse=True, return_counts=True))
    sizes = np.bincount(codes)
    occurs = sizes > 0
    return OccurringCodes(np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes], sizes[occurs])


def t_intervals(
    estimate: ArrayLike, error: ArrayLike, *, units: int, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return estimate ± t × standard error, with units - 1 degrees of freedom.

    Parameters
    ----------
    estimate, error : (...) float
    units : int
        Independent units: images, or clusters.

    Returns
    -------
    low, high : (...) float64
        nan where the error is.
    """
    from scipy.special import stdtrit

    value, se = np.asarray(estimate, dtype=np.float64), np.asarray(error, dtype=np.float64)
    factor = stdtrit(units - 1, (1 + confidence) / 2) if units > 1 else np.nan
    return value - factor * se, value + factor * se


def fisher_interval(
    r: float, n: int, *, error: StandardErrors | None = None, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of a correlation through Fisher's z, with standard error 1 / sqrt(n - 3).

    Parameters
    ----------
    r : float
        In (-1, 1).
    n : int
        Pairs of values; with fewer than four the ends are nan.
    error : StandardErrors, optional
        Of z, where pairs are not independent: it takes the place of that of n.
    """
    from scipy.special import ndtri

    z = np.arctanh(r)
    if error is None:
        half = ndtri((1 + confidence) / 2) / np.sqrt(n - 3) if n > 3 else np.nan
        low, high = z - half, z + half
    else:
        low, high = t_intervals(z, error.error, units=error.units, confidence=confidence)
    return float(np.tanh(low)), float(np.tanh(high))


def hotelling_p_value(estimate: ArrayLike, influence: ArrayLike, clusters: NDArray[np.int64] | None = None) -> float:
    """Return the p-value of "every statistic is 0", by Hotelling's T² (Hotelling 1931).

    Exact for means of independent normal rows; for other smooth statistics the Wald test with the same small-sample
    correction. Influence is summed within clusters first.

    Parameters
    ----------
    estimate : (k,) float
    influence : (n, k) float
        Influence of each image on each statistic, see `standard_errors`.
    clusters : (n,) int, optional
        Cluster of each image; by default each image is its own cluster.

    Returns
    -------
    float
        nan where there are not more independent units than statistics, or where their covariance is singular.
    """
    from scipy.special import fdtrc

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
    df = units_used - k
    return float(fdtrc(k, df, distance * df / (k * (units_used - 1))))
