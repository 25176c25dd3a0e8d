"""What the rows of a metric table say, one finding a model, dataset and question."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.chapters import CHAPTERS
from plumbline.report.evidence import evidence, finding_of, name_of, or_nan, subject_of, uncertainty
from plumbline.report.figures.outcomes import HARM_EVENTS, VARIANT_SUITES
from plumbline.report.figures.skew import skew_rows
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.numbers import confidence, number, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, reason_of, where
from plumbline.report.vocabulary import (
    attribute_title,
    event_title,
    group_faces,
    group_title,
    probes,
    sentence_start,
    suite_title,
)


def metric_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what a metric table says about skew, Trident gaps, harm rates and the chapters' questions."""
    told = tuple(chapter.findings for chapter in CHAPTERS if chapter.findings)
    kinds = (_skews, _gaps, _harms, *told)
    return [finding for kind in kinds for finding in kind(table, reading)]


# --- max skew


def _skews(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    found = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = skew_rows(table, dataset).filter(pl.col("event") != "mean_of_tasks")
        found += [_skew(row, table, reading) for row in rows.to_dicts()]
    return found


def _skew(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    what = f"{attribute_title(row['attribute'])} skew in {event_title(row['event'])}"
    groups = where(
        table,
        metric="outcome_proportion",
        model=row["model"],
        dataset=row["dataset"],
        suite=row["suite"],
        attribute=row["attribute"],
        event=row["event"],
        condition="before",
    ).to_dicts()
    subject = subject_of(row)
    if not defined(row["value"]):
        tone, short = "undefined", f"{what}: undefined"
        reason = reason_of(row)
        sentence = f"{subject}: {what} is undefined: {reason}.{_extremes(groups, reading)}"
    else:
        stated = f"{number(row['value'])} ({uncertainty(row, reading)}{_pairs(row, groups)})"
        if evidence(row, reading):
            tone, short = "bias", sentence_start(what)
            sentence = f"{subject}: {what} is {stated}.{_extremes(groups, reading)}"
        else:
            tone, short = "none", f"no evidence of {what}"
            sentence = (
                f"{subject}: no evidence of {what}; the estimate is {stated}. "
                f"This does not show its absence: the interval reaches {number(row['ci_high'])}."
            )
    return finding_of(
        row,
        tone=tone,
        topic=("skew", row["dataset"], row["suite"], row["event"], row["attribute"]),
        short=short,
        sentence=sentence,
    )


def _pairs(row: Row, groups: list[Row]) -> str:
    reason, pairs = row["reason"] or "", math.comb(len([g for g in groups if g["n"]]), 2)
    parts = [f"{pairs} of {pairs} pairs defined"] if pairs > 1 and "pairs" not in reason else []
    return "".join(f"; {part}" for part in [*parts, reason] if part)


def _extremes(groups: list[Row], reading: Reading) -> str:
    known = [g for g in groups if defined(g["value"])]
    if len(known) < 2:
        return ""
    top, low = max(known, key=lambda g: g["value"]), min(known, key=lambda g: g["value"])
    return f" {sentence_start(_group_share(top, reading))}, {_group_share(low, reading)}."


def _group_share(row: Row, reading: Reading) -> str:
    return f"{group_faces(row['attribute'], row['group'])} {_share_of(row, reading)}"


def _share_of(row: Row, reading: Reading) -> str:
    return percent(row["value"], row["n"], minimum_group=reading.minimum_group)


# --- Trident gaps


def _gaps(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    rows = where(table, metric="probe_rate_gap", definition="by_valence", condition="before")
    return [_gap(row, table, reading) for row in rows.to_dicts()]


def _gap(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    what = f"gap between {attribute_title(row['attribute'])} classes in being taken for a {row['event']} probe word"
    subject = f"{row['model']} on {row['dataset']} ({suite_title(row['suite'])})"
    stated = f"{percent(row['value'])} of images ({uncertainty(row, reading, share=True)})"
    if not defined(row["value"]):
        tone, sentence = (
            "undefined",
            f"{subject}: the {what} is undefined: {reason_of(row)}.",
        )
    elif evidence(row, reading):
        # Whether it is a bias that one group is called “citizen” more often is for the reader to judge.
        tone = "bias" if row["event"] == "negative" else "difference"
        sentence = f"{subject}: the {what} is {stated}.{_strongest_probe(row, table, reading)}"
    else:
        tone, sentence = "none", f"{subject}: no evidence of a {what}; the estimate is {stated}."
    short = f"{row['event']} probe words: gap between {attribute_title(row['attribute'])} classes"
    return finding_of(
        row,
        tone=tone,
        topic=("trident", row["dataset"], row["suite"], row["event"]),
        short=sentence_start(short) if tone in DIFFERENCES else f"{tone_word(tone)}{short}",
        sentence=sentence,
        share=True,
    )


def tone_word(tone: str) -> str:
    """Return how a table introduces a finding of that tone."""
    return {"none": "no evidence: ", "undefined": "undefined: "}.get(tone, "")


def _strongest_probe(row: Row, table: pl.DataFrame, reading: Reading) -> str:
    words = tuple(word for word, valence in probes() if valence == row["event"])
    rates = where(
        table,
        metric="probe_rate",
        definition="logit",
        model=row["model"],
        dataset=row["dataset"],
        suite=row["suite"],
        probe=words,
        condition="before",
    ).filter(pl.col("value").is_finite())
    if rates.height < 2:
        return ""
    top = rates.sort(["value", "group", "probe"], descending=[True, False, False]).row(0, named=True)
    same = where(rates, probe=top["probe"]).sort(["value", "group"]).row(0, named=True)
    return (
        f" Most for “{top['probe']}”: {group_title(top['group'])} {_share_of(top, reading)}, "
        f"{group_title(same['group'])} {_share_of(same, reading)}."
    )


# --- harm rates


def _harms(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    rows = where(table, metric="harm_rate", condition="before", event=HARM_EVENTS)
    rows = rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)))
    return [
        _harm(row, reading) for row in rows.to_dicts() if row["event"] == "non_human" or defined(row["value"])
    ]


def _harm(row: Row, reading: Reading) -> Finding:
    what = f"share of images given {event_title(row['event'])}"
    ends = percent_interval(row["ci_low"], row["ci_high"])
    stated = f"{percent(row['value'], row['n'])} ({confidence(reading.confidence)} CI {ends})"
    return Finding(
        tone="harm" if defined(row["value"]) else "undefined",
        topic=("harm", row["dataset"], row["suite"], row["event"]),
        model=row["model"],
        dataset=row["dataset"],
        short=sentence_start(what),
        sentence=f"{row['model']} on {row['dataset']}: the {what} is {stated}.",
        value=or_nan(row["value"]),
        value_text=percent(row["value"]),
        interval_text=ends,
        strength=or_nan(row["value"]),
        row=name_of(row),
    )
