"""Perception suites: cosines of images with their words, and how positive correlate with negative words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row
from plumbline.catalog.suites import Suite
from plumbline.errors import MetricError
from plumbline.metrics.cell import CellName, SuiteLogits, base_row
from plumbline.metrics.family import MetricSettings
from plumbline.reasons import MIN_GROUP, group_size_reason, joined, reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import Groups
from plumbline.statistics.jackknife import fisher_interval, standard_errors

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


# --- Correlation between similarity to positive and to negative words of a trait.
#
# Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix C and figure
# C.5.


def valence_correlation(
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
    min_group: int = MIN_GROUP,
) -> Estimate:
    """Return Pearson's correlation of the images' mean cosines to the positive and to the negative words.

    Parameters
    ----------
    positive, negative : (n,) float
        Of each image of one group: its mean cosine with the positive and with the negative words of a dimension.
    clusters : (n,) int, optional
        Cluster of each image, where images come in clusters.
    confidence : float
        Confidence level of the interval: Fisher's z with standard error 1 / sqrt(n - 3); where images come in
        clusters, with the cluster-robust error of the infinitesimal jackknife and clusters - 1 degrees of freedom.
    min_group : int
        Smaller groups are flagged.

    Returns
    -------
    Estimate
        -1 .. 1; near 1: the model does not tell the two poles apart. nan where one
        side does not vary; no interval with fewer than four images (or two clusters), or where |r| is 1.

    Raises
    ------
    MetricError
        If the lengths differ or a value is not finite.
    """
    x, y = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise MetricError(
            "both valences must be of the same images", found=f"{x.shape} and {y.shape}", expected="(n,) twice"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise MetricError("a valence is not finite")
    n = len(x)
    small = group_size_reason(n, min_group)
    if n < 2 or not np.ptp(x) > 0 or not np.ptp(y) > 0:
        constant = None if n < 2 else reason("constant_valence")
        return Estimate(np.nan, np.nan, np.nan, n, reason=joined(constant, small))
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    r = float(np.clip((x * y).mean(), -1, 1))
    low = high = np.nan
    # No interval either where rounding alone keeps |r| from 1.
    if 1 - abs(r) >= 1e-12:
        influence = (x * y - r * (x**2 + y**2) / 2) / n / (1 - r**2)
        error = None if clusters is None else standard_errors(influence, clusters)
        low, high = fisher_interval(r, n, error=error, confidence=confidence)
    missing = reason("no_correlation_interval") if np.isnan(low) else None
    return Estimate(r, low, high, n, reason=joined(missing, small))


def correlation_rows(
    cell: CellName, perception: Perception, attributes: list[Groups], settings: MetricSettings
) -> Iterator[Row]:
    """Give the correlation of the two poles of each dimension, over all images and within every group."""
    everyone = np.ones(len(perception.cosine), dtype=bool)
    views: list[tuple[str | None, str | None, NDArray[np.bool_]]] = [(None, None, everyone)]
    views += [(g.attribute, name, g.codes == i) for g in attributes for i, name in enumerate(g.names)]
    common = base_row(cell, suite=perception.suite_id, suite_hash=perception.suite_hash)
    common |= {"metric": "valence_correlation", "definition": "pearson"}
    for dimension in perception.dimensions:
        weights = [perception.scales[f"{dimension}_{valence}"] for valence in VALENCES]
        poles = perception.cosine @ np.stack(weights, axis=1)
        for attribute, group, mask in views:
            clusters = None if perception.clusters is None else perception.clusters[mask]
            estimate = valence_correlation(
                *poles[mask].T, clusters=clusters, confidence=settings.confidence, min_group=settings.min_group
            )
            reasons = joined(estimate.reason, few_clusters_reason(clusters))
            named = {"attribute": attribute, "group": group, "event": dimension, "reason": reasons}
            yield common | estimate.columns() | named
