"""How much is drawn, and how wide intervals are: what every family of metrics is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DrawSettings:
    """How much is drawn, and how wide intervals are.

    Attributes
    ----------
    seed : int
        From which every generator is derived, by name.
    resamples, permutations : int
        Bootstrap replicates, and permutations.
    confidence : float
        Of the intervals.
    """

    seed: int = 20260801
    resamples: int = 10_000
    permutations: int = 10_000
    confidence: float = 0.95
