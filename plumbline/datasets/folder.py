"""A user's own folder of images beside a table: the column map of the audit file, and the reader that follows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, NamedTuple

import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from plumbline.catalog.suites import load_suite, trident_class_sets
from plumbline.config.parts import Part, unfit
from plumbline.datasets.grouping import (
    AGE_BANDS,
    SMALL_GROUP,
    UNGROUPED_SCHEMA,
    UNMAPPED,
    crossed_name,
    into_bins,
    into_quantiles,
    without_small_groups,
)
from plumbline.datasets.indexes import (
    Row,
    dataset_root,
    described,
    index_file,
    leads_out,
    read_header,
    read_rows,
    read_table_rows,
    shown_in,
    table_schema,
)
from plumbline.datasets.records import (
    EXTENDED_SCHEMA,
    LABEL_COLUMNS,
    RECORD_SCHEMA,
    Declaration,
    Entry,
    LabelRule,
    Reader,
    Refusal,
    UnmappedValues,
    audited_attributes,
    printable,
    unsafe_characters,
)
from plumbline.errors import DatasetError, ImageRejected, examples, suggestion

_OWN = frozenset(EXTENDED_SCHEMA) - {*LABEL_COLUMNS, "split"}
_MOST_NAME = 60

TABLE_KINDS = (".csv", ".parquet")

# In this order: the first one that is mapped is the base attribute, unless a label set says another.
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


def _below(value: str) -> str:
    if leads_out(value):
        raise ValueError("a folder below the dataset's root")
    return value


def _record_column(value: str) -> str:
    if value in _OWN or len(_text(value)) > _MOST_NAME:
        raise ValueError(f"a name of at most {_MOST_NAME} characters, none of {', '.join(sorted(_OWN))}")
    return value


def _edges(value: tuple[float, ...]) -> tuple[float, ...]:
    if len(value) < 2 or any(high <= low for low, high in pairwise(value)):
        raise ValueError("two or more numbers, each larger than the one before: the limits of the bins")
    return value


def _class_set(value: str) -> str:
    if value not in trident_class_sets():
        raise ValueError(f"one of {', '.join(trident_class_sets())}")
    return value


Text = Annotated[str, BeforeValidator(_quoted), AfterValidator(_text)]
TableValue = Annotated[str, BeforeValidator(_quoted)]
Below = Annotated[str, AfterValidator(_text), AfterValidator(_below)]
Index = Annotated[str, AfterValidator(_text), AfterValidator(_index)]
RecordColumn = Annotated[str, AfterValidator(_record_column)]
Edges = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], AfterValidator(_edges)]
ClassSet = Annotated[str, AfterValidator(_class_set)]


class ColumnMap(Part):
    """The column map of the readers `folder`, `listing` and `counts`, as the audit file has it under `map`."""

    index: Index
    """CSV or Parquet table, below the dataset's root"""
    path: Text | None = None
    """its column with each image's path, below the root; none in a table of counts"""
    images: Below | None = None
    """folder below the root where these paths start; the root itself when absent"""
    columns: dict[RecordColumn, Text] = Field(default_factory=dict)
    """attribute of any name, such as `gender` or `department`, or `split` -> column of the table"""
    values: dict[RecordColumn, dict[TableValue, Text]] = Field(default_factory=dict)
    """attribute -> value in the table -> its group; a value that is not named has no group. Without it values are the
    groups, as written"""
    bins: dict[RecordColumn, Edges] = Field(default_factory=dict)
    """attribute that holds numbers -> limits of its groups, such as `[0, 18, 30, 45, 65, 120]`; of `age` they give
    `age_group`"""
    quantiles: dict[RecordColumn, Annotated[int, Field(ge=2, le=20)]] = Field(default_factory=dict)
    """attribute that holds numbers -> how many groups of equal size it is cut into"""
    crosses: tuple[Annotated[tuple[RecordColumn, ...], Field(min_length=2, max_length=3)], ...] = ()
    """attributes whose groups are crossed, such as `[disability, gender]`; race and gender always are"""
    min_shown: int | None = Field(default=None, ge=1)
    """images of the smallest group that is shown; smaller ones are left out of their attribute, and a further one
    where they could be told from the rest. When absent 5, and 1 in a table of counts, which tells them itself"""
    total: Text | None = None
    """in a table of counts: the column with the images of a row, to which its counts must add up"""
    classes: ClassSet | None = None
    """label set of the Trident suites that one of the columns holds, such as `fairface`"""

    @model_validator(mode="after")
    def _words_are_of_mapped_columns(self) -> ColumnMap:
        grouped: dict[str, Iterable[str]] = {"values": self.values, "bins": self.bins, "quantiles": self.quantiles}
        for key, named in grouped.items():
            if unmapped := [column for column in named if column not in self.columns]:
                raise ValueError(f"`{key}` only for attributes that `columns` maps, which {', '.join(unmapped)} is not")
        ways = [*self.values, *self.bins, *self.quantiles]
        if twice := sorted({column for column in ways if ways.count(column) > 1}):
            raise ValueError(f"one of `values`, `bins` and `quantiles` for each attribute, not two for {twice[0]}")
        for names in self.crosses:
            if strange := [name for name in names if name not in self.attributes]:
                mapped = ", ".join(self.attributes)
                raise ValueError(f"`crosses` of attributes that are mapped ({mapped}), which {strange[0]} is not")
            if len(set(names)) < len(names):
                raise ValueError(f"`crosses` of different attributes, not {' and '.join(names)}")
        if self._label_set is not None and (attribute := self._label_set.attribute) not in self.columns:
            raise ValueError(f"`columns` must map `{attribute}`, which the label set {self.classes} is about")
        mistakes = []
        for column, worded in self.values.items():
            known = self.fixed_words(column) or ()
            whose = f", the labels of `classes: {self.classes}`"
            for raw, group in worded.items() if known else ():
                if group not in known:
                    expected = f"one of {', '.join(known)}{whose}{suggestion(group, known)}"
                    mistakes.append(unfit(("values", column, raw), group, expected))
        if mistakes:
            raise ValidationError.from_exception_data("ColumnMap", mistakes)
        return self

    def fixed_words(self, column: str) -> tuple[str, ...] | None:
        """Return the allowed values of a column: the labels of the label set; None where any value is allowed."""
        if self._label_set is not None and column == self._label_set.attribute:
            return self._label_set.labels
        return None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the columns of the records that the table fills; `age_group` too, which ages in years give."""
        named = [column for column in self.columns if column != _SPLIT]
        return (*named, "age_group") if self.age_edges and "age_group" not in named else tuple(named)

    @property
    def age_edges(self) -> tuple[float, ...] | None:
        """Return the limits of the age groups that years are put into: FairFace's without others."""
        if "age" not in self.columns or "age_group" in self.columns or {"age"} & {*self.values, *self.quantiles}:
            return None
        return self.bins.get("age", AGE_BANDS)

    @property
    def crossed(self) -> dict[str, tuple[str, ...]]:
        """Return the column of each cross -> what it joins."""
        both = [("race", "gender")] if {"race", "gender"} <= {*self.attributes} else []
        return {crossed_name(each): each for each in (*both, *self.crosses)}

    @property
    def _label_set(self) -> LabelSet | None:
        return None if self.classes is None else label_set(self.classes)

    @property
    def named(self) -> dict[str, str]:
        """Return the key of the audit file, below the dataset -> the column of the table that it names."""
        alone = {"map.path": self.path, "map.total": self.total}
        columns = {f"map.columns.{key}": column for key, column in self.columns.items()}
        return {key: column for key, column in alone.items() if column is not None} | columns

    @property
    def base_attribute(self) -> str | None:
        """Return the record column whose classes are tested; None where no attribute is mapped."""
        if self._label_set is not None:
            return self._label_set.attribute
        free = (column for column in self.columns if column not in RECORD_SCHEMA)
        return next((column for column in (*_BASES, *free) if column in self.columns), None)


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


