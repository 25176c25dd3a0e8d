"""Reasons why a number is undefined, or notes on it: codes with parameters, worded once, at the end.

Computations return a `Reason`; decisions read its `code` and `params`; only text for people is worded (`str(reason)`,
`in_words`). A new wording in `reasons.yaml` changes no number and no finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.catalog.files import parse_yaml

WORDS: dict[str, str] = parse_yaml((files("plumbline") / "reasons.yaml").read_text("utf-8"))
"""Code -> its words, as a format string over the parameters; lists are joined by commas."""


@dataclass(frozen=True)
class Reason:
    """One reason: a code of `WORDS`, and the parameters of its words.

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
"""The reasons of one number, in order; may be empty."""


def reason(code: str, **params: Any) -> Reason:
    """Return a reason; a code without words is a KeyError."""
    if code not in WORDS:
        raise KeyError(code)
    return Reason(code, params)


def joined(*reasons: Reason | Reasons | None) -> Reasons:
    """Return all reasons that apply, in order: single ones and tuples of them, None for one that does not apply."""
    every: list[Reason] = []
    for one in reasons:
        if isinstance(one, Reason):
            every.append(one)
        else:
            every += one or ()
    return tuple(every)


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


# --- Reasons of the sizes of groups.

MIN_GROUP = 30
"""Images of a group below which its numbers are called those of a small group."""


def group_size_reason(n: int, min_group: int = MIN_GROUP) -> Reason | None:
    """Return the reason that a group is empty or small, if so."""
    if n == 0:
        return reason("empty_group")
    return reason("small_group", n=n, min_group=min_group) if n < min_group else None


def small_groups_reason(names: Sequence[str], sizes: Sequence[int], min_group: int) -> Reason | None:
    """Return the reason that groups have fewer images than `min_group`, if so."""
    small = [name for name, size in zip(names, sizes) if size < min_group]
    return reason("small_groups", min_group=min_group, groups=small) if small else None


def empty_groups_reason(totals: NDArray[np.int64]) -> Reason | None:
    """Return the reason that groups without images are left out, if so."""
    empty = int((totals == 0).sum())
    return reason("empty_groups", empty=empty, groups=totals.size) if empty else None
