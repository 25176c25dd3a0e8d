"""Equal opportunity: whether the classes of a dataset are recognised equally often in every group."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.outcomes import opportunity
from plumbline.report.evidence import finding_of, titled, tone_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title

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
    return [_finding(row, reading) for row in rows.to_dicts()]


def _finding(row: Row, reading: Reading) -> Finding:
    tone, what = tone_of(row, reading), f"unequal recognition of classes by {attribute_title(row['attribute'])}"
    topic = ("opportunity", row["dataset"], row["attribute"])
    return finding_of(row, reading, tone=tone, topic=topic, short=titled(tone, what), share=True)


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
