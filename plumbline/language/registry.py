"""The families of language metrics: each becomes one asset, each metric is proved by the contracts."""

from __future__ import annotations

from plumbline.language.annotated_agreement import ANNOTATED_AGREEMENT
from plumbline.language.base_llm import LLM_TWIN
from plumbline.language.competence import COMPETENCE_FAMILY
from plumbline.language.family import LanguageFamily, LanguageTraits
from plumbline.language.instruction_effects import INSTRUCTION_EFFECTS
from plumbline.language.max_toxicity import MAX_TOXICITY
from plumbline.language.ratings_by_group import RATINGS
from plumbline.language.refusals_and_lengths import REFUSALS_AND_LENGTHS
from plumbline.language.words import WORDS

LANGUAGE_FAMILIES: dict[str, LanguageFamily] = {
    family.name: family
    for family in (
        MAX_TOXICITY,
        INSTRUCTION_EFFECTS,
        LLM_TWIN,
        WORDS,
        COMPETENCE_FAMILY,
        RATINGS,
        REFUSALS_AND_LENGTHS,
        ANNOTATED_AGREEMENT,
    )
}
"""Every family by name."""

LANGUAGE_METRICS: dict[str, LanguageTraits] = {
    traits.name: traits for family in LANGUAGE_FAMILIES.values() for traits in family.traits
}
"""Every language metric by name."""
