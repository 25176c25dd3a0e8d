"""What the language metrics of one model are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from plumbline.tables.generation_schema import GENERATION_SCHEMA
from plumbline.tables.schema import Schema

DESCRIBED_SCHEMA: Schema = {
    **GENERATION_SCHEMA,
    "attribute": pl.String,
    "group": pl.String,
    "occupation": pl.String,
}
"""Generations with who is pictured.

`attribute` says which labels `group` joins, such as `race_gender` (`Black_woman`), `physical_gender` (`obese_man`) or
`physical_race` (`obese_Latino`): the subset of a counterfactual set; of PATA `race_gender` in the study's words.
"""

EXPECTED_SCHEMA: Schema = {
    "dataset": pl.String,
    "subset": pl.String,
    "set_id": pl.String,
    "image_id": pl.String,
    "attribute": pl.String,
    "group": pl.String,
    "occupation": pl.String,
    "set_groups": pl.Int64,
}
"""One row an image that was asked about. `set_groups`: groups of a whole set of its subset (12, 10 or 30 in the real
data), so that a set that has lost an image is seen; null where the dataset has no sets."""


@dataclass(frozen=True)
class LanguageCell:
    """One model's answers, over all datasets and subsets.

    Attributes
    ----------
    model : str
        Id in the audit file.
    generations : LazyFrame
        In `DESCRIBED_SCHEMA`; over files, never in memory as a whole.
    scores : LazyFrame
        In `SCORE_SCHEMA`; of every scorer that was run.
    expected : DataFrame
        In `EXPECTED_SCHEMA`.
    scorers : mapping of str to bool
        Scorer id -> whether it is only an offline stand-in; the first is the one that headlines use.
    twin : LanguageCell or None
        The answers of the language model that this one was built on, asked with words instead of images.
    """

    model: str
    generations: pl.LazyFrame
    scores: pl.LazyFrame
    expected: pl.DataFrame
    scorers: Mapping[str, bool] = field(default_factory=dict)
    twin: LanguageCell | None = None
