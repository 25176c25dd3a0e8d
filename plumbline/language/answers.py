"""Whose answers they are: groups and independent units of the rows of a table of generations."""

from __future__ import annotations

import polars as pl

Row = dict[str, object]

UNIT = pl.format(
    "{}/{}",
    pl.col("subset").fill_null(""),
    pl.when(pl.col("set_id").is_null())
    .then(pl.format("image {}", "image_id"))
    .otherwise(pl.format("set {}", "set_id")),
)
"""What is resampled as a whole: the counterfactual set; an image without one is a set of its own, with all its
answers."""


def known_answers(generations: pl.LazyFrame, *, prompts: tuple[str, ...], instruction: str) -> pl.LazyFrame:
    """Return the answers to some prompts under one instruction, of images whose group is known."""
    return generations.filter(
        pl.col("prompt").is_in(prompts),
        pl.col("instruction") == instruction,
        pl.col("attribute").is_not_null(),
        pl.col("group").is_not_null(),
    )


def answer_row(model: str, **columns: object) -> Row:
    """Return the columns that every row about generated texts has."""
    row: Row = {"model": model, "suite": "generation", "condition": "before", "statistic": "estimate"}
    return row | columns
