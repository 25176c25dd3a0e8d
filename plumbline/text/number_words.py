"""Numbers that are spelled: `forty-five thousand` as 45000."""

from __future__ import annotations

import re

_UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = [
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
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

_BELOW_100 = (
    rf"(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_UNITS)}))?|{'|'.join(_TEENS)}|{'|'.join(_UNITS)})"
)
_BELOW_1000 = rf"(?:(?:{'|'.join(_UNITS)}|a) hundred(?: and)?(?: {_BELOW_100})?|{_BELOW_100})"
_SPELLED = re.compile(
    rf"\b(?:{_BELOW_1000}|an?(?= (?:thousand|million)\b))(?: (?:thousand|million)(?:,? (?:and )?{_BELOW_1000})?)*\b"
)


def with_digits(text: str) -> str:
    """Return a text in lower case with its spelled numbers, from 1 to below a thousand million, in digits.

    `one` by itself stays: mostly it is no number (`this one`, `one of them`).
    """
    return _SPELLED.sub(
        lambda found: found[0] if found[0] == "one" else str(_value(found[0])),
        text,
    )


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
