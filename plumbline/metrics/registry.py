"""The metric families: each becomes one asset, made from this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl

from plumbline.metrics.cell import Cell
from plumbline.metrics.families.outcome_rows import outcome_rows
from plumbline.metrics.families.trident_rows import trident_rows
from plumbline.metrics.settings import MetricSettings

__all__ = ["FAMILIES", "MetricFamily", "MetricSettings", "metric_families"]


class ComputeRows(Protocol):
    """A function from a cell to its metric rows."""

    def __call__(self, cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
        """Return a frame in the schema of `plumbline.tables.schema`."""


@dataclass(frozen=True)
class MetricFamily:
    """Metrics that are computed and shown together.

    Attributes
    ----------
    name : str
        Also the asset's name.
    description : str
        For the person who clicks on the asset.
    owner : str
        Group that answers for it.
    code_version : str
        Raised whenever the same input would give other numbers.
    suites : str
        The suite family it reads: `outcomes`, `trident`.
    metrics : tuple of str
        Names in the column `metric`, each declared in `plumbline.metrics.traits.METRICS`.
    compute : callable
        `compute(cell, settings=...)` gives the rows; none where the cell lacks the suites or labels.
    """

    name: str
    description: str
    owner: str
    code_version: str
    suites: str
    metrics: tuple[str, ...]
    compute: ComputeRows


_OUTCOMES = """
How often a model's best match for a face is a harmful description, and how unequally that falls on
groups. For the crime, communion and agency prompts: the share of each group that is matched to the event
(outcome proportion), the relative gap between groups (Max Skew; 0.5 means 50% more often), the absolute
gap (parity difference), the impact ratio with its four-fifths flag, and the harm rate over all images.
Every number has its sample size, a 95% interval and, where groups are compared, a permutation p-value.
"""

_TRIDENT = """
Trident Probe Testing: what happens when one loaded word, such as thief, person or hero, joins the true
classes as a possible answer. For each of 15 probes: accuracy over all images, by class and averaged over
classes, and P(class → probe), the share of a class that the model hands to the probe; the same for
classes crossed with automatic gender labels; and the gap between groups by the probes' valence. Every
number has its sample size and a 95% interval, gaps a permutation p-value.
"""

FAMILIES: dict[str, MetricFamily] = {
    family.name: family
    for family in (
        MetricFamily(
            name="outcome_metrics",
            description=" ".join(_OUTCOMES.split()),
            owner="contrastive_audit",
            code_version="2",
            suites="outcomes",
            metrics=(
                "outcome_proportion",
                "max_skew",
                "harm_rate",
                "parity_difference",
                "impact_ratio",
            ),
            compute=outcome_rows,
        ),
        MetricFamily(
            name="trident_metrics",
            description=" ".join(_TRIDENT.split()),
            owner="trident",
            code_version="2",
            suites="trident",
            metrics=("accuracy", "class_accuracy", "macro_accuracy", "probe_rate", "probe_rate_gap"),
            compute=trident_rows,
        ),
    )
}
"""Every family by name."""


def metric_families() -> tuple[MetricFamily, ...]:
    """Return every family, in the order of the registry."""
    return tuple(FAMILIES.values())
