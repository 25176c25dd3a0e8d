"""A number as a paper prints it: its value in Plumbline's unit, and how far it may be from what was rounded."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import StringIO
from typing import Literal

import polars as pl
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from plumbline.catalog.schema import Row, Schema
from plumbline.catalog.studies import study_checkpoint
from plumbline.digests import digest_bytes
from plumbline.errors import StorageError

PRINTED_UNITS: dict[str | None, int] = {None: 0, "bin": 0, "percent": -2, "hundredths": -2}
"""Unit in print to the power of ten that turns it into Plumbline's unit."""


@dataclass(frozen=True)
class PrintedNumber:
    """One printed number.

    Attributes
    ----------
    value : Decimal
        In Plumbline's unit: 13 percent is 0.13. Of a bin such as `0.2-0.3` the lower edge.
    decimals : int
        Digits after the point, as printed; of `1.1e-08` those that it would have written out.
    rounding : Decimal
        Half of the last printed digit, in Plumbline's unit; 0 for the edge of a bin, which is exact.
    """

    value: Decimal
    decimals: int
    rounding: Decimal


def read_number(text: str, printed_unit: str | None = None) -> PrintedNumber:
    """Read a printed number, such as `+0.96`, `13`, `4.0%`, `-1.6e-02` or, of a bin, `0.2-0.3`.

    Parameters
    ----------
    printed_unit : {None, "bin", "percent", "hundredths"}
        None: printed in Plumbline's own unit. A percent sign is only right in `percent`.

    Raises
    ------
    ValueError
        If it is no finite number in this unit; the message says what it is.
    """
    if printed_unit not in PRINTED_UNITS:
        raise ValueError(f"no known unit of print: {printed_unit}")
    digits = text.removesuffix("%") if printed_unit == "percent" else text
    if printed_unit == "bin":
        digits, _, upper = text.partition("-")
        _decimal(upper, text)
    number = _decimal(digits, text)
    exponent = int(number.as_tuple().exponent)
    shift = PRINTED_UNITS[printed_unit]
    half = Decimal(0) if printed_unit == "bin" else Decimal(5).scaleb(exponent - 1 + shift)
    return PrintedNumber(value=number.scaleb(shift), decimals=max(0, -exponent), rounding=half)


def _decimal(digits: str, text: str) -> Decimal:
    try:
        number = Decimal(digits)
    except InvalidOperation as error:
        raise ValueError(f"no number: {text!r}") from error
    if not number.is_finite():
        raise ValueError(f"no finite number: {text!r}")
    return number


# --- Tables in the layout of the paper: a grid of cells as printed, and a description of what its labels
# stand for.

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
        raise StorageError("a description of published tables is not YAML", where=description, found=error) from error
    except ValidationError as error:
        mistakes = "; ".join(
            f"{'.'.join(str(part) for part in mistake['loc'])}: {mistake['msg']}" for mistake in error.errors()
        )
        raise StorageError(
            "a description of published tables has mistakes", where=description, found=mistakes
        ) from error


def read_cells(paper: PaperDescription, table: TableDescription, folder: Traversable) -> Iterator[PrintedCell]:
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


def _column_meanings(paper: PaperDescription, table: TableDescription, name: str, where: str) -> list[Meaning]:
    levels = name.split(LEVELS, len(table.columns) - 1)
    if len(levels) != len(table.columns):
        raise StorageError(
            "a column of a published table has another number of levels than its description says",
            where=f"{where}, line 1",
            found=name,
            expected=f"{len(table.columns)} labels, separated by `{LEVELS}`",
        )
    return [_meaning(paper, vocabulary, level, f"{where}, line 1") for vocabulary, level in zip(table.columns, levels)]


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


# --- Published differences, computed anew from the table that they are differences of.


def _difference(
    cell: PrintedCell,
    dataset: object,
    rule: Recomputed,
    source: Mapping[tuple[object, object, object], Row],
    where: str,
) -> Row:
    """Return what replaces a printed difference: first minus second checkpoint of its pair, from the source table.

    The last two labels of the cell name the pair. Both terms are rounded, so `rounding` is that of both together, also
    of a mean of differences. A pair or column that the rule lacks, or a cell that the source lacks, is a StorageError.
    """
    pair = LABELS.join(list(cell.labels.values())[-2:])
    if pair not in rule.pairs or cell.column not in rule.columns:
        raise StorageError("a difference is not explained", where=where, found=pair, expected=", ".join(rule.pairs))
    first, second = rule.pairs[pair]
    columns = rule.columns[cell.column]
    terms = [(first, column) for column in columns] + [(second, column) for column in columns]
    lacking = [f"{column} of {name}" for name, column in terms if (name, dataset, column) not in source]
    if lacking:
        raise StorageError("a difference is of cells that its source lacks", where=where, found=", ".join(lacking))
    ends = [source[name, dataset, column] for name, column in terms]
    signs = [1] * len(columns) + [-1] * len(columns)
    value = sum((sign * Decimal(str(end["printed"])) for sign, end in zip(signs, ends)), Decimal(0))
    rounding = sum((Decimal(str(end["rounding"])) for end in ends), Decimal(0))
    return {
        "model": f"{study_checkpoint(first).title} - {study_checkpoint(second).title}",
        "checkpoint": first,
        "reference_checkpoint": second,
        "value": float(value / len(columns)),
        "rounding": float(rounding / len(columns)),
        "status": "recomputed",
    }


