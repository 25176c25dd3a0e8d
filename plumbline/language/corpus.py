"""The answers whose words are compared between groups, pooled over prompts and dealt to blocks of whole sets."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from plumbline.language.answers import UNIT, known_answers
from plumbline.language.cell import LanguageCell
from plumbline.statistics.seeds import generator
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION

BLOCKS = 40
"""Whole sets are dealt to so many blocks, over which errors are measured: 39 degrees of freedom widen an interval by 3%
against infinitely many, and the counts stay small."""


@dataclass(frozen=True)
class Corpus:
    """The answers that are pooled, by group.

    Attributes
    ----------
    answers : LazyFrame
    parts : DataFrame
        `part` (0 .. in order), `dataset`, `attribute`, `group`, `answers`, `prompts`: one row a group.
    blocks : DataFrame
        `dataset`, `attribute`, `unit`, `block`: one row a set.
    """

    answers: pl.LazyFrame
    parts: pl.DataFrame
    blocks: pl.DataFrame

    def by_part(self) -> pl.LazyFrame:
        """Return `part`, `text` of every answer."""
        whose = self.parts.lazy().select("part", "dataset", "attribute", "group")
        return self.answers.join(whose, on=["dataset", "attribute", "group"]).select("part", "text")

    def by_cell(self) -> pl.LazyFrame:
        """Return `cell`, `text` of every answer: its part × `BLOCKS` plus its block."""
        whose = self.parts.lazy().select("part", "dataset", "attribute", "group")
        return (
            self.answers.select("dataset", "attribute", "group", "text", unit=UNIT)
            .join(whose, on=["dataset", "attribute", "group"])
            .join(self.blocks.lazy(), on=["dataset", "attribute", "unit"])
            .select("text", cell=pl.col("part") * BLOCKS + pl.col("block"))
        )


def main_corpus(cell: LanguageCell, *, seed: int) -> Corpus:
    """Pool the answers to the five main prompts as they are, without any instruction (the paper, appendix D.1).

    Prompts that were not asked are absent. Only names are read here, no texts.
    """
    answers = known_answers(cell.generations, prompts=prompt_ids("main"), instruction=NO_INSTRUCTION)
    names = ["dataset", "attribute", "group"]
    parts = (
        answers.group_by(names)
        .agg(answers=pl.len(), prompts=pl.col("prompt").unique().sort())
        .collect(engine="streaming")
        .sort(names)
        .with_columns(part=pl.int_range(pl.len()))
    )
    units = answers.select("dataset", "attribute", unit=UNIT).unique().collect(engine="streaming")
    of_subset = units.sort("dataset", "attribute", "unit").partition_by("dataset", "attribute")
    dealt = [_dealt(each, seed=seed, model=cell.model) for each in of_subset]
    return Corpus(answers, parts, pl.concat([units.clear().with_columns(block=pl.lit(0, pl.Int64)), *dealt]))


def _dealt(units: pl.DataFrame, *, seed: int, model: str) -> pl.DataFrame:
    """Deal the sets of one attribute to blocks of nearly equal size."""
    rng = generator(seed, model, units["dataset"][0], units["attribute"][0], "blocks of sets")
    return units.with_columns(block=pl.Series(rng.permutation(units.height) % min(BLOCKS, units.height)))