# --- The reader

_SPLIT = "split"
_OTHER_SEPARATORS = (";", "\t", "|")
_WHOLE_YEARS = re.compile(r"([0-9]{1,3})\.0+", re.ASCII)


class MappedFolder(Reader):
    """Reader of any folder of images beside a CSV or Parquet table, by a column map.

    An attribute with `values` knows exactly the values named there, and one that holds the map's label set exactly
    that set's labels. Other values are groups as written: nothing is trimmed, translated or guessed, but an `age` such
    as `25.0`, which is how tools write integers beside nulls, is `25`. A row whose value is empty or unknown has no
    group in that attribute and stays in all others; a value with control characters is quarantined, and so is a split
    that `values` does not name.

    Parameters
    ----------
    column_map : ColumnMap
        What the audit file has under `map`.

    Attributes
    ----------
    declaration : Declaration
        Made from the map: rules for the columns with a fixed vocabulary.
    """

    smallest_shown = 5
    """images of the smallest group that is shown, where the map does not say"""
    keeps_unknown = True
    """whether a row stays whose value `values` does not name"""

    def __init__(self, column_map: ColumnMap) -> None:
        self._map = column_map
        self.least_shown = column_map.min_shown or self.smallest_shown
        self._rules = {column: rule for column in column_map.columns if (rule := _rule(column_map, column))}
        self.declaration = Declaration(
            identity_file="`set_id` in `map.columns`",
            id="folder",
            version=1,
            source="the user's own table and column map",
            base_attribute=column_map.base_attribute,
            class_set=column_map.classes,
            rules=tuple(rule for column, rule in self._rules.items() if column != _SPLIT),
            path_column=column_map.path,
            attributes=tuple(column for column in column_map.attributes if column not in RECORD_SCHEMA),
            may_lack_labels=True,
            captions="caption" in column_map.columns,
        )

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the table.

        Raises
        ------
        DatasetError
            If it is not there or leads out of the folder.
        """
        folder = dataset_root(root)
        if not (folder / self._map.index).is_file():
            hint = "correct `map.index` in the audit file, or put the table there"
            content = shown_in(folder)
            raise DatasetError(
                "the folder has no table", where=root, found=content, expected=self._map.index, hint=hint
            )
        index_file(folder, self._map.index)
        return [self._map.index]

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a row of the table.

        Raises
        ------
        DatasetError
            If the table is not there, cannot be read, lacks a mapped column or has no row, or if a column holds not one
        of the words that it may hold: then the map is wrong, not the rows.
        """
        folder = dataset_root(root)
        self.index_files(folder)
        path = index_file(folder, self._map.index)
        require_mapped(self._map, path)
        listed = list(table_rows(path, name=self._map.index, columns=list(self._map.named.values())))
        if not listed:
            hint = "put one row an image there"
            raise DatasetError(
                "the table lists no image", where=self._map.index, found="no row", expected="a row an image", hint=hint
            )
        self._require_known_words([row.values for row in listed if isinstance(row, Row)])
        return [row if isinstance(row, Refusal) else self._entry(row) for row in listed]

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map or keep the row's values; an empty one gives no label, an unknown one `UNMAPPED`.

        Raises
        ------
        ImageRejected
            With code `unknown_label`, for a value with control characters.
        """
        columns = (column for column in self._map.columns if column != _SPLIT)
        values_of = {column: self._value(column, raw) for column in columns}
        return {column: value for column, value in values_of.items() if value is not None}

    def grouped(self, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the records with bins, quantiles and crosses, without groups too small, and the rows without group."""
        left_out: dict[tuple[str, str], int] = {}
        mapped = [column for column in self._map.columns if column != _SPLIT]
        for column in mapped:
            unmapped = (records[column] == UNMAPPED).fill_null(False)
            left_out[column, "missing"] = records[column].null_count()
            left_out[column, "unmapped"] = int(unmapped.sum())
            records = records.with_columns(pl.when(~unmapped).then(pl.col(column)).alias(column))
        groupings = {column: partial(into_bins, edges=edges) for column, edges in self._map.bins.items()}
        groupings |= {column: partial(into_quantiles, number=number) for column, number in self._map.quantiles.items()}
        if self._map.age_edges is not None:
            groupings["age"] = partial(into_bins, edges=self._map.age_edges)
        for column, grouping in groupings.items():
            values, without = grouping(records[column])
            into = "age_group" if column == "age" and self._map.age_edges else column
            records = records.with_columns(values.alias(into))
            left_out |= {(into, code): rows for code, rows in without.items()}
        groups = [column for column in audited_attributes(records) if column in self._map.attributes]
        crosses = self._map.crossed
        records, lost = without_small_groups(records, groups, crosses, least=self.least_shown)
        left_out |= {(column, SMALL_GROUP): rows for column, rows in lost.items()}
        # An image without a set counts by itself: it is in every number.
        rows = [(column, code, number) for (column, code), number in left_out.items() if number and column != "set_id"]
        return records, pl.DataFrame(rows, schema=UNGROUPED_SCHEMA, orient="row")

    def unmapped(self, entries: Iterable[Entry]) -> dict[str, UnmappedValues]:
        """Return the attributes with values that `map.values`, or the label set, does not name."""
        entries = list(entries)
        values = {}
        for column, rule in self._rules.items():
            met = Counter(entry.raw[rule.source] for entry in entries)
            rows = {value: n for value, n in met.most_common() if value.strip() and value not in rule.values}
            if rows and column != _SPLIT and self.keeps_unknown:
                values[column] = UnmappedValues(rows, tuple(rule.values))
        return values

    def _require_known_words(self, rows: Sequence[Mapping[str, str]]) -> None:
        for column, rule in self._rules.items():
            if any(row[rule.source] in rule.values for row in rows):
                continue
            met = [repr(value) for value in sorted({row[rule.source] for row in rows if row[rule.source].strip()})]
            if met:
                raise DatasetError(
                    f"no value of the column `{rule.source}` is known",
                    where=self._map.index,
                    found=printable(examples(met)),
                    expected=rule.known,
                    hint=f"write the table's own words under `map.values.{column}` in the audit file",
                )

    def _entry(self, row: Row) -> Entry | Refusal:
        path = row.values[str(self._map.path)]
        if self._map.images is not None and not leads_out(path):
            path = f"{self._map.images}/{path}"
        try:
            split = self._value(_SPLIT, row.values) if _SPLIT in self._map.columns else None
        except ImageRejected as error:
            error.where = f"{self._map.index}, line {row.line}"
            return Refusal.of(error, path=path, stage="labels", line=row.line)
        return Entry(path, split, row.values, self._map.index, row.line)

    def _value(self, column: str, raw: Mapping[str, str]) -> str | None:
        source = self._map.columns[column]
        value = raw[source]
        if unsafe_characters(value):
            raise ImageRejected(
                "unknown_label",
                f"the value of `{source}` cannot be used",
                found=repr(value),
                expected="a value without control characters",
            )
        if column in self._rules and (value.strip() or value in self._rules[column].values):
            known = self._rules[column].values.get(value)
            if known is None and (column == _SPLIT or not self.keeps_unknown):
                return self._rules[column].apply(value)  # refused: of what part an image is decides what it may be for
            return UNMAPPED if known is None else known
        if column == "age" and (years := _WHOLE_YEARS.fullmatch(value)):
            return years[1]
        return value if value.strip() else None


