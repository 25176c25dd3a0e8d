"""Index files of comma-separated values, with quotes as in RFC 4180: a bad record spoils no other, without a trace.

A stray quote that is closed by chance makes one record of several rows. Where it can be told from a text of several
lines, by lines that are whole rows themselves, every line is refused and none is lost; where one of them is not, the
record is taken as it stands.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from plumbline.datasets.records import Refusal, printable
from plumbline.datasets.text_index import MAX_LINE_BYTES, RawLine, raw_lines, refuse_line
from plumbline.errors import DatasetError


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
            found = line.data.decode("utf-8", "backslashreplace").strip()
            yield refuse_line("ragged_row", what, name, line.number, found, expected)


def _row(record: _Record, name: str, header: list[str]) -> Row | Refusal:
    line, fields, expected = record.lines[0].number, record.parsed, ",".join(header)
    try:
        record.data.decode("utf-8")
    except UnicodeDecodeError:
        found = repr(record.data.strip())[1:]
        return refuse_line("wrong_encoding", f"{record} is not UTF-8", name, line, found, "UTF-8")
    if isinstance(fields, csv.Error):
        return refuse_line("ragged_row", f"{record} does not parse", name, line, str(fields), expected)
    if len(fields) == len(header):
        return Row(line, {column: value for column, value in zip(header, fields, strict=True) if column})
    what = f"{record} has another number of fields"
    found = f"{len(fields)} fields: {','.join(fields)}"
    return refuse_line("ragged_row", what, name, line, found, f"{len(header)} fields: {expected}")
