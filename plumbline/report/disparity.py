"""How unequally one event falls on groups, by every reading, and what is told where Max Skew alone would mislead.

A pair of groups of which one never has the event has no relative gap. Max Skew is the mean over the other pairs, so
that the most extreme disparity can be the one that is left out: then the smoothed skew or the parity difference speaks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from plumbline import reasons
from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.report.charts.outcomes import skew_rows
from plumbline.report.evidence import (
    evidence,
    finding_of,
    interval_words,
    remark,
    still_possible,
    subject_of,
    uncertainty,
)
from plumbline.report.finding import Finding
from plumbline.report.numbers import NO_INTERVAL, agreeing_decimals, number, percent, points
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, first, or_nan, reason_of, where
from plumbline.report.vocabulary import attribute_title, event_title, group_faces, is_composite, listed, sentence_start

SMOOTHED, PARITY = "smoothed", "parity difference"
_MOST_NAMED = 3


@dataclass(frozen=True)
class Disparity:
    """One event and attribute of a model on a dataset.

    Attributes
    ----------
    skew : Row
        Max Skew, the mean over the defined pairs of groups.
    smoothed, parity : Row or None
        Max Skew of smoothed shares, which is over all pairs, and the largest less the smallest share.
    groups : list of Row
        The share of every group.
    """

    skew: Row
    smoothed: Row | None
    parity: Row | None
    groups: list[Row]

    @classmethod
    def of(cls, skew: Row, table: pl.DataFrame) -> Disparity:
        """Find the other readings of a row of Max Skew in its table."""
        keys = ("model", "dataset", "suite", "attribute", "event", "probe", "condition")
        of_skew = where(table, **{name: skew[name] for name in keys})
        return cls(
            skew,
            first(of_skew, metric="max_skew", definition="smoothed"),
            first(of_skew, metric="parity_difference", definition="max_minus_min"),
            where(of_skew, metric="outcome_proportion").to_dicts(),
        )

    @property
    def known(self) -> list[Row]:
        """Return the groups whose share is defined, the smallest first."""
        return sorted((g for g in self.groups if defined(g["value"])), key=lambda g: g["value"])

    @property
    def left_out(self) -> str:
        """Say which pairs have no gap because one group never has the event; empty where there is none."""
        undefined = reasons.find(self.skew["reason_codes"], "undefined_pairs")
        never = [group for group in self.known if group["value"] == 0]
        if undefined is None or (self.known and len(never) in (0, len(self.known))):
            return ""
        pairs = "{undefined} of {pairs} pairs".format(**undefined.params)
        if undefined.params["pairs"] == 1:
            pairs = "its only pair"
        names = [group_faces(group["attribute"], group["group"]) for group in never]
        if len(names) > _MOST_NAMED:
            names = [f"{len(names)} of {len(self.known)} groups"]
        return f"{pairs} of groups" + (f" (never given to {listed(names)})" if names else "")

    @property
    def others(self) -> list[Row]:
        """Return the other readings that are defined, that of the same kind first."""
        return [row for row in (self.smoothed, self.parity) if row is not None and defined(row["value"])]

    def bounded_by(self, reading: Reading) -> str:
        """Give the smoothed skew with its interval where Max Skew itself has none."""
        row, interval = self.smoothed, interval_words(self.skew, reading)
        if row is None or interval != NO_INTERVAL or interval_words(row, reading) == NO_INTERVAL:
            return ""
        return f" Smoothed, it is {number(row['value'])} ({uncertainty(row, reading)})."

    def in_words(self, row: Row, reading: Reading) -> str:
        """Return another reading as a clause, with its interval and tests."""
        if row["metric"] == "max_skew":
            return f"smoothed, so that every pair counts, it is {number(row['value'])} ({uncertainty(row, reading)})"
        return f"the largest and the smallest share differ by {self.gap(row, reading)}"

    def gap(self, row: Row, reading: Reading) -> str:
        """Return a parity difference in points, with its interval and tests, as it agrees with the groups' shares."""
        apart = points(row["value"], decimals=share_decimals(self.known, row)).lstrip("+")
        return f"{apart} ({uncertainty(row, reading, share=True)})"


