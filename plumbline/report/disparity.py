"""How unequally one event falls on groups, by every reading, and what is told where Max Skew alone would mislead.

A pair of groups of which one never has the event has no relative gap. Max Skew is the mean over the other pairs, so
that the most extreme disparity can be the one that is left out: then the smoothed skew or the parity difference speaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

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
from plumbline.report.rows import Row, defined, first, where
from plumbline.report.vocabulary import group_faces, listed, sentence_start

SMOOTHED, PARITY = "smoothed", "parity difference"
_UNDEFINED_PAIRS = re.compile(r"(\d+) of (\d+) pairs undefined")
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
        own = where(table, **{name: skew[name] for name in keys})
        return cls(
            skew,
            first(own, metric="max_skew", definition="smoothed"),
            first(own, metric="parity_difference", definition="max_minus_min"),
            where(own, metric="outcome_proportion").to_dicts(),
        )

    @property
    def known(self) -> list[Row]:
        """Return the groups whose share is defined, the smallest first."""
        return sorted((g for g in self.groups if defined(g["value"])), key=lambda g: g["value"])

    @property
    def left_out(self) -> str:
        """Say which pairs have no gap because one group never has the event; empty where there is none."""
        found = _UNDEFINED_PAIRS.search(self.skew["reason"] or "")
        never = [group for group in self.known if group["value"] == 0]
        if found is None or (self.known and len(never) in (0, len(self.known))):
            return ""
        pairs = "its only pair" if found[2] == "1" else f"{found[1]} of {found[2]} pairs"
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
        row, own = self.smoothed, interval_words(self.skew, reading)
        if row is None or own != NO_INTERVAL or interval_words(row, reading) == NO_INTERVAL:
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


def told_by_another(found: Disparity, what: str, topic: tuple[str, ...], reading: Reading) -> Finding | None:
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
    if defined(row["value"]) and evidence(row, reading):
        return None
    sure = [other for other in found.others if evidence(other, reading)]
    if not sure and not left_out:
        return None
    subject, shares = subject_of(row), group_shares(found.groups, reading, found.parity)
    told = [found.in_words(other, reading) for other in (*sure, *(o for o in found.others if o not in sure))]
    partly = _partly(found, what, reading)
    if sure:
        sentence = f"{subject}: {partly}. {sentence_start('; '.join(told))}{remark(sure[0])}.{shares}"
        return _of(sure[0], "bias", what, topic, sentence)
    if not found.others:
        sentence = f"{subject}: {partly}, which tells nothing of the groups left out.{shares}"
        if not defined(row["value"]):
            sentence = f"{subject}: {partly}.{shares}"
        return finding_of(row, tone="undefined", topic=topic, short=f"{what}: undefined", sentence=sentence)
    over = found.others[0]
    sentence = (
        f"{subject}: no evidence of {what} over all groups; {told[0]}{remark(over)}. {sentence_start(partly)}.{shares} "
        f"{still_possible(over, share=over is found.parity)}"
    )
    return _of(over, "none", what, topic, sentence)


def _partly(found: Disparity, what: str, reading: Reading) -> str:
    row = found.skew
    if not found.left_out:
        if not defined(row["value"]):
            return f"{what} is undefined"
        return f"{what} is {number(row['value'])} ({uncertainty(row, reading)}), which alone is no evidence"
    rest = (
        f" and {number(row['value'])} in the rest ({uncertainty(row, reading)})"
        if defined(row["value"])
        else ""
    )
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
    told = [
        f"{group_faces(group['attribute'], group['group'])} "
        f"{percent(group['value'], group['n'], minimum_group=reading.minimum_group, decimals=decimals)}"
        for group in ends
    ]
    return f" {sentence_start(told[0])}, {told[1]}."
