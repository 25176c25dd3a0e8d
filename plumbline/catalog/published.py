"""Published numbers and word lists of the studies, read from tables in the layout of the papers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from io import StringIO
from typing import Annotated, Any, Literal, NamedTuple

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from plumbline.catalog.files import checked_yaml, entry
from plumbline.catalog.schema import Row, Schema
from plumbline.catalog.studies import study_checkpoint
from plumbline.digests import canonical_json, digest_bytes
from plumbline.errors import StorageError

PRINTED_UNITS: dict[str | None, int] = {None: 0, "bin": 0, "percent": -2, "hundredths": -2}
"""Unit in print to the power of ten that turns it into Plumbline's unit."""


class PrintedNumber(NamedTuple):
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
        If it is no number in this unit.
    """
    digits = text.removesuffix("%") if printed_unit == "percent" else text
    try:
        number = Decimal(digits.partition("-")[0] if printed_unit == "bin" else digits)
        shift = PRINTED_UNITS[printed_unit]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"no number in the unit {printed_unit}: {text!r}") from error
    exponent = int(number.as_tuple().exponent)
    half = Decimal(0) if printed_unit == "bin" else Decimal(5).scaleb(exponent - 1 + shift)
    return PrintedNumber(value=number.scaleb(shift), decimals=max(0, -exponent), rounding=half)


# --- Tables in the layout of the paper: a grid of cells as printed, and a description of what its labels
# stand for.

KEYS = (
    "metric", "definition", "dataset", "suite", "event", "attribute", "group", "reference_group", "probe", "factor",
    "occupation", "prompt", "instruction", "condition", "scorer", "statistic",
)  # fmt: skip
"""What was measured, in the words of the metric table; `dataset` is the name of a reader."""


def _with_known_keys(meaning: dict[str, str | int]) -> dict[str, str | int]:
    if unknown := set(meaning) - {*KEYS, "checkpoint", "unit", "printed_unit", "n"}:
        raise ValueError(f"a label stands for an unknown key: {', '.join(sorted(unknown))}")
    return meaning


Protocol = dict[str, str | int | float | bool | None]
Meaning = Annotated[dict[str, str | int], AfterValidator(_with_known_keys)]
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
    """A remark on some cells; without `where` or `columns` it is on all rows or columns."""

    note: str
    where: dict[str, str] = {}
    columns: tuple[str, ...] | None = None
    status: Status | None = None

    def is_about(self, cell: PrintedCell) -> bool:
        """Return whether it applies to a cell."""
        of_row = all(cell.labels.get(header) == label for header, label in self.where.items())
        return of_row and (self.columns is None or cell.column in self.columns)


class Recomputed(_Described):
    """How a table is recomputed from another: mean over columns of first minus second checkpoint."""

    source: str
    columns: dict[str, tuple[str, ...]]
    pairs: dict[str, tuple[str, str]]


class TableDescription(_Described):
    """What a grid of numbers is.

    `rows` and `columns` name the vocabulary of each leading label and of each level of the header; null where a label
    stands for nothing by itself, or, in lower case, is the value of `label_key`. `protocol` is how all of it was made,
    see `PaperDescription`.
    """

    title: str
    file: str
    sha256: str
    rows: tuple[str | None, ...]
    columns: tuple[str, ...]
    all: Meaning = {}
    label_key: str | None = None
    status: Status = "as_printed"
    note: str | None = None
    notes: tuple[Note, ...] = ()
    protocol: Protocol = {}
    absent: dict[str, str] = {}
    recomputed: Recomputed | None = None
    uncertain: tuple[str, ...] = ()


class PaperDescription(_Described):
    """One paper: source, vocabularies of its labels, tables of numbers and of words.

    `protocols`: what the paper says of how numbers of a condition, or of a checkpoint, were made, in the keys of
    `plumbline.config.reproduction.Run.protocol`; `without_results`: tables that print no result, such as prompts, and
    what they are here; `by_attribute`: conditions whose id an audit ends in `_gender`,
    `_race`, since the method is trained for one attribute. Which one numbers without an attribute are of is not said:
    gender is taken.
    """

    id: str
    version: int
    source: str
    vocabularies: dict[str, dict[str, Meaning]]
    tables: dict[str, TableDescription]
    words: dict[str, TableDescription] = {}
    without_results: dict[str, tuple[str, str]] = {}
    protocols: dict[str, Protocol] = {}
    by_attribute: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sources_are_printed(self) -> PaperDescription:
        for name, table in self.tables.items():
            if table.recomputed is None:
                continue
            source = self.tables.get(table.recomputed.source)
            if source is None or source.recomputed:
                raise ValueError(f"table {name} is recomputed from `{table.recomputed.source}`, which is not printed")
        return self


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
    where : str
        Its place in the CSV file, for error messages.
    """

    labels: dict[str, str]
    column: str
    text: str
    meaning: Meaning
    where: str

    @property
    def row(self) -> str:
        """Return the labels of the row in one string."""
        return LABELS.join(self.labels.values())


