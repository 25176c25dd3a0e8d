"""The chapters of the report, in their order: one module each, one row here."""

from __future__ import annotations

from plumbline.report.chapter import Chapter
from plumbline.report.chapters.associations import CHAPTER as ASSOCIATIONS
from plumbline.report.chapters.base_llm import CHAPTER as BASE_LLM
from plumbline.report.chapters.captions import CHAPTER as CAPTIONS
from plumbline.report.chapters.confounds import CHAPTER as CONFOUNDS
from plumbline.report.chapters.effects import CHAPTER as EFFECTS
from plumbline.report.chapters.equal_opportunity import CHAPTER as OPPORTUNITY
from plumbline.report.chapters.generation import CHAPTER as GENERATION
from plumbline.report.chapters.instructions import CHAPTER as INSTRUCTIONS
from plumbline.report.chapters.labels import CHAPTER as LABELS
from plumbline.report.chapters.mitigations import CHAPTER as MITIGATIONS
from plumbline.report.chapters.outcomes import CHAPTER as OUTCOMES
from plumbline.report.chapters.own_metrics import CHAPTER as OWN_METRICS
from plumbline.report.chapters.published import CHAPTER as PUBLISHED
from plumbline.report.chapters.rankings import CHAPTER as RANKINGS
from plumbline.report.chapters.ratings import CHAPTER as RATINGS
from plumbline.report.chapters.robustness import CHAPTER as ROBUSTNESS
from plumbline.report.chapters.text_space import CHAPTER as TEXT_SPACE
from plumbline.report.chapters.trident import CHAPTER as TRIDENT
from plumbline.report.chapters.utility import CHAPTER as UTILITY
from plumbline.report.chapters.words import CHAPTER as WORDS

CHAPTERS: tuple[Chapter, ...] = (
    OUTCOMES,
    TRIDENT,
    CAPTIONS,
    OPPORTUNITY,
    OWN_METRICS,
    EFFECTS,
    ROBUSTNESS,
    ASSOCIATIONS,
    RANKINGS,
    CONFOUNDS,
    UTILITY,
    TEXT_SPACE,
    MITIGATIONS,
    GENERATION,
    WORDS,
    RATINGS,
    INSTRUCTIONS,
    BASE_LLM,
    LABELS,
    PUBLISHED,
)
