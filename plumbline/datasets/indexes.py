"""Index files of datasets, read row by row: lines, CSV, Parquet and file names."""

from __future__ import annotations

import csv
import os
import re
import stat
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from plumbline.datasets.records import Declaration, Entry, Reader, Refusal, printable, unsafe_characters
from plumbline.errors import DatasetError, ImageRejected, examples
from plumbline.images.parquet import OpenColumns, damage_refused, holds_bytes, holds_text, known_place, read_columns

if TYPE_CHECKING:
    import pyarrow as pa

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:")


PATH_CODES = ("bad_path", "path_outside_root")
"""Codes with which `inside` refuses a path, before its file is looked at."""


def dataset_root(root: Path | str) -> Path:
    """Return the real path of a dataset's folder.

    Raises
    ------
    DatasetError
        If it does not exist or is no folder.
    """
    folder = Path(root)
    if not folder.is_dir():
        actual = "a file" if folder.exists() else "nothing"
        hint = "correct `root` in the audit file, or put the dataset there: `plumbline fetch ID` gets it or says how"
        raise DatasetError(
            "the dataset's folder is not there", where=folder, found=actual, expected="a folder", hint=hint
        )
    return folder.resolve()


def shown_in(folder: Path) -> str:
    """Return what a folder holds, for the message that something else is not in it: three names, and how many more."""
    return printable(examples(sorted(path.name for path in folder.iterdir())) or "nothing")


def leads_out(path: str) -> bool:
    """Tell whether a listed path is absolute, on this system or on Windows, or has a part `..`."""
    return _ABSOLUTE.match(path) is not None or ".." in path.split("/")


def inside(root: Path, path: str) -> Path:
    """Return the path of a listed file.

    Parameters
    ----------
    root : Path
        The dataset's real folder, from `dataset_root`.
    path : str
        As listed: relative, with `/`.

    Raises
    ------
    ImageRejected
        `path_outside_root` for an absolute path, one with `..`, or a link that leads out; `bad_path` for an
        empty one or one with characters that no table can hold.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if unsafe_characters(path) or not parts:
        expected = "a relative path without control characters, in UTF-8"
        raise ImageRejected("bad_path", "the path cannot be used", found=repr(path), expected=expected)
    if leads_out(path):
        what = "the path leads out of the dataset's folder"
        raise ImageRejected("path_outside_root", what, found=path, expected="a path below it")
    # The root is real already: without a link below it nothing can lead out, and nothing above needs a look.
    steps = accumulate(parts, "{}/{}".format, initial=str(root))
    if not any(map(os.path.islink, islice(steps, 1, None))):
        return root.joinpath(*parts)
    real = Path(os.path.realpath(root.joinpath(*parts)))
    if not real.is_relative_to(root):
        what = "a link leads out of the dataset's folder"
        raise ImageRejected("path_outside_root", what, found=path, expected="a file below it")
    return real


def index_file(root: Path, name: str) -> Path:
    """Return the path of an index file: a plain file inside the dataset's folder.

    Ask before any opening of an index: a pipe in its place would be waited for without end.

    Parameters
    ----------
    root : Path
        The dataset's real folder, from `dataset_root`.
    name : str
        The file, relative to it, with `/`.

    Raises
    ------
    DatasetError
        If it is not there, leads out of the folder, or is a folder, a pipe or a device.
    """
    try:
        path = inside(root, name)
        plain = stat.S_ISREG(path.stat().st_mode)
    except ImageRejected as error:
        raise DatasetError(error.what, where=name, found=error.found, expected=error.expected) from error
    except OSError as error:
        raise unreadable_index(name, error.strerror) from error
    if not plain:
        raise unreadable_index(name, "a folder" if path.is_dir() else "a pipe or a device")
    return path


def unreadable_index(name: str, found: str | None) -> DatasetError:
    """Return the error of an index file that cannot be opened or read."""
    return DatasetError(
        "the index cannot be read",
        where=name,
        found=found,
        expected="a plain file",
        hint="check that the file is readable",
    )


# --- Index files that are plain lines: each is decoded by itself, so that a bad one spoils no other

MAX_LINE_BYTES = 1 << 20
"""Far more than a row needs; a file without line ends would else be read into memory whole."""

_BOM = b"\xef\xbb\xbf"


class RawLine(NamedTuple):
    """One line of a file: its number, from 1, and its bytes with the line end, without a byte-order mark."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an index: its number in the file, from 1, and its text without spaces around it."""

    number: int
    text: str


