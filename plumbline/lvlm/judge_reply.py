"""A judge's reply to a list of words: a list in one of the forms that language models write, or nothing."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Sequence

LONGEST_WORD = 40
LONGEST_PHRASE = 3
"""Words of one item; longer ones mean that the reply is prose."""

_ONE_WRITING = str.maketrans({"\u2019": "'", "\u2018": "'", "\u2010": "-", "\u2011": "-"})
_FENCE = re.compile(r"\A```[a-z]*\s*\n(.*?)\n?\s*```\Z", re.DOTALL)
_BULLET = re.compile(r"\A(?:[-*•–]\s+|\d{1,4}[.)]\s+)")
_QUOTES = "\"'`\u201c\u201d\u2018\u2019*_"


def plain_word(word: str) -> str | None:
    """Return a word as it is compared, lower-case and in one writing; None where it is not shaped like a word.

    Shaped like a word are letters with their marks, and single hyphens and apostrophes between them, of at most
    `LONGEST_WORD` characters. What is not never reaches a prompt.
    """
    plain = unicodedata.normalize("NFC", word.lower()).translate(_ONE_WRITING)
    if len(plain) > LONGEST_WORD:
        return None
    return plain if all(_is_letters(part) for part in re.split("[-']", plain)) else None


def read_word_list(reply: str, known: Collection[str]) -> list[str] | None:
    """Read the items of a list; None where the reply is no list.

    Read are a JSON list of strings, also in a fence of three backticks; a list in brackets; and items that are
    separated by commas or stand one to a line, with or without bullets or numbers. An item has at most
    `LONGEST_PHRASE` words. `[]` is a list of nothing. An empty reply is no list, nor is anything else such as a
    sentence; nor, without brackets, items none of which was asked about: `Sorry, no.` has commas too.

    Parameters
    ----------
    known : collection of str
        The words that were asked about, as `plain_word` gives them.

    Returns
    -------
    list of str or None
        In order, lower-case, in one writing; some may be phrases, and some not among `known`.
    """
    text = reply.strip()
    if fenced := _FENCE.match(text):
        text = fenced[1].strip()
    items = _json_list(text)
    if items is None:
        items = _bracketed(text)
    if items is not None:
        return _phrases(items)
    plain = _phrases(_separated(text))
    return plain if plain and any(item in known for item in plain) else None


def _json_list(text: str) -> list[str] | None:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return items if isinstance(items, list) and all(isinstance(item, str) for item in items) else None


def _bracketed(text: str) -> list[str] | None:
    bare = text.strip(_QUOTES).strip()
    return _separated(bare[1:-1]) if bare.startswith("[") and bare.endswith("]") else None


def _separated(text: str) -> list[str]:
    lines = [_BULLET.sub("", line.strip()) for line in text.splitlines()]
    items = [item.strip() for line in lines for item in line.split(",")]
    return [item for item in items if item]


def _phrases(items: Sequence[str]) -> list[str] | None:
    plain = [_phrase(item) for item in items]
    return None if None in plain else [item for item in plain if item]


def _phrase(item: str) -> str | None:
    """Return an item in one writing; None where it is neither a word nor a short phrase."""
    words = [plain_word(word) for word in item.strip().strip(_QUOTES + ".").split()]
    if not words or None in words or len(words) > LONGEST_PHRASE:
        return None
    return " ".join(word for word in words if word)


def _is_letters(part: str) -> bool:
    return part[:1].isalpha() and all(
        letter.isalpha() or unicodedata.category(letter)[0] == "M" for letter in part
    )
