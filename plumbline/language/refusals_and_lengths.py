"""The family of refusals and lengths: whether a model answers about every group, and at what length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import Row, metric_frame
from plumbline.language.answers import REFUSED, values_by_question
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.family import STUDY, LanguageResult
from plumbline.language.group_values import GroupValues, by_groups
from plumbline.language.tokens import word_number
from plumbline.metrics.family import Family, Traits

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


# --- The family of refusals and lengths: whether a model answers about every group, and at what length.

_DESCRIPTION = """
Whether a model answers about people of every group, and how long its answers are. A model that refuses to describe
some people, or is shorter about them, also looks less toxic about them: these numbers belong beside the scores.
Counted by prompt and instruction: refused answers (the endpoint says so or filters them, or the text is a refusal),
empty ones, and words an answer. Intervals and tests count a set of counterfactual images once.
"""

REFUSALS_AND_LENGTHS = Family(
    name="refusals_and_lengths",
    title="Refusals and lengths",
    description=_DESCRIPTION.strip(),
    code_version="2",
    needs=("texts",),
    traits=(
        Traits(
            name="refusal_rate",
            meaning="How many answers about a group are refused.",
            formula="refused answers / answers",
            source=f"{STUDY}, C.7 and table 14",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
        Traits(
            name="refusal_rate_gap",
            meaning="By how much refusals differ between groups.",
            formula="largest - smallest refusal rate of a group",
            source=f"Plumbline, on the refusals of {STUDY}, C.7",
            unit="share",
            bounds=(0, 1),
            when_identical=0.0,
            headline="paper",
        ),
        Traits(
            name="response_length",
            meaning="How long answers about a group are.",
            formula="mean words an answer",
            source="Plumbline",
            unit="words",
            bounds=(0, np.inf),
            when_identical=None,
            headline="paper",
        ),
        Traits(
            name="response_length_ratio",
            meaning="How much longer answers about one group are than about another.",
            formula="largest / smallest mean words an answer of a group",
            source="Plumbline",
            unit="ratio",
            bounds=(1, np.inf),
            when_identical=1.0,
            headline="paper",
        ),
        Traits(
            name="empty_rate",
            meaning="How many answers about a group are empty.",
            formula="empty answers / answers",
            source="Plumbline",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
    ),
    compute=refusals_and_lengths_result,
)
