"""The scores of the answers to one prompt under one instruction, in files of whole sets: read a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.language.cell import LanguageCell
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.text.refusals import refused

NAME = pl.Categorical
"""Four bytes a row instead of sixteen and more: names repeat over seeds, scorers and attributes."""
REFUSED = refused(pl.col("text").fill_null(""), pl.col("finish_reason"))
"""Whether an answer is a refusal: the source says so, or its text does."""
OF_SCORES = ("dataset", "attribute", "scorer", "scored")
"""Names the scores that are compared with each other."""
_IN_ORDER = ("unit", "group", "seed", "answer")


@dataclass(frozen=True)
class ScoredAnswers:
    """The answers to one question, and their scores; made by `plumbline.language.scored_blocks.every_question`.

    Attributes
    ----------
    model, prompt, instruction : str
    blocks : tuple of LazyFrame
        Over files. A set is in one block with all its images and seeds. One row an answer, scorer and scored attribute,
        with names as `NAME`: `answer` (tells answers apart), `dataset, subset, attribute, group, occupation, set_id,
        seed, unit, refused, scorer, scored, score`. Only of images whose group is known. Scores that are nan are left
        out; an answer without any has one row with null for scorer, attribute and score.
    """

    model: str
    prompt: str
    instruction: str
    blocks: tuple[pl.LazyFrame, ...]

    @property
    def columns(self) -> dict[str, object]:
        """Return what every metric row about these answers says; the instruction is null for none."""
        instruction = None if self.instruction == NO_INSTRUCTION else self.instruction
        return {"prompt": self.prompt, "instruction": instruction}

    @cached_property
    def kinds(self) -> pl.DataFrame:
        """Return the `OF_SCORES` that there are."""
        found = [
            block.select(OF_SCORES).drop_nulls().unique().collect(engine="streaming") for block in self.blocks
        ]
        return pl.concat(found).unique() if found else pl.DataFrame(schema=dict.fromkeys(OF_SCORES, NAME))

    @cached_property
    def any_refused(self) -> bool:
        """Return whether an answer is a refusal."""
        return any(
            bool(block.select(pl.col("refused").any()).collect(engine="streaming").item())
            for block in self.blocks
        )

    def scores(self, *columns: str, **where: str) -> Iterator[pl.DataFrame]:
        """Yield some columns of the rows with a score, block by block; `where` gives names that rows have."""
        for block in self.blocks:
            chosen = [pl.col(name) == value for name, value in where.items()]
            yield block.filter(pl.col("score").is_not_null(), *chosen).select(columns).collect()

    def scores_of(self, names: tuple[str, ...], *columns: str) -> pl.DataFrame:
        """Return some columns of all scores of one of `OF_SCORES`: what a quantile or a rank needs at once.

        Sums of floats depend on their order in the last digits: it is that of names, whatever the files and blocks.
        """
        wanted = dict.fromkeys((*_IN_ORDER, *columns))
        found = list(self.scores(*wanted, **dict(zip(OF_SCORES, names))))
        return pl.concat(found).sort(_IN_ORDER).select(columns)


def questions(cell: LanguageCell) -> list[tuple[str, str]]:
    """Return the prompts and instructions that were asked, in order."""
    asked = cell.generations.select("prompt", "instruction").unique().collect(engine="streaming")
    return sorted(asked.drop_nulls().iter_rows())


def parts(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[str, ...], pl.DataFrame]]:
    """Yield the parts of a frame by columns of names, in the order of the names."""
    found = frame.partition_by(list(by), as_dict=True)
    for names in sorted(found, key=lambda key: tuple(str(name) for name in key)):
        yield tuple(str(name) for name in names), found[names]


def codes(names: pl.Series) -> NDArray[np.int64]:
    """Return names as codes from 0, in the order of the names."""
    return (names.cast(pl.String).rank("dense").cast(pl.Int64) - 1).to_numpy()
