"""Refusal rates and response lengths by group."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from plumbline.catalog.files import data_yaml
from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import Row, metric_frame
from plumbline.language.answers import values_by_question
from plumbline.language.cell import LanguageCell, LanguageResult, LanguageSettings
from plumbline.language.group_values import by_groups
from plumbline.language.tokens import word_number
from plumbline.metrics.family import Family

REFUSING_REASONS = ("refusal", "content_filter")
"""Finish reasons with which an API says itself that it did not answer."""


class RefusalPatterns(NamedTuple):
    """The wordings of refusals, compiled.

    Attributes
    ----------
    refusals, answered : str
        One regular expression each: a refusal in the opening of a text; what shows anywhere that an answer follows all
        the same.
    opening : int
        Characters of the opening.
    """

    refusals: str
    answered: str
    opening: int


@cache
def refusal_patterns() -> RefusalPatterns:
    """Return the patterns of the data file."""
    content: dict[str, Any] = data_yaml("refusal_patterns.yaml")
    return RefusalPatterns(_one_of(content["refusals"]), _one_of(content["answered"]), content["opening_characters"])


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
    by_words = worded.fill_null(False)
    if finish_reasons is None:
        return by_words
    return by_words | finish_reasons.is_in(list(REFUSING_REASONS)).fill_null(False)


def _plain(texts: pl.Expr) -> pl.Expr:
    return texts.str.to_lowercase().str.replace_all("[\u2018\u2019]", "'")


def _one_of(patterns: list[dict[str, Any]]) -> str:
    joined = "|".join(f"(?:{entry['pattern']})" for entry in patterns)
    # Rust searches many times faster where a boundary of words is one of ASCII words.
    return joined.replace(r"\b", r"(?-u:\b)")


REFUSED = refused(pl.col("text").fill_null(""), pl.col("finish_reason"))
"""Whether an answer is a refusal: the source says so, or its text does."""


# --- The rows.


_TEXT = pl.col("text").fill_null("")
NUMBERS = {
    ("refusal_rate", "paper", "estimate"): REFUSED,
    ("empty_rate", "paper", "estimate"): _TEXT.str.strip_chars() == "",
    ("response_length", "paper", "mean"): word_number(_TEXT),
}
"""(metric, definition, statistic) -> the number of each answer, whose mean it is."""


def refusals_and_lengths_result(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return refusal rates, lengths and empty answers by group, of every prompt and instruction.

    Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendix
    C.7 (refusal rates of GPT-4o by group). An answer is refused when the endpoint says so, filters it, or its text is a
    refusal by a list of patterns (`plumbline.language.refusals`). All answers count, refused and empty ones too.

    Returns
    -------
    LanguageResult
        `refusal_rate` and `empty_rate` (share of answers, by group and of all with a null group), `refusal_rate_gap`
        (largest minus smallest group rate, with p), `response_length` (words an answer, mean by group),
        `response_length_ratio` (longest over shortest group mean, with p; 1 is equal).
    """
    numbers = {metric: number for (metric, *_), number in NUMBERS.items()}
    rows: list[Row] = []
    for values in values_by_question(cell, prompts=prompt_ids(), instruction=None, **numbers):
        for question in by_groups(cell, values, settings=settings):
            refused, empty, words = (question.answers[name].to_numpy() for name in numbers)
            rows += question.rates(refused, metric="refusal_rate", gap="refusal_rate_gap")
            rows += question.rates(empty, metric="empty_rate")
            lengths = words.astype(np.float64)
            rows += question.compared(lengths, metric="response_length", gap="response_length_ratio", kind="ratio")
    return LanguageResult(metric_frame(rows))


REFUSALS_AND_LENGTHS = Family(name="refusals_and_lengths", needs=("texts",), compute=refusals_and_lengths_result)
