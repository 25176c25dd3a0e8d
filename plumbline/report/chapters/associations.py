"""Social perception: with which traits a model associates whom, and whom it takes for granted."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.perception import (
    association_intervals,
    associations,
    markedness,
    scale_rows,
    scale_title,
    strongest_first,
    valence_correlations,
)
from plumbline.report.evidence import evidence, finding_of, tone_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, or_nan, where
from plumbline.report.vocabulary import attribute_title, sentence_start

METRICS = ("sc_weat_effect", "weat_effect", "markedness", "markedness_gap", "valence_correlation")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    arguments = (own, inputs.audit, inputs.models, dataset)
    strongest = strongest_first(own, inputs.models, dataset)[:1]
    charts = [
        associations(*arguments),
        *(association_intervals(*arguments, model=model) for model in strongest),
        markedness(*arguments),
        valence_correlations(*arguments),
    ]
    return Part.of(dataset, charts)


def association_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the strongest association of every model, dataset and attribute, and the gap in markedness."""
    findings: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = scale_rows(table, dataset)
        for key in rows.select("model", "attribute").unique().sort("model", "attribute").iter_rows():
            findings += _strongest(where(rows, model=key[0], attribute=key[1]).to_dicts(), reading)
        gaps = where(table, metric="markedness_gap", dataset=dataset, condition="before")
        findings += [_gap(row, reading) for row in gaps.to_dicts() if defined(row["value"])]
    return findings


def _strongest(rows: list[Row], reading: Reading) -> list[Finding]:
    """Return the largest effect of those for which there is evidence, else of all."""
    known = [row for row in rows if defined(row["value"])]
    if not known:
        return []
    evident = [row for row in known if evidence(row, reading)]
    row = max(evident or known, key=lambda r: (abs(r["value"]), r["event"], r["group"]))
    attribute = attribute_title(row["attribute"])
    if evident:
        # Closer to negative words is a harm to whichever group it is; closer to warm or liberal ones is for the reader.
        tone = "bias" if row["event"].endswith("negative") else "difference"
        short = f"{sentence_start(attribute)}: associated unequally with {scale_title(row['event'], row['suite'])}"
    else:
        tone, short = "none", f"no evidence of associations by {attribute}"
    size = _upright(row)
    finding = finding_of(size, reading, tone=tone, topic=("association", row["dataset"], row["attribute"]), short=short)
    return [replace(finding, value=size["value"], value_text=f"{number(size['value'])} sd", strength=_least(row))]


def _upright(row: Row) -> Row:
    """Turn an effect and its interval to the side that a sentence names: 0.9 further is 0.9, not -0.9."""
    if row["value"] >= 0:
        return row
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    return row | {"value": -row["value"], "ci_low": -high, "ci_high": -low}


def _least(row: Row) -> float:
    """Return the end of the interval that lies nearer to no association."""
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    ends = [abs(end) for end in (low, high) if defined(end)]
    return (min(ends) if low * high > 0 else 0.0) if len(ends) == 2 else abs(row["value"])


def _gap(row: Row, reading: Reading) -> Finding:
    attribute, tone = attribute_title(row["attribute"]), tone_of(row, reading, "difference")
    short = f"no evidence of a gap in markedness by {attribute}"
    if tone == "difference":
        short = f"markedness differs by {attribute}: some groups have to be named"
    finding = finding_of(row, reading, tone=tone, topic=("markedness", row["dataset"], row["attribute"]), short=short)
    return replace(finding, value_text=f"{number(row['value'])} points", strength=finding.strength / 100)


CHAPTER = Chapter(
    anchor="associations",
    title="Social perception: associations",
    lead="Does a model place the faces of one group closer to words of warmth, competence, agency, belief or communion "
    "than those of another? And whom does it take for granted, so that “a photo of a person” fits better than a "
    "prompt that names the group?",
    parts=_parts,
    findings=association_findings,
    pictures={"associations": associations, "markedness": markedness, "valences": valence_correlations},
    method=(
        (
            "SC-WEAT",
            "Mean cosine of one group's faces with a word minus that of another's, over the standard deviation of all "
            "of them, a word's cosines averaged over four templates; for a scale the mean of its words' effects. The "
            "test asks how many ways to split the same faces into groups of the same sizes give as large a mean "
            "difference over its standard error, so that groups of unequal spread do no harm: all ways where they are "
            "at most 200,000, else 10,000 or more at random. Its p is one-sided in the table's `studentised` rows, and "
            "that of the difference itself, the paper's test, is in its `raw_means` rows; marks and findings go "
            "by the two-sided one. Intervals are linearised; where images come in sets, sets are the units, and "
            "stars, dots and findings go by the t test with these errors, since the images of a set are not "
            "exchangeable with those of another.",
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
