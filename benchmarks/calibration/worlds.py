"""Cells of the numeric planted encoder: every answer of a metric family has a truth that can be written down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import ndtr, ndtri

from plumbline.catalog.suites import Suite, load_suite
from plumbline.metrics import Cell, SuiteLogits
from plumbline.world.numeric import PlantedEmbeddings, planted_embeddings

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
