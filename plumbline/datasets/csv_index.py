"""Index files of comma-separated lines: each line is read by itself, so that a bad one spoils no other."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.datasets.records import Refusal, printable
from plumbline.errors import DatasetError, ImageRejected

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an index: its number in the file, from 1, and its values by column."""

    line: int
    values: dict[str, str]


def read_rows(path: Path, *, name: str, columns: Sequence[str]) -> Iterator[Row | Refusal]:
    """Read an index whose first line names its columns.

    A byte-order mark and CRLF are accepted; blank lines list nothing. A line of another number of fields,
    with an open quote or not in UTF-8 becomes a refusal with its number (`ragged_row`, `wrong_encoding`).

    Parameters
    ----------
    path : Path
        The file.
    name : str
        What it is called in messages.
    columns : sequence of str
        Columns that must be there; others are allowed, in any order.

    Raises
    ------
    DatasetError
        If the header cannot be read, or lacks or repeats a column, or the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            header = _header(file.readline(), name, columns)
            for line, raw in enumerate(file, 2):
                if raw.strip():
                    yield _row(raw, line, name, header)
    except OSError as error:
        hint = "check that the file is readable"
        raise DatasetError("the index cannot be read", where=name, found=error.strerror, hint=hint) from error


def _header(raw: bytes, name: str, columns: Sequence[str]) -> list[str]:
    expected = f"a first line with the columns {', '.join(columns)}, in UTF-8"
    try:
        header = _fields(raw.removeprefix(_BOM))
    except (UnicodeDecodeError, csv.Error):
        header = []
    if not set(columns) <= set(header) or len(set(header)) < len(header):
        raise DatasetError(
            "the index does not begin with its column names",
            where=f"{name}, line 1",
            found=printable(repr(raw[:200])),
            expected=expected,
            hint="restore the first line of the published file, or save the file as UTF-8",
        )
    return header


def _row(raw: bytes, line: int, name: str, header: list[str]) -> Row | Refusal:
    where = f"{name}, line {line}"
    try:
        fields = _fields(raw)
    except UnicodeDecodeError:
        rejected = ImageRejected(
            "wrong_encoding",
            "the line is not UTF-8",
            where=where,
            found=repr(raw.strip())[1:],
            expected="UTF-8",
        )
    except csv.Error as error:
        rejected = ImageRejected(
            "ragged_row", "the line does not parse", where=where, found=str(error), expected=",".join(header)
        )
    else:
        if len(fields) == len(header):
            return Row(line, dict(zip(header, fields, strict=True)))
        found = f"{len(fields)} fields: {','.join(fields)}"
        expected = f"{len(header)} fields: {','.join(header)}"
        rejected = ImageRejected(
            "ragged_row", "the line has another number of fields", where=where, found=found, expected=expected
        )
    return Refusal.of(rejected, path=name, stage="index", line=line)


def _fields(raw: bytes) -> list[str]:
    return next(csv.reader([raw.decode("utf-8")], strict=True), [])
