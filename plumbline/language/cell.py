"""What language metrics are computed from, answers about a dataset, and what a family returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from plumbline.catalog.prompts import group_in_words
from plumbline.catalog.schema import GENERATION_SCHEMA, Schema
from plumbline.metrics.family import Family
from plumbline.statistics.bootstrap import DrawSettings
from plumbline.statistics.seeds import generator

Judge = Callable[[str, Sequence[str]], Sequence[str]]
"""Takes a group, in words such as `Black female`, and words; gives those of them that are stereotypes of the group."""


def stereotypes(judge: Judge, group: str, words: Collection[str]) -> set[str]:
    """Query the judge once about the words of a group; other words that it names are ignored.

    Parameters
    ----------
    group : str
        As labels have it: `Black_woman`.
    words : collection of str
        Asked about in this order.
    """
    return set(judge(group_in_words(group), list(words))) & set(words)


# --- Settings of the language metrics.


@dataclass(frozen=True)
class LanguageSettings(DrawSettings):
    """Settings of the language metrics.

    Attributes
    ----------
    min_count : int
        Least number of times that a word is said of a group to count as associated (10; 3 for small API samples).
    association_threshold : float
        An association counts above it, in units of the logarithm.
    log_base : float
        Of associations.
    min_sets : int
        Counterfactual sets that an occupation must have for its competence words to be shown.
    highest_occupations, lowest_occupations : int
        So many occupations of the largest and of the smallest spread have their scores listed by group (4 and 4, as in
        figure 5 of the study; its figure 7 has 8 and 0).
    most_unreadable : float
        Ratings of a model and prompt are nan when a larger share of the answers cannot be read.
    dictionaries : Path or None
        The user's copy of the SADCAT dictionaries, for warmth, coldness and incompetence.
    judge : callable or None
        Names stereotypes among words; without one the column says so.
    annotations : Path or None
        A CSV of human annotations, for the agreement of people, scorer and judge.
    """

    min_count: int = 10
    association_threshold: float = 1.0
    log_base: float = 2.0
    min_sets: int = 35
    highest_occupations: int = 4
    lowest_occupations: int = 4
    most_unreadable: float = 0.5
    dictionaries: Path | None = None
    judge: Judge | None = None
    annotations: Path | None = None

    def draws(self, *labels: str) -> dict[str, Any]:
        """Return the arguments of a bootstrap; `labels` seed its generator."""
        rng = generator(self.seed, *labels)
        return {"resamples": self.resamples, "rng": rng, "confidence": self.confidence}

    def tested_draws(self, *labels: str) -> dict[str, Any]:
        """Return the arguments of a bootstrap with a permutation test."""
        return self.draws(*labels) | {"permutations": self.permutations}


# --- What the language metrics of one model are computed from.

_ANSWERED = {name: kind for name, kind in GENERATION_SCHEMA.items() if not name.startswith("thinking")}
DESCRIBED_SCHEMA: Schema = {**_ANSWERED, "attribute": pl.String, "group": pl.String, "occupation": pl.String}
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
    base_llm : LanguageCell or None
        The answers of the language model that this one was built on, asked with words instead of images.
    """

    model: str
    generations: pl.LazyFrame
    scores: pl.LazyFrame
    expected: pl.DataFrame
    scorers: Mapping[str, bool] = field(default_factory=dict)
    base_llm: LanguageCell | None = None


# --- The result type of the families of language metrics.


@dataclass(frozen=True)
class LanguageResult:
    """Rows and further tables of a family.

    Attributes
    ----------
    rows : DataFrame
        Metric rows in the schema of `plumbline.catalog.schema`.
    tables : mapping of str to DataFrame
        Further tables by name, such as the words of every group; each in the schema that the family declares.
    """

    rows: pl.DataFrame
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


LanguageFamily = Family[LanguageCell, LanguageSettings, LanguageResult]
"""A family of language metrics: of the answers of one generative model."""