def _rule(column_map: ColumnMap, column: str) -> LabelRule | None:
    """Return the vocabulary of a column: what `values` says, else the labels of the label set, if it holds them."""
    source, mapped = column_map.columns[column], column_map.values.get(column)
    if mapped is not None:
        return LabelRule(column, source, mapped)
    words = column_map.fixed_words(column)
    if words is None:
        return None
    or_else = f"other words, if `map.values.{column}` in the audit file says which of these they are"
    return LabelRule(column, source, {word: word for word in words}, or_else=or_else)


def table_rows(path: Path, *, name: str, columns: Sequence[str]) -> Iterator[Row | Refusal]:
    """Read some columns of a CSV or Parquet table, as `read_rows` and `read_table_rows` do."""
    read = read_rows if PurePosixPath(name).suffix == ".csv" else read_table_rows
    for row in read(path, name=name, columns=list(dict.fromkeys(columns))):
        yield row if isinstance(row, Refusal) else Row(row.line, {column: row.values[column] for column in columns})


def require_mapped(column_map: ColumnMap, path: Path) -> tuple[str, ...]:
    """Return the columns of a table, of which those that the map names hold plain values and stand there once.

    Raises
    ------
    DatasetError
        If the table cannot be read, or one is absent, repeated or nested.
    """
    name = column_map.index
    if PurePosixPath(name).suffix == ".csv":
        header = read_header(path, name=name)
        shown = ", ".join(header.names) or header.text
        _require_once(column_map, header.names, where=f"{name}, line {header.line}", shown=shown)
        return header.names
    from pyarrow import types

    schema = table_schema(path, name=name)
    _require_once(column_map, schema.names, where=name, shown=described(schema))
    stored = {field.name: getattr(field.type, "storage_type", field.type) for field in schema}
    nested = {key: column for key, column in column_map.named.items() if types.is_nested(stored[column])}
    if nested:
        raise DatasetError(
            "a mapped column holds no plain values",
            where=name,
            found=described(schema),
            expected=examples(f"texts or numbers in `{column}`, which `{key}` names" for key, column in nested.items()),
            hint="name another column in the audit file, or write plain values into this one",
        )
    return tuple(schema.names)


