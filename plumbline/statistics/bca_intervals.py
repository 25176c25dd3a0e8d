"""BCa intervals of many statistics at once, such as the counts of every group in every ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri


def acceleration(values: NDArray[np.float64], images: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the acceleration of BCa from leave-one-out values (Efron & Tibshirani 1993, eq. 14.15).

    Parameters
    ----------
    values : (..., v) float
        Statistic without an image of each kind.
    images : (..., v) int
        Images of each kind.

    Returns
    -------
    (...) float64
        0 where no value varies: BCa is then the bias-corrected interval.
    """
    weight = np.asarray(images, dtype=np.float64)
    value = np.where(weight > 0, values, 0.0)
    mean = (weight * value).sum(axis=-1, keepdims=True) / weight.sum(axis=-1, keepdims=True)
    lean = mean - value
    cubes, squares = (weight * lean**3).sum(axis=-1), (weight * lean**2).sum(axis=-1)
    spread = squares > 1e-24
    return np.divide(cubes, 6 * squares**1.5, out=np.zeros_like(cubes), where=spread)


@dataclass(frozen=True)
class Intervals:
    """Intervals of many statistics.

    Attributes
    ----------
    low, high : (...) float64
        BCa; the percentile interval where BCa is undefined (see `percentile`), nan where the replicates do not vary.
    percentile_low, percentile_high : (...) float64
    percentile : (...) bool
        Where every replicate lies on one side of the estimate, so that BCa does not exist.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    percentile_low: NDArray[np.float64]
    percentile_high: NDArray[np.float64]
    percentile: NDArray[np.bool_]


def bca_intervals(
    estimate: NDArray[np.float64],
    replicates: NDArray[Any],
    acceleration: NDArray[np.float64],
    *,
    confidence: float = 0.95,
) -> Intervals:
    """Return the BCa intervals of many statistics at once, as `plumbline.statistics.intervals.bca` does of one.

    Parameters
    ----------
    estimate, acceleration : (...) float
    replicates : (..., r) float or int
        Finite. They are sorted once; every quantile is then looked up.
    """
    values = np.sort(replicates, axis=-1)
    r = values.shape[-1]
    slack = 1e-12 * np.maximum(1.0, np.abs(estimate))[..., None]
    center = np.asarray(estimate)[..., None]
    below = ((values < center - slack).sum(axis=-1) + (values <= center + slack).sum(axis=-1)) / (2 * r)
    varies = values[..., -1] - values[..., 0] > slack[..., 0]
    usable = varies & (below > 0) & (below < 1) & ~np.isnan(acceleration)
    bias = ndtri(np.where(usable, below, 0.5))
    lean = np.where(usable, acceleration, 0.0)
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        shifted = bias + ndtri(tail)
        ends.append((_quantile(values, ndtr(bias + shifted / (1 - lean * shifted))), _quantile(values, tail)))
    (low, plain_low), (high, plain_high) = ends
    one_sided = varies & ~usable
    low, high = np.where(one_sided, plain_low, low), np.where(one_sided, plain_high, high)
    low, high, plain_low, plain_high = (
        np.where(varies, end, np.nan) for end in (low, high, plain_low, plain_high)
    )
    return Intervals(low, high, plain_low, plain_high, one_sided)


def _quantile(ordered: NDArray[np.float64], share: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return quantiles of sorted values (..., r), between neighbours in proportion, as numpy's default."""
    place = np.broadcast_to(np.asarray(share, dtype=np.float64), ordered.shape[:-1]) * (ordered.shape[-1] - 1)
    lower = np.floor(place).astype(np.int64)
    upper = np.minimum(lower + 1, ordered.shape[-1] - 1)
    at_lower, at_upper = (np.take_along_axis(ordered, i[..., None], axis=-1)[..., 0] for i in (lower, upper))
    return at_lower + (place - lower) * (at_upper - at_lower)
