"""The first principal axes of the words of a text space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

AXES = 3


class PrincipalAxes(NamedTuple):
    """Words on their principal axes, see `plumbline.metrics.valence_geometry.ValenceGeometry`.

    Attributes
    ----------
    coordinates : (w, 3) float64
    shares : (3,) float64
    """

    coordinates: NDArray[np.float64]
    shares: NDArray[np.float64]


def principal_axes(words: NDArray[np.float64]) -> PrincipalAxes:
    """Return (w, d) words on their first three principal axes, and the share of the variance along each."""
    centred = words - words.mean(axis=0)
    left, strength, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((strength**2).sum())
    coordinates, shares = np.full((len(words), AXES), np.nan), np.full(AXES, np.nan)
    # Rounding leaves some 1e-16 along axes that the words do not span.
    if total <= 1e-24:
        return PrincipalAxes(coordinates, shares)
    spanned = strength[:AXES] > 1e-9 * strength[0]
    scores = (left * strength)[:, :AXES]
    farthest = np.abs(scores).argmax(axis=0)
    scores *= np.where(scores[farthest, np.arange(scores.shape[1])] < 0, -1.0, 1.0)
    coordinates[:, : scores.shape[1]] = np.where(spanned, scores, np.nan)
    shares[: len(spanned)] = np.where(spanned, strength[:AXES] ** 2 / total, 0.0)
    return PrincipalAxes(coordinates, shares)
