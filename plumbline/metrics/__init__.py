"""Metrics: pure functions on arrays, and the families that tabulate them."""

from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.outcomes import (
    EventValue,
    GroupProportion,
    MaxSkew,
    OutcomeProportions,
    harm_rate,
    impact_ratio,
    max_skew,
    outcome_proportions,
    parity_difference,
)
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.trident import (
    TridentScores,
    normalise_probe_rates,
    probe_rate_gap,
    trident_scores,
)

__all__ = [
    "Cell",
    "EventValue",
    "GroupProportion",
    "MaxSkew",
    "MetricSettings",
    "OutcomeProportions",
    "SuiteLogits",
    "TridentScores",
    "harm_rate",
    "impact_ratio",
    "max_skew",
    "normalise_probe_rates",
    "outcome_proportions",
    "parity_difference",
    "probe_rate_gap",
    "trident_scores",
]
