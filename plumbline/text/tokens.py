"""What a word is: letters with inner hyphens and apostrophes, in lower case."""

from __future__ import annotations

import polars as pl

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
