"""What a scorer of texts is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from plumbline.config.parts import Part

if TYPE_CHECKING:
    from plumbline.checkpoints.device import Placement


@dataclass(frozen=True)
class Scored:
    """What a scorer says of one text.

    Attributes
    ----------
    scores : dict of str to float
        Attribute, of `plumbline.catalog.schema.SCORED_ATTRIBUTES`, to a score in [0, 1]. Those that the
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


class ScorerSettings(Part):
    """Settings of one scorer; a kind adds its keys. Their scorers are imported where they are wanted."""

    kind: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the environment variables that must be set."""
        return ()

    def content(self, *, project: Path, fetched: Path) -> str | None:
        """Return the digest of what scores depend on beside the settings, nothing loaded; None where that is nothing.

        Parameters
        ----------
        project : Path
            Where relative paths start.
        fetched : Path
            Folder in which `plumbline fetch` keeps what it got.

        Raises
        ------
        CheckpointError, ConfigError
            If a file is not there.
        """
        return None

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """Return the scorer, its model on the placement; nothing is downloaded.

        Raises
        ------
        CheckpointError
            If a classifier is not on disk or not one that can be loaded.
        ConfigError
            If its labels cannot be matched.
        ScoringError
            If stored scores are not there or cannot be read.
        """
        raise NotImplementedError
