"""The numeric planted encoder: embeddings whose outcome rates are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.errors import ConfigError


@dataclass(frozen=True)
class PlantedEmbeddings:
    """Embeddings of images of several groups and of two texts, with what was planted in them.

    Attributes
    ----------
    images : numpy.ndarray
        float64, shape (n, dim), not normalised.
    texts : numpy.ndarray
        float64, shape (2, dim), unit norm: the event, and its opposite.
    labels : numpy.ndarray
        str, shape (n,): each image's group.
    rates : dict of str to float
        The true probability, by group, that an image's nearest text is the event.
    direction : numpy.ndarray
        float64, shape (dim,), unit norm: the group direction, along which the event lies too.
    """

    images: np.ndarray
    texts: np.ndarray
    labels: np.ndarray
    rates: dict[str, float]
    direction: np.ndarray


def planted_embeddings(
    n: int, groups: Sequence[str], *, beta: float, dim: int, rng: np.random.Generator, base_rate: float = 0.3
) -> PlantedEmbeddings:
    """Draw embeddings as content plus beta times a group direction.

    An image is ``z + (t + beta * s_g) d`` with z standard normal in `dim` dimensions, d a random unit vector,
    s_g equally spaced from 1 for the first group to -1 for the last, and t the normal quantile of the base
    rate. The texts are d and -d. Both have unit norm, so the dot product and the cosine rank them alike, and
    the event is nearest with probability Phi(t + beta * s_g), whatever the dimension.

    At beta = 0 the images are exchangeable between groups: every rate is the base rate. The rate of the first
    group rises with beta and that of the last falls, so the gap between them grows monotonically.

    Parameters
    ----------
    n : int
        Number of images; group sizes differ by at most one, in random order.
    groups : sequence of str
        At least two distinct names.
    beta : float
        Strength of the association; negative values favour the last group.
    dim : int
        Dimension, at least 1.
    rng : numpy.random.Generator
        Source of every draw.
    base_rate : float
        Rate of the event at beta = 0, strictly between 0 and 1.

    Raises
    ------
    ConfigError
        If the groups are fewer than two or not distinct, the rate is not inside (0, 1), or the dimension is
        below 1.

    Examples
    --------
    >>> planted = planted_embeddings(10, ["a", "b"], beta=0.0, dim=4, rng=np.random.default_rng(0))
    >>> planted.images.shape, planted.rates
    ((10, 4), {'a': 0.3, 'b': 0.3})
    """
    from scipy.special import ndtr, ndtri

    if len(groups) < 2 or len(set(groups)) != len(groups):
        raise ConfigError("the planted encoder needs distinct groups", found=list(groups), expected="two or more names")
    if not 0 < base_rate < 1 or dim < 1:
        actual = f"base_rate {base_rate}, dim {dim}"
        raise ConfigError("the planted encoder cannot be drawn", found=actual, expected="0 < base_rate < 1, dim >= 1")
    direction = rng.standard_normal(dim)
    direction /= np.linalg.norm(direction)
    member = rng.permutation(np.arange(n) % len(groups))
    means = ndtri(base_rate) + beta * np.linspace(1.0, -1.0, len(groups))
    images = rng.standard_normal((n, dim)) + means[member][:, None] * direction
    rates = {group: round(float(ndtr(mean)), 12) for group, mean in zip(groups, means)}
    return PlantedEmbeddings(images, np.stack([direction, -direction]), np.asarray(groups)[member], rates, direction)
