"""The answers whose words are compared between groups, pooled over prompts and dealt to blocks of whole sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from plumbline.language.answers import UNIT, known_answers
from plumbline.language.cell import LanguageCell
from plumbline.statistics.seeds import generator
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.text.batches import text_batches

BLOCKS = 40
"""Whole sets are dealt to so many blocks, over which errors are measured: 39 degrees of freedom widen an interval by 3%
against infinitely many, and the counts stay small."""


_NAMES = ["dataset", "attribute", "group"]


@dataclass(frozen=True)
class Corpus:
    """The answers that are pooled, by group.

    What they are joined with is joined batch by batch: in a lazy query the joins run ahead of the counting, and hold
    gigabytes of texts that wait for it.

    Attributes
    ----------
    answers : LazyFrame
    parts : DataFrame
        `part` (0 .. in order), `dataset`, `attribute`, `group`, `answers`, `sets`, `prompts`: one row a group.
    blocks : DataFrame
        `dataset`, `attribute`, `unit`, `block`: one row a set.
    """

    answers: pl.LazyFrame
    parts: pl.DataFrame
    blocks: pl.DataFrame

    def by_part(self) -> Iterator[pl.DataFrame]:
        """Yield `part`, `text` of every answer, some answers at a time."""
        for batch in text_batches(self.answers, keep={name: pl.col(name) for name in _NAMES}):
            yield batch.join(self.parts, on=_NAMES).select("part", "text")

    def by_cell(self) -> Iterator[pl.DataFrame]:
        """Yield `cell`, `text` of every answer: its part × `BLOCKS` plus its block."""
        kept = (*_NAMES, "subset", "set_id", "image_id")
        for batch in text_batches(self.answers, keep={name: pl.col(name) for name in kept}):
            yield (
                batch.with_columns(unit=UNIT)
                .join(self.parts, on=_NAMES)
                .join(self.blocks, on=["dataset", "attribute", "unit"])
                .select("text", cell=pl.col("part") * BLOCKS + pl.col("block"))
            )


def main_corpus(cell: LanguageCell, *, seed: int) -> Corpus:
    """Pool the answers to the five main prompts as they are, without any instruction (the paper, appendix D.1).

    Prompts that were not asked are absent. Only names are read here, no texts.
    """
    answers = known_answers(cell.generations, prompts=prompt_ids("main"), instruction=NO_INSTRUCTION)
    # By prompt too: what a group holds of many rows would otherwise be kept until all are seen.
    asked = answers.group_by(*_NAMES, "prompt").agg(answers=pl.len()).collect(engine="streaming")
    of_groups = answers.select(*_NAMES, unit=UNIT).unique().collect(engine="streaming")
    parts = (
        asked.group_by(_NAMES)
        .agg(pl.col("answers").sum(), prompts=pl.col("prompt").sort())
        .join(of_groups.group_by(_NAMES).agg(sets=pl.len().cast(pl.Int64)), on=_NAMES)
        .sort(_NAMES)
        .with_columns(part=pl.int_range(pl.len()))
    )
    units = of_groups.select("dataset", "attribute", "unit").unique()
    of_subset = units.sort("dataset", "attribute", "unit").partition_by("dataset", "attribute")
    dealt = [_dealt(each, seed=seed, model=cell.model) for each in of_subset]
    return Corpus(answers, parts, pl.concat([units.clear().with_columns(block=pl.lit(0, pl.Int64)), *dealt]))


def _dealt(units: pl.DataFrame, *, seed: int, model: str) -> pl.DataFrame:
    """Deal the sets of one attribute to blocks of nearly equal size."""
    rng = generator(seed, model, units["dataset"][0], units["attribute"][0], "blocks of sets")
    return units.with_columns(block=pl.Series(rng.permutation(units.height) % min(BLOCKS, units.height)))