# --- The numbers and words that the studies published, each with the cell of the paper that it stands in.

KEYS = (
    "metric", "definition", "dataset", "suite", "event", "attribute", "group", "reference_group", "probe", "factor",
    "occupation", "prompt", "instruction", "condition", "scorer", "statistic",
)  # fmt: skip
"""What was measured, in the words of the metric table; `dataset` is the name of a reader."""

PUBLISHED_SCHEMA: Schema = {
    "paper": pl.String,
    "table": pl.String,
    "row": pl.String,
    "column": pl.String,
    "model": pl.String,
    "checkpoint": pl.String,
    "reference_checkpoint": pl.String,
    **dict.fromkeys(KEYS, pl.String),
    "printed": pl.String,
    "printed_unit": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "decimals": pl.Int64,
    "rounding": pl.Float64,
    "n": pl.Int64,
    "status": pl.String,
    "note": pl.String,
    "source": pl.String,
    "version": pl.Int64,
}
"""One row per printed number.

`value` is in `unit`, Plumbline's own; `printed` is the text in the paper, in `printed_unit` where that is another.
`rounding` is how far the unrounded number may be from `value`. `checkpoint` and `reference_checkpoint` are ids of
`checkpoints.yaml`; a difference is first minus reference. `n` is how many images it was measured on, where the paper
says so. `status`: `as_printed`; `recomputed` (from another table, since the printed one has copy errors); `suspect`
and `not_comparable` (say why in `note`, and are never compared); `absent` (the cell holds no number).
"""

WORDS_SCHEMA: Schema = {
    **dict.fromkeys(("paper", "table", "row", "column", "model", "checkpoint", "attribute", "group"), pl.String),
    "position": pl.Int64,
    "word": pl.String,
    "note": pl.String,
    "source": pl.String,
    "version": pl.Int64,
}
"""One row per word of a list. `model` and `checkpoint` are null where the text at hand does not tell whose it is."""

_FOLDER = files("plumbline.catalog") / "published"
_UNCERTAIN = "the text at hand has lost which models have no words for this group: whose list this is, is unknown"


@cache
def published_values() -> pl.DataFrame:
    """Return every published number, in the order paper, table, row, column of the papers.

    Returns
    -------
    DataFrame
        In `PUBLISHED_SCHEMA`. Tables 2 and 4 of Data Matters Most are recomputed from its table 1.

    Raises
    ------
    StorageError
        If a data file is absent, changed, or says something that its description does not explain.
    """
    return read_values(_FOLDER)


@cache
def published_words() -> pl.DataFrame:
    """Return the words that the stereotype judge named for a group, as the study printed them.

    Returns
    -------
    DataFrame
        In `WORDS_SCHEMA`: one row per word, `position` counting from 1 within a cell. An empty list has no rows.

    Raises
    ------
    StorageError
        As `published_values`.
    """
    return read_words(_FOLDER)


def read_values(folder: Traversable) -> pl.DataFrame:
    """Return the numbers of the papers whose descriptions lie in a folder, as `published_values` does."""
    rows = [
        row
        for paper, tables in _papers(folder)
        for name, table in paper.tables.items()
        for row in _table_rows(paper, name, table, tables)
    ]
    return _framed(rows, PUBLISHED_SCHEMA)


def read_words(folder: Traversable) -> pl.DataFrame:
    """Return the word lists of the papers whose descriptions lie in a folder, as `published_words` does."""
    rows = [
        row
        for paper, tables in _papers(folder)
        for name, table in paper.words.items()
        for cell in read_cells(paper, table, tables)
        for row in _word_rows(paper, name, table, cell)
    ]
    return _framed(rows, WORDS_SCHEMA)


