"""Cosines of images with the words of a perception suite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.suites import Suite
from plumbline.metrics.cell import SuiteLogits
from plumbline.statistics.clusters import cluster_codes

VALENCES = ("positive", "negative")


def valence_words(suite: Suite) -> dict[str, tuple[str, str]]:
    """Return word -> (dimension, valence) for scales with two poles, `agency_positive` and `agency_negative`."""
    valence_of: dict[str, tuple[str, str]] = {}
    for scale, words in suite.scales.items():
        dimension, _, valence = scale.rpartition("_")
        if valence in VALENCES:
            valence_of |= dict.fromkeys(words, (dimension, valence))
    return valence_of


def template_means(cosine: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the templates, (n, t, w) to (n, w)."""
    return cosine.mean(axis=1)


@dataclass(frozen=True)
class Perception:
    """Cosines of the images with the words of a suite, averaged over its templates.

    Attributes
    ----------
    words : tuple of str
    cosine : (n, w) float64
    scales : dict of str to (w,) float64
        Weight of each word in a scale: 1 / number of its words, 0 for words of other scales.
    dimensions : dict of str to (w,) float64
        For scales with two poles, `agency_positive` and `agency_negative`: the weights of one minus the other's.
    labels : DataFrame
    clusters : (n,) int64 or None
    """

    suite_id: str
    suite_hash: str
    words: tuple[str, ...]
    cosine: NDArray[np.float64]
    scales: dict[str, NDArray[np.float64]]
    dimensions: dict[str, NDArray[np.float64]]
    labels: pl.DataFrame
    clusters: NDArray[np.int64] | None


def perception_of(logits: SuiteLogits, kept: NDArray[np.int64], labels: pl.DataFrame) -> Perception:
    """Return the cosines of some images with a suite's words; `kept` are their positions in the cell."""
    scales = logits.suite.scales
    words = tuple(dict.fromkeys(word for scale in scales.values() for word in scale))
    weights = {scale: np.array([(word in chosen) / len(chosen) for word in words]) for scale, chosen in scales.items()}
    poles = [name.removesuffix("_positive") for name in scales if name.endswith("_positive")]
    return Perception(
        suite_id=logits.suite.id,
        suite_hash=logits.suite.hash,
        words=words,
        cosine=logits.by_template(words, template_means, kept),
        scales=weights,
        dimensions={
            name: weights[f"{name}_positive"] - weights[f"{name}_negative"]
            for name in poles
            if f"{name}_negative" in weights
        },
        labels=labels,
        clusters=cluster_codes(labels),
    )
