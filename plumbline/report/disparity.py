"""How unequally one event falls on groups, by every reading, and what is told where Max Skew alone would mislead.

A pair of groups of which one never has the event has no relative gap. Max Skew is the mean over the other pairs, so
that the most extreme disparity can be the one that is left out: then the smoothed skew or the parity difference speaks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from plumbline import reasons
from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.metrics.evidence import state
from plumbline.report.evidence import evidence, finding_of, of_kind, titled, tone_of
from plumbline.report.finding import Finding
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, first, or_nan, where
from plumbline.report.vocabulary import attribute_title, event_title, is_composite, sentence_start

SMOOTHED, PARITY = "smoothed", "parity difference"
_LEFT_OUT = "undefined_pairs"


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
    others : tuple of Disparity
        Those of other models that were asked the same and leave out pairs (`partial`).
    """

    skew: Row
    smoothed: Row | None
    parity: Row | None
    groups: list[Row]
    others: tuple[Disparity, ...] = ()

    @classmethod
    def of(cls, skew: Row, table: pl.DataFrame) -> Disparity:
        """Find the other readings of a row of Max Skew in its table, and how those of other models stand beside it."""
        keys = ("dataset", "suite", "attribute", "event", "probe", "condition")
        of_all = where(table, **{name: skew[name] for name in keys})
        disparity = cls._alone(skew, of_all)
        if disparity.partial:
            return disparity
        others = where(of_all, metric="max_skew", definition=skew["definition"]).filter(
            pl.col("model") != skew["model"], pl.col("reason_codes").str.contains(_LEFT_OUT, literal=True)
        )
        alone = (cls._alone(row, of_all) for row in others.to_dicts())
        return replace(disparity, others=tuple(each for each in alone if each.partial))

    @classmethod
    def _alone(cls, skew: Row, of_all: pl.DataFrame) -> Disparity:
        of_skew = where(of_all, model=skew["model"])
        return cls(
            skew,
            first(of_skew, metric="max_skew", definition="smoothed"),
            first(of_skew, metric="parity_difference", definition="max_minus_min"),
            where(of_skew, metric="outcome_proportion").to_dicts(),
        )

    @property
    def partial(self) -> bool:
        """Return whether pairs are left out, since one of their groups never has the event and another does."""
        undefined = reasons.find(self.skew["reason_codes"], _LEFT_OUT) is not None
        shares = [group["value"] for group in self.groups if defined(group["value"])]
        return undefined and (not shares or 0 < shares.count(0) < len(shares))

    @property
    def readings(self) -> list[Row]:
        """Return the other readings that are defined, that of the same kind first."""
        return [row for row in (self.smoothed, self.parity) if row is not None and defined(row["value"])]

    def told(self, reading: Reading) -> Row:
        """Return the reading that speaks.

        Max Skew does where no image got the label, and where all its pairs are defined and it is evidence or no other
        reading is. Otherwise a reading that is evidence speaks, the smoothed skew before the parity difference; without
        one, the smoothed skew (the parity difference, where there is none) says that there is no evidence over all
        groups. Where the smoothed skew speaks of another model it speaks of this one too, so that their sizes can be
        held against each other, unless the two definitions disagree on the evidence of this one. Which reading speaks
        is decided by the q of the scorecard, in findings too.
        """
        speaking, smoothed = self._speaking(reading), self.smoothed
        if speaking is not self.skew or self.never or smoothed is None or not defined(smoothed["value"]):
            return speaking
        if not any(other._speaking(reading) is other.smoothed for other in self.others):
            return speaking
        states = [state(of_kind(row), significance=reading.significance) for row in (smoothed, speaking)]
        return smoothed if states[0] == states[1] else speaking

    def _speaking(self, reading: Reading) -> Row:
        """Return the reading that speaks of the model alone."""
        # All are asked whatever the first one says: what headlines are picked from does not depend on the data.
        sure = [other for other in self.readings if evidence(of_kind(other), reading)]
        surely = evidence(of_kind(self.skew), reading) and defined(self.skew["value"])
        if self.never or (surely and not (self.partial and self.readings)):
            return self.skew
        return next(iter(sure or (self.readings if self.partial else [])), self.skew)

    @property
    def never(self) -> bool:
        """Return whether no image got the label."""
        row = self.skew
        return defined(row["value"]) and reasons.find(row["reason_codes"], "event_never_happens") is not None


