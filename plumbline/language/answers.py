"""The answers of a generative model: their groups and independent units, by question, alone or paired."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.reasons import Reason, reason
from plumbline.statistics.cluster_bootstrap import paired_cluster_changes

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
    """Return the answers to some prompts about images with a known group.

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
    """Return the columns common to all rows about generated texts."""
    row: Row = {"model": model, "suite": "generation", "condition": "before", "statistic": "estimate"}
    return row | columns


def questions(cell: LanguageCell) -> list[tuple[str, str]]:
    """Return the prompts and instructions that were asked, in order."""
    pairs = cell.generations.select("prompt", "instruction").unique().collect(engine="streaming")
    return sorted(pairs.drop_nulls().iter_rows())


def parts(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[str, ...], pl.DataFrame]]:
    """Yield the parts of a frame by columns of names, in the order of the names."""
    by_names = frame.partition_by(list(by), as_dict=True)
    for names in sorted(by_names, key=lambda key: tuple(str(name) for name in key)):
        yield tuple(str(name) for name in names), by_names[names]


def codes(names: pl.Series) -> NDArray[np.int64]:
    """Return names as codes from 0, in the order of the names."""
    return (names.cast(pl.String).rank("dense").cast(pl.Int64) - 1).to_numpy()


# --- Numbers of single answers, one question at a time.

OF_GROUPS = ("dataset", "attribute", "prompt", "instruction")
"""What is compared between groups is all of one of these."""

_NAMES = (*OF_GROUPS, "group", "occupation", "unit")


def values_by_question(
    cell: LanguageCell, *, prompts: Collection[str], instruction: str | None = None, **values: pl.Expr
) -> Iterator[pl.DataFrame]:
    """Yield numbers of each answer, one prompt and instruction at a time, so that memory stays bounded.

    Groups are encoded as Enum: some 40 bytes a row, and no text.

    Parameters
    ----------
    cell : LanguageCell
    prompts, instruction
        As in `plumbline.language.answers.known_answers`.
    **values : expression
        Name -> what is kept of each answer, computed row by row as texts stream by; of a struct all fields.

    Yields
    ------
    DataFrame
        `dataset, attribute, prompt, instruction, group, occupation, unit` as Enum, in the order of their names, and
        the values.
    """
    for prompt, asked_with in questions(cell):
        if prompt in prompts and instruction in (None, asked_with):
            answers = known_answers(cell.generations, prompts=[prompt], instruction=asked_with).with_columns(unit=UNIT)
            frame = answers.select(*(pl.col(name).cast(NAME) for name in _NAMES), **values).collect(engine="streaming")
            frame = frame.unnest([name for name in values if isinstance(frame.schema[name], pl.Struct)])
            kinds = {name: pl.Enum(frame[name].unique().cast(pl.String).drop_nulls().sort()) for name in _NAMES}
            yield frame.with_columns(pl.col(name).cast(pl.String).cast(kind) for name, kind in kinds.items())


# --- What two conditions have in common, how it differs, and how much has no counterpart.


def with_counterparts(
    after: pl.DataFrame, before: pl.DataFrame, *, on: Sequence[str], by: Sequence[str]
) -> pl.DataFrame:
    """Outer join of two conditions: unmatched rows are kept, so that they can be counted.

    Parameters
    ----------
    after, before : DataFrame
        One row a value of `on`.
    on : sequence of str
        Columns that name a pair.
    by : sequence of str
        Columns of it that name a comparison; one that a condition has nothing of was not asked, and is left out.

    Returns
    -------
    DataFrame
        Sorted by `on`; the columns of the side that lacks a row are null. Of a name that both have, that of `before`
        ends in `_before`.
    """
    sides = [side.join(other, on=list(by), how="semi") for side, other in ((after, before), (before, after))]
    return sides[0].join(sides[1], on=list(on), how="full", coalesce=True, suffix="_before").sort(on)


def unpaired_reason(pairs: int, of: int, *, what: str) -> Reason | None:
    """Return the reason that some items had no counterpart; `what` names the items, such as `answers`."""
    return None if pairs == of else reason("without_counterpart", left_out=of - pairs, pairs=of, what=what)


def paired_change_row(
    matched: pl.DataFrame,
    column: str,
    row: Row,
    *,
    what: str,
    labels: Sequence[str],
    settings: LanguageSettings,
    quantile: float | None = None,
) -> Row:
    """Return the row of the change between two conditions of the same sets.

    Parameters
    ----------
    matched : DataFrame
        Of `with_counterparts`, with `unit`, the set that is drawn as a whole.
    column : str
        The numbers to compare, of which `matched` has those of both conditions.
    row : Row
        The columns that say what is compared.
    what : str
        What the pairs are, such as `answers`: the reason counts those without a counterpart.
    labels : sequence of str
        What the draws are named by.
    quantile : float, optional
        Level of the quantile to compare; the mean by default.

    Returns
    -------
    Row
        `row` with after - before, its interval and p by whole sets, and n, the sets with pairs; see
        `plumbline.statistics.cluster_bootstrap`.
    """
    pairs = matched.drop_nulls([f"{column}_before", column])
    before, after = (pairs[name].to_numpy() for name in (f"{column}_before", column))
    draws = settings.tested_draws(*labels)
    change = paired_cluster_changes(before, after, codes(pairs["unit"]), quantile=quantile, **draws)
    return row | change.columns(unpaired_reason(pairs.height, matched.height, what=what))