def _papers(folder: Traversable) -> Iterator[tuple[PaperDescription, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.name.endswith(".yaml"):
            paper = read_paper(item)
            yield paper, folder / paper.id


def _framed(rows: Sequence[Mapping[str, object]], schema: Schema) -> pl.DataFrame:
    return pl.DataFrame([[row.get(name) for name in schema] for row in rows], schema=schema, orient="row")


def _table_rows(paper: PaperDescription, name: str, table: TableDescription, folder: Traversable) -> list[Row]:
    cells = list(read_cells(paper, table, folder))
    notes = _notes_of(paper, name, table, cells)
    rows = [_row(paper, name, table, cell, own) for cell, own in zip(cells, notes)]
    if table.recomputed is None:
        return rows
    where, other = f"{paper.id}, table {name}", table.recomputed.source
    if other not in paper.tables:
        raise StorageError(
            "a table is recomputed from one that is not there",
            where=where,
            found=other,
            expected=", ".join(paper.tables),
        )
    if paper.tables[other].recomputed:
        raise StorageError(
            "a table is recomputed from itself, or from one that is recomputed", where=where, found=other
        )
    source = {
        (row["checkpoint"], row["dataset"], row["column"]): row
        for row in _table_rows(paper, other, paper.tables[other], folder)
    }
    return [
        row | _difference(cell, row["dataset"], table.recomputed, source, f"{where}, {cell.row}, {cell.column}")
        for row, cell in zip(rows, cells)
    ]


def _row(paper: PaperDescription, name: str, table: TableDescription, cell: PrintedCell, notes: Sequence[Note]) -> Row:
    unknown = set(cell.meaning) - {*KEYS, "checkpoint", "unit", "printed_unit", "n"}
    if unknown:
        raise _mistake(paper, table, cell, "a label stands for an unknown key", sorted(unknown), ", ".join(KEYS))
    statuses = [note.status for note in notes if note.status is not None]
    said = [table.note, *(note.note for note in notes), table.absent.get(cell.text)]
    checkpoint = cell.meaning.get("checkpoint")
    return {
        **cell.meaning,
        "paper": paper.id,
        "table": name,
        "row": cell.row,
        "column": cell.column,
        "model": study_checkpoint(str(checkpoint)).title if checkpoint else None,
        "printed": cell.text,
        "status": statuses[-1] if statuses else table.status,
        "note": "; ".join(filter(None, said)) or None,
        "source": paper.source,
        "version": paper.version,
        **_number(paper, table, cell),
    }


def _number(paper: PaperDescription, table: TableDescription, cell: PrintedCell) -> Row:
    if cell.text in table.absent:
        return {"value": None, "status": "absent"}
    unit = cell.meaning.get("printed_unit")
    try:
        number = read_number(cell.text, None if unit is None else str(unit))
    except ValueError as error:
        raise _mistake(
            paper, table, cell, "a cell of a published table is no number", error, "a number as printed"
        ) from error
    return {"value": float(number.value), "decimals": number.decimals, "rounding": float(number.rounding)}


def _mistake(
    paper: PaperDescription, table: TableDescription, cell: PrintedCell, what: str, found: object, expected: str
) -> StorageError:
    where = f"{paper.id}/{table.file}, line {cell.line}, column {cell.column}"
    return StorageError(what, where=where, found=found, expected=expected)


def _notes_of(
    paper: PaperDescription, name: str, table: TableDescription, cells: Sequence[PrintedCell]
) -> list[list[Note]]:
    """Return the notes of every cell; a note that is about no cell is a mistake."""
    found: list[list[Note]] = [[] for _ in cells]
    for note in table.notes:
        about = [i for i, cell in enumerate(cells) if _is_about(note, cell)]
        if not about:
            raise StorageError(
                "a note is about no cell of its table",
                where=f"{paper.id}, table {name}",
                found=f"where {note.where}, columns {note.columns}",
                expected="labels and columns as the table has them",
            )
        for i in about:
            found[i].append(note)
    return found


def _is_about(note: Note, cell: PrintedCell) -> bool:
    rows = all(cell.labels.get(header) == label for header, label in note.where.items())
    return rows and (note.columns is None or cell.column in note.columns)


def _word_rows(paper: PaperDescription, name: str, table: TableDescription, cell: PrintedCell) -> Iterator[Row]:
    uncertain = cell.row in table.uncertain
    checkpoint = None if uncertain else str(cell.meaning["checkpoint"])
    for position, word in enumerate(filter(None, cell.text.split(", ")), start=1):
        yield {
            "paper": paper.id,
            "table": name,
            "row": cell.row,
            "column": cell.column,
            "model": study_checkpoint(checkpoint).title if checkpoint else None,
            "checkpoint": checkpoint,
            "attribute": cell.meaning["attribute"],
            "group": cell.meaning["group"],
            "position": position,
            "word": word,
            "note": _UNCERTAIN if uncertain else None,
            "source": paper.source,
            "version": paper.version,
        }
