"""Refusals and lengths of answers: definition, numbers by group, family."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from plumbline.catalog.files import data_yaml
from plumbline.digests import digest_json

REFUSING_REASONS = ("refusal", "content_filter")
"""Finish reasons with which an API says itself that it did not answer."""


@dataclass(frozen=True)
class RefusalPatterns:
    """The wordings of refusals, compiled.

    Attributes
    ----------
    version : int
        Of the data file.
    refusals, answered : str
        One regular expression each: a refusal in the opening of a text; what shows anywhere that an answer follows all
        the same.
    opening : int
        Characters of the opening.
    """

    version: int
    refusals: str
    answered: str
    opening: int

    @property
    def hash(self) -> str:
        """Return the sha256 of all that decides what a refusal is."""
        return digest_json([self.refusals, self.answered, self.opening])


@cache
def refusal_patterns() -> RefusalPatterns:
    """Return the patterns of the data file."""
    content: dict[str, Any] = data_yaml("refusal_patterns.yaml")
    return RefusalPatterns(
        version=content["version"],
        refusals=_one_of(content["refusals"]),
        answered=_one_of(content["answered"]),
        opening=content["opening_characters"],
    )


def refused(texts: pl.Expr, finish_reasons: pl.Expr | None = None) -> pl.Expr:
    """Return whether each answer is a refusal.

    A text is one where its opening declines and no answer follows; an empty text is none by itself. Wordings are
    English: refusals in other languages are not found.

    Parameters
    ----------
    texts : expression of String
    finish_reasons : expression of String, optional
        As in `plumbline.catalog.schema`: `refusal` and `content_filter` are refusals whatever the text.

    Returns
    -------
    expression of Boolean
        Never null: a null text is no refusal. Row by row, so that it streams.
    """
    patterns = refusal_patterns()
    declined = _plain(texts.str.slice(0, patterns.opening)).str.contains(patterns.refusals)
    # Few texts decline: only those are searched to their end.
    answered = _plain(pl.when(declined).then(texts).otherwise(pl.lit(""))).str.contains(patterns.answered)
    worded = declined & ~answered
    said = worded.fill_null(False)
    if finish_reasons is None:
        return said
    return said | finish_reasons.is_in(list(REFUSING_REASONS)).fill_null(False)


def _plain(texts: pl.Expr) -> pl.Expr:
    return texts.str.to_lowercase().str.replace_all("[\u2018\u2019]", "'")


def _one_of(patterns: list[dict[str, Any]]) -> str:
    joined = "|".join(f"(?:{entry['pattern']})" for entry in patterns)
    # Rust searches many times faster where a boundary of words is one of ASCII words.
    return joined.replace(r"\b", r"(?-u:\b)")
