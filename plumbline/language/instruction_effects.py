"""Effects of an instruction against stereotypes: on the spread of scores within sets, refusals and length."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import polars as pl

from plumbline.catalog.schema import NO_INSTRUCTION, Row, metric_frame
from plumbline.language.answers import UNIT, answer_row, paired_change_row, parts, questions, with_counterparts
from plumbline.language.cell import LanguageCell, LanguageResult, LanguageSettings
from plumbline.language.max_toxicity import MAX_METRICS, set_spreads, spread_change_rows
from plumbline.language.refusals import REFUSED
from plumbline.language.scored_answers import every_question
from plumbline.language.tokens import word_number
from plumbline.metrics.family import Family

_PART = ["dataset", "attribute", "scorer", "scored"]
_SET = [*_PART, "unit", "seed"]


def instructed(cell: LanguageCell) -> Iterator[tuple[str, list[str]]]:
    """Yield each prompt that was asked both as it is and under instructions, with those."""
    for prompt, of_prompt in groupby(questions(cell), key=lambda question: question[0]):
        instructions = [instruction for _, instruction in of_prompt]
        others = [name for name in instructions if name != NO_INSTRUCTION]
        if NO_INSTRUCTION in instructions and others:
            yield prompt, others


def max_change_rows(cell: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return the change of mean and 90th percentile of Max* under each instruction against none.

    Source: Howard et al., 5.2 and Tables 4 and 18 to 20, which subtract without pairing and give no interval. Here the
    same sets × seeds, complete under both, are compared, and the reason says how many were so under one only; negative:
    less under the instruction. Interval and p are by whole sets (`plumbline.statistics.cluster_bootstrap`); n: sets
    of pairs.
    """
    rows: list[Row] = []
    pairs = {(prompt, name) for prompt, names in instructed(cell) for name in (NO_INSTRUCTION, *names)}
    with every_question(cell, only=pairs) as questions:
        for prompt, of_prompt in groupby(questions, key=lambda each: each.prompt):
            spreads = {each.instruction: set_spreads(each, cell.expected).spreads for each in of_prompt}
            plain = spreads.pop(NO_INSTRUCTION, None)
            if plain is None:
                continue
            for instruction, after in spreads.items():
                matched = with_counterparts(after, plain, on=_SET, by=_PART)
                known = matched.filter(pl.col("scored").cast(pl.String).is_in(list(MAX_METRICS)))
                for names, of_scores in parts(known, *_PART):
                    columns = dict(zip(_PART[:-1], names)) | {"metric": f"{MAX_METRICS[names[-1]]}_change"}
                    row = answer_row(cell.model, definition="paper", prompt=prompt, instruction=instruction, **columns)
                    labels = (cell.model, *names, prompt, instruction)
                    rows += spread_change_rows(of_scores, row, labels=labels, draws="change", settings=settings)
    return rows


# --- What an instruction does beside what it is for: more refusals, other lengths.

_ANSWER_PART = ["dataset", "attribute"]
_ANSWER = [*_ANSWER_PART, "unit", "image_id", "seed"]
_CHANGES = {"refusal_rate_change": ("refused", "estimate"), "response_length_change": ("words", "mean")}
"""Metric -> what is compared, and the statistic."""


def side_effect_rows(cell: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return the change of the refusal rate and of the mean length in words under each instruction against none.

    The same images and seeds are compared, answer by answer, and the reason says how many answers had no counterpart;
    negative: less under the instruction. Interval and p are by whole sets; n: sets of pairs.
    """
    rows: list[Row] = []
    for prompt, instructions in instructed(cell):
        before = _answers(cell, prompt, NO_INSTRUCTION)
        for instruction in instructions:
            matched = with_counterparts(_answers(cell, prompt, instruction), before, on=_ANSWER, by=_ANSWER_PART)
            for names, answers in parts(matched, *_ANSWER_PART):
                columns = dict(zip(_ANSWER_PART, names)) | {"prompt": prompt, "instruction": instruction}
                for metric, (column, statistic) in _CHANGES.items():
                    row = answer_row(
                        cell.model, metric=metric, definition="paired", **columns | {"statistic": statistic}
                    )
                    labels = (cell.model, *names, prompt, instruction, metric)
                    rows.append(
                        paired_change_row(answers, column, row, what="answers", labels=labels, settings=settings)
                    )
    return rows


def _answers(cell: LanguageCell, prompt: str, instruction: str) -> pl.DataFrame:
    generations = cell.generations.filter(
        pl.col("prompt") == prompt, pl.col("instruction") == instruction, pl.col("attribute").is_not_null()
    )
    words = word_number(pl.col("text").fill_null("")).cast(pl.Float64)
    return (
        generations.select(
            "dataset", "attribute", "image_id", "seed", unit=UNIT, refused=REFUSED.cast(pl.Float64), words=words
        )
        .unique(_ANSWER)
        .collect(engine="streaming")
    )


# --- The family.


def compute_instruction_effects(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return the changes under every instruction of every prompt that was asked without one too."""
    rows = max_change_rows(cell, settings=settings) + side_effect_rows(cell, settings=settings)
    return LanguageResult(metric_frame(rows))


INSTRUCTION_EFFECTS = Family(name="instruction_effects", needs=("scores",), compute=compute_instruction_effects)
