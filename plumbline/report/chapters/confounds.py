"""What the confound rows say: whether a confound moves what a model reads in a face, and more than who is shown."""

from __future__ import annotations

from itertools import product

import polars as pl

from plumbline.reasons import find
from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.evidence import evidence, finding_of, remark, uncertainty
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.confounds import ORDER, PROTECTED, change_figure, curves_figure, draw_curves
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, bare_estimate, estimate
from plumbline.report.numbers import bare_p, count, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, reason_of, significance_level, where
from plumbline.report.vocabulary import attribute_title, sentence_start

SPLIT = ("pose", "smiling")
_PARTS = {"below": " below 0", "above": " above 0", "all": ""}


def confound_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return one finding a model, dataset and confound, and one on confounds against protected attributes."""
    common = {"definition": "cluster", "statistic": "estimate", "condition": "before"}
    slopes = where(table, metric="confound_slope", **common).filter(pl.col("event").is_not_null())
    findings = []
    for (model, dataset, confound), subset in slopes.group_by("model", "dataset", "attribute", maintain_order=True):
        lines = where(subset, group=("below", "above") if confound in SPLIT else ("all",)).to_dicts()
        if lines:
            findings.append(_slope(str(model), str(dataset), str(confound), lines, reading))
    against = where(table, metric="confound_vs_protected", **common)
    for (model, dataset), subset in against.group_by("model", "dataset", maintain_order=True):
        findings.append(_comparison(str(model), str(dataset), subset.to_dicts(), table, reading))
    return findings


def _slope(model: str, dataset: str, confound: str, lines: list[Row], reading: Reading) -> Finding:
    known = [row for row in lines if defined(row["value"]) and significance_level(row) is not None]
    what, subject = attribute_title(confound), f"{model} on {dataset}"
    topic = ("confound", dataset, confound)
    if not known:
        reason = reason_of(*lines)
        sentence = f"{subject}: whether {what} moves what the model reads in a face cannot be said: {reason}."
        return _finding(lines[0], "undefined", topic, f"undefined: slope along {what}", sentence)
    strongest = min(known, key=lambda row: (significance_level(row), -abs(row["value"])))
    sure = sum(evidence(row, reading) for row in known)
    line = f"{strongest['event']} words along {what}{_PARTS[strongest['group']]}"
    stated = f"{number(strongest['value'])} a level ({uncertainty(strongest, reading)}{remark(strongest)})"
    if sure:
        tone = "bias" if confound in PROTECTED else "difference"
        sentence = (
            f"{subject}: {what} alone, with nothing else about the face changed, moves what the model reads in it. "
            f"Most surely {line}: {stated}. Evidence in {sure} of {len(known)} lines, by valence"
            f"{' and direction' if confound in SPLIT else ''}."
        )
        return _finding(strongest, tone, topic, f"slope of {line}", sentence)
    sentence = (
        f"{subject}: no evidence that {what} moves what the model reads in a face; the least uncertain of "
        f"{len(known)} lines is {line}: {stated}."
    )
    return _finding(strongest, "none", topic, f"no evidence: slope along {what}", sentence)


def _comparison(model: str, dataset: str, rows: list[Row], table: pl.DataFrame, reading: Reading) -> Finding:
    known = [row for row in rows if defined(row["value"]) and significance_level(row) is not None]
    subject, topic = f"{model} on {dataset}", ("confound size", dataset)
    if not known:
        reason = reason_of(*rows)
        sentence = f"{subject}: confounds cannot be compared with protected attributes: {reason}."
        short = "undefined: confounds against protected attributes"
        return _finding(rows[0], "undefined", topic, short, sentence)
    more = [row for row in known if row["value"] > 0 and evidence(row, reading)]
    less = [row for row in known if row["value"] < 0 and evidence(row, reading)]
    largest = max(more or known, key=lambda row: row["value"])
    count = (
        f"Over {len(known)} comparisons, by valence: the confound moves it more in {len(more)}, less in {len(less)}, "
        f"and in {len(known) - len(more) - len(less)} neither can be said."
    )
    first, second = (attribute_title(largest[name]) for name in ("attribute", "reference_group"))
    sizes = {row["attribute"]: row for row in _sizes(table, largest)}
    listing = ", ".join(
        f"{attribute_title(name)} {number(sizes[name]['value'])}"
        for name in (largest["attribute"], largest["reference_group"])
        if name in sizes
    )
    stated = f"{number(largest['value'])} ({uncertainty(largest, reading)}{remark(largest)})"
    words = f"{largest['event']} words"
    if more:
        sentence = (
            f"{subject}: changing {first} moves what the model reads in a face ({words}) more than changing {second} "
            f"does: mean absolute changes {listing}, difference {stated}. {count}"
        )
        return _finding(largest, "difference", topic, f"{first} moves {words} more than {second}", sentence)
    sentence = (
        f"{subject}: no evidence that a confound moves what the model reads in a face more than a protected attribute; "
        f"the largest difference is that of {first} and {second} ({words}): {stated}. {count}"
    )
    short = "no evidence: a confound moves more than a protected attribute"
    return _finding(largest, "none", topic, short, sentence)


def _sizes(table: pl.DataFrame, row: Row) -> list[Row]:
    key = {name: row[name] for name in ("model", "dataset", "suite", "event", "definition", "condition")}
    return where(table, metric="attribute_change", **key).to_dicts()


def _finding(row: Row, tone: str, topic: tuple[str, ...], short: str, sentence: str) -> Finding:
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    return finding_of(
        row,
        tone=tone,
        topic=topic,
        short=sentence_start(short) if tone in DIFFERENCES else short,
        sentence=sentence,
        # The end of the interval that is nearest to no effect.
        strength=min(abs(low), abs(high)) if low * high > 0 else 0.0,
    )


# --- The chapter on confounds: what pose, lighting and a smile do to what a model reads in a face, beside
# age.

PAPER_FIT = {"smiling": "level_means"}
"""Confound -> the fit of the paper's table B.1 (a line through the means per level); `ols` on rows for the others."""

