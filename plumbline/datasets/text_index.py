"""Index files that are plain lines: each is decoded by itself, so that a bad one spoils no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

from plumbline.datasets.containment import index_file, unreadable_index
from plumbline.datasets.records import Refusal
from plumbline.errors import DatasetError, ImageRejected

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
                    raise _endless(name, number)
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
        if data:
            yield _line(data, number, name)


def _line(data: bytes, number: int, name: str) -> Line | Refusal:
    try:
        return Line(number, data.decode("utf-8"))
    except UnicodeDecodeError:
        found = repr(data)[1:]
        return refuse_line("wrong_encoding", "the line is not UTF-8", name, number, found, "UTF-8")


def _endless(name: str, number: int) -> DatasetError:
    return DatasetError(
        "a line of the index is too long",
        where=f"{name}, line {number}",
        found=f"more than {MAX_LINE_BYTES} bytes",
        expected=f"lines of at most {MAX_LINE_BYTES} bytes",
        hint="check that this is the published file and not damaged",
    )


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
