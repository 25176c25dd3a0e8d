"""The numbers and words that the studies published, each with the cell of the paper that it stands in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import polars as pl

from plumbline.errors import StorageError
from plumbline.tables.checkpoints import study_checkpoint
from plumbline.tables.printed_number import read_number
from plumbline.tables.printed_table import (
    Note,
    PaperDescription,
    PrintedCell,
    TableDescription,
    read_cells,
    read_paper,
)
from plumbline.tables.recomputed import recompute
from plumbline.tables.schema import Row, Schema

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
"""One row a printed number.

`value` is in `unit`, Plumbline's own; `printed` is the text in the paper, in `printed_unit` where that is another.
`rounding` is how far the unrounded number may be from `value`. `checkpoint` and `reference_checkpoint` are ids of
`checkpoints.yaml`; a difference is first minus reference. `n` is how many images it was measured on, where the paper
says so. `status`: `as_printed`; `recomputed` (from another table, since the printed one has copy errors); `suspect`
and `not_comparable` (say why in `note`, and are never compared); `absent` (the cell holds no number).
"""

WORDS_SCHEMA: Schema = {
    **dict.fromkeys(
        ("paper", "table", "row", "column", "model", "checkpoint", "attribute", "group"), pl.String
    ),
    "position": pl.Int64,
    "word": pl.String,
    "note": pl.String,
    "source": pl.String,
    "version": pl.Int64,
}
"""One row a word of a list. `model` and `checkpoint` are null where the text at hand does not tell whose it is."""

_FOLDER = files("plumbline.tables") / "published"
_UNCERTAIN = (
    "the text at hand has lost which models have no words for this group: whose list this is, is unknown"
)


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
        In `WORDS_SCHEMA`: one row a word, `position` counting from 1 within a cell. An empty list has no rows.

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
        for paper, own in _papers(folder)
        for name, table in paper.tables.items()
        for row in _table_rows(paper, name, table, own)
    ]
    return _framed(rows, PUBLISHED_SCHEMA)


def read_words(folder: Traversable) -> pl.DataFrame:
    """Return the word lists of the papers whose descriptions lie in a folder, as `published_words` does."""
    rows = [
        row
        for paper, own in _papers(folder)
        for name, table in paper.words.items()
        for cell in read_cells(paper, table, own)
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


def _table_rows(
    paper: PaperDescription, name: str, table: TableDescription, folder: Traversable
) -> list[Row]:
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
    source = _table_rows(paper, other, paper.tables[other], folder)
    return recompute(rows, cells, table.recomputed, source=source, where=where)


def _row(
    paper: PaperDescription, name: str, table: TableDescription, cell: PrintedCell, notes: Sequence[Note]
) -> Row:
    unknown = set(cell.meaning) - {*KEYS, "checkpoint", "unit", "printed_unit", "n"}
    if unknown:
        raise _mistake(
            paper, table, cell, "a label stands for an unknown key", sorted(unknown), ", ".join(KEYS)
        )
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
    return {
        "value": float(number.value),
        "decimals": number.decimals,
        "rounding": float(number.rounding),
    }


def _mistake(
    paper: PaperDescription,
    table: TableDescription,
    cell: PrintedCell,
    what: str,
    found: object,
    expected: str,
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


def _word_rows(
    paper: PaperDescription, name: str, table: TableDescription, cell: PrintedCell
) -> Iterator[Row]:
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
