"""Social perception: with which traits a model associates whom, and whom it takes for granted."""

from __future__ import annotations

import polars as pl

from plumbline.report.association_findings import association_findings
from plumbline.report.association_listings import (
    correlation_listing,
    gap_listing,
    markedness_listing,
    scale_listing,
    weat_listing,
    word_listing,
)
from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.figures.associations import (
    association_figure,
    small_association_figure,
    strongest_first,
)
from plumbline.report.figures.markedness import markedness_figure
from plumbline.report.figures.valences import correlation_figure
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.numbers import number
from plumbline.report.reading import Reading
from plumbline.report.rows import defined, where

METRICS = (
    "sc_weat_effect", "sc_weat_statistic", "weat_effect", "markedness", "markedness_gap", "valence_correlation",
)  # fmt: skip


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    reading, models = inputs.audit, inputs.models
    associations = drawn(
        association_figure(own, reading, model=model, dataset=dataset)
        for model in strongest_first(own, models, dataset)
    )
    others = [figure(own, reading, models, dataset) for figure in (markedness_figure, correlation_figure)]
    return Part(
        title=dataset,
        pictures=[*associations[:1], *drawn(others)],
        details=associations[1:],
        listings=_listings(own, reading, models, dataset),
        notes=_notes(own, associations=len(associations)),
    )


def _listings(
    own: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> list[tuple[str, Listing]]:
    made = [
        ("Effect sizes by scale (SC-WEAT)", scale_listing(own, reading, models, dataset)),
        ("Closest and furthest words", word_listing(own, models, dataset)),
        ("Positive against negative words (WEAT)", weat_listing(own, reading, models, dataset)),
        ("Markedness by template", markedness_listing(own, models, dataset)),
        ("Gaps in markedness", gap_listing(own, models, dataset)),
        ("Correlation of positive and negative valence", correlation_listing(own, models, dataset)),
    ]
    return [(title, listing) for title, listing in made if listing.rows]


def _notes(own: pl.DataFrame, *, associations: int) -> list[str]:
    notes = []
    if associations > 1:
        notes.append("Of the associations, those of the model with the largest one are shown first.")
    values = where(own, metric="valence_correlation", attribute=None)["value"]
    known = sorted(value for value in values if defined(value))
    if known:
        span = number(known[0]) if len(known) == 1 else f"{number(known[0])} to {number(known[-1])}"
        notes.append(
            f"Over all images the positive and the negative words of a dimension correlate with r = {span}. Where r is "
            "near 1, a face that is close to the one is close to the other: read both poles of a dimension together."
        )
    return notes


CHAPTER = Chapter(
    anchor="associations",
    title="Social perception: associations",
    lead="Psychology describes how people see others by warmth and competence, or by agency, beliefs and communion. "
    "Does a model place the faces of one group closer to such words than those of another, and which groups does it "
    "take for granted, so that “a photo of a person” fits them better than a prompt that names them?",
    parts=_parts,
    findings=association_findings,
    pictures={
        "associations": small_association_figure,
        "markedness": markedness_figure,
        "valences": correlation_figure,
    },
    method=(
        (
            "SC-WEAT",
            "Mean cosine of one group's faces with a word minus that of another's, over the standard deviation of all "
            "of them; for a scale the mean over its words, each averaged over four templates. The test is the paper's: "
            "how many ways to split the same faces into groups of the same sizes give as large a mean difference, all "
            "of them where they are at most 200,000, else 10,000 or more at random. Its p is one-sided in the table's "
            "`paper` rows; stars, filled dots and findings go by the two-sided one. Intervals are linearised; where "
            "images come in sets, sets are the units, and stars, dots and findings go by the t test with these errors, "
            "since the images of a set are not exchangeable with those of another.",
        ),
        (
            "WEAT",
            "The same on the difference, image by image, between the mean cosine with the positive and with the "
            "negative words of a dimension.",
        ),
        (
            "Markedness",
            "Percentage of a group's faces that lie closer to the prompt without the group's name than to the prompt "
            "with it: 100 is unmarked. Wilson's interval; averaged over templates, or where images come in sets, "
            "with the number of independent answers that would vary as much. The gap is the largest minus the "
            "smallest percentage; p deals the answers out to the groups at random.",
        ),
        (
            "Correlation of the valences",
            "Pearson's correlation, over a group's faces, of the mean cosine with the positive and with the negative "
            "words of a dimension, with Fisher's interval.",
        ),
    ),
)
