"""The annotated_agreement family: how far scores and the judge say what people say of the same texts and words."""

from __future__ import annotations

from plumbline.language.annotated_agreement import annotation_rows
from plumbline.language.cell import LanguageCell
from plumbline.language.family import LanguageFamily, LanguageResult, LanguageTraits
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
        LanguageTraits(name="fleiss_kappa", unit="kappa", bounds=(-1, 1), when_identical=None),
        LanguageTraits(name="judge_precision", unit="share", bounds=(0, 1), when_identical=None),
        LanguageTraits(name="judge_recall", unit="share", bounds=(0, 1), when_identical=None),
    ),
    compute=compute_annotated_agreement,
)
