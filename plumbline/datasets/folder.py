"""Any folder of images with a table: a column map says which column is what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from plumbline.datasets.column_map import ColumnMap, label_set
from plumbline.datasets.containment import dataset_root, index_file
from plumbline.datasets.csv_index import Row, read_rows
from plumbline.datasets.declaration import Declaration, LabelRule
from plumbline.datasets.parquet_index import described, read_table_rows, table_schema
from plumbline.datasets.records import Entry, Refusal, unsafe_characters
from plumbline.errors import DatasetError, ImageRejected

_SPLIT = "split"
_WHOLE_YEARS = re.compile(r"([0-9]{1,3})\.0+", re.ASCII)


class MappedFolder:
    """Reader of any folder of images beside a CSV or Parquet table, by a column map.

    A column with `values` takes exactly the values named there; the one that holds the map's label set takes, if it
    has no `values`, exactly that set's labels; any other value is quarantined (`unknown_label`). Other columns are
    kept as they are: nothing is trimmed, translated or guessed, but an `age` such as `25.0`, which is how tools write
    integers beside nulls, is `25`. There an empty value is a null, except in the base attribute, and one with control
    characters is quarantined.

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
        vocabularies = {column: dict(values) for column, values in column_map.values.items()}
        if column_map.classes is not None:
            attribute, labels = label_set(column_map.classes)
            vocabularies.setdefault(attribute, {label: label for label in labels})
        self._rules = {
            column: LabelRule(column, source, vocabularies[column])
            for column, source in column_map.columns.items()
            if column in vocabularies
        }
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
            If the table is not there, cannot be read, lacks a mapped column or has no row.
        """
        folder = dataset_root(root)
        self.index_files(folder)
        columns = list(dict.fromkeys((self._map.path, *self._map.columns.values())))
        is_csv = PurePosixPath(self._map.index).suffix == ".csv"
        read = _csv_rows if is_csv else _parquet_rows
        rows = read(index_file(folder, self._map.index), self._map.index, columns)
        listed = [row if isinstance(row, Refusal) else self._entry(row) for row in rows]
        if not listed:
            hint = "put one row an image there"
            raise DatasetError("the table lists no image", where=self._map.index, found="no row", hint=hint)
        return listed

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
        if column in self._rules:
            return self._rules[column].apply(raw[source])
        value = raw[source]
        empty = not value.strip()
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


def _csv_rows(path: Path, name: str, columns: Sequence[str]) -> Iterator[Row | Refusal]:
    for row in read_rows(path, name=name, columns=columns):
        if isinstance(row, Refusal):
            yield row
        else:
            yield Row(row.line, {column: row.values[column] for column in columns})


def _parquet_rows(path: Path, name: str, columns: Sequence[str]) -> Iterator[Row | Refusal]:
    from pyarrow import types

    schema = table_schema(path, name=name)
    stored = {field.name: getattr(field.type, "storage_type", field.type) for field in schema}
    plain = {name for name, kind in stored.items() if not types.is_nested(kind)}
    if any(schema.names.count(column) != 1 or column not in plain for column in columns):
        raise DatasetError(
            "the table lacks a mapped column, or it holds no plain values",
            where=name,
            found=described(schema),
            expected=", ".join(columns),
            hint="correct `map` in the audit file",
        )
    return read_table_rows(path, name=name, columns=columns)
