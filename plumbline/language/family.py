"""A family of language metrics: what is computed together, becomes one asset of a model, and is shown together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import polars as pl

from plumbline.catalog.schema import Schema
from plumbline.language.cell import LanguageCell, LanguageSettings

STUDY = "Howard et al., Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals"
"""The source of most language metrics."""


@dataclass(frozen=True)
class LanguageResult:
    """What a family found.

    Attributes
    ----------
    rows : DataFrame
        Metric rows in the schema of `plumbline.catalog.schema`.
    tables : mapping of str to DataFrame
        Further tables by name, such as the words of every group; each in the schema that the family declares.
    """

    rows: pl.DataFrame
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


class ComputeLanguage(Protocol):
    """A function from a model's answers to its metrics."""

    def __call__(self, cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
        """Return rows and tables; none of a metric that the answers do not allow."""


@dataclass(frozen=True)
class LanguageTraits:
    """What a language metric promises; proved for all of them by one contract test.

    Attributes
    ----------
    name : str
        As in the column `metric`.
    meaning, formula, source : str
        What it says, for people; how it is computed, in plain characters, with the definitions in parentheses; which
        paper and place it is from.
    unit : str
        Such as `score`, `share`, `words`, `US dollars a year`.
    bounds : (float, float)
        Every defined value lies within.
    when_identical : float or None
        Its value when every group of every set gets the same texts; None where it does not compare groups.
    headline : str or None
        The definition that is shown where there is room for few numbers; None where it is not.
    """

    name: str
    meaning: str
    formula: str
    source: str
    unit: str
    bounds: tuple[float, float]
    when_identical: float | None
    headline: str | None = None


@dataclass(frozen=True)
class LanguageFamily:
    """Language metrics that are computed and shown together.

    Attributes
    ----------
    name : str
        Also the asset's name.
    title, description : str
        For people; the description for the person who clicks on the asset.
    code_version : str
        Raised whenever the same texts would give other numbers.
    needs : {"texts", "scores", "twin"}
        What must be there for it to have rows.
    traits : tuple of LanguageTraits
    compute : callable
    tables : mapping of str to Schema
        Name -> schema of its further tables.
    """

    name: str
    title: str
    description: str
    code_version: str
    needs: Literal["texts", "scores", "twin"]
    traits: tuple[LanguageTraits, ...]
    compute: ComputeLanguage
    tables: Mapping[str, Schema] = field(default_factory=dict)
