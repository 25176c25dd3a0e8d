"""Answers that were given elsewhere: read from tables, one row an answer, and found by image, prompt and seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import polars as pl
from pydantic import Field

from plumbline.catalog.schema import FINISH_REASONS, NO_INSTRUCTION
from plumbline.config.parts import Part
from plumbline.datasets.indexes import Row, read_header, read_rows
from plumbline.datasets.records import printable
from plumbline.digests import digest_file, digest_json
from plumbline.errors import DatasetError, GenerationError, ImageRejected, examples
from plumbline.generators.backend import Answer, Asked, Decoding
from plumbline.generators.thinking import text_apart
from plumbline.images.parquet import OpenColumns, read_frame

STORED = "stored"


class AnswerColumns(Part):
    """The columns of stored answers."""

    image: str = "image"
    """the image's path below its dataset, or its sha256"""
    prompt: str = "prompt"
    """an id of a prompt, or what `prompts` says"""
    instruction: str | None = None
    """an id of an instruction, or what `instructions` says; without it no answer was given after one"""
    seed: str | None = None
    """whole numbers; without it answers to one question are 0, 1, ... as they stand"""
    text: str = "text"
    """what was answered"""
    finish_reason: str | None = None
    """stop, length, refusal or content_filter; without it all are stop"""


class StoredAnswersSettings(Part):
    """Answers that were given elsewhere: nothing is generated."""

    files: tuple[str, ...] = Field(min_length=1)
    """CSV, JSON lines or Parquet; relative paths start in the folder of the command"""
    columns: AnswerColumns = AnswerColumns()
    """which column is what"""
    prompts: dict[str, str] = Field(default_factory=dict)
    """what the files call a prompt -> its id"""
    instructions: dict[str, str] = Field(default_factory=dict)
    """what the files call an instruction -> its id"""
    checkpoint: str | None = None
    """address of the model that gave them: what papers print of it is compared"""
    most_missing: float = Field(default=0, ge=0, le=1)
    """largest share of a slice's questions without an answer; these are left out and counted"""


_Key = tuple[str, str, str, int]


