"""What the rows of Max Skew say: a finding a model, dataset, event and attribute."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.disparity import Disparity, group_shares, told_by_another
from plumbline.report.evidence import evidence, finding_of, still_possible, subject_of, uncertainty
from plumbline.report.figures.skew import skew_rows
from plumbline.report.finding import Finding
from plumbline.report.numbers import number
from plumbline.report.reading import Reading
from plumbline.report.rows import defined, or_nan, reason_of
from plumbline.report.vocabulary import attribute_title, event_title, sentence_start


def skew_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what a metric table says of the skew of every event by every single attribute."""
    found = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = skew_rows(table, dataset).filter(pl.col("event") != "mean_of_tasks")
        found += [_skew(Disparity.of(row, table), reading) for row in rows.to_dicts()]
    return found


def _skew(found: Disparity, reading: Reading) -> Finding:
    row = found.skew
    what = f"{attribute_title(row['attribute'])} skew in {event_title(row['event'])}"
    topic = ("skew", row["dataset"], row["suite"], row["event"], row["attribute"])
    if instead := told_by_another(found, what, topic, reading):
        return instead
    subject, shares = subject_of(row), group_shares(found.groups, reading)
    stated = f"{number(row['value'])} ({uncertainty(row, reading)}{_pairs(found)})"
    if not defined(row["value"]):
        tone, short = "undefined", f"{what}: undefined"
        sentence = f"{subject}: {what} is undefined: {reason_of(row)}.{shares}"
    elif evidence(row, reading):
        tone, short = "bias", sentence_start(what)
        sentence = f"{subject}: {what} is {stated}.{found.bounded_by(reading)}{shares}"
    else:
        tone, short = "none", f"no evidence of {what}"
        sentence = f"{subject}: no evidence of {what}; the estimate is {stated}. {still_possible(row)}"
    return finding_of(row, tone=tone, topic=topic, short=short, sentence=sentence, strength=_strength(found))


def _strength(found: Disparity) -> float | None:
    """Return the lower end of the smoothed interval where the skew has none: a value alone is no sure one."""
    smoothed = found.smoothed
    if defined(found.skew["ci_low"]) or smoothed is None or not defined(smoothed["ci_low"]):
        return None
    return or_nan(smoothed["ci_low"])


def _pairs(found: Disparity) -> str:
    reason, pairs = found.skew["reason"] or "", math.comb(len([g for g in found.groups if g["n"]]), 2)
    parts = [f"{pairs} of {pairs} pairs defined"] if pairs > 1 and "pairs" not in reason else []
    return "".join(f"; {part}" for part in [*parts, reason] if part)
