"""Dataset declarations, records and refusals, and the interface of a reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import polars as pl
from pydantic import TypeAdapter

from plumbline.catalog.files import parse_yaml
from plumbline.catalog.schema import Schema
from plumbline.catalog.suites import VARIANT_OF
from plumbline.datasets.grouping import UNGROUPED_SCHEMA
from plumbline.errors import UNSAFE, ConfigError, DatasetError, ImageRejected


@dataclass(frozen=True)
class LabelRule:
    """How one record column follows from one of the dataset's own attributes.

    Attributes
    ----------
    column : str
        Column of the records.
    source : str
        The dataset's own attribute.
    values : mapping of str to str
        Every value that the dataset may hold, and what it is called in the records. Empty for ages in years.
    years : (int, int) or None
        For ages in years: youngest and oldest that the dataset may hold.
    groups : mapping of str to (int, int)
        For age groups: first and last year of each; together they cover `years`.
    or_else : str or None
        What else would be right in place of an unknown value, for messages.
    """

    column: str
    source: str
    values: Mapping[str, str] = field(default_factory=dict)
    years: tuple[int, int] | None = None
    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    or_else: str | None = None

    def __post_init__(self) -> None:
        if not self.values and self.years is None:
            raise DatasetError(
                "a rule takes no value",
                where=f"the rule for `{self.column}`",
                found="neither `values` nor `years`",
                expected="every value with its name; what is taken as it is, `Reader.labels` gives",
            )

    def apply(self, raw: str) -> str:
        """Return the record's value for the dataset's value.

        Raises
        ------
        ImageRejected
            With code `unknown_label`, if the vocabulary lacks the value. Nothing is trimmed or guessed.
        """
        value = self.values.get(raw) if self.years is None else self._from_years(raw)
        if value is None:
            raise ImageRejected(
                "unknown_label", f"the value of `{self.source}` is unknown", found=repr(raw), expected=self.known
            )
        return value

    def _from_years(self, raw: str) -> str | None:
        youngest, oldest = self.years or (0, 0)
        if not (raw.isascii() and raw.isdigit() and len(raw) <= 3 and youngest <= int(raw) <= oldest):
            return None
        age = int(raw)
        if not self.groups:
            return str(age)
        return next((group for group, (first, last) in self.groups.items() if first <= age <= last), None)

    @property
    def known(self) -> str:
        """Return, for messages, what the dataset may hold."""
        if self.years is not None:
            return f"whole years from {self.years[0]} to {self.years[1]}"
        words = ", ".join(self.values)
        return words if self.or_else is None else f"{words}; or {self.or_else}"


@dataclass(frozen=True)
class Declaration:
    """What is specific to one dataset, from its data file or declared in its reader.

    Attributes
    ----------
    id, version, source : str, int, str
        Name in the registry, version of this file, and the publication that defines the dataset.
    base_attribute : str or None
        The record column whose classes the Trident suite tests, never null unless `may_lack_labels`; None where the
        dataset has no labels.
    class_set : str or None
        Name of those classes in the Trident suite; None where it tests none of them.
    rules : tuple of LabelRule
        One per record column that the dataset fills.
    indexes : mapping of str to str
        Split to index file, in reading order; empty where the folder is the index.
    path_column : str or None
        The index column that names the image.
    identity_file : str or None
        The file, or the key of the audit file, that says which pictures show one person, where there may be several.
    default_filter : str
        The rows that a suite counts unless `filters` names others.
    filters : mapping of str to str
        Suite to named filter.
    attributes : tuple of str
        Columns of groups that only this dataset has, such as `department`; they stand behind those of `RECORD_SCHEMA`.
    may_lack_labels : bool
        Whether a row stays that has no label of the base attribute, as in a user's own table.
    captions : bool
        Whether every image has a caption of its own, so that images and texts are pairs.
    """

    id: str
    version: int
    source: str
    base_attribute: str | None
    class_set: str | None = None
    rules: tuple[LabelRule, ...] = ()
    indexes: Mapping[str, str] = field(default_factory=dict)
    path_column: str | None = None
    identity_file: str | None = None
    default_filter: str = "all"
    filters: Mapping[str, str] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    may_lack_labels: bool = False
    captions: bool = False

    @property
    def of_people(self) -> bool:
        """Return whether images are of people; labels of things alone are classes for zero-shot accuracy."""
        return self.base_attribute != "label"

    @property
    def index_columns(self) -> tuple[str, ...]:
        """Return the index columns that are read, the path first."""
        read = dict.fromkeys(rule.source for rule in self.rules)
        return (self.path_column, *read) if self.path_column else tuple(read)

    @property
    def filled(self) -> frozenset[str]:
        """Return the label columns that a rule or the base attribute fills.

        A rule may leave a cell empty: `gender` of a user's own table, where it is not the base attribute.
        """
        named = (*(rule.column for rule in self.rules), self.base_attribute)
        return frozenset(column for column in named if column is not None)

    @property
    def groups_named(self) -> frozenset[str]:
        """Return the columns whose labels are groups: those that are filled, and those of this dataset alone."""
        return self.filled | {*self.attributes}

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map the dataset's own values to record columns.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return {rule.column: rule.apply(raw[rule.source]) for rule in self.rules}

    def filter_for(self, suite: str) -> str:
        """Return the name of the row filter that a suite uses on this dataset."""
        return self.filters.get(VARIANT_OF.get(suite, suite), self.default_filter)


@cache
def load_declaration(name: str) -> Declaration:
    """Read one dataset's data file.

    Raises
    ------
    ConfigError
        If there is none of that name.
    """
    source = files("plumbline.datasets") / "declarations" / f"{name}.yaml"
    if not source.is_file():
        raise ConfigError("no dataset is declared under this name", found=name)
    content: dict[str, Any] = parse_yaml(source.read_text("utf-8"))
    rules = [
        {"column": column, "source": rule.pop("from")} | rule for column, rule in content.pop("labels", {}).items()
    ]
    return TypeAdapter(Declaration).validate_python(content | {"rules": rules})


# --- Records, refusals and readers

LABEL_COLUMNS = (
    "gender", "race", "age", "age_group", "occupation", "scene", "physical", "set_id", "dimension", "level", "caption",
    "label",
)  # fmt: skip

CONTEXT_COLUMNS = ("scene", "set_id", "dimension", "level", "caption")
"""Label columns that say in what a picture is listed (scene, set, place in a design, text), not who is shown in it.

