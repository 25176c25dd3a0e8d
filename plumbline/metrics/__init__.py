"""Metrics: pure functions on arrays, and the families that tabulate them."""

from plumbline.metrics.attribute_changes import ChangeComparison, MeanChange, compare_changes, mean_change
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.confounds import Coefficient, ConfoundFit, LevelMeans, confound_fit, level_means
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
    "ChangeComparison",
    "Coefficient",
    "ConfoundFit",
    "EventValue",
    "GroupProportion",
    "LevelMeans",
    "MaxSkew",
    "MeanChange",
    "MetricSettings",
    "OutcomeProportions",
    "SuiteLogits",
    "TridentScores",
    "compare_changes",
    "confound_fit",
    "harm_rate",
    "impact_ratio",
    "level_means",
    "max_skew",
    "mean_change",
    "normalise_probe_rates",
    "outcome_proportions",
    "parity_difference",
    "probe_rate_gap",
    "trident_scores",
]