def raw_lines(path: Path, name: str) -> Iterator[RawLine]:
    """Read a file's lines, of which no more than one is in memory at a time.

    Parameters
    ----------
    path : Path
        The file, from `index_file`.
    name : str
        What it is called in messages.

    Raises
    ------
    DatasetError
        If the file cannot be read, or a line is longer than `MAX_LINE_BYTES`.
    """
    try:
        with path.open("rb") as file:
            for number in count(1):
                data = file.readline(MAX_LINE_BYTES + 1)
                if not data:
                    return
                if len(data) > MAX_LINE_BYTES:
                    raise DatasetError(
                        "a line of the index is too long",
                        where=f"{name}, line {number}",
                        found=f"more than {MAX_LINE_BYTES} bytes",
                        expected=f"lines of at most {MAX_LINE_BYTES} bytes",
                        hint="check that this is the published file and not damaged",
                    )
                yield RawLine(number, data.removeprefix(_BOM) if number == 1 else data)
    except OSError as error:
        raise unreadable_index(name, error.strerror) from error


def read_lines(root: Path, name: str) -> Iterator[Line | Refusal]:
    """Read the lines of an index.

    A byte-order mark and CRLF are accepted; blank lines list nothing. A line that is not UTF-8 becomes a
    refusal with its number (`wrong_encoding`).

    Parameters
    ----------
    root : Path
        The dataset's real folder, from `dataset_root`.
    name : str
        The index file, relative to it.

    Raises
    ------
    DatasetError
        If the file leads out of the folder or cannot be read, or a line is longer than `MAX_LINE_BYTES`.
    """
    for number, raw in raw_lines(index_file(root, name), name):
        data = raw.strip()
        if not data:
            continue
        try:
            yield Line(number, data.decode("utf-8"))
        except UnicodeDecodeError:
            yield refuse_line("wrong_encoding", "the line is not UTF-8", name, number, repr(data)[1:], "UTF-8")


def refuse_line(
    code: str, what: str, name: str, number: int, found: str, expected: str, *, path: str | None = None
) -> Refusal:
    """Return the refusal of one line of an index.

    Parameters
    ----------
    code, what, found, expected : str
        As in `ImageRejected`.
    name, number : str, int
        The index file and the line in it, from 1.
    path : str, optional
        The image that the line lists; without it, the line as such is refused and stands under the index.
    """
    rejected = ImageRejected(code, what, where=f"{name}, line {number}", found=found, expected=expected)
    return Refusal.of(rejected, path=name if path is None else path, stage="index", line=number)


# --- Index files of comma-separated values, read by `csv` with quotes as in RFC 4180: a bad record spoils no other
#
# A stray quote that is closed by chance makes one record of several rows. Where it can be told from a
# text of several lines, by lines that are whole rows themselves, every line is refused and none is lost;
# where one of them is not, the record is taken as it stands.


@dataclass(frozen=True, slots=True)
class Row:
    """One record of an index: the line in the file that it begins in, from 1, and its values by column."""

    line: int
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Header:
    """The record of an index that names its columns.

    Attributes
    ----------
    line : int
        The line in the file that it begins in, from 1.
    names : tuple of str
        As they stand there, without the empty ones that a spreadsheet writes; none where it does not parse.
    text : str
        The record as it stands, fit for messages.
    """

    line: int
    names: tuple[str, ...]
    text: str


class _Record(NamedTuple):
    """One line or several, and the fields that they hold, or why they do not parse."""

    lines: list[RawLine]
    parsed: list[str] | csv.Error

    @property
    def data(self) -> bytes:
        return b"".join(line.data for line in self.lines)

    def __str__(self) -> str:
        first, last = self.lines[0].number, self.lines[-1].number
        return "the line" if first == last else f"the record of lines {first} to {last}"


# What an index without any column names begins with.
_NOTHING = _Record([RawLine(1, b"")], [])


def read_rows(path: Path, *, name: str, columns: Sequence[str]) -> Iterator[Row | Refusal]:
    """Read an index whose first record names its columns.

    A byte-order mark and CRLF are accepted; blank lines list nothing, and columns without a name hold no values. A
    quoted value may hold line ends: such a record is one row, unless each of its later lines would be a row alone.
    Then a stray quote may have joined them, and each line becomes a refusal (`ragged_row`). A record of another
    number of fields, or not in UTF-8, becomes one refusal with the number of its first line (`ragged_row`,
    `wrong_encoding`). An open quote that no later line closes as it must spoils its own line alone (`ragged_row`):
    the lines after it are rows.

    Parameters
    ----------
    path : Path
        The file, from `index_file`.
    name : str
        What it is called in messages.
    columns : sequence of str
        Columns that must be there; others are allowed, in any order.

    Raises
    ------
    DatasetError
        If the header cannot be read, or lacks or repeats one of the columns, the file cannot be read, or a line in it
        is longer than `MAX_LINE_BYTES`.
    """
    records = _filled_records(path, name)
    first = next(records, _NOTHING)
    _require_columns(_header(first), name, columns)
    header = _fields(first)
    for record in records:
        if _may_be_joined(record, len(header)):
            yield from _refused_lines(record, name, header)
        else:
            yield _row(record, name, header)


