"""Settings of the language metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plumbline.language.judge import Judge
from plumbline.statistics.draw_settings import DrawSettings


@dataclass(frozen=True)
class LanguageSettings(DrawSettings):
    """How language metrics are computed.

    Attributes
    ----------
    min_count : int
        Least number of times that a word is said of a group to count as associated (10; 3 for small API samples).
    association_threshold : float
        An association counts above it, in units of the logarithm.
    log_base : float
        Of associations.
    min_sets : int
        Counterfactual sets that an occupation must have for its competence words to be shown.
    most_unreadable : float
        Ratings of a model and prompt are nan when a larger share of the answers cannot be read.
    dictionaries : Path or None
        The user's copy of the SADCAT dictionaries, for warmth, coldness and incompetence.
    judge : callable or None
        Names stereotypes among words; without one the column says so.
    annotations : Path or None
        A CSV of human annotations, for the agreement of people, scorer and judge.
    """

    min_count: int = 10
    association_threshold: float = 1.0
    log_base: float = 2.0
    min_sets: int = 35
    most_unreadable: float = 0.5
    dictionaries: Path | None = None
    judge: Judge | None = None
    annotations: Path | None = None
