"""Metrics: pure functions on arrays, and the families that tabulate them.

A family (`family.py`) makes rows of some metrics for a cell (`cell.py`); `registry.py` lists the families, and
`catalog/metrics.yaml` says what each metric promises.
"""

from plumbline.metrics.associations import Association, Associations, sc_weat, weat
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.confounds import (
    ChangeComparison,
    Coefficient,
    ConfoundFit,
    compare_changes,
    confound_fit,
    level_means,
    mean_change,
)
from plumbline.metrics.disparities import MaxSkew, impact_ratio, max_skew, parity_difference
from plumbline.metrics.equal_opportunity import EqualOpportunity, equal_opportunity_gap
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.markedness import markedness, markedness_gap
from plumbline.metrics.outcomes import OutcomeProportions, harm_rate, outcome_proportions
from plumbline.metrics.perception import valence_correlation
from plumbline.metrics.rankings.ndkl import ndkl
from plumbline.metrics.rankings.skew_at_k import GroupSkew, SkewAtK, max_skew_at_k, skew_at_k
from plumbline.metrics.robustness.directional_bias import (
    DirectionalBias,
    IntraSetCosine,
    MaxDifference,
    directional_bias,
    directional_bias_gap,
    intra_set_cosine,
    template_shift,
)
from plumbline.metrics.robustness.rows import HarmByBiasSize, harm_by_bias_size, rank_agreement
from plumbline.metrics.text_space import ValenceGeometry, valence_geometry
from plumbline.metrics.trident.scores import TridentScores, normalise_probe_rates, probe_rate_gap, trident_scores
from plumbline.statistics.estimates import Estimate, EstimateArray

__all__ = [
    "Association",
    "Associations",
    "Cell",
    "ChangeComparison",
    "Coefficient",
    "ConfoundFit",
    "DirectionalBias",
    "EqualOpportunity",
    "Estimate",
    "EstimateArray",
    "GroupSkew",
    "HarmByBiasSize",
    "IntraSetCosine",
    "MaxDifference",
    "MaxSkew",
    "MetricSettings",
    "OutcomeProportions",
    "SkewAtK",
    "SuiteLogits",
    "TridentScores",
    "ValenceGeometry",
    "compare_changes",
    "confound_fit",
    "directional_bias",
    "directional_bias_gap",
    "equal_opportunity_gap",
    "harm_by_bias_size",
    "harm_rate",
    "impact_ratio",
    "intra_set_cosine",
    "level_means",
    "markedness",
    "markedness_gap",
    "max_skew",
    "max_skew_at_k",
    "mean_change",
    "ndkl",
    "normalise_probe_rates",
    "outcome_proportions",
    "parity_difference",
    "probe_rate_gap",
    "rank_agreement",
    "sc_weat",
    "skew_at_k",
    "template_shift",
    "trident_scores",
    "valence_correlation",
    "valence_geometry",
    "weat",
]
