"""Whether a text itself says that the person in the picture is Black."""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from plumbline.tables.person_words import attribute_words, person_words

# What may stand between the colour and the person: `a black young woman`.
_BETWEEN = (
    "young",
    "younger",
    "old",
    "older",
    "elderly",
    "middle-aged",
    "adult",
    "american",
    "male",
    "female",
)


def names_black_person(texts: pl.Expr) -> pl.Expr:
    """Return whether each text names a person's race as Black or African American.

    `a Black woman`, `black male chef`, `African-American`, `she is Black` do; `a black apron`, `her hair is black` do
    not: the colour counts before a noun for a person, those of `plumbline/tables/person_words.yaml`, and where it is
    said of `I`, `he`, `she` and of such a noun.

    Returns
    -------
    expression of Boolean
        False for null.
    """
    return texts.str.to_lowercase().str.contains(_pattern()).fill_null(False)


@cache
def _pattern() -> str:
    words = person_words()
    persons = sorted(
        {*words.persons, *attribute_words("gender").nouns, *attribute_words("age").nouns},
        key=len,
        reverse=True,
    )
    person = "|".join(re.escape(word) for word in persons)
    black = r"(?:black|african|afro[- ]american|african[- ]american)"
    return (
        r"\b(?:african|afro)[- ]americans?\b"
        rf"|\b{black}[- ](?:(?:{'|'.join(_BETWEEN)})[- ])*(?:{person})\b"
        rf"|\b(?:i am|i'm|he is|he's|she is|she's|(?:{person}) (?:is|who is)) (?:an? )?black\b"
    )
