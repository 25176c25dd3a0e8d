"""The families of language metrics: each becomes one asset, each metric is proved by the contracts."""

from __future__ import annotations

from plumbline.language.families.annotated_agreement import ANNOTATED_AGREEMENT
from plumbline.language.families.competence import COMPETENCE_FAMILY
from plumbline.language.families.instruction_effects import INSTRUCTION_EFFECTS
from plumbline.language.families.llm_twin import LLM_TWIN
from plumbline.language.families.max_toxicity import MAX_TOXICITY
from plumbline.language.families.ratings import RATINGS
from plumbline.language.families.refusals_and_lengths import REFUSALS_AND_LENGTHS
from plumbline.language.families.words import WORDS
from plumbline.language.family import LanguageFamily, LanguageTraits

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
