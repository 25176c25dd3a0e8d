"""PATA: a list of labelled addresses, images that the user has fetched, and captions by scene."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from plumbline.datasets.containment import dataset_root, index_file, inside
from plumbline.datasets.declaration import Declaration, load_declaration
from plumbline.datasets.records import Entry, Refusal, printable
from plumbline.datasets.text_index import Line, read_lines, refuse_line
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.decoding import SUFFIXES

INDEX = "pata_fairness.files.lst"
CAPTIONS = "pata_fairness.captions.json"
IMAGES = "images"

_SUFFIXES = tuple(suffix for of_format in SUFFIXES.values() for suffix in of_format)
NAME_FORM = f"{IMAGES}/<scene>_<race>_<gender>_<age>_<position> and {' or '.join(_SUFFIXES)}, position from 0"

# From the right, since a scene may have underscores of its own.
_PARTS = ("scene", "race", "gender", "age")

# What captions.json calls an attribute, to the record column.
_ATTRIBUTES = {"races": "race", "gender": "gender", "age": "age"}


class PATA:
    """Reader of PATA (Seth, Hemani and Agarwal, CVPR 2023): `scene_race_gender_age|address` a line.

    The list gives addresses and no file names. Here the image of the n-th line, from 0, lies in `images` and
    is called as the line begins, then `_n`, then the extension of what was fetched: `office_indian_male_old_7.jpg`.
    A line whose image is not there is quarantined (`missing_file`), as is normal with dead addresses.
    """

    declaration: Declaration = load_declaration("pata")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the list, and the captions where they are there.

        Raises
        ------
        DatasetError
            If the list is not there.
        """
        folder = dataset_root(root)
        present = [name for name in (INDEX, CAPTIONS) if os.path.lexists(folder / name)]
        if INDEX not in present:
            raise DatasetError(
                "the PATA folder has no list of images",
                where=root,
                expected=INDEX,
                hint=f"put the published list there, and the images into {NAME_FORM}",
            )
        return present

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a line of the list.

        Raises
        ------
        DatasetError
            If the list or the folder of the images is not there, or the list is empty.
        """
        folder = dataset_root(root)
        self.index_files(folder)
        fetched = _fetched(folder)
        listed = [
            line if isinstance(line, Refusal) else _entry(line, position, fetched)
            for position, line in enumerate(read_lines(folder, INDEX))
        ]
        if not listed:
            hint = "put the published list there"
            raise DatasetError("the PATA list names no image", where=INDEX, found="no line", hint=hint)
        return listed

    def labels(self, entry: Entry) -> dict[str, str]:
        """Map scene, race, gender and age to the records' words; scene, race and age stay as listed.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return self.declaration.labels(entry.raw)


def _fetched(root: Path) -> dict[str, list[str]]:
    """Return stem to file names of the images that are there."""
    by_stem: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for file in inside(root, IMAGES).iterdir():
            if file.suffix.lower() in _SUFFIXES:
                by_stem[file.stem].append(file.name)
    except (OSError, ImageRejected) as error:
        raise DatasetError(
            "the folder of the PATA images cannot be listed",
            where=root / IMAGES,
            found=getattr(error, "strerror", None) or getattr(error, "what", None),
            expected="a folder",
            hint=f"fetch the images into {NAME_FORM}",
        ) from error
    return {stem: sorted(names) for stem, names in by_stem.items()}


def _entry(line: Line, position: int, fetched: Mapping[str, Sequence[str]]) -> Entry | Refusal:
    label, bar, address = line.text.partition("|")
    if not (label and bar and address):
        what = "the line is not a label and an address"
        expected = f"{'_'.join(_PARTS)}|address"
        return refuse_line("ragged_row", what, INDEX, line.number, line.text, expected)
    stem = f"{label}_{position}"
    names = fetched.get(stem, [f"{stem}{_SUFFIXES[0]}"])
    path = f"{IMAGES}/{names[0]}"
    parts = label.rsplit("_", len(_PARTS) - 1)
    if len(parts) < len(_PARTS):
        what, expected = "the label lacks a part", "_".join(_PARTS)
        return refuse_line("malformed_name", what, INDEX, line.number, label, expected, path=path)
    if len(names) > 1:
        what, expected = "several images are named for this line", "one"
        return refuse_line("ambiguous_file", what, INDEX, line.number, ", ".join(names), expected, path=path)
    return Entry(path, None, dict(zip(_PARTS, parts, strict=True)), INDEX, line.number)


@dataclass(frozen=True)
class SceneCaptions:
    """What PATA says of one scene.

    Attributes
    ----------
    scene : str
        As in the records' column `scene`.
    template : str
        The neutral caption; `{race}`, `{gender}` and `{age}` stand in it, some in double braces.
    positive, negative : mapping of str to tuple of str
        Captions by the record column whose groups they are contrasted on: `race`, `gender`, `age`.
    """

    scene: str
    template: str
    positive: Mapping[str, tuple[str, ...]]
    negative: Mapping[str, tuple[str, ...]]


def load_captions(root: Path | str) -> tuple[SceneCaptions, ...]:
    """Read PATA's captions, in the order of the file: 24 scenes in the published one.

    Raises
    ------
    DatasetError
        If the file is not there, is no JSON in UTF-8, or a scene in it is unknown, listed twice or has not the
        published form.
    """
    folder = dataset_root(root)
    try:
        content = json.loads(index_file(folder, CAPTIONS).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        _unusable(
            "PATA's captions cannot be read", CAPTIONS, printable(str(error)), "a file of JSON in UTF-8"
        )
    if not isinstance(content, list) or not content:
        _unusable("PATA's captions are not a list of scenes", CAPTIONS, type(content).__name__, "a list")
    scenes = tuple(_scene(item, f"{CAPTIONS}, scene {number}") for number, item in enumerate(content, 1))
    names = [scene.scene for scene in scenes]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        _unusable("a scene has captions twice", CAPTIONS, ", ".join(repeated), "each scene once")
    return scenes


def _scene(item: Any, where: str) -> SceneCaptions:
    if not isinstance(item, dict) or not {"long", "short", "pos", "neg"} <= set(item):
        _unusable("a scene lacks a part", where, printable(repr(item)), "long, short, pos and neg")
    scene, template = item["short"], item["long"]
    known = next(rule.values for rule in PATA.declaration.rules if rule.column == "scene")
    if not isinstance(template, str) or not isinstance(scene, str) or scene not in known:
        _unusable("the scene is unknown", where, printable(repr(scene)), ", ".join(known))
    positive, negative = (_by_attribute(item[side], f"{where}, {side}") for side in ("pos", "neg"))
    return SceneCaptions(scene, template, positive, negative)


def _by_attribute(content: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(content, dict) or set(content) != set(_ATTRIBUTES):
        _unusable(
            "the captions are not sorted by attribute",
            where,
            printable(repr(content)),
            ", ".join(_ATTRIBUTES),
        )
    for captions in content.values():
        if not isinstance(captions, list) or not all(
            isinstance(text, str) and text.strip() for text in captions
        ):
            _unusable(
                "the captions are not a list of texts", where, printable(repr(captions)), "a list of texts"
            )
    return {column: tuple(content[name]) for name, column in _ATTRIBUTES.items()}


def _unusable(what: str, where: str, found: str, expected: str) -> NoReturn:
    hint = "put the published file there, below the dataset's root"
    raise DatasetError(what, where=where, found=found, expected=expected, hint=hint)
