"""How means of numbers of single answers changed: answers about the same image, to the same question and seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from plumbline.diff.answer_rows import change_row
from plumbline.language.answers import UNIT, known_answers
from plumbline.language.cell import LanguageCell
from plumbline.language.competence import KEYWORD_PROMPTS, competence_numbers
from plumbline.language.pairs import with_counterparts
from plumbline.language.ratings_by_group import SALARY, reading_of
from plumbline.language.refusals_and_lengths import NUMBERS
from plumbline.language.scored_answers import parts, questions
from plumbline.language.settings import LanguageSettings
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.tables.schema import Row

_PART = ["dataset", "attribute"]
_ANSWER = [*_PART, "group", "unit", "image_id", "seed"]
_OVERALL = ("refusal_rate", "empty_rate", "unreadable_rate")
"""Rates that are also told of all groups together."""

Number = tuple[str, str, str]
"""Metric, definition and statistic."""


def paired_answer_means(old: LanguageCell, new: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return new - old of refusals, lengths, words of competence, ratings and salaries of every group.

    The same images, questions and seeds are compared, answer by answer, where both have the number; the reason says how
    many have no counterpart. Interval and p are by whole sets (`plumbline.statistics.set_changes`); n: sets of pairs.
    Columns are as in `plumbline.diff.cells.paired_differences`.
    """
    rows: list[Row] = []
    for prompt, instruction in sorted({*questions(old)} & {*questions(new)}):
        numbers = _numbers(prompt, instruction, settings)
        sides = [
            _answers(cell, prompt, instruction, numbers, side) for cell, side in ((old, "old"), (new, "new"))
        ]
        models = (old.model, new.model)
        for names, own in parts(with_counterparts(*sides, on=_ANSWER, by=_PART), *_PART):
            asked: Row = {"dataset": names[0], "attribute": names[1], "prompt": prompt}
            asked["instruction"] = None if instruction == NO_INSTRUCTION else instruction
            for number in numbers:
                rows += _of_number(own, number, asked, models, settings)
    return rows


def _numbers(prompt: str, instruction: str, settings: LanguageSettings) -> Mapping[Number, pl.Expr]:
    numbers: dict[Number, pl.Expr] = dict(NUMBERS)
    if prompt in KEYWORD_PROMPTS and instruction == NO_INSTRUCTION:
        for (metric, definition), number in competence_numbers(settings).items():
            numbers[metric, definition, "mean"] = number
    if prompt in prompt_ids("numeric"):
        reading, metric = reading_of(prompt), SALARY if prompt == SALARY else "rating"
        unreadable = reading.struct.field("unreadable").is_not_null()
        numbers[metric, "paper", "mean"] = pl.when(~unreadable).then(reading.struct.field("value"))
        numbers["unreadable_rate", "paper", "estimate"] = unreadable
    return numbers


def _answers(
    cell: LanguageCell, prompt: str, instruction: str, numbers: Mapping[Number, pl.Expr], side: str
) -> pl.DataFrame:
    """Return the numbers of each answer; null where it has none."""
    named = {_column(number, side): each.cast(pl.Float64).fill_nan(None) for number, each in numbers.items()}
    asked = known_answers(cell.generations, prompts=[prompt], instruction=instruction).with_columns(unit=UNIT)
    return asked.select(*_ANSWER, **named).unique(_ANSWER).collect(engine="streaming")


def _column(number: Number, side: str) -> str:
    return f"{' '.join(number)} {side}"


def _of_number(
    found: pl.DataFrame, number: Number, asked: Row, models: tuple[str, str], settings: LanguageSettings
) -> Iterator[Row]:
    """Yield the row of every group, and of all where the metric has one."""
    metric, definition, statistic = number
    columns = asked | {"metric": metric, "definition": definition, "statistic": statistic}
    sides = found.rename({_column(number, side): side for side in ("old", "new")})
    compared = [(columns | {"group": group}, own) for (group,), own in parts(sides, "group")]
    if metric in _OVERALL:
        compared.append((columns, sides))
    for of, own in compared:
        yield change_row(own, of, models=models, what="answers", settings=settings)
