"""A number of the answers of two sides, compared over pairs."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.language.answers import answer_row
from plumbline.language.pairs import unpaired_reason
from plumbline.language.scored_answers import codes
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_changes import paired_set_changes
from plumbline.tables.schema import Row


def change_row(
    found: pl.DataFrame,
    columns: Row,
    *,
    models: tuple[str, str],
    what: str,
    settings: LanguageSettings,
    share: float | None = None,
) -> Row:
    """Return new - old of a mean or quantile of pairs, with interval and p by whole sets.

    Parameters
    ----------
    found : DataFrame
        `unit, old, new`; what lacks one side is left out, and the reason says of how many.
    columns : dict
        What the number is of.
    models : (str, str)
        Old and new.
    what : str
        What is paired, such as `answers`.
    share : float, optional
        Of a quantile; the mean without it.

    Returns
    -------
    dict
        Columns as in `plumbline.diff.cells.paired_differences`.
    """
    pairs = found.drop_nulls(["old", "new"])
    old, new = (pairs[name].to_numpy() for name in ("old", "new"))
    change = paired_set_changes(
        old,
        new,
        codes(pairs["unit"]),
        share=share,
        resamples=settings.resamples,
        permutations=settings.permutations,
        rng=generator(settings.seed, "audit_diff", *models, *map(str, columns.values())),
        confidence=settings.confidence,
    )
    row = {name: value for name, value in answer_row(models[1], **columns).items() if name != "model"}
    row |= {"model_old": models[0], "model_new": models[1]}
    row |= {"value_old": _read(old, share), "value_new": _read(new, share)}
    return row | change.columns(unpaired_reason(pairs.height, found.height, what=what))


def _read(values: NDArray[np.float64], share: float | None) -> float:
    if not values.size:
        return float("nan")
    return float(values.mean() if share is None else np.quantile(values, share))