Two rows that differ in these alone do not contradict each other.
"""

RECORD_SCHEMA: Schema = dict.fromkeys(("image_id", "dataset", "path", "split", *LABEL_COLUMNS), pl.String)
"""One row an accepted image, or one in each context where it is listed in several (`CONTEXT_COLUMNS`).

`image_id` is the sha256 of the file, `path` starts at the dataset's root.

`set_id` joins the images of a counterfactual set (CausalFace: a seed), or of a person; `dimension` and `level` say
what was varied in it and how far, such as `lighting` and `-1`. `label` is the class of a thing, such as `n01440764`.
"""

EXTENDED_SCHEMA: Schema = {
    **RECORD_SCHEMA,
    "auto_gender": pl.String,
    "auto_gender_probability": pl.Float64,
    "auto_gender_margin": pl.Float64,
    "composite": pl.String,
}
"""Records with the automatic gender label, its probability and its margin |p(man) - p(woman)|, 0 to 1.

`composite` joins the dataset's classes with that label, such as `Indian_woman`: the extended datasets of TriProTesting
(UTKFACE 10 labels, FAIRFACE 14, IDENPROF 20). Null where the classes are genders themselves or there are none.
"""

AUDITED_ATTRIBUTES = ("gender", "race", "age_group", "physical")
"""Columns that define groups in any dataset; `physical` has characteristics such as `obese`."""


def audited_attributes(records: pl.DataFrame) -> list[str]:
    """Return the columns of groups: those of any dataset, then those that only this one has, such as `department`."""
    return [
        name
        for name in (*AUDITED_ATTRIBUTES, *(name for name in records.columns if name not in EXTENDED_SCHEMA))
        if name in records.columns and name != "gender_race"
    ]


_LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed image, before its labels are mapped and its file is opened.

    Attributes
    ----------
    path : str
        As it is to be opened, relative to the dataset's root, with `/`.
    split : str or None
        Part of the dataset, such as `train`.
    raw : mapping of str to str
        The dataset's own attribute values.
    index : str or None
        The index file that lists it; None where the folder itself is the index.
    line : int or None
        Line in the index file, from 1.
    """

    path: str
    split: str | None
    raw: Mapping[str, str]
    index: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """One listed input that is not accepted: a quarantine row without the dataset's name.

    `stage` is the step that refused it: `index`, `labels`, `path`, `image` or `duplicates`.
    """

    path: str
    line: int | None
    stage: str
    code: str
    message: str
    found: str | None
    expected: str | None

    @classmethod
    def of(cls, rejected: ImageRejected, *, path: str, stage: str, line: int | None = None) -> Refusal:
        """Make the refusal that an error stands for; nothing a terminal would obey is left in its text."""
        return cls(
            path=printable(path),
            line=line,
            stage=stage,
            code=rejected.code,
            message=printable(rejected.what if rejected.where is None else f"{rejected.what} ({rejected.where})"),
            found=None if rejected.found is None else printable(str(rejected.found)),
            expected=None if rejected.expected is None else printable(str(rejected.expected)),
        )

    @classmethod
    def of_entry(cls, rejected: ImageRejected, entry: Entry, *, stage: str) -> Refusal:
        """Make the refusal of a listed image; its place in the index is added to the error."""
        if entry.index is not None:
            rejected.where = f"{entry.index}, line {entry.line}"
        return cls.of(rejected, path=entry.path, stage=stage, line=entry.line)


