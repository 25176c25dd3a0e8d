"""What two conditions have in common, how it differs, and how much has no counterpart."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from plumbline.language.scored_answers import codes
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_changes import paired_set_changes
from plumbline.statistics.set_estimate import SetEstimate


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


def unpaired_reason(pairs: int, of: int, *, what: str) -> str | None:
    """Say how many had no counterpart; `what` names them, such as `answers`."""
    return None if pairs == of else f"{of - pairs} of {of} {what} left out without a counterpart"


def paired_change(
    pairs: pl.DataFrame,
    before: str,
    after: str,
    *,
    share: float | None,
    labels: Sequence[str],
    settings: LanguageSettings,
) -> SetEstimate:
    """Return the change between two conditions of the same sets, see `plumbline.statistics.set_changes`.

    Parameters
    ----------
    pairs : DataFrame
        With `unit`, the set that is drawn as a whole, and a column of numbers of each condition.
    before, after : str
        These columns.
    share : float or None
        Of the quantile; None for the mean.
    labels : sequence of str
        What the draws are named by.
    """
    return paired_set_changes(
        pairs[before].to_numpy(),
        pairs[after].to_numpy(),
        codes(pairs["unit"]),
        share=share,
        resamples=settings.resamples,
        permutations=settings.permutations,
        rng=generator(settings.seed, *labels),
        confidence=settings.confidence,
    )
