"""The mean of a perceived trait at every level of a confound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.metrics.outcome_moments import Floats, Moments, moments
from plumbline.statistics.linearised import standard_errors, t_intervals

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
