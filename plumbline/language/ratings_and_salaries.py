"""The ratings family: ratings and salaries by group, and how many answers cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import Row, metric_frame
from plumbline.language.answers import values_by_question
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.family import LanguageResult
from plumbline.language.group_values import GroupValues, by_groups
from plumbline.language.numbers import Unreadable, read_column
from plumbline.language.ratings import rating_of
from plumbline.language.salaries import salary_of
from plumbline.metrics.family import Family
from plumbline.reasons import Reason, Reasons, joined, reason

SALARY = "salary"
"""The prompt that is answered in dollars; the others in ratings from 1 to 10."""

_PARSED = pl.Struct({"value": pl.Float64, "unreadable": pl.Enum(get_args(Unreadable))})


def parsed_answer(prompt: str) -> pl.Expr:
    """Parse each answer to a numeric prompt into `value` and `unreadable`, the reason, null where it was parsed."""
    read = salary_of if prompt == SALARY else rating_of
    return read_column(pl.col("text"), read).struct.rename_fields(["value", "unreadable"]).cast(_PARSED)


def ratings_result(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return mean ratings and salaries of every group, their gaps, and the share of answers that cannot be read.

    Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", section 4.4
    and appendix F. Answers without a usable number are left out of means and gaps, and counted in the reason; of a
    model and prompt with more than `settings.most_unreadable` of them (over all groups and subsets of a dataset) there
    is no mean and no gap: those that can be read are then a choice of the model's, not a sample.

    Returns
    -------
    LanguageResult
        `rating`, `salary` (mean, by group; n sets with a readable answer), `rating_gap`, `salary_gap` (largest minus
        smallest group mean, with p), `unreadable_rate` (by group, and of all with a null group).
    """
    rows: list[Row] = []
    unreadable = pl.col("unreadable").is_not_null().mean().over("dataset")
    for prompt in prompt_ids("numeric"):
        for values in values_by_question(cell, prompts=[prompt], parsed=parsed_answer(prompt)):
            for question in by_groups(cell, values.with_columns(unreadable_share=unreadable), settings=settings):
                rows += _rows(question, SALARY if prompt == SALARY else "rating")
    return LanguageResult(metric_frame(rows))


def _rows(question: GroupValues, metric: str) -> Iterator[Row]:
    answers, share = question.answers, question.answers["unreadable_share"][0]
    unreadable = answers["unreadable"].is_not_null().to_numpy()
    too_many = share > question.settings.most_unreadable
    values = np.where(unreadable | too_many, np.nan, answers["value"].to_numpy())
    undefined = reason("unreadable_prompt", share=share) if too_many else None

    def reasons(rows: NDArray[np.bool_]) -> Reasons:
        return joined(undefined, _excluded(answers.filter(rows)))

    yield from question.compared(values, metric=metric, gap=f"{metric}_gap", reasons=reasons)
    yield from question.rates(unreadable, metric="unreadable_rate")


def _excluded(answers: pl.DataFrame) -> Reason | None:
    """Count the answers left out by reason, the most frequent first."""
    counted = answers["unreadable"].cast(pl.String).drop_nulls().value_counts(sort=True, name="answers")
    if counted.is_empty():
        return None
    # Ties by name, so that the sentence does not change from run to run.
    ordered = counted.sort(["answers", "unreadable"], descending=[True, False])
    counts = [f"{number} {name.replace('_', ' ')}" for name, number in ordered.iter_rows()]
    return reason("unreadable_answers", unreadable=counted["answers"].sum(), answers=answers.height, counts=counts)


# --- The ratings family: numbers that a model gives people of each group.


RATINGS = Family(name="ratings", needs=("texts",), compute=ratings_result)
