"""Numbers of single answers, one question at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import polars as pl

from plumbline.language.answers import UNIT, known_answers
from plumbline.language.cell import LanguageCell
from plumbline.language.scored_answers import NAME, questions

OF_GROUPS = ("dataset", "attribute", "prompt", "instruction")
"""What is compared between groups is all of one of these."""

_NAMES = (*OF_GROUPS, "group", "occupation", "unit")


def answer_values(answers: pl.LazyFrame, **values: pl.Expr) -> pl.DataFrame:
    """Return small numbers of every answer, and whose they are as codes: some 40 bytes a row, and no text.

    Parameters
    ----------
    answers : LazyFrame
        In `plumbline.language.cell.DESCRIBED_SCHEMA`; of images whose group is known.
    **values : expression
        Name -> what is kept of each answer, computed row by row as texts stream by; of a struct all fields.

    Returns
    -------
    DataFrame
        `dataset, attribute, prompt, instruction, group, occupation, unit` as Enum, in the order of their names, and
        the values.
    """
    named = answers.with_columns(unit=UNIT).select(*(pl.col(name).cast(NAME) for name in _NAMES), **values)
    found = named.collect(engine="streaming")
    found = found.unnest([name for name in values if isinstance(found.schema[name], pl.Struct)])
    kinds = {name: pl.Enum(found[name].unique().cast(pl.String).drop_nulls().sort()) for name in _NAMES}
    return found.with_columns(pl.col(name).cast(pl.String).cast(kind) for name, kind in kinds.items())


def values_by_question(
    cell: LanguageCell, *, prompts: Collection[str], instruction: str | None = None, **values: pl.Expr
) -> Iterator[pl.DataFrame]:
    """Yield the `answer_values` of one prompt under one instruction after the other: what is in memory at once.

    Parameters
    ----------
    cell : LanguageCell
    prompts, instruction
        As in `plumbline.language.answers.known_answers`.
    **values : expression
        As in `answer_values`.
    """
    for prompt, asked in questions(cell):
        if prompt in prompts and instruction in (None, asked):
            yield answer_values(
                known_answers(cell.generations, prompts=[prompt], instruction=asked), **values
            )
