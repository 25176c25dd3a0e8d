"""Outcomes of images, such as their cosines with several words, as what means and lines need of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError

Floats = NDArray[np.float64]


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
        raise MetricError("every image needs its set", found=f"{np.shape(clusters)} sets of {x.shape} images")
    if not (np.isfinite(x).all() and np.isfinite(table).all()):
        raise MetricError(
            "a level or an outcome is not a finite number", hint="leave out images without a level"
        )
    mean = table.mean(axis=1)
    # In one order, so that sums do not depend on the order of the images.
    order = np.lexsort((mean, x))
    spread = ((table - mean[:, None]) ** 2).mean(axis=1)
    codes = None if clusters is None else np.asarray(clusters)[order]
    return Moments(x[order], mean[order], spread[order], table.shape[1], codes)
