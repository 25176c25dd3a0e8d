"""Cells of the numeric planted encoder: every answer of a metric family has a truth that can be written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import ndtr, ndtri

from plumbline.catalog.suites import Suite, load_suite
from plumbline.errors import ConfigError
from plumbline.metrics import Cell, SuiteLogits


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


GROUPS = ("man", "woman")
BASE_RATE = 0.3
CORRELATION = 0.6
"""Planted between an image's closeness to the positive and to the negative words, within a group."""


def world(seed: int, *, beta: float, n: int) -> Cell:
    """Draw a cell of `n` faces of two groups: the first is associated with the event by `beta`.

    Negative words lie along the planted direction, so that an image's best communion word is negative exactly when
    the planted event happens; closeness to a word is the planted normal variable.
    """
    rng = np.random.default_rng([seed, n])
    planted = planted_embeddings(n, GROUPS, beta=beta, dim=8, rng=rng, base_rate=BASE_RATE)
    closeness = planted.images @ planted.texts[0]
    records = pl.DataFrame({"image_id": [f"{i:08x}" for i in range(n)], "gender": planted.labels.tolist()})
    logits = {
        "communion": _answers(load_suite("communion"), closeness, planted),
        "perception": _answers(_few_words(load_suite("perception")), closeness, planted),
        "markedness": _answers(_one_template(load_suite("markedness"), "gender"), closeness, planted),
    }
    return Cell(model="planted", dataset="numeric", records=records, logits=logits, keep={})


def _answers(suite: Suite, closeness: NDArray[np.float64], planted: PlantedEmbeddings) -> SuiteLogits:
    # A direction of its own, with the same spread as the planted one.
    across = planted.images - closeness[:, None] * planted.direction
    other = across @ _orthogonal(planted.direction)
    columns = []
    for candidate in suite.candidates:
        kind = _kind(suite, candidate.word or candidate.id, candidate.category)
        columns.append(
            {
                "negative": closeness,
                "positive": -closeness,
                "related": CORRELATION * closeness + np.sqrt(1 - CORRELATION**2) * other,
                "neutral": np.zeros_like(closeness),
            }[kind]
        )
    cosine = np.stack(columns, axis=1).astype(np.float32)
    return SuiteLogits(suite=suite, logits=cosine, cosine=cosine)


def _kind(suite: Suite, word: str, category: str) -> str:
    if suite.family == "markedness":
        return "negative" if category == "blank" else "neutral"
    if suite.family == "outcomes":
        return category
    if category == "blank":
        return "neutral"
    return "related" if word in suite.scales["agency_positive"] else "negative"


def _orthogonal(direction: NDArray[np.float64]) -> NDArray[np.float64]:
    axis = np.eye(len(direction))[np.argmin(np.abs(direction))]
    rest = axis - (axis @ direction) * direction
    return rest / np.linalg.norm(rest)


def _one_template(suite: Suite, attribute: str) -> Suite:
    kept = (c for c in suite.candidates if c.category in ("blank", attribute) and c.template == "photo")
    return replace(suite, candidates=tuple(kept))


def _few_words(suite: Suite) -> Suite:
    scales = {"agency_positive": ("powerful", "wealthy"), "agency_negative": ("powerless", "poor")}
    words = {"", *(word for scale in scales.values() for word in scale)}
    kept = (c for c in suite.candidates if c.word in words and c.template == "photo")
    return replace(suite, candidates=tuple(kept), scales=scales)


def group_rates(beta: float) -> NDArray[np.float64]:
    """Return how often the event happens in each group."""
    return ndtr(ndtri(BASE_RATE) + beta * np.array([1.0, -1.0]))


def effect_size(beta: float) -> float:
    """Return the difference of the groups' means in standard deviations over both."""
    return float(2 * beta / np.sqrt(1 + beta**2))


def log_top_shares(beta: float, share: float) -> NDArray[np.float64]:
    """Return ln(share of each group among the highest `share` of all images / one half)."""
    means = beta * np.array([1.0, -1.0])
    cut = optimize.brentq(lambda c: ndtr(means - c).mean() - share, -10, 10)
    above = ndtr(means - cut)
    return np.log(above / above.sum() * 2)
