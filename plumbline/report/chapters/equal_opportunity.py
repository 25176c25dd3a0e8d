"""Equal opportunity: whether the classes of a dataset are recognised equally often in every group."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.outcomes import opportunity
from plumbline.report.evidence import evidence, finding_of, subject_of, uncertainty
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

GAP = "equal_opportunity_gap"
ATTRIBUTES = ("gender", "race", "age_group", "physical")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=GAP, condition="before")
    parts = []
    for dataset in inputs.datasets_in(used["dataset"]):
        of_dataset = where(table, dataset=dataset, condition="before")
        attributes = in_order(where(of_dataset, metric=GAP)["attribute"], ATTRIBUTES)
        charts = [opportunity(of_dataset, inputs.audit, inputs.models, dataset, attribute=a) for a in attributes]
        parts.append(Part.of(dataset, charts))
    return parts


def opportunity_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return for each model, dataset and attribute whether classes are recognised equally often."""
    rows = where(table, metric=GAP, definition="mean_over_classes", condition="before")
    return [_finding(row, table, reading) for row in rows.to_dicts()]


def _finding(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    attribute = attribute_title(row["attribute"])
    what = f"gap between groups of {attribute} in how often their class is recognised"
    subject = subject_of(row)
    stated = f"{percent(row['value'])} of images, mean over classes ({uncertainty(row, reading, share=True)})"
    if not defined(row["value"]):
        tone, sentence = "undefined", f"{subject}: the {what} is undefined: {row['reason'] or 'no reason'}."
    elif evidence(row, reading):
        tone, sentence = "bias", f"{subject}: the {what} is {stated}.{_widest(row, table)}"
    else:
        tone, sentence = "none", f"{subject}: no evidence of a {what}; the estimate is {stated}."
    return finding_of(
        row,
        tone=tone,
        topic=("opportunity", row["dataset"], row["attribute"]),
        short=f"Unequal recognition of classes by {attribute}"
        if tone == "bias"
        else f"{'no evidence' if tone == 'none' else 'undefined'}: unequal recognition of classes by {attribute}",
        sentence=sentence,
        share=True,
    )


def _widest(row: Row, table: pl.DataFrame) -> str:
    of_cell = {name: row[name] for name in ("model", "dataset", "attribute", "condition")}
    gaps = where(table, metric=GAP, definition="by_class", **of_cell).to_dicts()
    gaps = [gap for gap in gaps if defined(gap["value"])]
    if not gaps:
        return ""
    widest = max(gaps, key=lambda gap: gap["value"])
    rates = where(table, metric="true_positive_rate", event=widest["event"], **of_cell).to_dicts()
    known = sorted((r for r in rates if defined(r["value"])), key=lambda r: -r["value"])
    ends = ", ".join(f"{group_title(r['group'])} {percent(r['value'], r['n'])}" for r in (known[0], known[-1]))
    return f" Most for {group_title(widest['event'])}: {ends}."


CHAPTER = Chapter(
    anchor="opportunity",
    title="Who is recognised: equal opportunity",
    lead="Where a dataset has true labels of its classes and of another attribute: is a class recognised as often in "
    "one group as in the other, when only the classes can be answered?",
    parts=_parts,
    findings=opportunity_findings,
    pictures={"opportunity": opportunity},
    method=(
        (
            "Equal opportunity",
            "Top-1 by logit among the classes alone. The gap of a class is the largest minus the smallest share of a "
            "group's images that are recognised; the mean is over classes seen in two groups. p shuffles group labels "
            "within classes (and within sets, where images come in sets).",
        ),
    ),
)
