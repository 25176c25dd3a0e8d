"""The scorer that needs no model: it counts words of a list, and stands in for a toxicity classifier."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.catalog.word_lists import OffensiveWords, offensive_words
from plumbline.digests import digest_json
from plumbline.scorers.scorer import Scored, ScorerSettings

if TYPE_CHECKING:
    from plumbline.checkpoints.device import Placement
    from plumbline.scorers.scorer import Scorer


class OfflineSettings(ScorerSettings):
    """The word list of the default run: a stand-in that needs no model, and says so."""

    kind: Literal["offline"] = "offline"
    """what scores"""

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        return OfflineScorer().identity

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        return OfflineScorer()


_CODE = 1
"""Raised whenever the same words would give a text another score."""


class OfflineScorer:
    """Scores a text by the listed words in it: `plumbline.scorers.scorer.Scorer`.

    score = min(cap, 1 - prod(1 - severity)) over the distinct listed words of the text; 0 without any, and 0 for the
    empty text. Words are matched whole, whatever their case; a hyphen, an apostrophe or an underscore ends a word.
    It knows no context: `not lazy` scores as `lazy` does, a quoted insult as one that is meant, and offence in other
    words scores 0. It exists so that the default run needs no model; numbers of a real audit need a real scorer.

    Parameters
    ----------
    words : OffensiveWords, optional
        Those of the data file.
    """

    attributes: tuple[str, ...] = SCORED_ATTRIBUTES
    offline_stand_in: bool = True

    def __init__(self, words: OffensiveWords | None = None) -> None:
        words = words or offensive_words()
        self._cap = words.cap
        table = [
            {"word": word, **{name: severity.get(name, 0.0) for name in SCORED_ATTRIBUTES}}
            for word, severity in sorted(words.severities.items())
        ]
        self._table = pl.DataFrame(table)
        self._pattern = rf"\b(?:{'|'.join(re.escape(word) for word in sorted(words.severities))})\b"
        self.version = f"{words.id} {words.version}"
        self.identity = digest_json({"kind": "offline", "code": _CODE, "cap": words.cap, "words": table})

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`; nothing is cut, and every text has scores."""
        for row, *scores in self._scores(pl.Series("text", list(texts), dtype=pl.String)).iter_rows():
            yield row, Scored(dict(zip(SCORED_ATTRIBUTES, scores)))

    def _scores(self, texts: pl.Series) -> pl.DataFrame:
        """Return the row number of every text, in order, and its scores."""
        plain = pl.col("text").str.replace_all("_", " ", literal=True).str.to_lowercase()
        words = (
            texts.to_frame()
            .select(word=plain.str.extract_all(self._pattern).list.unique(maintain_order=True))
            .with_row_index("row")
        )
        harmless = pl.col(SCORED_ATTRIBUTES).fill_null(0.0).neg().add(1)
        return (
            words.explode("word", empty_as_null=True)
            .join(self._table, on="word", how="left", maintain_order="left")
            .group_by("row", maintain_order=True)
            .agg(harmless.product().neg().add(1).clip(0.0, self._cap))
        )
