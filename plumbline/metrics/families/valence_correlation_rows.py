"""Rows of how the poles of a dimension of social perception go together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell
from plumbline.metrics.families.perception import Perception
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.valence_correlation import valence_correlation
from plumbline.statistics.clusters import few_sets_reason
from plumbline.statistics.groups import Groups
from plumbline.statistics.reasons import joined
from plumbline.tables.schema import Row


def correlation_rows(
    cell: Cell, perception: Perception, attributes: list[Groups], settings: MetricSettings
) -> list[Row]:
    """Return how the poles of each dimension go together, over all images and within every group."""
    everyone = np.ones(len(perception.cosine), dtype=bool)
    views: list[tuple[str | None, str | None, NDArray[np.bool_]]] = [(None, None, everyone)]
    views += [(g.attribute, name, g.codes == i) for g in attributes for i, name in enumerate(g.names)]
    rows = []
    for dimension in perception.dimensions:
        poles = perception.cosine @ np.stack(
            [perception.scales[f"{dimension}_{valence}"] for valence in ("positive", "negative")], axis=1
        )
        for attribute, group, mask in views:
            clusters = None if perception.clusters is None else perception.clusters[mask]
            found = valence_correlation(
                *poles[mask].T,
                clusters=clusters,
                confidence=settings.confidence,
                min_group=settings.min_group,
            )
            rows.append(
                base_row(
                    cell,
                    metric="valence_correlation",
                    definition="pearson",
                    suite=perception.suite_id,
                    suite_hash=perception.suite_hash,
                    attribute=attribute,
                    group=group,
                    event=dimension,
                    value=found.value,
                    ci_low=found.ci_low,
                    ci_high=found.ci_high,
                    n=found.n,
                    reason=joined(found.reason, few_sets_reason(clusters)),
                )
            )
    return rows
