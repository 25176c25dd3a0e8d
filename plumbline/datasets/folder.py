"""Any folder of images with a table: a column map says which column is what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from plumbline.datasets.column_map import ColumnMap
from plumbline.datasets.containment import dataset_root, index_file
from plumbline.datasets.csv_index import Row, read_header, read_rows
from plumbline.datasets.declaration import Declaration, LabelRule
from plumbline.datasets.parquet_index import described, read_table_rows, table_schema
from plumbline.datasets.records import Entry, Refusal, printable, unsafe_characters
from plumbline.errors import DatasetError, ImageRejected
from plumbline.suggestion import suggestion

_SPLIT = "split"
_OTHER_SEPARATORS = (";", "\t", "|")
_MOST_SHOWN = 10
_WHOLE_YEARS = re.compile(r"([0-9]{1,3})\.0+", re.ASCII)


class MappedFolder:
    """Reader of any folder of images beside a CSV or Parquet table, by a column map.

    A column with `values` takes exactly the values named there. Without `values`, the one that holds the map's label
    set takes exactly that set's labels, and `gender` man and woman. Any other value is quarantined (`unknown_label`).
    Other columns are kept as they are: nothing is trimmed, translated or guessed, but an `age` such as `25.0`, which is
    how tools write integers beside nulls, is `25`; a value with control characters is quarantined. In columns without
    `values` an empty value is a null, except in the base attribute.

    Parameters
    ----------
    column_map : ColumnMap
        What the audit file has under `map`.

    Attributes
    ----------
    declaration : Declaration
        Made from the map: rules for the columns with a fixed vocabulary.
    """

    def __init__(self, column_map: ColumnMap) -> None:
        self._map = column_map
        self._rules = {column: rule for column in column_map.columns if (rule := _rule(column_map, column))}
        self.declaration = Declaration(
            id="folder",
            version=1,
            source="the user's own table and column map",
            base_attribute=column_map.base_attribute,
            class_set=column_map.classes,
            rules=tuple(rule for column, rule in self._rules.items() if column != _SPLIT),
            path_column=column_map.path,
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
            raise DatasetError("the folder has no table", where=root, expected=self._map.index, hint=hint)
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
        is_csv = PurePosixPath(self._map.index).suffix == ".csv"
        rows = (_csv_rows if is_csv else _parquet_rows)(index_file(folder, self._map.index), self._map)
        listed = list(rows)
        if not listed:
            hint = "put one row an image there"
            raise DatasetError("the table lists no image", where=self._map.index, found="no row", hint=hint)
        self._require_known_words([row.values for row in listed if isinstance(row, Row)])
        return [row if isinstance(row, Refusal) else self._entry(row) for row in listed]

    def labels(self, entry: Entry) -> dict[str, str]:
        """Map or keep the row's values; an empty one that is kept gives no label.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        columns = (column for column in self._map.columns if column != _SPLIT)
        found = {column: self._value(column, entry.raw) for column in columns}
        return {column: value for column, value in found.items() if value is not None}

    def _require_known_words(self, rows: Sequence[Mapping[str, str]]) -> None:
        for column, rule in self._rules.items():
            if any(row[rule.source] in rule.values for row in rows):
                continue
            met = sorted({row[rule.source] for row in rows if row[rule.source].strip()})
            if met:
                raise DatasetError(
                    f"no value of the column `{rule.source}` is known",
                    where=self._map.index,
                    found=printable(", ".join(met[:_MOST_SHOWN])) + (", …" if met[_MOST_SHOWN:] else ""),
                    expected=rule.known,
                    hint=f"write the table's own words under `map.values.{column}` in the audit file",
                )

    def _entry(self, row: Row) -> Entry | Refusal:
        path = row.values[self._map.path]
        try:
            split = self._value(_SPLIT, row.values) if _SPLIT in self._map.columns else None
        except ImageRejected as error:
            error.where = f"{self._map.index}, line {row.line}"
            return Refusal.of(error, path=path, stage="labels", line=row.line)
        return Entry(path, split, row.values, self._map.index, row.line)

    def _value(self, column: str, raw: Mapping[str, str]) -> str | None:
        source = self._map.columns[column]
        value = raw[source]
        empty = not value.strip()
        may_be_null = column not in self._map.values and column != self._map.base_attribute
        if column in self._rules and not (empty and may_be_null):
            return self._rules[column].apply(value)
        if unsafe_characters(value) or (empty and column == self._map.base_attribute):
            expected = "a value" if empty else "a value without control characters"
            raise ImageRejected(
                "unknown_label",
                f"the value of `{source}` cannot be used",
                found=repr(value),
                expected=expected,
            )
        if column == "age" and (years := _WHOLE_YEARS.fullmatch(value)):
            return years[1]
        return None if empty else value


