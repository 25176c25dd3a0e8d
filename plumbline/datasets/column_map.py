"""Which column of a user's own table is what: how any folder of images becomes a dataset without new code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from plumbline.audit_part import Part, unfit
from plumbline.datasets.containment import leads_out
from plumbline.datasets.records import LABEL_COLUMNS, unsafe_characters
from plumbline.suggestion import suggestion
from plumbline.tables.suites import GENDERS, load_suite, trident_class_sets

MAPPED_COLUMNS = (*LABEL_COLUMNS, "split")
"""The record columns that a table may fill."""

TABLE_KINDS = (".csv", ".parquet")

# In this order: the first one that is mapped is what must never be null, unless a label set says another.
_BASES = ("race", "gender", "age_group", "age", "occupation", "scene", "physical")


def _quoted(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise ValueError("a text: put it in quotes, since YAML reads it as a number or as true or false")
    return value


def _text(value: str) -> str:
    if not value.strip() or unsafe_characters(value):
        raise ValueError("a name without control characters")
    return value


def _index(value: str) -> str:
    if leads_out(value) or PurePosixPath(value).suffix not in TABLE_KINDS:
        raise ValueError(f"a {' or '.join(TABLE_KINDS)} file below the dataset's root")
    return value


def _record_column(value: str) -> str:
    if value not in MAPPED_COLUMNS:
        raise ValueError(f"one of {', '.join(MAPPED_COLUMNS)}{suggestion(value, MAPPED_COLUMNS)}")
    return value


def _class_set(value: str) -> str:
    if value not in trident_class_sets():
        raise ValueError(f"one of {', '.join(trident_class_sets())}")
    return value


Text = Annotated[str, BeforeValidator(_quoted), AfterValidator(_text)]
TableValue = Annotated[str, BeforeValidator(_quoted)]
Index = Annotated[str, AfterValidator(_text), AfterValidator(_index)]
RecordColumn = Annotated[str, AfterValidator(_record_column)]
ClassSet = Annotated[str, AfterValidator(_class_set)]


class ColumnMap(Part):
    """The column map of the reader `folder`, as the audit file has it under `map`."""

    index: Index = Field(description="CSV or Parquet table, below the dataset's root")
    path: Text = Field(description="its column with each image's path, below the root")
    columns: dict[RecordColumn, Text] = Field(
        default_factory=dict, description="record column, such as `gender` or `split` -> column of the table"
    )
    values: dict[RecordColumn, dict[TableValue, Text]] = Field(
        default_factory=dict,
        description="record column -> value in the table -> value in the records, for `gender` `man` or `woman`; "
        "without it values are kept",
    )
    classes: ClassSet | None = Field(
        default=None,
        description="label set of the Trident suites that one of the columns holds, such as `fairface`",
    )

    @model_validator(mode="after")
    def _values_are_of_mapped_columns(self) -> ColumnMap:
        unmapped = [column for column in self.values if column not in self.columns]
        if unmapped:
            raise ValueError(
                f"`values` only for record columns that `columns` maps, which {', '.join(unmapped)} is not"
            )
        return self

    @model_validator(mode="after")
    def _classes_are_mapped(self) -> ColumnMap:
        if self._label_set is not None and (attribute := self._label_set.attribute) not in self.columns:
            raise ValueError(f"`columns` must map `{attribute}`, which the label set {self.classes} is about")
        return self

    @model_validator(mode="after")
    def _values_are_words_of_the_records(self) -> ColumnMap:
        if mistakes := [*self._unknown_words()]:
            raise ValidationError.from_exception_data("ColumnMap", mistakes)
        return self

    def _unknown_words(self) -> Iterator[InitErrorDetails]:
        for column, words in self.values.items():
            if (known := self.fixed_words(column)) is None:
                continue
            is_class = self._label_set is not None and column == self._label_set.attribute
            whose = (
                f", the labels of `classes: {self.classes}`"
                if is_class
                else ", the only ones that are compared"
            )
            for raw, word in words.items():
                if word not in known:
                    expected = f"one of {', '.join(known)}{whose}{suggestion(word, known)}"
                    yield unfit(("values", column, raw), word, expected)

    def fixed_words(self, column: str) -> tuple[str, ...] | None:
        """Return the only words that the records may hold in a column; None where any will do.

        The column of the label set holds its labels, and `gender` man and woman: what the automatic label is.
        """
        if self._label_set is not None and column == self._label_set.attribute:
            return self._label_set.labels
        return GENDERS if column == "gender" else None

    @property
    def _label_set(self) -> LabelSet | None:
        return None if self.classes is None else label_set(self.classes)

    @property
    def named(self) -> dict[str, str]:
        """Return the key of the audit file, below the dataset -> the column of the table that it names."""
        return {"map.path": self.path} | {
            f"map.columns.{key}": column for key, column in self.columns.items()
        }

    @property
    def base_attribute(self) -> str | None:
        """Return the record column that must never be null; None where nothing of that kind is mapped."""
        if self._label_set is not None:
            return self._label_set.attribute
        return next((column for column in _BASES if column in self.columns), None)


class LabelSet(NamedTuple):
    """A label set of the Trident suites: the record column that it is about, and its labels."""

    attribute: str
    labels: tuple[str, ...]


def label_set(classes: str) -> LabelSet:
    """Return a label set of the Trident suites.

    Raises
    ------
    ConfigError
        If there is no such label set.
    """
    suite = load_suite("trident", classes=classes)
    return LabelSet(str(suite.attribute), suite.class_labels)