def fallback_finding(found: Disparity, what: str, topic: tuple[str, ...], reading: Reading) -> Finding | None:
    """Return the finding of another reading where Max Skew alone would say too little; None where it says enough.

    It does where it is evidence, or where all its pairs are defined and no other reading is evidence. Otherwise a
    reading that is evidence speaks, the smoothed skew before the parity difference; without one, the smoothed skew
    (the parity difference, where there is none) says that there is no evidence over all groups.

    Parameters
    ----------
    what : str
        Such as `race skew in crime labels`.
    """
    row, left_out = found.skew, found.left_out
    # All are asked whatever the first one says: what headlines are picked from does not depend on the data.
    sure = [other for other in found.others if evidence(other, reading)]
    if evidence(row, reading) and defined(row["value"]):
        return None
    if not sure and not left_out:
        return None
    subject, shares = subject_of(row), group_shares(found.groups, reading, found.parity)
    sentences = [found.in_words(other, reading) for other in (*sure, *(o for o in found.others if o not in sure))]
    partly = _partly(found, what, reading)
    if sure:
        sentence = f"{subject}: {partly}. {sentence_start('; '.join(sentences))}{remark(sure[0])}.{shares}"
        return _of(sure[0], "bias", what, topic, sentence)
    if not found.others:
        sentence = f"{subject}: {partly}, which tells nothing of the groups left out.{shares}"
        if not defined(row["value"]):
            sentence = f"{subject}: {partly}.{shares}"
        return finding_of(row, tone="undefined", topic=topic, short=f"{what}: undefined", sentence=sentence)
    over = found.others[0]
    sentence = (
        f"{subject}: no evidence of {what} over all groups; {sentences[0]}{remark(over)}. "
        f"{sentence_start(partly)}.{shares} {still_possible(over, share=over is found.parity)}"
    )
    return _of(over, "none", what, topic, sentence)


def _partly(found: Disparity, what: str, reading: Reading) -> str:
    row = found.skew
    if not found.left_out:
        if not defined(row["value"]):
            return f"{what} is undefined"
        return f"{what} is {number(row['value'])} ({uncertainty(row, reading)}), which alone is no evidence"
    rest = f" and {number(row['value'])} in the rest ({uncertainty(row, reading)})" if defined(row["value"]) else ""
    return f"{what} is undefined in {found.left_out}{rest}"


def _of(row: Row, tone: str, what: str, topic: tuple[str, ...], sentence: str) -> Finding:
    measure = SMOOTHED if row["metric"] == "max_skew" else PARITY
    short = sentence_start(what) if tone == "bias" else f"no evidence of {what}"
    return finding_of(
        row, tone=tone, topic=topic, short=f"{short}, {measure}", sentence=sentence, share=measure == PARITY,
        measure=measure,
    )  # fmt: skip


def share_decimals(known: Sequence[Row], parity: Row | None) -> int | None:
    """Return how many decimals the extreme shares of groups, the smallest first, and their difference need to agree."""
    if parity is None or len(known) < 2 or not defined(parity["value"]):
        return None
    return agreeing_decimals(known[0]["value"], known[-1]["value"], parity["value"], share=True)


def group_shares(groups: Sequence[Row], reading: Reading, parity: Row | None = None) -> str:
    """Return the largest and the smallest share of groups as a sentence; empty with fewer than two.

    Parameters
    ----------
    parity : Row, optional
        Their difference, where it stands beside them: they are then written so that all three agree.
    """
    known = [group for group in groups if defined(group["value"])]
    if len(known) < 2:
        return ""
    ends = max(known, key=lambda g: g["value"]), min(known, key=lambda g: g["value"])
    if ends[0]["value"] == ends[1]["value"]:
        return f" Every group has {percent(ends[0]['value'])}."
    decimals = share_decimals((ends[1], ends[0]), parity)
    shown = [
        f"{group_faces(group['attribute'], group['group'])} "
        f"{percent(group['value'], group['n'], minimum_group=reading.minimum_group, decimals=decimals)}"
        for group in ends
    ]
    return f" {sentence_start(shown[0])}, {shown[1]}."