_CHAPTER_PARTS = {"all": "all levels", "below": "0 and below", "above": "0 and above"}
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
    for key in product(names, confounds, _CHAPTER_PARTS, _EVENTS):
        if robust := fits.get((*key, "cluster", "estimate")):
            model, confound, part, event = key
            paper = PAPER_FIT.get(confound, "ols")
            classic = fits.get((*key, paper, "estimate"))
            listed.append(
                (
                    model,
                    attribute_title(confound),
                    _CHAPTER_PARTS[part],
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
    heads = ("Model", "Confound", "Levels", "Words", "Slope a level", "p", "q", "R²", *_OF_PAPER, "Images", "Note")
    note = (
        "Slope, p, q and R²: errors over the seeds. Paper's fit: classical errors, on image × word rows; on the means "
        "per level for smiling."
    )
    return Listing(heads, listed, frozenset(range(4, 13)), note)


def comparison_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List every confound against every protected attribute, by valence."""
    rows = where(table, metric="confound_vs_protected", dataset=dataset, condition="before")
    lookup = by(rows, "model", "event", "attribute", "reference_group", "definition", "statistic")
    names, confounds = in_order(rows["model"], models), in_order(rows["attribute"], ORDER)
    listed = []
    for key in product(names, _EVENTS[1:], confounds, PROTECTED):
        if robust := lookup.get((*key, "cluster", "estimate")):
            model, event, confound, protected = key
            plain = lookup.get((*key, "ttest", "estimate"))
            listed.append(
                (
                    model,
                    str(event),
                    attribute_title(confound),
                    attribute_title(protected),
                    estimate(robust),
                    bare_p(robust["p"]),
                    bare_p(robust["q"]),
                    bare_estimate(lookup.get((*key, "ttest", "t"))),
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
    parts = [_part(table, inputs, dataset.id) for dataset in inputs.datasets]
    return [part for part in parts if part is not None]


def _part(table: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part | None:
    curves = where(table, metric="perception_by_level", dataset=dataset, condition="before")
    if curves.is_empty():
        return None
    models = in_order(curves["model"], inputs.models)
    pictures: list[Picture] = []
    details: list[Picture] = []
    for model in models:
        figures = drawn(figure(table, model=model, dataset=dataset) for figure in (curves_figure, change_figure))
        (details if pictures else pictures).extend(figures)
        raw = curves_figure(table, model=model, dataset=dataset, definition="raw")
        details += [raw] if raw else []
    notes = [f"Shown first: {models[0]}. The other models are folded below."] if len(models) > 1 else []
    codes = curves["reason_codes"].drop_nulls().unique()
    few = {str(reason) for each in codes if (reason := find(each, "few_clusters"))}
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
