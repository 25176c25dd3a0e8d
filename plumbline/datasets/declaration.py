"""What is specific to one dataset, as data: labels, index files, base attribute, default filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from plumbline.errors import ConfigError, ImageRejected


@dataclass(frozen=True)
class LabelRule:
    """How one record column follows from one of the dataset's own attributes.

    Attributes
    ----------
    column : str
        Column of the records.
    source : str
        The dataset's own attribute.
    values : mapping of str to str
        Every value that the dataset may hold, and what it is called in the records. Empty for ages in years.
    years : (int, int) or None
        For ages in years: youngest and oldest that the dataset may hold.
    groups : mapping of str to (int, int)
        For age groups: first and last year of each; together they cover `years`.
    or_else : str or None
        What else would be right in place of an unknown value, for messages.
    """

    column: str
    source: str
    values: Mapping[str, str] = field(default_factory=dict)
    years: tuple[int, int] | None = None
    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    or_else: str | None = None

    def apply(self, raw: str) -> str:
        """Return the record's value for the dataset's value.

        Raises
        ------
        ImageRejected
            With code `unknown_label`, if the vocabulary lacks the value. Nothing is trimmed or guessed.
        """
        value = self.values.get(raw) if self.years is None else self._from_years(raw)
        if value is None:
            raise ImageRejected(
                "unknown_label",
                f"the value of `{self.source}` is unknown",
                found=repr(raw),
                expected=self.known,
            )
        return value

    def _from_years(self, raw: str) -> str | None:
        youngest, oldest = self.years or (0, 0)
        if not (raw.isascii() and raw.isdigit() and len(raw) <= 3 and youngest <= int(raw) <= oldest):
            return None
        age = int(raw)
        if not self.groups:
            return str(age)
        return next((group for group, (first, last) in self.groups.items() if first <= age <= last), None)

    @property
    def known(self) -> str:
        """Return, for messages, what the dataset may hold."""
        if self.years is not None:
            return f"whole years from {self.years[0]} to {self.years[1]}"
        words = ", ".join(self.values)
        return words if self.or_else is None else f"{words}; or {self.or_else}"


@dataclass(frozen=True)
class Declaration:
    """What is specific to one dataset: its data file, or, in few words, the same in its reader.

    Attributes
    ----------
    id, version, source : str, int, str
        Name in the registry, version of this file, and the publication that defines the dataset.
    base_attribute : str or None
        The record column that must never be null, and whose classes the Trident suite tests; None where the
        dataset has no labels.
    class_set : str or None
        Name of those classes in the Trident suite; None where it tests none of them.
    rules : tuple of LabelRule
        One per record column that the dataset fills.
    indexes : mapping of str to str
        Split to index file, in reading order; empty where the folder is the index.
    path_column : str or None
        The index column that names the image.
    default_filter : str
        The rows that a suite counts unless `filters` names others.
    filters : mapping of str to str
        Suite to named filter.
    """

    id: str
    version: int
    source: str
    base_attribute: str | None
    class_set: str | None = None
    rules: tuple[LabelRule, ...] = ()
    indexes: Mapping[str, str] = field(default_factory=dict)
    path_column: str | None = None
    default_filter: str = "all"
    filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def index_columns(self) -> tuple[str, ...]:
        """Return the index columns that are read, the path first."""
        own = dict.fromkeys(rule.source for rule in self.rules)
        return (self.path_column, *own) if self.path_column else tuple(own)

    @property
    def filled(self) -> frozenset[str]:
        """Return the label columns that a rule or the base attribute fills.

        A rule may leave a cell empty: `gender` of a user's own table, where it is not the base attribute.
        """
        named = (*(rule.column for rule in self.rules), self.base_attribute)
        return frozenset(column for column in named if column is not None)

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map the dataset's own values to record columns.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return {rule.column: rule.apply(raw[rule.source]) for rule in self.rules}

    def filter_for(self, suite: str) -> str:
        """Return the name of the row filter that a suite uses on this dataset."""
        return self.filters.get(suite, self.default_filter)


@cache
def load_declaration(name: str) -> Declaration:
    """Read one dataset's data file.

    Raises
    ------
    ConfigError
        If there is none of that name.
    """
    source = files("plumbline.datasets") / "declarations" / f"{name}.yaml"
    if not source.is_file():
        raise ConfigError("no dataset is declared under this name", found=name)
    content: dict[str, Any] = yaml.safe_load(source.read_text("utf-8"))
    return Declaration(
        id=content["id"],
        version=content["version"],
        source=content["source"],
        base_attribute=content.get("base_attribute"),
        class_set=content.get("class_set"),
        rules=tuple(_rule(column, rule) for column, rule in content.get("labels", {}).items()),
        indexes=content.get("indexes", {}),
        path_column=content.get("path_column"),
        default_filter=content["default_filter"],
        filters=content["filters"],
    )


def _rule(column: str, content: Mapping[str, Any]) -> LabelRule:
    return LabelRule(
        column=column,
        source=content["from"],
        values=content.get("values", {}),
        years=tuple(content["years"]) if "years" in content else None,
        groups={group: (first, last) for group, (first, last) in content.get("groups", {}).items()},
    )
