"""The chapter on confounds: what pose, lighting and a smile do to what a model reads in a face, beside age."""

from __future__ import annotations

from itertools import product

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.confound_findings import confound_findings
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.confounds import ORDER, PROTECTED, change_figure, curves_figure, draw_curves
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, bare_estimate, estimate
from plumbline.report.numbers import bare_p, count
from plumbline.report.rows import by, in_order, where
from plumbline.report.vocabulary import attribute_title

PAPER_FIT = {"smiling": "level_means"}
"""Confound -> the fit of the paper's table B.1 (a line through the means per level); `ols` on rows for the others."""

_PARTS = {"all": "all levels", "below": "0 and below", "above": "0 and above"}
_EVENTS = (None, "positive", "negative")
_OF_PAPER = ("Slope, paper's fit", "Error, paper's fit", "p, paper's fit", "R², paper's fit")

NOT_COMPARED = (
    "The slopes published for CLIP ViT-B/32 (table B.1) are not set beside these: the unit of its lighting and the "
    "signs of its pose slopes do not fit its own text, and its smiling rows look like those of the half below 0."
)
LEAD = (
    "CausalFace shows the same synthetic person again and again with one thing changed: the pose, the lighting, the "
    "smile, or the age. The first three say nothing about who a person is, so what a model reads in the face should "
    "not follow them; where it does, a difference between groups of photographs may be one of pose or light. The "
    "outcome is the cosine of the face with a trait word, less its cosine with the same prompt without a word, "
    "averaged over four templates: above 0, the word fits better than none. A slope is the change of that outcome a "
    "level of the confound, 0 where the confound does not matter."
)
METHOD = (
    (
        "Slope along a confound",
        "Least squares of the outcome on the level, every image and every one of the 32 ABC words a row; for smiling "
        "the paper fits the means per level instead. Pose and smiling are also fitted below and above 0 separately, 0 "
        "on both sides. The paper's errors take the 32 words of an image, and all pictures of one person, for "
        "independent; the intervals shown here do not: they are cluster-robust over the seeds, with t of seeds − 1 "
        "degrees of freedom.",
    ),
    (
        "Absolute change of an attribute",
        "Two faces of one seed that differ in this attribute alone: any two levels of a confound or of age at equal "
        "race and gender, or two races, or the two genders, at one level. The absolute difference of the outcome is "
        "averaged over the words of a valence, and over all such pairs. Table B.2 is not reproduced as printed: it "
        "does not say how faces were paired, and its rows for pose and smiling against gender have the same t for "
        "both valences.",
    ),
)


def slope_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List every fitted line: its slope with errors over seeds, and with the errors of the paper."""
    rows = where(table, dataset=dataset, condition="before")
    slopes = where(rows, metric="confound_slope")
    fits = by(slopes, "model", "attribute", "group", "event", "definition", "statistic")
    squares = where(rows, metric="confound_r_squared")
    shares = by(squares, "model", "attribute", "group", "event", "definition")
    names, confounds = in_order(slopes["model"], models), in_order(slopes["attribute"], ORDER)
    listed = []
    for key in product(names, confounds, _PARTS, _EVENTS):
        if robust := fits.get((*key, "cluster", "estimate")):
            model, confound, part, event = key
            paper = PAPER_FIT.get(confound, "ols")
            classic = fits.get((*key, paper, "estimate"))
            listed.append(
                (
                    model,
                    attribute_title(confound),
                    _PARTS[part],
                    event or "all",
                    estimate(robust),
                    bare_p(robust["p"]),
                    bare_p(robust["q"]),
                    estimate(shares.get((*key, "cluster"))),
                    bare_estimate(classic),
                    bare_estimate(fits.get((*key, paper, "standard_error"))),
                    bare_p(classic["p"] if classic else None),
                    bare_estimate(shares.get((*key, paper))),
                    count(robust["n"]),
                    robust["reason"] or "",
                )
            )
    heads = (
        "Model",
        "Confound",
        "Levels",
        "Words",
        "Slope a level",
        "p",
        "q",
        "R²",
        *_OF_PAPER,
        "Images",
        "Note",
    )
    note = (
        "Slope, p, q and R²: errors over the seeds. Paper's fit: classical errors, on image × word rows; on the means "
        "per level for smiling."
    )
    return Listing(heads, listed, frozenset(range(4, 13)), note)


def comparison_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List every confound against every protected attribute, by valence."""
    rows = where(table, metric="confound_vs_protected", dataset=dataset, condition="before")
    found = by(rows, "model", "event", "attribute", "reference_group", "definition", "statistic")
    names, confounds = in_order(rows["model"], models), in_order(rows["attribute"], ORDER)
    listed = []
    for key in product(names, _EVENTS[1:], confounds, PROTECTED):
        if robust := found.get((*key, "cluster", "estimate")):
            model, event, confound, protected = key
            plain = found.get((*key, "ttest", "estimate"))
            listed.append(
                (
                    model,
                    str(event),
                    attribute_title(confound),
                    attribute_title(protected),
                    estimate(robust),
                    bare_p(robust["p"]),
                    bare_p(robust["q"]),
                    bare_estimate(found.get((*key, "ttest", "t"))),
                    bare_p(plain["p"] if plain else None),
                    count(robust["n"]),
                    robust["reason"] or "",
                )
            )
    heads = ("Model", "Words", "Confound", "Protected", "Difference of mean absolute changes", "p", "q")
    note = (
        "Above 0: changing the confound moves the outcome more than changing the protected attribute. The paper's t "
        "and p take pairs of faces for independent."
    )
    return Listing(
        (*heads, "t, paper's test", "p, paper's test", "Pairs", "Note"), listed, frozenset(range(4, 10)), note
    )


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    found = [_part(table, inputs, dataset.id) for dataset in inputs.datasets]
    return [part for part in found if part is not None]


def _part(table: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part | None:
    curves = where(table, metric="perception_by_level", dataset=dataset, condition="before")
    if curves.is_empty():
        return None
    models = in_order(curves["model"], inputs.models)
    pictures: list[Picture] = []
    details: list[Picture] = []
    for model in models:
        own = drawn(figure(table, model=model, dataset=dataset) for figure in (curves_figure, change_figure))
        (details if pictures else pictures).extend(own)
        raw = curves_figure(table, model=model, dataset=dataset, definition="raw")
        details += [raw] if raw else []
    notes = [f"Shown first: {models[0]}. The other models are folded below."] if len(models) > 1 else []
    few = {
        r for r in curves["reason"].drop_nulls() for r in r.split("; ") if r.startswith("interval from only")
    }
    notes += [f"Read the intervals with care: {reason}." for reason in sorted(few)]
    notes.append(NOT_COMPARED)
    return Part(
        title=dataset,
        pictures=pictures,
        details=details,
        listings=[
            ("Lines along the confounds in numbers", slope_listing(table, inputs.models, dataset)),
            ("Confounds against protected attributes", comparison_listing(table, inputs.models, dataset)),
        ],
        notes=notes,
    )


CHAPTER = Chapter(
    anchor="confounds",
    title="Confounds: pose, lighting, smiling, age",
    lead=LEAD,
    parts=_parts,
    findings=confound_findings,
    pictures={"confounds": draw_curves},
    method=METHOD,
)
