"""Plumbline: audits of the social bias of vision-language models. The pure library.

What is promised is in `__all__`; each name is imported when it is used.

>>> import plumbline
>>> plumbline.max_skew([12, 8], [100, 100]).value
0.5
"""

from typing import TYPE_CHECKING, Any

from plumbline.imports import promised
from plumbline.version import __version__ as __version__

if TYPE_CHECKING:
    from plumbline.catalog.suites import Suite, load_suite, suite_names
    from plumbline.encoders.encoder import match_probabilities
    from plumbline.errors import PlumblineError
    from plumbline.metrics.associations import sc_weat, weat
    from plumbline.metrics.disparities import impact_ratio, max_skew, parity_difference
    from plumbline.metrics.equal_opportunity import equal_opportunity_gap
    from plumbline.metrics.family import MetricSettings
    from plumbline.metrics.markedness import markedness
    from plumbline.metrics.outcomes import harm_rate, outcome_proportions
    from plumbline.metrics.rankings.ndkl import ndkl
    from plumbline.metrics.rankings.skew_at_k import max_skew_at_k, skew_at_k
    from plumbline.metrics.trident.scores import trident_scores
    from plumbline.notebook.audits import audit, audit_features, prompts
    from plumbline.notebook.results import Audit
    from plumbline.statistics.estimates import Estimate

_PLACES = {
    "catalog.suites": ("Suite", "load_suite", "suite_names"),
    "encoders.encoder": ("match_probabilities",),
    "errors": ("PlumblineError",),
    "metrics.associations": ("sc_weat", "weat"),
    "metrics.disparities": ("impact_ratio", "max_skew", "parity_difference"),
    "metrics.equal_opportunity": ("equal_opportunity_gap",),
    "metrics.family": ("MetricSettings",),
    "metrics.markedness": ("markedness",),
    "metrics.outcomes": ("harm_rate", "outcome_proportions"),
    "metrics.rankings.ndkl": ("ndkl",),
    "metrics.rankings.skew_at_k": ("max_skew_at_k", "skew_at_k"),
    "metrics.trident.scores": ("trident_scores",),
    "notebook.audits": ("audit", "audit_features", "prompts"),
    "notebook.results": ("Audit",),
    "statistics.estimates": ("Estimate",),
}

__all__ = [
    "Audit",
    "Estimate",
    "MetricSettings",
    "PlumblineError",
    "Suite",
    "__version__",
    "audit",
    "audit_features",
    "equal_opportunity_gap",
    "harm_rate",
    "impact_ratio",
    "load_suite",
    "markedness",
    "match_probabilities",
    "max_skew",
    "max_skew_at_k",
    "ndkl",
    "outcome_proportions",
    "parity_difference",
    "prompts",
    "sc_weat",
    "skew_at_k",
    "suite_names",
    "trident_scores",
    "weat",
]


def __getattr__(name: str) -> Any:
    value = globals()[name] = promised(name, _PLACES)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
