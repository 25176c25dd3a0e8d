"""Registry of the language families: each is one asset, and contract tests check each metric."""

from __future__ import annotations

from plumbline.language.annotated_agreement import ANNOTATED_AGREEMENT
from plumbline.language.cell import LanguageFamily
from plumbline.language.competence import COMPETENCE_FAMILY
from plumbline.language.instruction_effects import INSTRUCTION_EFFECTS
from plumbline.language.max_toxicity import BASE_LLM, MAX_TOXICITY
from plumbline.language.ratings_and_salaries import RATINGS
from plumbline.language.refusals import REFUSALS_AND_LENGTHS
from plumbline.language.words import WORDS
from plumbline.metrics.family import Traits, families_by_name, traits_by_metric

LANGUAGE_FAMILIES: dict[str, LanguageFamily] = families_by_name(
    MAX_TOXICITY,
    INSTRUCTION_EFFECTS,
    BASE_LLM,
    WORDS,
    COMPETENCE_FAMILY,
    RATINGS,
    REFUSALS_AND_LENGTHS,
    ANNOTATED_AGREEMENT,
)
"""Every family by name."""

LANGUAGE_METRICS: dict[str, Traits] = traits_by_metric(*LANGUAGE_FAMILIES)
"""Every language metric by name."""
