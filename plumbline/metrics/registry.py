"""The metric families and the metrics: each family becomes one asset, each metric is proved by the contracts."""

from __future__ import annotations

from plumbline.metrics.families.associations import ASSOCIATIONS
from plumbline.metrics.families.confounds import CONFOUNDS
from plumbline.metrics.families.outcomes import OUTCOMES
from plumbline.metrics.families.rankings import RANKINGS
from plumbline.metrics.families.robustness import ROBUSTNESS
from plumbline.metrics.families.text_space import TEXT_SPACE
from plumbline.metrics.families.trident import TRIDENT
from plumbline.metrics.family import MetricFamily
from plumbline.metrics.traits import MetricTraits

FAMILIES: dict[str, MetricFamily] = {
    family.name: family
    for family in (
        OUTCOMES,
        TRIDENT,
        ASSOCIATIONS,
        ROBUSTNESS,
        RANKINGS,
        CONFOUNDS,
    )
}
"""Every family by name."""

METRICS: dict[str, MetricTraits] = {
    traits.name: traits
    for traits in (*(t for family in FAMILIES.values() for t in family.traits), *TEXT_SPACE)
}
"""Every metric by name."""


def metric_families() -> tuple[MetricFamily, ...]:
    """Return every family, in the order of the registry."""
    return tuple(FAMILIES.values())
