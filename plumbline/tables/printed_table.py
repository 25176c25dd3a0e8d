"""Tables in the layout of the paper: a grid of cells as printed, and a description of what its labels stand for."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from io import StringIO
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from plumbline.digests import digest_bytes
from plumbline.errors import StorageError

Meaning = dict[str, str | int]
Status = Literal["as_printed", "recomputed", "suspect", "not_comparable", "absent"]
_JOINED = {"checkpoint": "-", "group": "_"}
"""Keys to which several labels add a part each, and what joins the parts."""
LEVELS = " / "
"""Stands between the levels of a column's header."""
LABELS = " | "
"""Stands between the labels of a row."""


class _Described(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Note(_Described):
    """What is to be said of some cells; without `where` or `columns` it is of all rows or columns."""

    note: str
    where: dict[str, str] = {}
    columns: tuple[str, ...] | None = None
    status: Status | None = None


class Recomputed(_Described):
    """How the cells of a table follow from another: mean over columns of first minus second checkpoint."""

    source: str
    columns: dict[str, tuple[str, ...]]
    pairs: dict[str, tuple[str, str]]


class TableDescription(_Described):
    """What a grid of numbers is.

    `rows` and `columns` name the vocabulary of each leading label and of each level of the header; null where a label
    stands for nothing by itself, or, in lower case, is the value of `label_key`.
    """

    title: str
    file: str
    shape: tuple[int, int]
    sha256: str
    rows: tuple[str | None, ...]
    columns: tuple[str, ...]
    all: Meaning = {}
    label_key: str | None = None
    status: Status = "as_printed"
    note: str | None = None
    notes: tuple[Note, ...] = ()
    absent: dict[str, str] = {}
    recomputed: Recomputed | None = None
    uncertain: tuple[str, ...] = ()


class PaperDescription(_Described):
    """One paper: where it is from, what its labels stand for, its tables of numbers and of words."""

    id: str
    version: int
    source: str
    vocabularies: dict[str, dict[str, Meaning]]
    tables: dict[str, TableDescription]
    words: dict[str, TableDescription] = {}


@dataclass(frozen=True)
class PrintedCell:
    """One cell of a printed table.

    Attributes
    ----------
    labels : dict of str to str
        Header of each leading column to the label in this row.
    column : str
        Header of the cell.
    text : str
        As printed.
    meaning : dict
        What the labels of row and column stand for, in the keys of the published values.
    line : int
        In the CSV file.
    """

    labels: dict[str, str]
    column: str
    text: str
    meaning: Meaning
    line: int

    @property
    def row(self) -> str:
        """Return the labels of the row in one string."""
        return LABELS.join(self.labels.values())


def read_paper(description: Traversable) -> PaperDescription:
    """Read the description of one paper's tables.

    Raises
    ------
    StorageError
        If it is not valid YAML, or has unknown, missing or wrong keys.
    """
    try:
        return PaperDescription.model_validate(yaml.safe_load(description.read_text("utf-8")))
    except yaml.YAMLError as error:
        raise StorageError(
            "a description of published tables is not YAML", where=description, found=error
        ) from error
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(part) for part in mistake['loc'])}: {mistake['msg']}"
            for mistake in error.errors()
        )
        raise StorageError(
            "a description of published tables has mistakes", where=description, found=mistakes
        ) from error


def read_cells(
    paper: PaperDescription, table: TableDescription, folder: Traversable
) -> Iterator[PrintedCell]:
    """Yield the cells of one table, row by row.

    Parameters
    ----------
    folder : Traversable
        Where the paper's CSV files are.

    Raises
    ------
    StorageError
        If the file is absent, has another digest or shape than described, or a label is in no vocabulary.
    """
    where = f"{paper.id}/{table.file}"
    header, *rows = _grid(folder / table.file, table, where)
    leading = len(table.rows)
    expected = (len(rows), len(header) - leading)
    if expected != table.shape:
        raise StorageError(
            "a published table has another shape than its description says",
            where=where,
            found=f"{expected[0]} rows, {expected[1]} columns of numbers",
            expected=f"{table.shape[0]} rows, {table.shape[1]} columns",
        )
    columns = [_column_meanings(paper, table, name, where) for name in header[leading:]]
    for line, row in enumerate(rows, start=2):
        labels = dict(zip(header[:leading], row[:leading]))
        meanings = [
            _meaning(paper, vocabulary, label, f"{where}, line {line}", table.label_key)
            for vocabulary, label in zip(table.rows, labels.values())
        ]
        for name, text, own in zip(header[leading:], row[leading:], columns):
            yield PrintedCell(labels, name, text, _together(table.all, meanings, own), line)


def _grid(path: Traversable, table: TableDescription, where: str) -> list[list[str]]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise StorageError("a published table is not there", where=where, found=error.strerror) from error
    found = digest_bytes(text.encode())
    if found != table.sha256:
        raise StorageError(
            "a published table has changed",
            where=where,
            found=f"sha256 {found}",
            expected=f"sha256 {table.sha256}",
            hint="compare it with the paper cell by cell; if the paper says so, raise `version` and write the digest",
        )
    rows = list(csv.reader(StringIO(text)))
    ragged = [line for line, row in enumerate(rows, start=1) if len(row) != len(rows[0])]
    if not rows or ragged:
        raise StorageError(
            "a published table is empty, or its rows differ in length",
            where=f"{where}, line {ragged[0] if ragged else 1}",
            found=f"{len(rows[ragged[0] - 1]) if ragged else 0} fields",
            expected=f"{len(rows[0])} fields" if rows else "a header and rows",
        )
    return rows


def _column_meanings(
    paper: PaperDescription, table: TableDescription, name: str, where: str
) -> list[Meaning]:
    levels = name.split(LEVELS, len(table.columns) - 1)
    if len(levels) != len(table.columns):
        raise StorageError(
            "a column of a published table has another number of levels than its description says",
            where=f"{where}, line 1",
            found=name,
            expected=f"{len(table.columns)} labels, separated by `{LEVELS}`",
        )
    return [
        _meaning(paper, vocabulary, level, f"{where}, line 1")
        for vocabulary, level in zip(table.columns, levels)
    ]


def _meaning(
    paper: PaperDescription, vocabulary: str | None, label: str, where: str, key: str | None = None
) -> Meaning:
    if vocabulary is None:
        # As datasets write what a label may be: in lower case.
        return {key: label.lower()} if key else {}
    known = paper.vocabularies.get(vocabulary, {})
    if label not in known:
        raise StorageError(
            "a label of a published table is not explained",
            where=where,
            found=label,
            expected=f"one of {', '.join(known)}" if known else f"a vocabulary `{vocabulary}`",
            hint=f"add it to `{vocabulary}` in {paper.id}.yaml",
        )
    return known[label]


def _together(common: Meaning, rows: list[Meaning], columns: list[Meaning]) -> Meaning:
    """Join what the labels stand for; a column says it over a row, and a row over the table."""
    joined = dict(common)
    for meaning in (*rows, *columns):
        joined |= meaning
    for key, between in _JOINED.items():
        # The column comes first, so that `Obese` over `Male` becomes obese_man.
        parts = [str(meaning[key]) for meaning in (*columns, *rows) if key in meaning]
        if len(parts) > 1:
            joined[key] = between.join(parts)
    return joined