class StoredAnswers:
    """A backend that has answered all it will; see `plumbline.generators.backend.Backend`.

    Parameters
    ----------
    settings : StoredAnswersSettings
    files : tuple of Path
        In the order of the settings.
    roots : tuple of Path
        Of the datasets that are asked about: paths of images start there.
    """

    device = STORED
    sees = True
    at_once = 4096
    sent: tuple[str, ...] = ()

    def __init__(self, settings: StoredAnswersSettings, files: tuple[Path, ...], roots: tuple[Path, ...] = ()) -> None:
        self.settings, self.files, self.roots = settings, files, roots
        read_as = settings.model_dump(exclude={"checkpoint"})
        self.identity = digest_json([STORED, 1, [digest_file(path) for path in files], read_as])

    def require_readable(self) -> None:
        """Read all files; raises GenerationError as `answers` does."""
        _ = self._rows

    def answered(self, asked: Sequence[Asked]) -> tuple[list[Asked], int]:
        """Return the questions that have an answer, and how many have none.

        Raises
        ------
        GenerationError
            If more than `most_missing` of them have none, or the files cannot be read; see `answers`.
        """
        held = [one for one in asked if self._key(one) is not None]
        missing = len(asked) - len(held)
        if missing > self.settings.most_missing * len(asked):
            first = next(one for one in asked if self._key(one) is None)
            raise GenerationError(
                f"{missing} of {len(asked)} questions have no stored answer",
                where=", ".join(map(str, self.files)),
                found=f"nothing for {_shown(first)}; the files have prompts "
                f"{', '.join(sorted({key[1] for key in self._rows})[:10])}",
                expected="an answer to every question that `generate` asks",
                hint="ask for fewer prompts, instructions, seeds or subsets, name the files' own words under `prompts` "
                "and `instructions`, or allow a share under `most_missing`",
            )
        return held, missing

    def names_any(self, paths: Iterable[str]) -> bool:
        """Return whether an answer names its image by one of some paths, and not by its sha256."""
        named = {image for image, *_ in self._rows}
        return not named.isdisjoint(paths)

    def surplus(self, used: int) -> int:
        """Return how many stored answers are not among so many used ones."""
        return len(self._rows) - used

    def answers(self, asked: Sequence[Asked], decoding: Decoding) -> Iterator[tuple[int, Answer]]:
        """Yield what is stored.

        Raises
        ------
        GenerationError
            If a file cannot be read or lacks a column, a row lacks a value, a seed or reason is none, or two rows
            answer one question: with file, row, column, and how many there are of the kind.
        """
        for i, one in enumerate(asked):
            if (key := self._key(one)) is not None:
                text, reason, source = self._rows[key]
                thinking, answer = text_apart(text)
                yield i, Answer(answer, reason, 0, 0, source, thinking, None if thinking else 0)

    def _key(self, one: Asked) -> _Key | None:
        names = [one.subject.image_id]
        if one.subject.path is not None:
            inside = (root for root in self.roots if one.subject.path.is_relative_to(root))
            names += [one.subject.path.relative_to(root).as_posix() for root in inside]
        question = one.question
        keys = ((name, question.prompt, question.instruction, question.seed) for name in names)
        return next((key for key in keys if key in self._rows), None)

    @cached_property
    def _rows(self) -> dict[_Key, tuple[str, str, str]]:
        """Return (image, prompt, instruction, seed) -> text, finish reason, file."""
        rows: dict[_Key, tuple[str, str, str]] = {}
        place: dict[_Key, str] = {}
        again: list[str] = []
        asked_before: dict[tuple[str, str, str], int] = {}
        columns = self.settings.columns
        for path in self.files:
            for where, row in self._table(path):
                image, prompt = row[columns.image], row[columns.prompt]
                prompt = self.settings.prompts.get(prompt, prompt)
                instruction = NO_INSTRUCTION if columns.instruction is None else row[columns.instruction]
                question = (image, prompt, self.settings.instructions.get(instruction, instruction))
                if columns.seed is None:
                    seed = asked_before[question] = asked_before.get(question, -1) + 1
                else:
                    seed = int(number) if (number := row[columns.seed]).isdecimal() else int(float(number))
                key = (*question, seed)
                if key in rows:
                    again.append(f"{where}, as {place[key]}")
                    continue
                reason = "stop" if columns.finish_reason is None else row[columns.finish_reason]
                rows[key], place[key] = (row[columns.text], reason, path.name), where
        if again:
            raise GenerationError(
                f"{len(again)} stored answers are to a question that an earlier one answers",
                where=again[0],
                found=examples(again),
                expected="one answer to an image, prompt, instruction and seed",
                hint="name the column of seeds under `columns.seed`, or leave it out where there is none",
            )
        return rows

    def _table(self, path: Path) -> list[tuple[str, dict[str, str]]]:
        """Return the place of each row of a file, and its values by column, as texts."""
        named = {key: name for key, name in self.settings.columns.model_dump().items() if name is not None}
        if path.suffix not in _READ:
            raise GenerationError("this is no file of answers", where=path, expected=f"one of {', '.join(_READ)}")
        unit, read = _READ[path.suffix]
        try:
            lines = list(read(path, [*named.values()]))
        except (DatasetError, ImageRejected, pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
            raise GenerationError("the stored answers cannot be read", where=path, found=error) from error
        if unread := [line for line in lines if isinstance(line.values, str)]:
            raise GenerationError(
                f"{len(unread)} of {len(lines)} rows of stored answers cannot be read: {unread[0].values}",
                where=f"{path}, {unit} {unread[0].number}",
                found=examples(f"{unit} {line.number}: {line.values}" for line in unread),
                expected="a value in every column",
            )
        texts: list[tuple[str, dict[str, str]]] = []
        wrong: dict[str, list[str]] = {key: [] for key in named}
        for line in lines:
            if isinstance(line.values, str):
                continue
            row = {}
            for key, name in named.items():
                text = _text(line.values[name])
                if text is None or not _FITS[key](text):
                    wrong[key].append(f"{unit} {line.number}: {_told(line.values[name])}")
                else:
                    row[name] = text
            texts.append((f"{path.name}, {unit} {line.number}", row))
        for key, values in wrong.items():
            if values:
                raise GenerationError(
                    f"{len(values)} of {len(lines)} values of a column of stored answers cannot be used",
                    where=f"{path}, column `{named[key]}`",
                    found=examples(values),
                    expected={"seed": "whole numbers from 0", "finish_reason": ", ".join(FINISH_REASONS)}.get(
                        key, "texts"
                    ),
                )
        return texts


class _Line(NamedTuple):
    """A row of a file, from 1, and its values by column, or why it cannot be read."""

    number: int
    values: dict[str, object] | str


def _csv(path: Path, columns: Sequence[str]) -> Iterator[_Line]:
    _require_columns(path, columns, read_header(path, name=path.name).names)
    for row in read_rows(path, name=path.name, columns=columns):
        yield _Line(row.line, dict(row.values)) if isinstance(row, Row) else _Line(row.line or 0, row.message)


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[_Line]:
    with path.open(encoding="utf-8") as file:
        first = True
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                values = json.loads(text.strip())
            except json.JSONDecodeError as error:
                yield _Line(number, f"the line is no JSON: {error.msg}, at character {error.pos + 1}")
                continue
            except RecursionError:
                yield _Line(number, "the line is nested too deep to be read")
                continue
            except ValueError:  # what Python says of an integer of more than 4,300 digits
                yield _Line(number, "the line holds a number of too many digits")
                continue
            if not isinstance(values, dict):
                yield _Line(number, "the line is no JSON object")
                continue
            if first:
                _require_columns(path, columns, values)
                first = False
            yield _Line(number, {column: values.get(column) for column in columns})


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[_Line]:
    with OpenColumns(path) as table:
        _require_columns(path, columns, table.schema.names)
    rows = read_frame(path, columns)
    for name, kind in rows.schema.items():
        if kind.is_temporal() or kind.is_nested():  # Arrow holds dates that Python has none for.
            raise GenerationError(
                "a column of stored answers cannot be used",
                where=f"{path}, column `{name}`",
                found=f"values of type {kind}",
                expected="texts or numbers",
                hint="write that column again as text",
            )
    return (_Line(number, row) for number, row in enumerate(rows.iter_rows(named=True), 1))


_READ: dict[str, tuple[str, Callable[[Path, Sequence[str]], Iterator[_Line]]]] = {
    ".csv": ("line", _csv),
    ".jsonl": ("line", _json_lines),
    ".parquet": ("row", _parquet),
}


def _require_columns(path: Path, columns: Sequence[str], in_file: Iterable[str]) -> None:
    present = list(in_file)
    if absent := [name for name in columns if name not in present]:
        raise GenerationError(
            "the stored answers lack a column",
            where=path,
            found=", ".join(present),
            expected=", ".join(absent),
            hint="say under `columns` which column is what",
        )


def _text(value: object) -> str | None:
    """Return a text or a number that a float can hold as text; None for whatever else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return str(value) if isfinite(value) else None
    except OverflowError:  # an integer of more than 308 digits
        return None


def _told(value: object) -> str:
    """Return a value that cannot be used for a message; what is nested by its kind alone, since its text has no end."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _LONGEST_BITS:
        return "a number of too many digits"
    plain = value is None or isinstance(value, bool | int | float | str)
    return printable(repr(value)) if plain else f"a {type(value).__name__}"


def _whole(text: str) -> bool:
    if len(text) > _LONGEST_NUMBER:
        return False
    try:
        number = float(text)
    except ValueError:
        return False
    return isfinite(number) and number >= 0 and number == int(number)


_LONGEST_NUMBER, _LONGEST_BITS = 400, 1024
"""Characters of a seed, and bits of a whole number: more than a float holds."""

_FITS: dict[str, Callable[[str], bool]] = {
    "image": bool,
    "prompt": bool,
    "instruction": bool,
    "seed": _whole,
    "text": lambda text: True,  # an answer may have no words
    "finish_reason": FINISH_REASONS.__contains__,
}
"""What the values of a column of answers must be."""


def _shown(one: Asked) -> str:
    name = one.subject.path.name if one.subject.path is not None else one.subject.image_id[:12]
    question = one.question
    return f"{name}, prompt {question.prompt}, instruction {question.instruction}, seed {question.seed}"
