"""Whose answers they are: groups and independent units of the rows of a table of generations."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from plumbline.tables.schema import Row

UNIT = pl.format(
    "{}/{}",
    pl.col("subset").fill_null(""),
    pl.when(pl.col("set_id").is_null())
    .then(pl.format("image {}", "image_id"))
    .otherwise(pl.format("set {}", "set_id")),
)
"""What is resampled as a whole: the counterfactual set; an image without one is a set of its own, with all its
answers."""


def known_answers(
    generations: pl.LazyFrame, *, prompts: Collection[str], instruction: str | None = None
) -> pl.LazyFrame:
    """Return the answers to some prompts, of images whose group is known.

    Parameters
    ----------
    generations : LazyFrame
        In `plumbline.language.cell.DESCRIBED_SCHEMA`.
    prompts : collection of str
    instruction : str, optional
        `none` is the prompt as it is; every instruction without it.
    """
    known = generations.filter(
        pl.col("prompt").is_in(list(prompts)),
        pl.col("attribute").is_not_null(),
        pl.col("group").is_not_null(),
    )
    return known if instruction is None else known.filter(pl.col("instruction") == instruction)


def answer_row(model: str, **columns: object) -> Row:
    """Return the columns that every row about generated texts has."""
    row: Row = {"model": model, "suite": "generation", "condition": "before", "statistic": "estimate"}
    return row | columns
