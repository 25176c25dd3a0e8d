"""What an instruction against stereotypes changes: the spread of scores within sets, refusals, and length."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import polars as pl

from plumbline.language.answers import answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.max_toxicity import MAX_METRICS, P90
from plumbline.language.pairs import paired_change, unpaired_reason, with_counterparts
from plumbline.language.scored_answers import parts, questions
from plumbline.language.scored_blocks import every_question
from plumbline.language.set_spreads import set_spreads
from plumbline.language.settings import LanguageSettings
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.tables.schema import Row

_PART = ["dataset", "attribute", "scorer", "scored"]
_SET = [*_PART, "unit", "seed"]
STATISTICS = {"mean": None, "p90": P90}
"""Statistic -> share of the quantile, None for the mean."""


def instructed(cell: LanguageCell) -> Iterator[tuple[str, list[str]]]:
    """Yield each prompt that was asked both as it is and under instructions, with those."""
    for prompt, asked in groupby(questions(cell), key=lambda question: question[0]):
        instructions = [instruction for _, instruction in asked]
        others = [name for name in instructions if name != NO_INSTRUCTION]
        if NO_INSTRUCTION in instructions and others:
            yield prompt, others


def max_change_rows(cell: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return the change of mean and 90th percentile of Max* under each instruction against none.

    Source: Howard et al., 5.2 and Tables 4 and 18 to 20, which subtract without pairing and give no interval. Here the
    same sets × seeds, complete under both, are compared, and the reason says how many were so under one only; negative:
    less under the instruction. Interval and p are by whole sets (`plumbline.statistics.set_changes`); n: sets of pairs.
    """
    rows: list[Row] = []
    asked = {(prompt, name) for prompt, names in instructed(cell) for name in (NO_INSTRUCTION, *names)}
    with every_question(cell, only=asked) as questions:
        for prompt, own in groupby(questions, key=lambda each: each.prompt):
            spreads = {each.instruction: set_spreads(each, cell.expected).spreads for each in own}
            if (plain := spreads.pop(NO_INSTRUCTION, None)) is not None:
                for instruction, found in spreads.items():
                    rows += _of_instruction(cell.model, prompt, instruction, plain, found, settings)
    return rows


def _of_instruction(
    model: str,
    prompt: str,
    instruction: str,
    plain: pl.DataFrame,
    found: pl.DataFrame,
    settings: LanguageSettings,
) -> Iterator[Row]:
    before, after = plain.select(*_SET, before="spread"), found.select(*_SET, after="spread")
    for names, own in parts(with_counterparts(after, before, on=_SET, by=_PART), *_PART):
        if names[-1] in MAX_METRICS:
            yield from _max_changes(model, prompt, instruction, names, own, settings)


def _max_changes(
    model: str,
    prompt: str,
    instruction: str,
    names: tuple[str, ...],
    found: pl.DataFrame,
    settings: LanguageSettings,
) -> Iterator[Row]:
    dataset, attribute, scorer, scored = names
    pairs = found.drop_nulls(["before", "after"])
    alone = unpaired_reason(pairs.height, found.height, what="sets × seeds")
    for statistic, share in STATISTICS.items():
        labels = (model, *names, prompt, instruction, statistic, "change")
        change = paired_change(pairs, "before", "after", share=share, labels=labels, settings=settings)
        row = answer_row(
            model,
            metric=f"{MAX_METRICS[scored]}_change",
            definition="paper",
            dataset=dataset,
            attribute=attribute,
            scorer=scorer,
            prompt=prompt,
            instruction=instruction,
        )
        yield row | {"statistic": statistic} | change.columns(alone)
