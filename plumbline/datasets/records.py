"""What every dataset becomes, accepted images and refused inputs, and the shape of a reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import polars as pl

from plumbline.datasets.declaration import Declaration
from plumbline.errors import ImageRejected
from plumbline.tables.schema import Schema

LABEL_COLUMNS = (
    "gender", "race", "age", "age_group", "occupation", "scene", "physical", "set_id", "dimension", "level", "caption",
)  # fmt: skip

CONTEXT_COLUMNS = ("scene", "set_id", "dimension", "level", "caption")
"""Label columns that say in what a picture is listed (scene, set, place in a design, text), not who is shown in it.

Two rows that differ in these alone do not contradict each other.
"""

RECORD_SCHEMA: Schema = dict.fromkeys(("image_id", "dataset", "path", "split", *LABEL_COLUMNS), pl.String)
"""One row an accepted image. `image_id` is the sha256 of the file, `path` starts at the dataset's root.

`set_id` joins the images of a counterfactual set (CausalFace: a seed); `dimension` and `level` say what was varied
in it and how far, such as `lighting` and `-1`.
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

_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters and line ends
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # changes of writing direction
    r"\ud800-\udfff]"  # what stands for bytes that are not UTF-8
)
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
            message=printable(
                rejected.what if rejected.where is None else f"{rejected.what} ({rejected.where})"
            ),
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
    """What a dataset needs in order to be ingested; everything specific to it is data in its declaration."""

    declaration: Declaration

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the index files that are there, relative to the root; none where the folder is the index.

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

    def labels(self, entry: Entry) -> dict[str, str]:
        """Map an entry's own values to record columns.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """


@dataclass(frozen=True)
class Ingested:
    """A dataset as it was accepted.

    Attributes
    ----------
    records : DataFrame
        `RECORD_SCHEMA`, in index order.
    quarantine : DataFrame
        `QUARANTINE_SCHEMA`, in index order.
    listed : int
        How many inputs the index names; always records plus quarantine.
    folder_digest : str
        Sha256 (hex) of the index files and of the very bytes that were examined: what `folder_digest` gives.
    """

    records: pl.DataFrame
    quarantine: pl.DataFrame
    listed: int
    folder_digest: str


def unsafe_characters(text: str) -> bool:
    """Tell whether a text holds control, line-breaking, direction-changing or undecodable characters."""
    return _UNSAFE.search(text) is not None


def printable(text: str) -> str:
    """Return a text fit for table, terminal and page: unsafe characters escaped, at most 300 characters."""
    clean = _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return clean if len(clean) <= _LONGEST_TEXT else clean[: _LONGEST_TEXT - 1] + "…"
