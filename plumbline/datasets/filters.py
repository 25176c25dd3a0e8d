"""Named subsets of a dataset's rows, as in the studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.files import parse_yaml
from plumbline.errors import ConfigError

if TYPE_CHECKING:
    from plumbline.datasets.records import Declaration


@dataclass(frozen=True)
class RowFilter:
    """A named filter: called with records of n rows, it returns an (n,) bool mask.

    Attributes
    ----------
    name, source : str, str
        Its name in a config, and the study that defined it.
    keeps : str
        Which images of the dataset these are, in words; empty where they are all.
    conditions : mapping of str to mapping
        Column to `{"values": [...]}` or `{"years_from": int}`; all must hold, and a null fulfils none.
    relabel : mapping of str to mapping of str to str
        Column to the dataset's own value to what the study calls it, as where it merges two groups.
    groups : mapping of str to str
        New column to the column whose values it holds: what forms groups beside gender, race and age group, such as
        `age_band` of young and old.
    """

    name: str
    source: str
    conditions: Mapping[str, Mapping[str, Any]]
    keeps: str = ""
    relabel: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes_labels(self) -> bool:
        """Return whether labels are merged, or another column forms groups."""
        return bool(self.relabel or self.groups)

    def __call__(self, records: pl.DataFrame) -> NDArray[np.bool_]:
        """Return the (n,) bool mask of the rows that are kept."""
        terms = [_term(column, condition) for column, condition in self.conditions.items()]
        keep = pl.all_horizontal(pl.lit(True), *terms).fill_null(False)
        return records.select(pl.repeat(True, pl.len()).and_(keep)).to_series().to_numpy()

    def relabelled(self, records: pl.DataFrame) -> pl.DataFrame:
        """Return all n rows in the study's words; values that the study does not rename stay.

        The conditions are about the dataset's own words, so the mask comes from the records before this.
        """
        renamed = records.with_columns(pl.col(column).replace(words) for column, words in self.relabel.items())
        renamed = renamed.with_columns(**{name: pl.col(column) for name, column in self.groups.items()})
        if "gender_race" not in records.columns:
            return renamed
        both = pl.concat_str("race", "gender", separator="_")
        return renamed.with_columns(gender_race=pl.when(pl.col("gender_race").is_not_null()).then(both))


def _term(column: str, condition: Mapping[str, Any]) -> pl.Expr:
    if "values" in condition:
        return pl.col(column).is_in(condition["values"])
    # Bands such as 20-29 are no number of years: they become null, which fulfils nothing.
    return pl.col(column).cast(pl.Int64, strict=False) >= condition["years_from"]


@cache
def _filters() -> dict[str, RowFilter]:
    content = parse_yaml((files("plumbline.datasets") / "filters.yaml").read_text("utf-8"))
    return {name: RowFilter(name, **about) for name, about in content.items()}


def filter_names() -> tuple[str, ...]:
    """Return the names that `row_filter` knows."""
    return tuple(_filters())


def chosen_filters(named: Mapping[str, str], declared: Declaration, suites: Iterable[str]) -> dict[str, str]:
    """Return suite -> the name of its filter: the audit file's, or the dataset's own."""
    return {suite: named.get(suite, declared.filter_for(suite)) for suite in suites}


def subsets(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return, of suites and their filters, those that are asked about a part of the images -> which part, in words."""
    return {suite: keeps for suite, name in chosen.items() if (keeps := row_filter(name).keeps)}


def row_filter(name: str) -> RowFilter:
    """Return a named filter: a pure function from records (n rows) to an (n,) bool mask.

    Raises
    ------
    ConfigError
        If there is no such filter.
    """
    if name not in _filters():
        raise ConfigError("there is no row filter of this name", found=name, expected=", ".join(filter_names()))
    return _filters()[name]
