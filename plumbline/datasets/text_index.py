"""Index files that are plain lines: each is decoded by itself, so that a bad one spoils no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plumbline.datasets.containment import inside
from plumbline.datasets.records import Refusal
from plumbline.errors import DatasetError, ImageRejected

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an index: its number in the file, from 1, and its text without spaces around it."""

    number: int
    text: str


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
        If the file leads out of the folder or cannot be opened.
    """
    try:
        with inside(root, name).open("rb") as file:
            for number, raw in enumerate(file, 1):
                data = (raw.removeprefix(_BOM) if number == 1 else raw).strip()
                if data:
                    yield _line(data, number, name)
    except ImageRejected as error:
        raise DatasetError(error.what, where=name, found=error.found, expected=error.expected) from error
    except OSError as error:
        hint = "check that the file is readable"
        raise DatasetError("the index cannot be read", where=name, found=error.strerror, hint=hint) from error


def _line(data: bytes, number: int, name: str) -> Line | Refusal:
    try:
        return Line(number, data.decode("utf-8"))
    except UnicodeDecodeError:
        found = repr(data)[1:]
        return refuse_line("wrong_encoding", "the line is not UTF-8", name, number, found, "UTF-8")


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
