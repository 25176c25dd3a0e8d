"""Metrics of one's own: each group's value, and how far apart the groups lie."""

from __future__ import annotations

import polars as pl

from plumbline.metrics.own import GAP, VALUE
from plumbline.report.chapter import Chapter, Part
from plumbline.report.evidence import finding_of, titled, tone_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import LONGEST_LISTING, Listing, estimate
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, where
from plumbline.report.vocabulary import attribute_title, event_title, group_title, suite_title

_HEADS = ("metric", "suite", "event", "attribute", "group", "model", "value", "n")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=(VALUE, GAP), condition="before")
    return [_part(where(used, dataset=dataset), dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(rows: pl.DataFrame, dataset: str) -> Part:
    ordered = rows.sort("definition", "suite", "event", "attribute", "model", "metric", "group", descending=False)
    shown = [_listed(row) for row in ordered.head(LONGEST_LISTING).to_dicts()]
    note = "" if rows.height <= LONGEST_LISTING else f"The first {LONGEST_LISTING} of {rows.height} rows."
    return Part(dataset, tables=[("Values by group, and their gap", Listing(_HEADS, shown, frozenset({6, 7}), note))])


def _listed(row: Row) -> tuple[str, ...]:
    group = "largest less smallest" if row["metric"] == GAP else group_title(row["group"])
    about = (suite_title(row["suite"]), event_title(row["event"]), attribute_title(row["attribute"]))
    return (row["definition"], *about, group, row["model"], estimate(row), str(row["n"]))


def gap_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return for each metric, event and attribute whether the groups lie apart; nothing of gaps that nothing tested."""
    gaps = where(table, metric=GAP, condition="before").to_dicts()
    return [_gap(row, reading) for row in gaps if not defined(row["value"]) or defined(row["p"])]


def _gap(row: Row, reading: Reading) -> Finding:
    of = f"{row['definition']} of {event_title(row['event'], row['suite'])} by {attribute_title(row['attribute'])}"
    tone = tone_of(row, reading)
    topic = ("own", row["dataset"], row["suite"], row["event"], row["attribute"], row["definition"])
    return finding_of(row, reading, tone=tone, topic=topic, short=titled(tone, f"a gap in {of}"))


CHAPTER = Chapter(
    anchor="own-metrics",
    title="Metrics of your own",
    lead="What functions of the audit file say of each group, and how far apart the groups lie. What such a number "
    "means, and whether more is worse, its author knows.",
    parts=_parts,
    findings=gap_findings,
    method=(
        (
            "Metrics of your own",
            "A function gives one value a group. Its interval is that of the percentiles of resamples of the images "
            "within the groups; where images come in sets, of whole sets. The gap, largest less smallest value, has "
            "the interval and the permutation test of every disparity.",
        ),
    ),
)
