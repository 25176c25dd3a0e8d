"""Correlation between similarity to positive and to negative words of a trait.

Source: Hausladen et al., "Social perception of faces in a vision-language model", appendix C and figure C.5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row
from plumbline.errors import MetricError
from plumbline.metrics.cell import CellName, base_row
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.perception import VALENCES, Perception
from plumbline.reasons import MIN_GROUP, group_size_reason, joined, reason
from plumbline.statistics.clusters import few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import Groups
from plumbline.statistics.jackknife import fisher_interval, standard_errors


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
