"""How estimates are read: what counts as evidence, what as a small group, who scored; and the audit that says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plumbline.statistics.multiplicity import SIGNIFICANCE, fcr_confidence


@dataclass
class Picked:
    """What findings are picked from, noted while they are made: of one that is told, many were looked at.

    Attributes
    ----------
    tested, estimated : list of dict
        Rows whose p decides whether there is evidence, and whose interval a finding would print; some more than once.
    """

    tested: list[dict[str, Any]] = field(default_factory=list)
    estimated: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """How many findings are told, of how many rows and tests: what is told is corrected for it.

    Attributes
    ----------
    findings, rows : int
        Findings that are told, one a topic, and the rows with an interval they are picked from, see `fcr_confidence`.
    tests : int
        Tests that q of a headline is over.
    """

    findings: int
    rows: int
    tests: int

    def level(self, confidence: float) -> float:
        """Return the confidence of each interval with which those that are told hold as often as `confidence` says."""
        return fcr_confidence(self.findings, self.rows, confidence=confidence)


@dataclass(frozen=True)
class Reading:
    """How estimates are read: what counts as evidence, what as a small group.

    Attributes
    ----------
    confidence : float
        Coverage of the intervals, in (0, 1).
    minimum_group : int
        Groups with fewer images are flagged as small.
    significance : float
        A difference counts as evidence when its q-value (else its p-value) is below this.
    leaking : tuple of str
        Ids of mitigations in whose fit images had a say that they are judged on: shown, never told or recommended.
    scorers, stand_ins : tuple of str
        What scored generated texts, that of the headlines first; those of them that only stand in for a scorer.
    own_questions : tuple of str
        Ids of the questions that metrics of one's own answer, see `plumbline.report.scorecard.own_question`.
    picked : Picked, optional
        Where to note what findings are picked from.
    selection : Selection, optional
        Where given, the intervals of the rows that are read are adjusted for it.
    """

    confidence: float = 0.95
    minimum_group: int = 30
    significance: float = SIGNIFICANCE
    leaking: tuple[str, ...] = ("logit_adjustment_released",)
    scorers: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    own_questions: tuple[str, ...] = ()
    picked: Picked | None = field(default=None, compare=False, repr=False)
    selection: Selection | None = None


@dataclass(frozen=True, kw_only=True)
class AuditSummary(Reading):
    """The audit as a whole.

    Attributes
    ----------
    audit_id : str
        Hash of the resolved configuration, all digests and the code version.
    created : str
        When the report was made, as text; the report itself never looks at a clock.
    seed, resamples : int
        Seed of every generator, and bootstrap replicates (and permutations) behind each interval.
    trained_on : tuple of (str, str)
        Mitigation -> what it was trained on, in words.
    confidence, minimum_group, significance, leaking, scorers, stand_ins, own_questions
        See `Reading`.
    """

    audit_id: str
    title: str
    created: str
    config_path: str
    code_version: str
    seed: int
    resamples: int
    trained_on: tuple[tuple[str, str], ...] = ()
