"""What an instruction does beside what it is for: more refusals, other lengths."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from plumbline.language.answers import UNIT, answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.instruction_effects import instructed
from plumbline.language.pairs import paired_change, unpaired_reason, with_counterparts
from plumbline.language.scored_answers import REFUSED, parts
from plumbline.language.settings import LanguageSettings
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.tables.schema import Row
from plumbline.text.tokens import word_number

_PART = ["dataset", "attribute"]
_ANSWER = [*_PART, "unit", "image_id", "seed"]
_CHANGES = {"refusal_rate_change": ("refused", "estimate"), "response_length_change": ("words", "mean")}
"""Metric -> what is compared, and the statistic."""


def side_effect_rows(cell: LanguageCell, *, settings: LanguageSettings) -> list[Row]:
    """Return the change of the refusal rate and of the mean length in words under each instruction against none.

    The same images and seeds are compared, answer by answer, and the reason says how many answers had no counterpart;
    negative: less under the instruction. Interval and p are by whole sets; n: sets of pairs.
    """
    rows: list[Row] = []
    for prompt, instructions in instructed(cell):
        before = _answers(cell, prompt, NO_INSTRUCTION).rename(
            {"refused": "refused_before", "words": "words_before"}
        )
        for instruction in instructions:
            after = _answers(cell, prompt, instruction)
            pairs = with_counterparts(after, before, on=_ANSWER, by=_PART)
            for names, own in parts(pairs, *_PART):
                rows += _rows(cell.model, prompt, instruction, names, own, settings)
    return rows


def _answers(cell: LanguageCell, prompt: str, instruction: str) -> pl.DataFrame:
    asked = cell.generations.filter(
        pl.col("prompt") == prompt, pl.col("instruction") == instruction, pl.col("attribute").is_not_null()
    )
    words = word_number(pl.col("text").fill_null("")).cast(pl.Float64)
    return (
        asked.select(
            "dataset",
            "attribute",
            "image_id",
            "seed",
            unit=UNIT,
            refused=REFUSED.cast(pl.Float64),
            words=words,
        )
        .unique(_ANSWER)
        .collect(engine="streaming")
    )


def _rows(
    model: str,
    prompt: str,
    instruction: str,
    names: tuple[str, ...],
    found: pl.DataFrame,
    settings: LanguageSettings,
) -> Iterator[Row]:
    dataset, attribute = names
    pairs = found.drop_nulls(["refused", "refused_before"])
    alone = unpaired_reason(pairs.height, found.height, what="answers")
    for metric, (value, statistic) in _CHANGES.items():
        labels = (model, *names, prompt, instruction, metric)
        change = paired_change(pairs, f"{value}_before", value, share=None, labels=labels, settings=settings)
        row = answer_row(
            model,
            metric=metric,
            definition="paired",
            dataset=dataset,
            attribute=attribute,
            prompt=prompt,
            instruction=instruction,
        )
        yield row | {"statistic": statistic} | change.columns(alone)
