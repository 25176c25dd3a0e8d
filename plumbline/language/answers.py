"""The answers of a generative model: their groups and independent units, by question, alone or paired."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.reasons import Reason, reason
from plumbline.statistics.cluster_changes import paired_cluster_changes
from plumbline.statistics.seeds import generator

UNIT = pl.format(
    "{}/{}",
    pl.col("subset").fill_null(""),
    pl.when(pl.col("set_id").is_null())
    .then(pl.format("image {}", "image_id"))
    .otherwise(pl.format("set {}", "set_id")),
)
"""What is resampled as a whole: the counterfactual set; an image without one is a set of its own, with all its
answers."""


NAME = pl.Categorical
"""Four bytes a row instead of sixteen and more: names repeat over seeds, scorers and attributes."""


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
        pl.col("prompt").is_in(list(prompts)), pl.col("attribute").is_not_null(), pl.col("group").is_not_null()
    )
    return known if instruction is None else known.filter(pl.col("instruction") == instruction)


def answer_row(model: str, **columns: object) -> Row:
    """Return the columns that every row about generated texts has."""
    row: Row = {"model": model, "suite": "generation", "condition": "before", "statistic": "estimate"}
    return row | columns


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


# --- Numbers of single answers, one question at a time.

OF_GROUPS = ("dataset", "attribute", "prompt", "instruction")
"""What is compared between groups is all of one of these."""

_NAMES = (*OF_GROUPS, "group", "occupation", "unit")


def answer_values(answers: pl.LazyFrame, **values: pl.Expr) -> pl.DataFrame:
    """Return small numbers of every answer, and whose they are as codes: some 40 bytes a row, and no text.

    Parameters
    ----------
    answers : LazyFrame
        In `plumbline.language.cell.DESCRIBED_SCHEMA`; of images whose group is known.
    **values : expression
        Name -> what is kept of each answer, computed row by row as texts stream by; of a struct all fields.

    Returns
    -------
    DataFrame
        `dataset, attribute, prompt, instruction, group, occupation, unit` as Enum, in the order of their names, and
        the values.
    """
    named = answers.with_columns(unit=UNIT).select(*(pl.col(name).cast(NAME) for name in _NAMES), **values)
    found = named.collect(engine="streaming")
    found = found.unnest([name for name in values if isinstance(found.schema[name], pl.Struct)])
    kinds = {name: pl.Enum(found[name].unique().cast(pl.String).drop_nulls().sort()) for name in _NAMES}
    return found.with_columns(pl.col(name).cast(pl.String).cast(kind) for name, kind in kinds.items())


def values_by_question(
    cell: LanguageCell, *, prompts: Collection[str], instruction: str | None = None, **values: pl.Expr
) -> Iterator[pl.DataFrame]:
    """Yield the `answer_values` of one prompt under one instruction after the other: what is in memory at once.

    Parameters
    ----------
    cell : LanguageCell
    prompts, instruction
        As in `plumbline.language.answers.known_answers`.
    **values : expression
        As in `answer_values`.
    """
    for prompt, asked in questions(cell):
        if prompt in prompts and instruction in (None, asked):
            yield answer_values(known_answers(cell.generations, prompts=[prompt], instruction=asked), **values)


# --- What two conditions have in common, how it differs, and how much has no counterpart.


def with_counterparts(
    first: pl.DataFrame, second: pl.DataFrame, *, on: Sequence[str], by: Sequence[str]
) -> pl.DataFrame:
    """Join two conditions row by row, and keep what only one of them has, so that it can be counted.

    Parameters
    ----------
    first, second : DataFrame
        One row a value of `on`.
    on : sequence of str
        Columns that name a pair.
    by : sequence of str
        Columns of it that name a comparison; one that a condition has nothing of was not asked, and is left out.

    Returns
    -------
    DataFrame
        Sorted by `on`; the columns of the side that lacks a row are null.
    """
    sides = [side.join(other, on=list(by), how="semi") for side, other in ((first, second), (second, first))]
    return sides[0].join(sides[1], on=list(on), how="full", coalesce=True).sort(on)


def unpaired_reason(pairs: int, of: int, *, what: str) -> Reason | None:
    """Return the reason that some had no counterpart; `what` names them, such as `answers`."""
    return None if pairs == of else reason("without_counterpart", left_out=of - pairs, pairs=of, what=what)


def paired_change_row(
    matched: pl.DataFrame,
    before: str,
    after: str,
    *,
    what: str,
    quantile: float | None,
    labels: Sequence[str],
    settings: LanguageSettings,
    row: Row,
) -> Row:
    """Return the row of the change between two conditions of the same sets.

    Parameters
    ----------
    matched : DataFrame
        Of `with_counterparts`, with `unit`, the set that is drawn as a whole, and a column of numbers per condition.
    before, after : str
        These columns.
    what : str
        What the pairs are, such as `answers`: the reason counts those without a counterpart.
    quantile : float or None
        Level of the quantile to compare; None for the mean.
    labels : sequence of str
        What the draws are named by.
    row : Row
        The columns that say what is compared.

    Returns
    -------
    Row
        `row` with after - before, its interval and p by whole sets, and n, the sets with pairs; see
        `plumbline.statistics.cluster_changes`.
    """
    pairs = matched.drop_nulls([before, after])
    change = paired_cluster_changes(
        pairs[before].to_numpy(),
        pairs[after].to_numpy(),
        codes(pairs["unit"]),
        quantile=quantile,
        resamples=settings.resamples,
        permutations=settings.permutations,
        rng=generator(settings.seed, *labels),
        confidence=settings.confidence,
    )
    return row | change.columns(unpaired_reason(pairs.height, matched.height, what=what))
