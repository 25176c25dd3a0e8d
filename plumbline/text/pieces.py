"""Texts cut at spaces, every distinct piece once: what is searched for words is then a small dictionary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.text.tokens import words_of


@dataclass(frozen=True)
class Pieces:
    """What stands between the spaces of some texts.

    Attributes
    ----------
    text, piece : (t,) int64
        Of each piece, in order: its text, and its place in `distinct`. A text without anything has one empty piece.
    distinct : (d,) Series of String
    texts : int
    """

    text: NDArray[np.int64]
    piece: NDArray[np.int64]
    distinct: pl.Series
    texts: int

    def words(self) -> pl.DataFrame:
        """Return `piece` (Int64), `word`: every word of every distinct piece, see `words_of`; most have just one."""
        return (
            pl.DataFrame({"piece": np.arange(len(self.distinct)), "text": self.distinct})
            .select("piece", word=words_of(pl.col("text")))
            .explode("word", empty_as_null=True)
            .drop_nulls("word")
        )

    def sums(self, of_pieces: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (texts,) the sum over each text's pieces of a whole number that every distinct piece has, (d,)."""
        return np.bincount(self.text, of_pieces[self.piece], minlength=self.texts).astype(np.int64)


def pieces_of(texts: pl.Series) -> Pieces:
    """Cut texts at spaces; no word crosses one. A null text is cut as an empty one."""
    cut = texts.fill_null("").str.split(" ")
    encoded = (
        cut.explode(empty_as_null=True).to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    )
    return Pieces(
        np.repeat(np.arange(len(texts)), cut.list.len().to_numpy()),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        pl.Series("text", encoded.dictionary, dtype=pl.String),
        len(texts),
    )
