"""SocialCounterfactuals: sets of images that differ in two attributes of a person, published or extracted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from plumbline.datasets.indexes import (
    Row,
    dataset_root,
    described,
    index_file,
    read_rows,
    read_table_rows,
    shown_in,
    table_schema,
)
from plumbline.datasets.records import Declaration, Entry, Reader, Refusal, load_declaration, printable
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.parquet import IMAGE_COLUMN, holds_text

if TYPE_CHECKING:
    import pyarrow as pa

IMAGES = "images"
"""Folder of the extracted images; without it they lie in the root."""

ROW_COLUMNS = ("caption", "counterfactual_set", "a1a2")
"""What is read of each Parquet row besides its image."""

_ROW_FORM = "string columns caption, counterfactual_set and a1a2, and the image column of Hugging Face"
_SET_COLUMNS = ("seed", "filename", "rank")
_CAPTION = "caption_"
_CAPTION_FORM = "[A picture of, A photo of, An image of] a <word> <word> <occupation>"
_OPENING = re.compile(r"(?:(?:a picture|a photo|an image) of )?an? ", re.IGNORECASE)
_FILENAME_FORM = "[a_picture_of_, a_photo_of_, an_image_of_]{subset}_<occupation>"
_FILENAME_OPENING = re.compile(r"(?:(?:a_picture|a_photo|an_image)_of_)?")
_KEPT = ("occupation", "set_id", "caption")


class SocialCounterfactuals(Reader):
    """Reader of SocialCounterfactuals (Howard et al., CVPR 2024) in either of its two layouts.

    Extracted: `{filename}_{rank}_{im_index}_{seed}.jpg` in `images` (or in the root, where there is no such
    folder) beside `metadata_{race_gender,physical_gender,physical_race}.csv`, any of which may be absent. A row is
    a set and lists one image for every column `caption_<im_index>`. The occupation comes from `filename`.

    Published on Hugging Face: `data/*.parquet` (or in the root), one row an image. That the columns `image`,
    `caption`, `counterfactual_set`, `a1`, `a1_type`, `a2`, `a2_type` and `a1a2` are there is known from published
    code that reads them, and that `a1a2` is the two attribute words as they stand in the caption: the authors cut
    it out of the caption. Assumed is only that `counterfactual_set` is one text a set; `a1` to `a2_type` are not
    read. The occupation is what the caption ends with, in lower case, which is what `filename` says too.

    In both, the two attributes come from the caption by the declared words, whose kinds say the subset: that is
    the record's `split`. A row whose words are unknown or contradict each other is quarantined. Where the metadata
    files are there, they count, even beside Parquet files. An incomplete set is not refused.
    """

    declaration: Declaration = load_declaration("socialcounterfactuals")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the metadata files that are there, else the Parquet files.

        Raises
        ------
        DatasetError
            If there is neither.
        """
        folder = dataset_root(root)
        metadata = [name for name in self.declaration.indexes.values() if (folder / name).is_file()]
        indexes = metadata or sorted(
            file.relative_to(folder).as_posix()
            for pattern in ("*.parquet", "data/*.parquet")
            for file in folder.glob(pattern)
        )
        if not indexes:
            raise DatasetError(
                "the SocialCounterfactuals folder has no index",
                where=root,
                found=shown_in(folder),
                expected=f"data/*.parquet or {', '.join(self.declaration.indexes.values())}",
                hint=f"put the published Parquet files there, or the metadata files beside the folder `{IMAGES}`",
            )
        return indexes

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry an image: of every caption in the metadata files, or of every Parquet row.

        Raises
        ------
        DatasetError
            If there is no index, one has other columns than expected or cannot be read, or they list nothing.
        """
        folder = dataset_root(root)
        subsets = {name: subset for subset, name in self.declaration.indexes.items()}
        indexes = self.index_files(folder)
        listed: list[Entry | Refusal] = []
        for name in indexes:
            read = _metadata(folder, name, subsets[name]) if name in subsets else _rows(folder, name)
            listed += read
        if not listed:
            hint = "put the published files there"
            raise DatasetError(
                "the SocialCounterfactuals index lists no image", where=root, found=", ".join(indexes), hint=hint
            )
        return listed

    def labels(self, raw: Mapping[str, str]) -> dict[str, str]:
        """Map the two attributes that the image's subset varies; occupation, set and caption stay as they are.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        varied = {rule.column: rule.apply(raw[rule.source]) for rule in self.declaration.rules if rule.source in raw}
        return {**varied, **{column: raw[column] for column in _KEPT}}


@cache
def _words() -> dict[str, dict[str, str]]:
    """Return attribute -> word in the caption, in lower case -> the word as declared."""
    rules = SocialCounterfactuals.declaration.rules
    return {rule.source: {word.lower(): word for word in rule.values} for rule in rules}


