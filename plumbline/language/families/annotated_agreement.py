"""The annotated_agreement family: how far scores and the judge say what people say of the same texts and words."""

from __future__ import annotations

from plumbline.language.annotated_agreement import annotation_rows
from plumbline.language.cell import LanguageCell
from plumbline.language.family import STUDY, LanguageFamily, LanguageResult, LanguageTraits
from plumbline.language.settings import LanguageSettings
from plumbline.tables.schema import metric_frame

_DESCRIPTION = """
Whether the instruments can be trusted. Where people have labelled a sample of texts and words (the sheets that
`plumbline sample-annotations` draws, named in the audit file), these numbers say how far the annotators agree with each
other, how far the toxicity score agrees with them, and what share of the words that the judge calls stereotypes the
majority of the annotators calls so too, and the other way round. Of each model are counted its own texts and the words
that it says itself, and the reason tells how many of the sheet these are. No rows where nothing was annotated.
"""


def compute_annotated_agreement(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return Fleiss' kappa, and precision and recall of the judge, of what is annotated of one model."""
    return LanguageResult(metric_frame(annotation_rows(cell, settings=settings)))


ANNOTATED_AGREEMENT = LanguageFamily(
    name="annotated_agreement",
    title="Agreement of people, scorers and the judge of stereotypes",
    description=_DESCRIPTION.strip(),
    code_version="1",
    needs="scores",
    traits=(
        LanguageTraits(
            name="fleiss_kappa",
            meaning="How far annotators agree with each other, and with a score as one annotator more.",
            formula="κ = (P - P_e) / (1 - P_e), P the share of agreeing pairs of annotators, P_e that by chance",
            source=f"{STUDY}, C.2; Fleiss (1971)",
            unit="kappa",
            bounds=(-1, 1),
            when_identical=None,
        ),
        LanguageTraits(
            name="judge_precision",
            meaning="How many of the words that the judge calls stereotypes the majority of people calls so too.",
            formula="|words that both name| / |words that the judge names|",
            source=f"{STUDY}, D.2",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
        ),
        LanguageTraits(
            name="judge_recall",
            meaning="How many of the words that the majority of people calls stereotypes the judge calls so too.",
            formula="|words that both name| / |words that the majority names|",
            source=f"{STUDY}, D.2",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
        ),
    ),
    compute=compute_annotated_agreement,
)
