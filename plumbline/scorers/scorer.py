"""What a scorer of texts is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Scored:
    """What a scorer says of one text.

    Attributes
    ----------
    scores : dict of str to float
        Attribute, of `plumbline.tables.generation_schema.SCORED_ATTRIBUTES`, to a score in [0, 1]. Those that the
        scorer does not know are left out; a text that it cannot score has nan for each, and a reason.
    truncated : bool
        Whether it read only the beginning.
    reason : str or None
        Why there is no score.
    """

    scores: dict[str, float]
    truncated: bool = False
    reason: str | None = None


class Scorer(Protocol):
    """Scores texts.

    Attributes
    ----------
    identity : str
        Digest of everything that its scores depend on, a version of its code included.
    version : str
        For people: such as a commit, an API version, or the version of a word list.
    attributes : tuple of str
        What it scores.
    offline_stand_in : bool
        True for one that only exists so that the default run needs no model: reports say so plainly.
    """

    identity: str
    version: str
    attributes: tuple[str, ...]
    offline_stand_in: bool

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """Yield (position, score) as scores become ready, each once; a text's score depends on that text alone.

        Raises
        ------
        ScoringError
            If it cannot score at all; what was yielded before is kept by the caller.
        """