def read_cells(paper: PaperDescription, table: TableDescription, folder: Traversable) -> Iterator[PrintedCell]:
    """Yield the cells of one table, row by row.

    Parameters
    ----------
    folder : Traversable
        Where the paper's CSV files are.

    Raises
    ------
    StorageError
        If the file has another digest than described, or a label is in no vocabulary.
    """
    where, data = f"{paper.id}/{table.file}", (folder / table.file).read_bytes()
    if (digest := digest_bytes(data)) != table.sha256:
        raise StorageError(
            "a published table has changed",
            where=where,
            found=f"sha256 {digest}",
            expected=f"sha256 {table.sha256}",
            hint="compare it with the paper cell by cell; if the paper says so, raise `version` and write the digest",
        )
    header, *rows = csv.reader(StringIO(data.decode("utf-8")))
    leading, levels = len(table.rows), len(table.columns)
    columns = {
        name: _meanings(paper, table.columns, name.split(LEVELS, levels - 1), f"{where}, line 1")
        for name in header[leading:]
    }
    for line, row in enumerate(rows, start=2):
        place = f"{where}, line {line}"
        of_row = _meanings(paper, table.rows, row[:leading], place, table.label_key)
        for (name, of_column), text in zip(columns.items(), row[leading:]):
            meaning = _combined(table.all, of_row, of_column)
            yield PrintedCell(dict(zip(header, row[:leading])), name, text, meaning, f"{place}, column {name}")


def _meanings(
    paper: PaperDescription, vocabularies: Sequence[str | None], labels: list[str], where: str, key: str | None = None
) -> list[Meaning]:
    """Return what each label stands for: in its vocabulary, or without one, in lower case, the value of `key`."""

    def meaning(vocabulary: str | None, label: str) -> Meaning:
        if vocabulary is None:
            return {key: label.lower()} if key else {}
        unknown = f"a label of {where} is not in the vocabulary `{vocabulary}`"
        file = f"published/{paper.id}.yaml"
        return entry(paper.vocabularies.get(vocabulary, {}), label, unknown, file, error=StorageError)

    return [meaning(vocabulary, label) for vocabulary, label in zip(vocabularies, labels, strict=True)]


def _combined(common: Meaning, rows: list[Meaning], columns: list[Meaning]) -> Meaning:
    """Merge the meanings of a cell's labels: a column overrides a row, and a row the table."""
    combined = dict(common)
    for meaning in (*rows, *columns):
        combined |= meaning
    for key, between in _JOINED.items():
        # The column comes first, so that `Obese` over `Male` becomes obese_man.
        parts = [str(meaning[key]) for meaning in (*columns, *rows) if key in meaning]
        if len(parts) > 1:
            combined[key] = between.join(parts)
    return combined


# --- Published differences, computed anew from the table that they are differences of.