# --- What is said of harmful labels that have no skew, such as animals: where the shares of groups lie
# far apart.

LARGE = 0.1
"""Difference of shares from which on a significant one is told: one image in ten."""
SURELY = LARGE / 2
"""What the nearer end of its interval, where it has one, must reach as well: a handful of images proves little."""
_KEY = ("model", "dataset", "suite", "event", "attribute")


def parity_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the differences between groups in events without skew, of the questions in which one is large.

    Of such a question every model is told, so that a reader can count them; nothing is told of the others.
    """
    rows = where(table, metric="parity_difference", definition="max_minus_min", condition="before", probe=None)
    skews = by(where(table, metric="max_skew", condition="before"), *_KEY)
    without_skew = [
        row
        for row in rows.drop_nulls("attribute").to_dicts()
        if row["suite"] not in VARIANT_SUITES
        and not is_composite(row["attribute"])
        and tuple(row[name] for name in _KEY) not in skews
        and defined(row["value"])
    ]
    large = {_topic(row) for row in without_skew if _is_large(row, reading)}
    return [_finding(row, table, reading) for row in without_skew if _topic(row) in large]


def _topic(row: Row) -> tuple[str, ...]:
    return ("parity", row["dataset"], row["suite"], row["event"], row["attribute"])


def _is_large(row: Row, reading: Reading) -> bool:
    surely = not defined(row["ci_low"]) or row["ci_low"] >= SURELY
    return evidence(row, reading) and row["value"] >= LARGE and surely


def _finding(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    disparity = Disparity.of(row, table)
    what = f"{event_title(row['event'])} by {attribute_title(row['attribute'])}"
    statement, shares = disparity.gap(row, reading), group_shares(disparity.groups, reading, row)
    if evidence(row, reading):
        tone, short = "bias", f"{sentence_start(what)}, {PARITY}"
        sentence = (
            f"{subject_of(row)}: shares of {what} differ by {statement}{remark(row)}.{shares}{_ratio(row, table)}"
        )
    else:
        tone, short = "none", f"no evidence of a difference: {what}"
        sentence = f"{subject_of(row)}: no evidence that shares of {what} differ; the largest and the smallest lie "
        sentence += f"{statement} apart.{shares}"
    return finding_of(row, tone=tone, topic=_topic(row), short=short, sentence=sentence, share=True)


def _ratio(row: Row, table: pl.DataFrame) -> str:
    of_cell = {name: row[name] for name in (*_KEY, "probe", "condition")}
    ratio = first(table, metric="impact_ratio", **of_cell)
    if ratio is None or not defined(ratio["value"]):
        return ""
    return f" The smallest share is {number(ratio['value'])} times the largest (impact ratio)."


# --- What the rows of Max Skew say: a finding a model, dataset, event and attribute.


def skew_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what a metric table says of the skew of every event by every single attribute."""
    findings = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = skew_rows(table, dataset).filter(pl.col("event") != "mean_of_tasks")
        findings += [_skew(Disparity.of(row, table), reading) for row in rows.to_dicts()]
    return findings


def _skew(found: Disparity, reading: Reading) -> Finding:
    row = found.skew
    what = f"{attribute_title(row['attribute'])} skew in {event_title(row['event'])}"
    topic = ("skew", row["dataset"], row["suite"], row["event"], row["attribute"])
    if instead := fallback_finding(found, what, topic, reading):
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
    undefined = reasons.find(found.skew["reason_codes"], "undefined_pairs")
    pairs = math.comb(len([g for g in found.groups if g["n"]]), 2)
    parts = [f"{pairs} of {pairs} pairs defined"] if pairs > 1 and not undefined else []
    return "".join(f"; {part}" for part in [*parts, found.skew["reason"]] if part)
