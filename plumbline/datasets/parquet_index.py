"""Parquet index files: every value is read as text, so that a bad row does not affect others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.datasets.indexes import Row, refuse_line, unreadable_index
from plumbline.datasets.records import Refusal, printable
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.parquet import OpenColumns, damage_refused, holds_bytes, holds_text, known_place

if TYPE_CHECKING:
    import pyarrow as pa

MAX_TABLE_BYTES = 1 << 30
"""What decoding a row group of the columns may take, and all their values as text."""

MAX_ROWS = 5_000_000
"""Of one table: each row becomes a record, and a file of a few bytes may repeat one without end."""

MAX_VALUE_BYTES = 1 << 16

_WHOLE = float(1 << 53)
"""Below it, a float has every whole number."""


def table_schema(path: Path, *, name: str) -> pa.Schema:
    """Return the columns of a Parquet table and their types.

    Raises
    ------
    DatasetError
        If it cannot be read.
    """
    with _as_dataset_error(name), OpenColumns(path) as table:
        return table.schema


def described(schema: pa.Schema) -> str:
    """Return a table's columns and their types in one line, for messages."""
    return printable(", ".join(f"{field.name}: {field.type}" for field in schema))


def read_table_rows(path: Path, *, name: str, columns: Sequence[str]) -> Iterator[Row | Refusal]:
    """Read a Parquet table as an index, its rows counted from 1.

    A null or a NaN becomes an empty text. A whole number is written without a point whatever its column's type:
    tools turn a column of integers with nulls into floats. A row with a text that is not UTF-8 or longer than
    `MAX_VALUE_BYTES` becomes a refusal with its number (`wrong_encoding`, `value_too_long`).

    Parameters
    ----------
    path : Path
        The file, from `index_file`.
    name : str
        What it is called in messages.
    columns : sequence of str
        Columns that are there, once, and hold plain values.

    Raises
    ------
    DatasetError
        If the file cannot be read, or holds more than `MAX_TABLE_BYTES`, `MAX_ROWS` or `parquet_columns.MAX_GROUPS`.
    """
    size = 0
    with _as_dataset_error(name):
        for line, cells in enumerate(_cells(path, columns), 1):
            size += sum(len(cell) for cell in cells if isinstance(cell, str))
            _require_few(size, MAX_TABLE_BYTES, "bytes of text")
            yield _row(line, name, columns, cells)


def _cells(path: Path, columns: Sequence[str]) -> Iterator[tuple[str | ImageRejected, ...]]:
    with damage_refused(), OpenColumns(path, columns) as table:
        rows = table.group_rows()
        _require_few(sum(rows), MAX_ROWS, "rows")
        for group, filled in enumerate(rows):
            if filled:  # One without rows has no page either.
                yield from zip(*_group_texts(table, group, columns), strict=True)


def _group_texts(table: OpenColumns, group: int, columns: Sequence[str]) -> list[list[str | ImageRejected]]:
    """Return each column's texts; of the row group itself nothing is held while they are used."""
    read = table.read(group, max_bytes=MAX_TABLE_BYTES)
    return [[text for chunk in read.column(column).chunks for text in _texts(chunk)] for column in columns]


@contextmanager
def _as_dataset_error(name: str) -> Iterator[None]:
    try:
        yield
    except ImageRejected as refused:
        raise DatasetError(
            "the Parquet table cannot be read",
            where=name,
            found=printable(str(refused.found)),
            expected=refused.expected,
            hint=refused.hint,
        ) from refused
    except OSError as error:
        raise unreadable_index(name, error.strerror) from error


def _require_few(number: int, most: int, unit: str) -> None:
    if number > most:
        actual, expected = f"{number} {unit} or more", f"at most {most} {unit}"
        hint = "split the table, and audit each part by itself"
        raise ImageRejected("file_too_large", "the table is too large", found=actual, expected=expected, hint=hint)


def _row(line: int, name: str, columns: Sequence[str], cells: tuple[str | ImageRejected, ...]) -> Row | Refusal:
    values: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=True):
        if isinstance(cell, ImageRejected):
            what = f"{cell.what} (column `{printable(column)}`)"
            return refuse_line(cell.code, what, name, line, str(cell.found), str(cell.expected))
        values[column] = cell
    return Row(line, values)


def _texts(values: pa.Array) -> list[str | ImageRejected]:
    import pyarrow as pa

    if isinstance(values, pa.ExtensionArray):
        return _texts(values.storage)
    kind = values.type
    if pa.types.is_dictionary(kind):
        known = _texts(values.dictionary)
        return ["" if place is None else known[known_place(place)] for place in values.indices.to_pylist()]
    if pa.types.is_floating(kind):
        values = _written(values)
    elif not (holds_text(kind) or holds_bytes(kind) or pa.types.is_fixed_size_binary(kind)):
        values = values.cast(pa.string())
    return [_text(value) for value in values.cast(pa.large_binary()).to_pylist()]


def _written(floats: pa.Array) -> pa.Array:
    """Write floats as text, whole ones as integers; NaN is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_float16(floats.type):
        # Arrow knows no rounding of those.
        floats = floats.cast(pa.float32())
    floats = pc.if_else(pc.is_nan(floats), pa.scalar(None, floats.type), floats)
    whole = pc.and_(pc.equal(pc.floor(floats), floats), pc.less(pc.abs(floats), _WHOLE))
    integers = pc.if_else(whole, floats, pa.scalar(0, floats.type)).cast(pa.int64())
    return pc.if_else(whole, integers.cast(pa.string()), floats.cast(pa.string()))


def _text(value: bytes | None) -> str | ImageRejected:
    if value is None:
        return ""
    if len(value) > MAX_VALUE_BYTES:
        actual, expected = f"{len(value)} bytes", f"at most {MAX_VALUE_BYTES} bytes"
        return ImageRejected("value_too_long", "a value is too long", found=actual, expected=expected)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        actual = repr(value[:200])[1:]
        return ImageRejected("wrong_encoding", "a value is not UTF-8", found=actual, expected="UTF-8")
