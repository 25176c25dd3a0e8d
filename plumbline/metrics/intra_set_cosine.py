"""How alike a set of images is to a model: the cosines of all pairs of their embeddings.

Source: Al Sahili et al., "Data Matters Most", appendix A, on feature-neutral portraits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from plumbline.errors import MetricError
from plumbline.statistics.linearised import standard_errors, t_intervals


@dataclass(frozen=True)
class IntraSetCosine:
    """Mean and spread of the cosines of all pairs of images.

    Attributes
    ----------
    mean : float
        In [-1, 1]; nan with fewer than two images.
    sd : float
        Sample standard deviation over the pairs (pairs - 1); nan with fewer than three images.
    mean_interval, sd_interval : (float, float)
        From the influence of each image on all its pairs (Hoeffding 1948): pairs share images and are not
        independent. nan with fewer than three images.
    n, pairs : int
        Images and unordered pairs.
    reason : str or None
        Why something is undefined.
    """

    mean: float
    sd: float
    mean_interval: tuple[float, float]
    sd_interval: tuple[float, float]
    n: int
    pairs: int
    reason: str | None


def intra_set_cosine(embeddings: ArrayLike, *, confidence: float = 0.95) -> IntraSetCosine:
    """Return the mean and standard deviation of the pairwise cosines of a set of images.

    Parameters
    ----------
    embeddings : (n, d) float
        Of any length; the order of the images changes nothing, not even the last bit.

    Raises
    ------
    MetricError
        If the embeddings are not a table of finite numbers, or one of them is zero and has no direction.
    """
    images = np.asarray(embeddings, dtype=np.float64)
    norms = np.linalg.norm(images, axis=1) if images.ndim == 2 else np.zeros(1)
    if images.ndim != 2 or not np.isfinite(images).all() or not (norms > 0).all():
        raise MetricError(
            "cosines need finite embeddings that are not zero",
            found=f"{images.shape}",
            expected="(n, d)",
        )
    n, nan = len(images), float("nan")
    pairs = n * (n - 1) // 2
    if n < 2:
        return IntraSetCosine(nan, nan, (nan, nan), (nan, nan), n, pairs, "fewer than two images")
    # In an order of their own, so that sums round alike however the images are listed.
    units = (images / norms[:, None])[np.lexsort(images.T)]
    cosines = units @ units.T
    of_pairs = cosines[np.triu_indices(n, k=1)]
    mean = float(of_pairs.mean())
    if n < 3:
        return IntraSetCosine(mean, nan, (nan, nan), (nan, nan), n, pairs, "one pair: no spread, no interval")
    sd = float(of_pairs.std(ddof=1))
    np.fill_diagonal(cosines, 0.0)
    of_image = cosines.sum(axis=1) / (n - 1)
    squares = (cosines**2).sum(axis=1) / (n - 1)
    # An image's influence on a mean over pairs is twice what its own pairs differ from it.
    on_mean = 2 * (of_image - of_image.mean()) / n
    on_variance = 2 * (squares - squares.mean()) / n - 2 * mean * on_mean
    on_sd = on_variance / (2 * sd) if sd > 0 else np.zeros(n)
    errors, seen = standard_errors(np.stack([on_mean, on_sd], axis=1))
    low, high = t_intervals([mean, sd], errors, units=seen, confidence=confidence)
    return IntraSetCosine(
        mean, sd, (float(low[0]), float(high[0])), (float(low[1]), float(high[1])), n, pairs, None
    )