class Reader(Protocol):
    """Interface of a dataset reader; everything specific to a dataset is data in its declaration.

    The readers of this package inherit from it.
    """

    declaration: Declaration
    has_images: bool = True
    """whether what is listed are files to be decoded; else labels alone, for answers that were given elsewhere"""
    least_shown: int = 1
    """images of the smallest group that is shown"""

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the existing index files, relative to the root; none where the folder is the index.

        Raises
        ------
        DatasetError
            If the dataset needs an index and has none.
        """

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return everything that the dataset lists, in index order; a line that names no image is a refusal.

        Raises
        ------
        DatasetError
            If the index as a whole cannot be read, or lists nothing.
        """

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map an entry's own values to record columns, by the declaration's rules unless a reader does more.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return self.declaration.labels(raw)

    def grouped(self, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the records with groups that take all rows to form, and the rows without a group, by reason.

        Returns
        -------
        DataFrame, DataFrame
            The records as they are, unless a reader does more; and `UNGROUPED_SCHEMA`.
        """
        return records, pl.DataFrame(schema=UNGROUPED_SCHEMA)

    def unmapped(self, entries: Iterable[Entry]) -> Mapping[str, UnmappedValues]:
        """Return the attributes with values that have no group because nothing names them."""
        return {}


@dataclass(frozen=True)
class UnmappedValues:
    """Values of an attribute that the dataset's map does not name.

    Attributes
    ----------
    rows : mapping of str to int
        Value, as the table has it -> rows.
    known : tuple of str
        Those that the map names.
    """

    rows: Mapping[str, int]
    known: tuple[str, ...]


@dataclass(frozen=True)
class Ingested:
    """The accepted and quarantined inputs of a dataset.

    Attributes
    ----------
    records : DataFrame
        `RECORD_SCHEMA` and the dataset's own attributes, in index order.
    quarantine : DataFrame
        `QUARANTINE_SCHEMA`, in index order.
    ungrouped : DataFrame
        `UNGROUPED_SCHEMA`: accepted rows without a group in an attribute; of a user's own table alone.
    listed : int
        How many inputs the index names; always records plus quarantine.
    folder_digest : str
        Sha256 (hex) of the index files and of the very bytes that were examined: what `folder_digest` gives.
    """

    records: pl.DataFrame
    quarantine: pl.DataFrame
    ungrouped: pl.DataFrame
    listed: int
    folder_digest: str


LONGEST_CAPTION = 1 << 14
"""Characters; no text encoder reads as many."""


def caption_text(raw: object) -> str:
    """Return a caption as it is read, its white space made single spaces.

    Raises
    ------
    ImageRejected
        `missing_caption`, `value_too_long` or `unsafe_caption`.
    """
    caption = " ".join(raw[: LONGEST_CAPTION + 1].split()) if isinstance(raw, str) else ""
    if isinstance(raw, str) and len(raw) > LONGEST_CAPTION:
        actual, expected = f"{len(raw)} characters", f"at most {LONGEST_CAPTION}"
        raise ImageRejected("value_too_long", "the caption is too long", found=actual, expected=expected)
    if not caption:
        raise ImageRejected("missing_caption", "the image has no caption", found=repr(raw)[:80], expected="a text")
    if unsafe_characters(caption):
        expected = "a text without control characters or changes of direction, in UTF-8"
        raise ImageRejected("unsafe_caption", "the caption cannot be used", found=ascii(caption), expected=expected)
    return caption


def unsafe_characters(text: str) -> bool:
    """Tell whether a text holds control, line-breaking, direction-changing or undecodable characters."""
    return UNSAFE.search(text) is not None


def printable(text: str) -> str:
    """Return a text fit for table, terminal and page: unsafe characters escaped, at most 300 characters."""
    clean = UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return clean if len(clean) <= _LONGEST_TEXT else clean[: _LONGEST_TEXT - 1] + "…"
