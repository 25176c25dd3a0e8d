"""A finding in words, and the order in which findings are told."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

# The order in which a reader meets the kinds of findings.
TONES = ("refused", "bias", "difference", "undefined", "cost", "gain", "harm", "robust", "data", "none")
# The tones that say that groups are treated differently, as far as chance allows to say so.
DIFFERENCES = ("bias", "difference")
# The order of the kinds of one tone: what a model does to people first, what stands behind it later.
KINDS = (
    "skew",
    "parity",
    "captions",
    "trident",
    "opportunity",
    "toxicity",
    "rating",
    "competence",
    "words",
    "refusal",
    "association",
    "markedness",
    "ranking",
    "confound",
    "wording",
    "base_llm",
    "own",
)
# A reader meets fewer of the kinds that ask much the same in many ways.
FEWER = {("bias", kind): 2 for kind in KINDS if kind not in ("skew", "trident")}
# How many of each tone and kind a reader meets at first; the rest is folded away.
AT_FIRST = {
    "refused": 3,
    "bias": 4,
    "difference": 2,
    "undefined": 1,
    "cost": 2,
    "gain": 1,
    "harm": 2,
    "robust": 1,
    "data": 1,
    "none": 1,
}


class Company(NamedTuple):
    """In how many models the row of a finding is evidence, of how many that have it tested."""

    same: int
    tested: int
    opposite: int = 0
    """models in which it is evidence of the opposite, by its sign"""
    same_of_kind: int = 0
    """as `same`, by q over the tests of its kind, as in the scorecard, where q is over all tests"""
    opposite_of_kind: int = 0


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes
    ----------
    tone : str
        One of `TONES`: `refused` a failed check, `bias` there is evidence, `difference` there is evidence of a
        difference in neutral or positive words, `none` there is no evidence, `undefined` it cannot be said,
        `cost` and `gain` of a mitigation, `harm` a rate, `robust` what the measure itself
        owes to wording, `data` about the data.
    topic : tuple of str
        What is asked, the same for every model: findings of one topic are told together.
    short : str
        The finding without numbers, for a table.
    sentence : str
        The finding in full, where it is told of no row; `plumbline.report.sentences` tells the others.
    interval_text : str
        The interval as text; where the value is a mean over probes, their range, called so.
    q_text : str
        The q-value as text, `–` where the finding has none.
    strength : float
        Orders findings of one tone; the lower end of the interval where there is one.
    row : str or None
        Name of the metric row that it tells, see `plumbline.catalog.schema`; None of what is told of several rows
        or of none.
    measure : str
        What `value` is, where it is another reading of the question than that of the other models.
    question : tuple
        What identifies its row but for the model; empty of what is told of no row.
    company : Company, optional
        How many models show the same.
    of_kind : bool
        Whether its row is evidence by q over the tests of its kind, as in the scorecard.
    """

    tone: str
    topic: tuple[str, ...]
    model: str
    dataset: str
    short: str
    value: float
    value_text: str
    interval_text: str
    strength: float
    sentence: str = ""
    q_text: str = "–"
    row: str | None = None
    measure: str = ""
    question: tuple[object, ...] = ()
    company: Company | None = None
    of_kind: bool = False

    def __str__(self) -> str:
        """Return what it says."""
        return self.sentence or f"{self.model} on {self.dataset}: {self.short}, {self.value_text}"


def in_rank_order(found: list[Finding]) -> list[Finding]:
    """Return findings by tone, then question, then strength."""
    return sorted(found, key=_rank)


class Shown(NamedTuple):
    """The findings that a reader meets at first, a few of every tone, and the rest."""

    first: list[Finding]
    further: list[Finding]


def at_first(ranked: list[Finding]) -> Shown:
    """Split ranked findings."""
    met: Counter[tuple[str, str]] = Counter()
    shown: list[Finding] = []
    rest: list[Finding] = []
    for finding in ranked:
        kind = (finding.tone, finding.topic[0])
        met[kind] += 1
        (shown if met[kind] <= FEWER.get(kind, AT_FIRST[finding.tone]) else rest).append(finding)
    return Shown(shown, rest)


def headlines(found: list[Finding]) -> list[Finding]:
    """Return the strongest finding of every topic, in rank order."""
    ordered = sorted(found, key=lambda f: (f.topic, _rank(f)))  # groupby needs topics together
    chosen = []
    for _, same in groupby(ordered, key=lambda f: f.topic):
        group = list(same)
        chosen.append(_foremost(group))
    return in_rank_order(chosen)


def _foremost(group: list[Finding]) -> Finding:
    """Return the finding of ranked ones that is told: the strongest; where there is no evidence, the largest."""
    if group[0].tone != "none" or not _comparable(group):
        return group[0]
    return max(group, key=lambda f: abs(f.value) if math.isfinite(f.value) else -1.0)


def _comparable(group: list[Finding]) -> bool:
    return len({(finding.measure, finding.question) for finding in group}) == 1


def _rank(finding: Finding) -> tuple[int, int, str, float, tuple[str, ...], str]:
    kind = finding.topic[0]
    place = KINDS.index(kind) if kind in KINDS else len(KINDS)
    strength = finding.strength if math.isfinite(finding.strength) else -1.0
    # A skew and a difference of shares have different units: only findings of one kind are ordered by strength.
    return (TONES.index(finding.tone), place, kind, -strength, finding.topic, finding.model)
