"""Why a number is undefined, or what to know about it: codes with parameters, put into words once, at the end.

What computes gives a `Reason`; what decides asks for its `code` and `params`; only what a person reads is in words
(`str(reason)`, `in_words`). A new wording in `WORDS` changes no number and no finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS: dict[str, str] = {
    # sizes of groups
    "empty_group": "empty group",
    "small_group": "small group: {n} images, fewer than {min_group}",
    "small_groups": "fewer than {min_group} images in {groups}",
    "empty_groups": "{empty} of {groups} groups empty, left out",
    # logit adjustments
    "leaking": "leaking: test labels had a say in these factors",
    "constant_test_images": "no interval: the test images do not vary",
    "one_trial": "one trial has no spread",
    "halved_classes": "{smaller} of {classes} classes have fewer than 2N images and gave half",
    "text": "{text}",
}
"""Code -> its words, as a format string over the parameters; lists are joined by commas."""


@dataclass(frozen=True)
class Reason:
    """One reason: a code of `WORDS`, and what its words are filled with.

    Attributes
    ----------
    code : str
    params : mapping
        Name -> text, number, bool, or a list of these.
    """

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return WORDS[self.code].format(
            **{name: ", ".join(map(str, v)) if isinstance(v, list) else v for name, v in self.params.items()}
        )


Reasons = tuple[Reason, ...]
"""The reasons of one number, in the order in which they are told; empty where there is nothing to say."""


def reason(code: str, **params: Any) -> Reason:
    """Return a reason; a code without words is a KeyError."""
    if code not in WORDS:
        raise KeyError(code)
    return Reason(code, params)


def joined(*reasons: Reason | Reasons | str | None) -> Reasons:
    """Return all reasons that apply, in order: single ones and tuples of them, None for one that does not apply."""
    found: list[Reason] = []
    for one in reasons:
        if isinstance(one, str):
            found.append(Reason("text", {"text": one}))
        elif isinstance(one, Reason):
            found.append(one)
        else:
            found += one or ()
    return tuple(found)


def in_words(reasons: Iterable[Reason]) -> str | None:
    """Return the reasons as a person reads them, apart by semicolons; None where there are none."""
    return "; ".join(map(str, reasons)) or None


def encode(reasons: Iterable[Reason]) -> str | None:
    """Return reasons as JSON, for the column `reason_codes` of a table; None where there are none."""
    pairs = [[one.code, dict(one.params)] for one in reasons]
    return json.dumps(pairs, ensure_ascii=False, default=lambda number: number.item()) if pairs else None


def decode(codes: str | None) -> Reasons:
    """Return the reasons of a cell of the column `reason_codes`."""
    return tuple(Reason(code, params) for code, params in json.loads(codes)) if codes else ()


def find(codes: str | None, code: str) -> Reason | None:
    """Return the first reason with a code in a cell of the column `reason_codes`, or None."""
    return next((one for one in decode(codes) if one.code == code), None)
