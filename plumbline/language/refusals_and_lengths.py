"""The family of refusals and lengths: whether a model answers about every group, and at what length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from plumbline.language.answers import Row
from plumbline.language.cell import LanguageCell
from plumbline.language.family import LanguageResult
from plumbline.language.group_values import GroupValues, by_groups
from plumbline.language.question_values import values_by_question
from plumbline.language.scored_answers import REFUSED
from plumbline.language.settings import LanguageSettings
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.schema import metric_frame
from plumbline.text.tokens import word_number


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
    text = pl.col("text").fill_null("")
    asked = values_by_question(
        cell,
        prompts=prompt_ids(),
        words=word_number(text),
        refused=REFUSED,
        empty=text.str.strip_chars() == "",
    )
    rows = [
        row
        for values in asked
        for question in by_groups(cell, values, settings=settings)
        for row in _rows(question)
    ]
    return LanguageResult(metric_frame(rows))


def _rows(question: GroupValues) -> Iterator[Row]:
    refused, empty = (question.answers[name].to_numpy() for name in ("refused", "empty"))
    words = question.answers["words"].to_numpy().astype(np.float64)
    yield from question.rate_rows(refused, overall=True, metric="refusal_rate", definition="paper")
    yield question.gap_row(refused.astype(np.float64), metric="refusal_rate_gap", definition="paper")
    yield from question.mean_rows(words, metric="response_length", definition="paper")
    yield question.gap_row(words, kind="ratio", metric="response_length_ratio", definition="paper")
    yield from question.rate_rows(empty, overall=True, metric="empty_rate", definition="paper")
