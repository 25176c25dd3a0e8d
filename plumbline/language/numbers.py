"""Parsing numbers in answers, spelled out or in digits; unreadable ones get a reason."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Literal

import polars as pl

from plumbline.catalog.files import data_yaml

_UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {
    **{word: i + 1 for i, word in enumerate(_UNITS)},
    **{word: i + 10 for i, word in enumerate(_TEENS)},
    **{word: 10 * (i + 2) for i, word in enumerate(_TENS)},
    # `a hundred thousand`
    "a": 1,
    "an": 1,
}
_SCALES = {"thousand": 1_000, "million": 1_000_000}

_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_UNITS)}))?|{'|'.join(_TEENS)}|{'|'.join(_UNITS)})"
_BELOW_1000 = rf"(?:(?:{'|'.join(_UNITS)}|a) hundred(?: and)?(?: {_BELOW_100})?|{_BELOW_100})"
_SPELLED = re.compile(
    rf"\b(?:{_BELOW_1000}|an?(?= (?:thousand|million)\b))(?: (?:thousand|million)(?:,? (?:and )?{_BELOW_1000})?)*\b"
)


def with_digits(text: str) -> str:
    """Return a text in lower case with its spelled numbers, from 1 to below a thousand million, in digits.

    `one` by itself stays: mostly it is no number (`this one`, `one of them`).
    """
    return _SPELLED.sub(lambda found: found[0] if found[0] == "one" else str(_value(found[0])), text)


def _value(spelled: str) -> int:
    total = current = 0
    for word in re.findall("[a-z]+", spelled):
        if word == "hundred":
            current *= 100
        elif word in _SCALES:
            total, current = total + current * _SCALES[word], 0
        elif word != "and":
            current += _VALUES[word]
    return total + current


# --- Numbers parsed from answers: why there is none, and how columns of any length are parsed.

Unreadable = Literal[
    "empty", "no_number", "several_numbers", "out_of_range", "other_scale", "other_period", "other_currency"
]
"""Every reason why a number is not read.

`no_number`: the answer names none, or only those of the question; `several_numbers`: it does not say which one it
means; `out_of_range`: not in the range that the question allows; `other_scale`: such as 4 out of 5 or 80%;
`other_period`: a salary for a month, a week or a day; `other_currency`: one that is not in dollars.
"""

PARSED_NUMBER = pl.Struct({"value": pl.Float64, "reason": pl.String})
"""The type of a column of parsed numbers."""


@dataclass(frozen=True)
class ParsedNumber:
    """A number parsed from an answer.

    Attributes
    ----------
    value : float
        nan where there is none.
    reason : str or None
        Why there is none.
    """

    value: float
    reason: Unreadable | None = None

    @property
    def number(self) -> float | None:
        """Return the number, None where there is none."""
        return None if self.reason else self.value


def unreadable(reason: Unreadable) -> ParsedNumber:
    """Return the result for an answer without a usable number."""
    return ParsedNumber(nan, reason)


def within(value: float, low: float, high: float) -> ParsedNumber:
    """Return a parsed number, or the reason `out_of_range`; both ends belong to the range."""
    return ParsedNumber(value) if low <= value <= high else unreadable("out_of_range")


def read_column(texts: pl.Expr, read: Callable[[str], ParsedNumber]) -> pl.Expr:
    """Read a column of answers, each distinct text of a batch once.

    Parameters
    ----------
    texts : expression of String
    read : callable
        From a text to its reading; null is read as an empty text.

    Returns
    -------
    expression of Struct(value: Float64, reason: String)
        Row by row, so that it streams. Answers to these questions are mostly short and alike: tens of millions of
        rows hold few distinct texts, and only those are read in Python.
    """

    def of(column: pl.Series) -> pl.Series:
        distinct = column.unique()
        parsed = [read(text or "") for text in distinct]
        table = pl.DataFrame(
            {
                "text": distinct.cast(pl.String),
                "value": pl.Series([each.value for each in parsed], dtype=pl.Float64),
                "reason": pl.Series([each.reason for each in parsed], dtype=pl.String),
            }
        )
        rows = pl.DataFrame({"text": column.cast(pl.String)}).join(
            table, on="text", how="left", nulls_equal=True, maintain_order="left"
        )
        return rows.select(pl.struct("value", "reason")).to_series().alias(column.name)

    return texts.map_batches(of, return_dtype=PARSED_NUMBER, is_elementwise=True)


def number_patterns(question: Literal["ratings", "salaries"], **parts: str) -> dict[str, re.Pattern[str]]:
    """Return the patterns of `plumbline/catalog/number_patterns.yaml` that read the answers to a question, by name.

    Parameters
    ----------
    question : {"ratings", "salaries"}
    **parts : str
        Further parts of patterns besides those of the file.
    """

    def filled(pattern: str | list[str]) -> str:
        slots = re.compile(r"\{([a-z]\w*)(?::(\w+))?\}")
        return slots.sub(lambda slot: parts[slot[1]].replace("@", slot[2] or "@"), "".join(pattern))

    content = data_yaml("number_patterns.yaml")[question]
    for name, part in content["parts"].items():
        parts[name] = filled(part)
    return {name: re.compile(filled(pattern)) for name, pattern in content["patterns"].items()}


_ONE_WRITING = str.maketrans({"\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2212": "-",
                              "\u2044": "/", "\u2215": "/",
                              "\u2019": "'", "½": ".5", "¼": ".25", "¾": ".75"})  # fmt: skip


LONGEST = 4_000
"""Characters of an answer that are read: a number that comes later is no answer to the question."""


def plainly(text: str) -> str:
    """Normalise an answer: lower case, NFKC, one kind of dash and of slash, no emphasis marks.

    Halves and quarters are written as decimals.
    """
    plain = unicodedata.normalize("NFKC", text[:LONGEST].translate(_ONE_WRITING)).lower()
    return plain.replace("*", " ").replace("_", " ").strip()
