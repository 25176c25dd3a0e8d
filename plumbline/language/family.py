"""The result type of the families of language metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.metrics.family import Family


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
