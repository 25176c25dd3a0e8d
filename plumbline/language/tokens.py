"""Words of a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

# A letter carries its marks: composed é is one letter, a Devanagari vowel sign is part of its syllable.
_LETTERS = r"\p{L}[\p{L}\p{M}]*"
_WORD = rf"{_LETTERS}(?:[-']{_LETTERS})*"

_ONE_WRITING = {"\u2019": "'", "\u2010": "-", "\u2011": "-"}
"""Typographic apostrophe and hyphens, and how a keyboard writes them."""


# Case and composition change no number of words, so that texts are searched as they are.
_ANY_WRITING = rf"{_LETTERS}(?:[-'\u2019\u2010\u2011]{_LETTERS})*"


def words_of(texts: pl.Expr) -> pl.Expr:
    """Return the words of each text, in order.

    Words are lower-case runs of letters, with single hyphens and apostrophes between letters: `Well-known, isn't
    it?` gives `well-known`, `isn't`, `it`. Everything else ends a word: digits, underscores, dashes, two hyphens.
    Two writings of one word are one word: composed and decomposed accents (by NFC), straight and curved apostrophes,
    the hyphens U+2010 and U+2011. No space is ever inside a word, so that a text cut at spaces has the same words.

    Parameters
    ----------
    texts : expression of String

    Returns
    -------
    expression of List(String)
        Empty for a text without words, null for null.
    """
    plain = texts.str.to_lowercase().str.normalize("NFC").str.replace_many(_ONE_WRITING)
    return plain.str.extract_all(_WORD)


def word_number(texts: pl.Expr) -> pl.Expr:
    """Return how many words each text has: the length of `words_of`, without making the words.

    Parameters
    ----------
    texts : expression of String

    Returns
    -------
    expression of UInt32
        0 for a text without words, null for null.
    """
    return texts.str.count_matches(_ANY_WRITING)


# --- Texts cut at spaces, every distinct piece once: what is searched for words is then a small dictionary.


@dataclass(frozen=True)
class WhitespaceTokens:
    """The whitespace-separated tokens of some texts.

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


def whitespace_tokens(texts: pl.Series) -> WhitespaceTokens:
    """Cut texts at spaces; no word crosses one. A null text is cut as an empty one."""
    cut = texts.fill_null("").str.split(" ")
    encoded = cut.explode(empty_as_null=True).to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    return WhitespaceTokens(
        np.repeat(np.arange(len(texts)), cut.list.len().to_numpy()),
        encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        pl.Series("text", encoded.dictionary, dtype=pl.String),
        len(texts),
    )