@cache
def _pair() -> re.Pattern[str]:
    words = (word for of_attribute in _words().values() for word in of_attribute)
    any_word = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.compile(rf"({any_word}) ({any_word}) (\S.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Caption:
    """What a caption says: attribute to word, both words as they stand there, and the occupation in lower case."""

    attributes: dict[str, str]
    pair: str
    occupation: str

    @property
    def subset(self) -> str:
        return "_".join(self.attributes)


def _parsed(caption: str) -> _Caption:
    opening = _OPENING.match(caption)
    match = opening and _pair().fullmatch(caption, opening.end())
    if match:
        first, second, occupation = match.groups()
        attributes = {
            attribute: words[word.lower()]
            for word in (first, second)
            for attribute, words in _words().items()
            if word.lower() in words
        }
        parsed = _Caption(attributes, f"{first} {second}", occupation.lower())
        if parsed.subset in SocialCounterfactuals.declaration.indexes:
            return parsed
    expected = f"{_CAPTION_FORM}, with words of {' or '.join(SocialCounterfactuals.declaration.indexes)}"
    raise _unknown("the caption does not say two known attributes and an occupation", caption, expected)


def _metadata(root: Path, name: str, subset: str) -> Iterator[Entry | Refusal]:
    folder = f"{IMAGES}/" if (root / IMAGES).is_dir() else ""
    for row in read_rows(index_file(root, name), name=name, columns=_SET_COLUMNS):
        if isinstance(row, Refusal):
            yield row
            continue
        captions = {
            column.removeprefix(_CAPTION): caption
            for column, caption in row.values.items()
            if column.startswith(_CAPTION)
        }
        if not captions:
            actual = ", ".join(row.values)
            _other_columns(name, actual, f"{', '.join(_SET_COLUMNS)} and {_CAPTION}<im_index>")
        seed, filename, rank = (row.values[column] for column in _SET_COLUMNS)
        for im_index, caption in captions.items():
            path = f"{folder}{filename}_{rank}_{im_index}_{seed}.jpg"
            yield _listed(name, row, path, partial(_of_set, row, subset, caption))


def _listed(name: str, row: Row, path: str, read: Callable[[], tuple[_Caption, dict[str, str]]]) -> Entry | Refusal:
    """Return the entry of an image, of which `read` gives the parsed caption and what is kept of it."""
    try:
        parsed, kept = read()
    except ImageRejected as error:
        error.where = f"{name}, line {row.line}"
        return Refusal.of(error, path=path, stage="labels", line=row.line)
    return Entry(path, parsed.subset, {**parsed.attributes, **kept}, name, row.line)


def _of_set(row: Row, subset: str, caption: str) -> tuple[_Caption, dict[str, str]]:
    seed, filename, rank = (row.values[column] for column in _SET_COLUMNS)
    occupation, parsed = _occupation(filename, subset), _parsed(caption)
    if parsed.subset != subset:
        raise _unknown("the caption is of another subset than its file", caption, subset)
    return parsed, {"occupation": occupation, "set_id": f"{filename}_{rank}_{seed}", "caption": caption}


def _unknown(what: str, value: str, expected: str) -> ImageRejected:
    return ImageRejected("unknown_label", what, found=repr(value), expected=expected)


def _occupation(filename: str, subset: str) -> str:
    opening = _FILENAME_OPENING.match(filename)
    rest = filename[opening.end() :] if opening else filename
    occupation = rest.removeprefix(f"{subset}_")
    if occupation in (rest, ""):
        raise _unknown("the file name does not say the occupation", filename, _FILENAME_FORM.format(subset=subset))
    return occupation.replace("_", " ")


def _rows(root: Path, name: str) -> Iterator[Entry | Refusal]:
    table = index_file(root, name)
    _require_columns(table_schema(table, name=name), name)
    for row in read_table_rows(table, name=name, columns=ROW_COLUMNS):
        path = f"{name}/{(row.line or 1) - 1}"
        yield replace(row, path=path) if isinstance(row, Refusal) else _listed(name, row, path, partial(_of_row, row))


def _of_row(row: Row) -> tuple[_Caption, dict[str, str]]:
    caption, set_id, pair = (row.values[column] for column in ROW_COLUMNS)
    parsed = _parsed(caption)
    if pair.lower() != parsed.pair.lower():
        raise _unknown("`a1a2` contradicts the caption", pair, parsed.pair)
    if not set_id:
        raise _unknown("the row belongs to no set", set_id, "`counterfactual_set`")
    return parsed, {"occupation": parsed.occupation, "set_id": set_id, "caption": caption}


def _require_columns(schema: pa.Schema, name: str) -> None:
    texts = [field.name for field in schema if holds_text(field.type)]
    once = all(schema.names.count(column) == 1 for column in (*ROW_COLUMNS, IMAGE_COLUMN))
    if not once or not set(ROW_COLUMNS) <= set(texts):
        _other_columns(name, described(schema), _ROW_FORM)


def _other_columns(name: str, found: str, expected: str) -> NoReturn:
    raise DatasetError(
        "the index has other columns than the published one",
        where=name,
        found=printable(found),
        expected=expected,
        hint="use the published file, or read your own table with the reader `folder`",
    )
