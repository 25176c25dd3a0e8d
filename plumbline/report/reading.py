"""How estimates are read: what counts as evidence, what as a small group, who scored; and the audit that says so."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    confidence: float = 0.95
    minimum_group: int = 30
    significance: float = 0.05
    leaking: tuple[str, ...] = ("logit_adjustment_released",)
    scorers: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()


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
    confidence, minimum_group, significance, leaking, scorers, stand_ins : float, int, float, tuple of str
        See `Reading`.
    """

    audit_id: str
    title: str
    created: str
    config_path: str
    code_version: str
    seed: int
    resamples: int
