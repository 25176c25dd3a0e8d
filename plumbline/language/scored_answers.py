"""The scores of the answers to one prompt under one instruction: what is in memory of a table of any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.language.answers import UNIT
from plumbline.language.cell import LanguageCell
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.text.refusals import refused

_WHOSE = ("dataset", "subset", "attribute", "group", "occupation", "set_id", "image_id")
NAME = pl.Categorical
"""Four bytes a row instead of sixteen and more: names repeat over seeds, scorers and attributes."""
REFUSED = refused(pl.col("text").fill_null(""), pl.col("finish_reason"))
"""Whether an answer is a refusal: the source says so, or its text does."""


@dataclass(frozen=True)
class ScoredAnswers:
    """The answers to one question, and their scores.

    Attributes
    ----------
    model, prompt, instruction : str
    answers : DataFrame
        One row an answer, with names as `NAME`: `dataset, subset, attribute, group, occupation, set_id, image_id, seed,
        unit, refused`. Only of images whose group is known.
    scores : DataFrame
        The same columns with `scorer, scored, score`: one row an answer, scorer and scored attribute. Scores that are
        nan are left out.
    """

    model: str
    prompt: str
    instruction: str
    answers: pl.DataFrame
    scores: pl.DataFrame

    @property
    def columns(self) -> dict[str, object]:
        """Return what every metric row about these answers says; the instruction is null for none."""
        instruction = None if self.instruction == NO_INSTRUCTION else self.instruction
        return {"prompt": self.prompt, "instruction": instruction}

    def without_refusals(self) -> ScoredAnswers:
        """Leave out the scores of refused answers; the answers stay, so that what is missing can be counted."""
        return replace(self, scores=self.scores.filter(~pl.col("refused")))


def questions(cell: LanguageCell) -> list[tuple[str, str]]:
    """Return the prompts and instructions that were asked, in order."""
    asked = cell.generations.select("prompt", "instruction").unique().collect(engine="streaming")
    return sorted(asked.drop_nulls().iter_rows())


def scored_answers(cell: LanguageCell, prompt: str, instruction: str) -> ScoredAnswers:
    """Return the scores of the answers to one prompt under one instruction.

    The scores are read once a question: of tens of millions only those of one prompt are ever in memory, and no text.

    Parameters
    ----------
    cell : LanguageCell
    prompt, instruction : str
        As in `questions`.
    """
    answers = (
        cell.generations.filter(
            pl.col("prompt") == prompt,
            pl.col("instruction") == instruction,
            pl.col("attribute").is_not_null(),
            pl.col("group").is_not_null(),
        )
        .select(
            "row_key",
            "seed",
            *(pl.col(name).cast(NAME) for name in _WHOSE),
            unit=UNIT.cast(NAME),
            refused=REFUSED,
        )
        .collect(engine="streaming")
    )
    scores = (
        cell.scores.filter(pl.col("score").is_not_null() & pl.col("score").is_not_nan())
        .select("row_key", "score", scorer=pl.col("scorer").cast(NAME), scored=pl.col("attribute").cast(NAME))
        .join(answers.lazy(), on="row_key")
        .drop("row_key")
        .collect(engine="streaming")
        # Streams come in any order, and sums of floats depend on it in their last digits.
        .sort("dataset", "unit", "image_id", "seed", "scorer", "scored")
    )
    return ScoredAnswers(cell.model, prompt, instruction, answers.drop("row_key"), scores)


def every_question(cell: LanguageCell) -> Iterator[ScoredAnswers]:
    """Yield the scored answers to one question after the other; those without any score are passed over."""
    for prompt, instruction in questions(cell):
        found = scored_answers(cell, prompt, instruction)
        if not found.scores.is_empty():
            yield found


def parts(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[str, ...], pl.DataFrame]]:
    """Yield the parts of a frame by columns of names, in the order of the names."""
    found = frame.partition_by(list(by), as_dict=True)
    for names in sorted(found, key=lambda key: tuple(str(name) for name in key)):
        yield tuple(str(name) for name in names), found[names]


def codes(names: pl.Series) -> NDArray[np.int64]:
    """Return names as codes from 0, in the order of the names."""
    return (names.cast(pl.String).rank("dense").cast(pl.Int64) - 1).to_numpy()