def _rule(column_map: ColumnMap, column: str) -> LabelRule | None:
    """Return the vocabulary of a column: what `values` says, else the only words that the records know, if any."""
    source, mapped = column_map.columns[column], column_map.values.get(column)
    if mapped is not None:
        return LabelRule(column, source, mapped)
    words = column_map.fixed_words(column)
    if words is None:
        return None
    or_else = f"other words, if `map.values.{column}` in the audit file says which of these they are"
    return LabelRule(column, source, {word: word for word in words}, or_else=or_else)


def _csv_rows(path: Path, column_map: ColumnMap) -> Iterator[Row | Refusal]:
    name = column_map.index
    header = read_header(path, name=name)
    shown = ", ".join(header.names) or header.text
    _require_mapped(column_map, header.names, where=f"{name}, line {header.line}", shown=shown)
    columns = list(column_map.named.values())
    for row in read_rows(path, name=name, columns=columns):
        if isinstance(row, Refusal):
            yield row
        else:
            yield Row(row.line, {column: row.values[column] for column in columns})


def _parquet_rows(path: Path, column_map: ColumnMap) -> Iterator[Row | Refusal]:
    from pyarrow import types

    name = column_map.index
    schema = table_schema(path, name=name)
    _require_mapped(column_map, schema.names, where=name, shown=described(schema))
    stored = {field.name: getattr(field.type, "storage_type", field.type) for field in schema}
    nested = {key: column for key, column in column_map.named.items() if types.is_nested(stored[column])}
    if nested:
        raise DatasetError(
            "a mapped column holds no plain values",
            where=name,
            found=described(schema),
            expected="; ".join(
                f"texts or numbers in `{column}`, which `{key}` names" for key, column in nested.items()
            ),
            hint="name another column in the audit file, or write plain values into this one",
        )
    yield from read_table_rows(path, name=name, columns=list(dict.fromkeys(column_map.named.values())))


def _require_mapped(column_map: ColumnMap, names: Sequence[str], *, where: str, shown: str) -> None:
    """Require every mapped column to be there once.

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
    columns = ", ".join(dict.fromkeys(f"`{column_map.named[key]}`" for key in keys))
    fault = "lacks a mapped column" if absent else "has a mapped column more than once"
    raise DatasetError(
        f"the table {fault}: {columns}",
        where=where,
        found=printable(shown),
        expected="; ".join(
            f"one column `{column_map.named[key]}`, for `{key}` of the audit file" for key in keys
        ),
        hint=_remedy(column_map, keys, names),
    )


def _remedy(column_map: ColumnMap, keys: Sequence[str], names: Sequence[str]) -> str:
    one_column = len(names) == 1 and any(separator in names[0] for separator in _OTHER_SEPARATORS)
    if one_column or any(unsafe_characters(name) for name in names):
        return "save the table as CSV in UTF-8, with commas between its columns"
    meant = {key: suggestion(column_map.named[key], names).removeprefix("; ") for key in keys}
    told = (f"`{key}` ({guess})" if guess else f"`{key}`" for key, guess in meant.items())
    return f"correct in the audit file, or rename in the table: {', '.join(told)}"