def _require_once(column_map: ColumnMap, names: Sequence[str], *, where: str, shown: str) -> None:
    """Require every mapped column to exist exactly once.

    Parameters
    ----------
    names : sequence of str
        The table's columns.
    where, shown : str, str
        Their place, and how a message tells them.
    """
    times = {key: names.count(column) for key, column in column_map.named.items()}
    absent = [key for key, number in times.items() if number == 0]
    keys = absent or [key for key, number in times.items() if number > 1]
    if not keys:
        return
    columns = examples(dict.fromkeys(f"`{column_map.named[key]}`" for key in keys))
    fault = "lacks a mapped column" if absent else "has a mapped column more than once"
    raise DatasetError(
        f"the table {fault}: {columns}",
        where=where,
        found=printable(shown),
        expected=examples(f"one column `{column_map.named[key]}`, for `{key}` of the audit file" for key in keys),
        hint=_remedy(column_map, keys, names),
    )


AS_CSV = "save the table as CSV in UTF-8, with commas between its columns"


def of_other_separators(names: Sequence[str]) -> bool:
    """Return whether a table has one column, whose name looks like that of several with another sign in between."""
    return len(names) == 1 and any(separator in names[0] for separator in _OTHER_SEPARATORS)


def _remedy(column_map: ColumnMap, keys: Sequence[str], names: Sequence[str]) -> str:
    if of_other_separators(names) or any(unsafe_characters(name) for name in names):
        return AS_CSV
    meant = {key: suggestion(column_map.named[key], names).removeprefix("; ") for key in keys}
    corrections = (f"`{key}` ({guess})" if guess else f"`{key}`" for key, guess in meant.items())
    return f"correct in the audit file, or rename in the table: {examples(corrections)}"


# --- A table of images that are not on this disk: one row an image with its labels.


class Listing(MappedFolder):
    """Reader of a table like that of `folder`, whose images are not opened: for predictions that were made elsewhere.

    Rows are told apart by their path, which need not lead anywhere; one that is listed twice is refused.
    """

    has_images = False
