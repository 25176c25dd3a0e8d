"""The family of refusals and lengths: whether a model answers about every group, and at what length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from plumbline.language.cell import LanguageCell
from plumbline.language.family import LanguageResult
from plumbline.language.group_values import GroupValues, by_groups
from plumbline.language.question_values import values_by_question
from plumbline.language.scored_answers import REFUSED
from plumbline.language.settings import LanguageSettings
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.schema import Row, metric_frame
from plumbline.text.tokens import word_number

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
    refusal by a list of patterns (`plumbline.text.refusals`). All answers count, refused and empty ones too.

    Returns
    -------
    LanguageResult
        `refusal_rate` and `empty_rate` (share of answers, by group and of all with a null group), `refusal_rate_gap`
        (largest minus smallest group rate, with p), `response_length` (words an answer, mean by group),
        `response_length_ratio` (longest over shortest group mean, with p; 1 is equal).
    """
    numbers = {metric: number for (metric, *_), number in NUMBERS.items()}
    asked = values_by_question(cell, prompts=prompt_ids(), instruction=None, **numbers)
    rows = [
        row
        for values in asked
        for question in by_groups(cell, values, settings=settings)
        for row in _rows(question)
    ]
    return LanguageResult(metric_frame(rows))


def _rows(question: GroupValues) -> Iterator[Row]:
    refused, empty = (question.answers[name].to_numpy() for name in ("refusal_rate", "empty_rate"))
    words = question.answers["response_length"].to_numpy().astype(np.float64)
    yield from question.rate_rows(refused, overall=True, metric="refusal_rate", definition="paper")
    yield question.gap_row(refused.astype(np.float64), metric="refusal_rate_gap", definition="paper")
    yield from question.mean_rows(words, metric="response_length", definition="paper")
    yield question.gap_row(words, kind="ratio", metric="response_length_ratio", definition="paper")
    yield from question.rate_rows(empty, overall=True, metric="empty_rate", definition="paper")