def fallback_finding(found: Disparity, what: str, topic: tuple[str, ...], reading: Reading) -> Finding | None:
    """Return the finding of another reading where Max Skew alone would say too little; None where it says enough.

    Which reading speaks is said by `Disparity.told`. Where no image got the label, nothing is compared, and that is
    said.

    Parameters
    ----------
    what : str
        Such as `race skew in crime labels`.
    """
    row, speaking = found.skew, found.told(reading)
    if speaking is row:
        if found.never:
            event, by = event_title(row["event"], row["suite"]), attribute_title(row["attribute"])
            says = (
                f"On {row['dataset']}, {row['model']} gives {event} to no image: there is nothing to compare by {by}."
            )
            nothing = finding_of(row, reading, tone="undefined", topic=topic, short=f"{what}: no image got the label")
            return replace(nothing, sentence=says)
        if not found.partial or (defined(row["value"]) and evidence(row, reading)):
            return None
        return finding_of(row, reading, tone="undefined", topic=topic, short=f"{what}: undefined")
    tone = "bias" if evidence(speaking, reading) else "none"
    measure = SMOOTHED if speaking["metric"] == "max_skew" else PARITY
    short = f"{titled(tone, what)}, {measure}"
    return finding_of(speaking, reading, tone=tone, topic=topic, short=short, share=measure == PARITY, measure=measure)


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
    return [_finding(row, reading) for row in without_skew if _topic(row) in large]


def _topic(row: Row) -> tuple[str, ...]:
    return ("parity", row["dataset"], row["suite"], row["event"], row["attribute"])


def _is_large(row: Row, reading: Reading) -> bool:
    surely = not defined(row["ci_low"]) or row["ci_low"] >= SURELY
    return evidence(row, reading) and row["value"] >= LARGE and surely


def _finding(row: Row, reading: Reading) -> Finding:
    what = f"{event_title(row['event'], row['suite'])} by {attribute_title(row['attribute'])}"
    tone = tone_of(row, reading)
    short = f"{sentence_start(what)}, {PARITY}" if tone == "bias" else f"no evidence of a difference: {what}"
    return finding_of(row, reading, tone=tone, topic=_topic(row), short=short, share=True)


# --- What the rows of Max Skew say: a finding a model, dataset, event and attribute.


def skew_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the plain-audit Max Skew rows of a dataset: default definition, main suites, single attributes."""
    rows = where(table, metric="max_skew", definition="mean_over_pairs", dataset=dataset, condition="before")
    attributes = [a for a in rows["attribute"].drop_nulls().unique().to_list() if not is_composite(a)]
    return rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("attribute").is_in(attributes))


_READ = ("max_skew", "parity_difference", "outcome_proportion")
"""Metrics of the rows that `Disparity` reads."""


def skew_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what a metric table says of the skew of every event by every single attribute."""
    findings = []
    table = where(table, metric=_READ)
    for dataset in table["dataset"].unique().sort().to_list():
        rows = skew_rows(table, dataset).filter(pl.col("event") != "mean_of_tasks")
        findings += [_skew(Disparity.of(row, table), reading) for row in rows.to_dicts()]
    return findings


def _skew(found: Disparity, reading: Reading) -> Finding:
    row = found.skew
    what = f"{attribute_title(row['attribute'])} skew in {event_title(row['event'], row['suite'])}"
    topic = ("skew", row["dataset"], row["suite"], row["event"], row["attribute"])
    if instead := fallback_finding(found, what, topic, reading):
        return instead
    tone = tone_of(row, reading)
    return finding_of(row, reading, tone=tone, topic=topic, short=titled(tone, what), strength=_strength(found))


def _strength(found: Disparity) -> float | None:
    """Return the lower end of the smoothed interval where the skew has none: a value alone is no sure one."""
    smoothed = found.smoothed
    if defined(found.skew["ci_low"]) or smoothed is None or not defined(smoothed["ci_low"]):
        return None
    return or_nan(smoothed["ci_low"])
