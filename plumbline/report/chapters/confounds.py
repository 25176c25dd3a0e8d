"""Confounds: what pose, lighting and a smile do to what a model reads in a face, beside age."""

from __future__ import annotations

import polars as pl

from plumbline.reasons import find
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.confounds import PROTECTED, SPLIT, changes, curves, slope_rows, slopes
from plumbline.report.charts.estimates import MOST_MODELS
from plumbline.report.evidence import evidence, finding_of, remark, uncertainty
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, or_nan, reason_of, significance_level, where
from plumbline.report.vocabulary import attribute_title, sentence_start

NOT_COMPARED = (
    "The slopes published for CLIP ViT-B/32 (table B.1) are not set beside these: the unit of its lighting and the "
    "signs of its pose slopes do not fit its own text, and its smiling rows look like those of the half below 0."
)
_HALVES = {"below": " below 0", "above": " above 0", "all": ""}


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric="perception_by_level", condition="before")
    return [_part(where(table, dataset=dataset), inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    arguments = (own, inputs.audit, inputs.models, dataset)
    levels = where(own, metric="perception_by_level", condition="before")
    models = in_order(levels["model"], inputs.models)
    codes = levels["reason_codes"].drop_nulls().unique()
    few = {str(reason) for each in codes if (reason := find(each, "few_clusters"))}
    return Part.of(
        dataset,
        [slopes(*arguments), changes(*arguments), *(curves(*arguments, model=model) for model in models[:MOST_MODELS])],
        notes=[f"Read the intervals with care: {reason}." for reason in sorted(few)],
    )


def confound_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return one finding a model, dataset and confound, and one on confounds against protected attributes."""
    common = {"definition": "cluster", "statistic": "estimate", "condition": "before"}
    findings = []
    by_confound = slope_rows(table).group_by("model", "dataset", "attribute", maintain_order=True)
    for (model, dataset, confound), lines in by_confound:
        findings.append(_slope(str(model), str(dataset), str(confound), lines.to_dicts(), reading))
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
    line = f"{strongest['event']} words along {what}{_HALVES[strongest['group']]}"
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


METHOD = (
    (
        "Slope along a confound",
        "Least squares of the outcome on the level, every image and every one of the 32 ABC words a row; for smiling "
        "the paper fits the means per level instead. Pose and smiling are also fitted below and above 0 separately, 0 "
        "on both sides. The paper's errors take the 32 words of an image, and all pictures of one person, for "
        "independent; the intervals shown here do not: they are cluster-robust over the seeds, with t of seeds − 1 "
        f"degrees of freedom. {NOT_COMPARED}",
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

CHAPTER = Chapter(
    anchor="confounds",
    title="Confounds: pose, lighting, smiling, age",
    lead="CausalFace shows the same synthetic person again and again with one thing changed: pose, lighting, smile, or "
    "age. The first three say nothing about who a person is; where a model's reading of the face follows them, a "
    "difference between groups of photographs may be one of pose or light.",
    parts=_parts,
    findings=confound_findings,
    pictures={"confounds": curves},
    method=METHOD,
)
