"""A reader of one's own: a class of the audit file, held to the contract of the readers that are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from plumbline.datasets.grouping import SMALL_GROUP, UNGROUPED_SCHEMA, crossed_name, without_small_groups
from plumbline.datasets.records import RECORD_SCHEMA, Declaration, Entry, Reader, Refusal, audited_attributes
from plumbline.errors import ImageRejected
from plumbline.own_code import OwnCode, broken, called, own_code

MIN_SHOWN = 5
"""Images of the smallest group that is shown of data of one's own, where the class does not say `least_shown`."""
_TRIED = 50
_METHODS = {"index_files": "(root)", "entries": "(root)", "labels": "(raw)"}


class OwnReader(Reader):
    """A reader of one's own, whose small groups are left out like those of a user's own table.

    Raises
    ------
    ConfigError
        If the class cannot be made, or lacks something that a reader has.
    """

    def __init__(self, reference: str) -> None:
        self.code = own_code(reference)
        self._reader = _made(self.code)
        self.declaration: Declaration = self._reader.declaration
        self.has_images = bool(getattr(self._reader, "has_images", True))
        declares = any("least_shown" in vars(each) for each in type(self._reader).__mro__ if _is_own(each))
        self.least_shown = int(self._reader.least_shown) if declares else MIN_SHOWN

    def index_files(self, root: Path) -> Sequence[str]:
        """See `Reader`."""
        return list(self._reader.index_files(root))

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """See `Reader`."""
        return list(self._reader.entries(root))

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """See `Reader`."""
        return dict(self._reader.labels(raw))

    def grouped(self, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the records without groups too small to be shown."""
        groups = [name for name in audited_attributes(records) if records[name].count()]
        pair = ("race", "gender")
        crosses = {crossed_name(pair): pair} if {*pair} <= {*groups} else {}
        records, lost = without_small_groups(records, groups, crosses, least=self.least_shown)
        rows = [(name, SMALL_GROUP, number) for name, number in lost.items() if number]
        return records, pl.DataFrame(rows, schema=UNGROUPED_SCHEMA, orient="row")


def _is_own(kind: type) -> bool:
    return kind.__module__.split(".")[0] != "plumbline"


def _made(code: OwnCode) -> Any:
    if not callable(code.thing):
        raise broken(code, "it is not a class", found=type(code.thing).__name__, expected="a class without arguments")
    reader = called(code, code.thing, told="made without arguments")
    declared = getattr(reader, "declaration", None)
    if not isinstance(declared, Declaration):
        shown = "nothing" if declared is None else type(declared).__name__
        expected = "an attribute `declaration` of plumbline.datasets.records.Declaration"
        raise broken(code, "its declaration", found=shown, expected=expected)
    lacking = [name + form for name, form in _METHODS.items() if not callable(getattr(reader, name, None))]
    if lacking:
        raise broken(
            code, "methods are missing", found=", ".join(lacking), expected="those of plumbline.datasets.records.Reader"
        )
    unknown = {rule.column for rule in declared.rules} - {*RECORD_SCHEMA, *declared.attributes}
    if unknown:
        shown, expected = ", ".join(sorted(unknown)), "columns of the records, or of `declaration.attributes`"
        raise broken(code, "its rules fill columns that nobody knows", found=shown, expected=expected)
    return reader


def require_reader(reader: OwnReader, root: Path) -> None:
    """Try a reader on the first entries of its folder.

    Raises
    ------
    ConfigError
        If it lists something else than entries and refusals, an entry lacks what a rule reads, or labels are no texts
        of columns that the declaration fills.
    """
    code = reader.code
    listed = called(code, reader.entries, root, told=f"entries({root})")
    known = {*RECORD_SCHEMA, *reader.declaration.attributes}
    for i, entry in enumerate(listed[:_TRIED]):
        if isinstance(entry, Refusal):
            continue
        if not isinstance(entry, Entry) or not isinstance(entry.path, str) or not isinstance(entry.raw, Mapping):
            shown = f"{type(entry).__name__} at position {i}"
            raise broken(code, "what it lists", found=shown, expected="Entry(path, split, raw) or Refusal")
        if Path(entry.path).is_absolute():
            raise broken(code, "a path", found=entry.path, expected="relative to the root of the dataset")
        if lacking := {rule.source for rule in reader.declaration.rules} - {*entry.raw}:
            shown = f"entry {i} without {', '.join(sorted(lacking))}"
            raise broken(code, "the values of an entry", found=shown, expected="every source that a rule reads")
        try:
            labels = reader.labels(entry.raw)
        except ImageRejected:
            continue
        except Exception as error:
            raise broken(code, "labels(raw) fails", found=f"{type(error).__name__}: {error}") from error
        wrong = {name: value for name, value in labels.items() if name not in known or not isinstance(value, str)}
        if wrong:
            raise broken(code, "labels(raw) gives", found=wrong, expected="texts by column of the records")