def _difference(cell: PrintedCell, dataset: object, rule: Recomputed, source: Mapping[str, Row]) -> Row:
    """Return what replaces a printed difference: first minus second checkpoint of its pair, from the source table.

    The last two labels of the cell name the pair. Both terms are rounded, so `rounding` is that of both together, also
    of a mean of differences.
    """
    pair = LABELS.join(list(cell.labels.values())[-2:])
    first, second = entry(rule.pairs, pair, "a difference is not explained", cell.where, error=StorageError)
    columns, lacking = rule.columns[cell.column], "a difference is of a cell that its source lacks"
    ends = [
        entry(source, f"{column} of {checkpoint} on {dataset}", lacking, cell.where, error=StorageError)
        for checkpoint in (first, second)
        for column in columns
    ]
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
    "protocol": pl.String,
    "source": pl.String,
    "version": pl.Int64,
}
"""One row per printed number.

`value` is in `unit`, Plumbline's own; `printed` is the text in the paper, in `printed_unit` where that is another.
`rounding` is how far the unrounded number may be from `value`. `checkpoint` and `reference_checkpoint` are ids of
`checkpoints.yaml`; a difference is first minus reference. `n` is how many images it was measured on, where the paper
says so. `status`: `as_printed`; `recomputed` (from another table, since the printed one has copy errors); `suspect`
and `not_comparable` (say why in `note`, and are never compared); `absent` (the cell holds no number). `protocol`: JSON
of what the paper says of how it was made, null where that is no more than the other columns say.
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
_WITHOUT_ATTRIBUTE = "gender"
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
def published_tables() -> dict[tuple[str, str], tuple[str, str | None]]:
    """Return (paper, table) -> title of every printed table, by its number, and of one without results what it is here.

    Numbers in running text come last.
    """
    titles_by_table: dict[tuple[str, str], tuple[str, str | None]] = {}
    for paper, _ in _papers(_FOLDER):
        titles = {name: (table.title, None) for name, table in {**paper.tables, **paper.words}.items()}
        listed = {**titles, **paper.without_results}
        titles_by_table |= {(paper.id, name): listed[name] for name in sorted(listed, key=_printed_order)}
    return titles_by_table


def _printed_order(name: str) -> tuple[bool, str, int]:
    """Return where a table stands among those of its paper: `3` before `22`, `A.2` before `B.1`, text last."""
    letter, _, number = name.rpartition(".")
    return not number.isdecimal(), letter, int(number) if number.isdecimal() else 0


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
            what = "a description of published tables"
            paper = checked_yaml(item, PaperDescription, what, error=StorageError)
            yield paper, folder / paper.id


def _framed(rows: Sequence[Mapping[str, object]], schema: Schema) -> pl.DataFrame:
    return pl.DataFrame([[row.get(name) for name in schema] for row in rows], schema=schema, orient="row")


def _table_rows(paper: PaperDescription, name: str, table: TableDescription, folder: Traversable) -> list[Row]:
    cells = list(read_cells(paper, table, folder))
    rows = [_row(paper, name, table, cell) for cell in cells]
    if table.recomputed is None:
        return rows
    other = table.recomputed.source
    source = {
        f"{row['column']} of {row['checkpoint']} on {row['dataset']}": row
        for row in _table_rows(paper, other, paper.tables[other], folder)
    }
    return [row | _difference(cell, row["dataset"], table.recomputed, source) for row, cell in zip(rows, cells)]


def _place(paper: PaperDescription, name: str, cell: PrintedCell, checkpoint: object) -> Row:
    """Return the columns that numbers and words share."""
    return {
        "paper": paper.id,
        "table": name,
        "row": cell.row,
        "column": cell.column,
        "model": study_checkpoint(str(checkpoint)).title if checkpoint else None,
        "source": paper.source,
        "version": paper.version,
    }


def _row(paper: PaperDescription, name: str, table: TableDescription, cell: PrintedCell) -> Row:
    notes = [note for note in table.notes if note.is_about(cell)]
    remarks = [table.note, *(note.note for note in notes), table.absent.get(cell.text)]
    statuses = [table.status, *(note.status for note in notes if note.status)]
    meaning = _with_attribute(paper, cell.meaning)
    row: Row = {
        **meaning,
        **_place(paper, name, cell, cell.meaning.get("checkpoint")),
        "printed": cell.text,
        "status": statuses[-1],
        "note": "; ".join(filter(None, remarks)) or None,
        "protocol": _protocol(paper, table, cell.meaning, meaning),
    }
    if cell.text in table.absent:
        return row | {"status": "absent"}
    unit = cell.meaning.get("printed_unit")
    try:
        number = read_number(cell.text, None if unit is None else str(unit))
    except ValueError as error:
        raise StorageError(
            "a cell of a published table is no number", where=cell.where, found=error, expected="a number as printed"
        ) from error
    return row | {"value": float(number.value), "decimals": number.decimals, "rounding": float(number.rounding)}


def _with_attribute(paper: PaperDescription, meaning: Meaning) -> Meaning:
    condition = meaning.get("condition")
    if condition not in paper.by_attribute:
        return meaning
    return {**meaning, "condition": f"{condition}_{meaning.get('attribute', _WITHOUT_ATTRIBUTE)}"}


def _protocol(paper: PaperDescription, table: TableDescription, printed: Meaning, meaning: Meaning) -> str | None:
    named = (paper.protocols.get(str(printed.get(key)), {}) for key in ("condition", "checkpoint"))
    combined = {**table.protocol}
    for protocol in named:
        combined |= protocol
    if printed.get("condition") in paper.by_attribute:
        combined["attribute"] = meaning.get("attribute", _WITHOUT_ATTRIBUTE)
    stated = {key: value for key, value in combined.items() if value is not None}
    return canonical_json(stated) if stated else None


def _word_rows(paper: PaperDescription, name: str, table: TableDescription, cell: PrintedCell) -> Iterator[Row]:
    uncertain = cell.row in table.uncertain
    checkpoint = None if uncertain else cell.meaning["checkpoint"]
    of_cell = _place(paper, name, cell, checkpoint) | {
        "checkpoint": checkpoint,
        "attribute": cell.meaning["attribute"],
        "group": cell.meaning["group"],
        "note": _UNCERTAIN if uncertain else None,
    }
    for position, word in enumerate(filter(None, cell.text.split(", ")), start=1):
        yield of_cell | {"position": position, "word": word}


# --- Protocols: how a paper made its numbers, beside how an audit does.

ProtocolOf = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]
"""(model, dataset, published cell) -> how an audit makes its number: `plumbline.config.reproduction.Run.protocol`."""


def differences(published: Mapping[str, Any], run: Mapping[str, Any]) -> str | None:
    """Say what of a run is not as published, such as `epochs 8 in place of 3`; None where nothing differs."""
    phrases = [
        f"{key} {run[key]} in place of {value}" for key, value in published.items() if key in run and run[key] != value
    ]
    return ", ".join(phrases) or None
