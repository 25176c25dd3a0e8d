"""Metrics: pure functions on arrays, and the families that tabulate them."""

from plumbline.metrics.attribute_changes import ChangeComparison, MeanChange, compare_changes, mean_change
from plumbline.metrics.calibration import Calibration, calibration
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.confounds import Coefficient, ConfoundFit, confound_fit
from plumbline.metrics.directional_bias import (
    BiasGap,
    DirectionalBias,
    TemplateShift,
    directional_bias,
    directional_bias_gap,
    template_shift,
)
from plumbline.metrics.equal_opportunity import EqualOpportunity, equal_opportunity_gap
from plumbline.metrics.intra_set_cosine import IntraSetCosine, intra_set_cosine
from plumbline.metrics.level_means import LevelMeans, level_means
from plumbline.metrics.markedness import Markedness, markedness, markedness_gap
from plumbline.metrics.outcomes import (
    EventValue,
    GroupProportion,
    OutcomeProportions,
    harm_rate,
    impact_ratio,
    outcome_proportions,
    parity_difference,
)
from plumbline.metrics.rankings import (
    GroupSkew,
    MaxSkewAtK,
    SkewAtK,
    max_skew_at_k,
    ndkl,
    skew_at_k,
)
from plumbline.metrics.sc_weat import Associations, CategoryAssociation, sc_weat
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.skew import MaxSkew, max_skew
from plumbline.metrics.template_agreement import RankAgreement, rank_agreement
from plumbline.metrics.trident import (
    TridentScores,
    normalise_probe_rates,
    probe_rate_gap,
    trident_scores,
)
from plumbline.metrics.valence_correlation import ValenceCorrelation, valence_correlation
from plumbline.metrics.valence_geometry import ValenceGeometry, valence_geometry
from plumbline.metrics.weat import Weat, weat

__all__ = [
    "Associations",
    "BiasGap",
    "Calibration",
    "CategoryAssociation",
    "Cell",
    "ChangeComparison",
    "Coefficient",
    "ConfoundFit",
    "DirectionalBias",
    "EqualOpportunity",
    "EventValue",
    "GroupProportion",
    "GroupSkew",
    "IntraSetCosine",
    "LevelMeans",
    "Markedness",
    "MaxSkew",
    "MaxSkewAtK",
    "MeanChange",
    "MetricSettings",
    "OutcomeProportions",
    "RankAgreement",
    "SkewAtK",
    "SuiteLogits",
    "TemplateShift",
    "TridentScores",
    "ValenceCorrelation",
    "ValenceGeometry",
    "Weat",
    "calibration",
    "compare_changes",
    "confound_fit",
    "directional_bias",
    "directional_bias_gap",
    "equal_opportunity_gap",
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