def read_header(path: Path, *, name: str) -> Header:
    """Read the first record that is not blank, whatever columns it names.

    Raises
    ------
    DatasetError
        If the file cannot be read, or a line up to there is longer than `MAX_LINE_BYTES`.
    """
    return _header(next(_filled_records(path, name), _NOTHING))


def _filled_records(path: Path, name: str) -> Iterator[_Record]:
    return (record for record in _records(raw_lines(path, name)) if record.data.strip())


def _records(lines: Iterator[RawLine]) -> Iterator[_Record]:
    """Group lines into records; no line is gone through more than twice, whatever the quotes in it."""
    again: deque[RawLine] = deque()
    while True:
        taken: list[RawLine] = []
        parsed = _parsed(_texts(again, lines, taken))
        if parsed is None:
            return
        if isinstance(parsed, list):
            yield _Record(taken, parsed)
            continue
        # A stray quote in the first line has run on to the last, which alone may begin a record of several lines.
        yield _Record(taken[:1], parsed)
        yield from (_Record([line], _parsed([_text(line)]) or []) for line in taken[1:-1])
        again.extend(taken[1:][-1:])


def _texts(again: deque[RawLine], lines: Iterator[RawLine], taken: list[RawLine]) -> Iterator[str]:
    """Give the text of one line after another, first of those that come again, and note each in `taken`."""
    size = 0
    while line := again.popleft() if again else next(lines, None):
        taken.append(line)
        size += len(line.data)
        if size > MAX_LINE_BYTES:
            raise csv.Error(f"a record of more than {MAX_LINE_BYTES} bytes")
        yield _text(line)


def _text(line: RawLine) -> str:
    # Where fields end does not depend on the encoding; whether it is right is asked of the whole record.
    return line.data.decode("utf-8", "surrogateescape")


def _parsed(texts: Iterable[str]) -> list[str] | csv.Error | None:
    """Return the fields of the record that the texts begin with, or why there is none; None without texts."""
    try:
        return next(csv.reader(texts, strict=True), None)
    except csv.Error as error:
        return error


def _fields(record: _Record) -> list[str]:
    return [] if isinstance(record.parsed, csv.Error) else record.parsed


def _header(record: _Record) -> Header:
    text = record.data[:200].decode("utf-8", "backslashreplace").strip()
    names = tuple(column for column in _fields(record) if column)
    return Header(record.lines[0].number, names, printable(text) or "nothing")


def _require_columns(header: Header, name: str, columns: Sequence[str]) -> None:
    if any(header.names.count(column) != 1 for column in columns):
        raise DatasetError(
            "the index does not begin with its column names",
            where=f"{name}, line {header.line}",
            found=header.text,
            expected=f"a first line with the columns {', '.join(columns)}, in UTF-8",
            hint="restore the first line of the published file, or save the file as UTF-8",
        )


def _may_be_joined(record: _Record, width: int) -> bool:
    """Tell whether the lines after the first one all look like rows that a stray quote has swallowed."""
    later = [_parsed([_text(line)]) for line in record.lines[1:] if line.data.strip()]
    return bool(later) and all(isinstance(fields, list) and len(fields) == width for fields in later)


def _refused_lines(record: _Record, name: str, header: list[str]) -> Iterator[Refusal]:
    what = f"{record} may be several rows that a stray quote has joined"
    expected = f"lines of {len(header)} fields whose quotes are closed, or a text with no such line: {','.join(header)}"
    for line in record.lines:
        if line.data.strip():
            text = line.data.decode("utf-8", "backslashreplace").strip()
            yield refuse_line("ragged_row", what, name, line.number, text, expected)


def _row(record: _Record, name: str, header: list[str]) -> Row | Refusal:
    line, fields, expected = record.lines[0].number, record.parsed, ",".join(header)
    try:
        record.data.decode("utf-8")
    except UnicodeDecodeError:
        actual = repr(record.data.strip())[1:]
        return refuse_line("wrong_encoding", f"{record} is not UTF-8", name, line, actual, "UTF-8")
    if isinstance(fields, csv.Error):
        return refuse_line("ragged_row", f"{record} does not parse", name, line, str(fields), expected)
    if len(fields) == len(header):
        return Row(line, {column: value for column, value in zip(header, fields, strict=True) if column})
    what = f"{record} has another number of fields"
    actual = f"{len(fields)} fields: {','.join(fields)}"
    return refuse_line("ragged_row", what, name, line, actual, f"{len(header)} fields: {expected}")


# --- Datasets whose folder is the index: every file below it is listed, whatever it is


class FolderIndexed(Reader):
    """Reader of a folder without an index file; a dataset adds what a path says of its image.

    Files are listed by path in code-point order. Links to folders are listed and not followed.

    Attributes
    ----------
    declaration : Declaration
        What is specific to the dataset.
    name, form : str, str
        What messages call the dataset, and what its files are called.
    """

    declaration: Declaration
    name: str
    form: str

    def index_files(self, root: Path) -> Sequence[str]:
        """Return nothing: the folder is the index."""
        return ()

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a file; a path that does not give the labels is a refusal and never guessed.

        Raises
        ------
        DatasetError
            If there is no file at all, or a folder cannot be listed.
        """
        listed = [self.entry(path) for path in sorted(_files_below(dataset_root(root)))]
        if not listed:
            raise DatasetError(
                f"the {self.name} folder holds no file",
                where=root,
                found="nothing",
                expected=self.form,
                hint="put the images there, so named",
            )
        return listed

    @abstractmethod
    def entry(self, path: str) -> Entry | Refusal:
        """Return what a path, relative to the root and with `/`, says of its image."""

    def malformed(self, path: str) -> Refusal:
        """Return the refusal of a path that does not have the dataset's form."""
        rejected = ImageRejected("malformed_name", "the name does not give the labels", found=path, expected=self.form)
        return Refusal.of(rejected, path=path, stage="index")


def _files_below(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root, onerror=_unlisted):
        here = Path(folder)
        below = "" if here == root else f"{here.relative_to(root).as_posix()}/"
        links = [name for name in folders if (here / name).is_symlink()]
        yield from (f"{below}{name}" for name in (*names, *links))


def _unlisted(error: OSError) -> None:
    raise DatasetError(
        "a folder of the dataset cannot be listed",
        where=error.filename,
        found=error.strerror,
        hint="make it readable, or move it out of the dataset",
    ) from error


# --- Parquet index files: every value is read as text, so that a bad row does not affect others.

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


def whole_columns(path: Path, *, name: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of a Parquet table whole; see `plumbline.images.parquet.read_columns`.

    Raises
    ------
    DatasetError
        If it cannot be read, or takes more than half of the machine's memory.
    """
    with _as_dataset_error(name):
        return read_columns(path, columns)


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
        If the file cannot be read, or holds more than `MAX_TABLE_BYTES`, `MAX_ROWS` or
        `plumbline.images.parquet.MAX_GROUPS`.
    """
    size = 0
    with _as_dataset_error(name):
        for line, cells in enumerate(_cells(path, columns), 1):
            size += sum(len(cell) for cell in cells if isinstance(cell, str))
            _require_few(size, MAX_TABLE_BYTES, "bytes of text")
            yield _table_row(line, name, columns, cells)


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
    return [[text for chunk in read.column(column).chunks for text in _column_texts(chunk)] for column in columns]


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


def _table_row(line: int, name: str, columns: Sequence[str], cells: tuple[str | ImageRejected, ...]) -> Row | Refusal:
    values: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=True):
        if isinstance(cell, ImageRejected):
            what = f"{cell.what} (column `{printable(column)}`)"
            return refuse_line(cell.code, what, name, line, str(cell.found), str(cell.expected))
        values[column] = cell
    return Row(line, values)


def _column_texts(values: pa.Array) -> list[str | ImageRejected]:
    import pyarrow as pa

    if isinstance(values, pa.ExtensionArray):
        return _column_texts(values.storage)
    kind = values.type
    if pa.types.is_dictionary(kind):
        known = _column_texts(values.dictionary)
        return ["" if place is None else known[known_place(place)] for place in values.indices.to_pylist()]
    if pa.types.is_floating(kind):
        values = _written(values)
    elif not (holds_text(kind) or holds_bytes(kind) or pa.types.is_fixed_size_binary(kind)):
        values = values.cast(pa.string())
    return [_cell_text(value) for value in values.cast(pa.large_binary()).to_pylist()]


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


def _cell_text(value: bytes | None) -> str | ImageRejected:
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
