"""PATA: a list of labelled URLs, and images that the user has downloaded."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from plumbline.datasets.indexes import Line, dataset_root, inside, read_lines, refuse_line, shown_in
from plumbline.datasets.records import Declaration, Entry, Reader, Refusal, load_declaration
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.decoding import SUFFIXES

INDEX = "pata_fairness.files.lst"
CAPTIONS = "pata_fairness.captions.json"
IMAGES = "images"

_SUFFIXES = tuple(suffix for of_format in SUFFIXES.values() for suffix in of_format)
NAME_FORM = f"{IMAGES}/<scene>_<race>_<gender>_<age>_<position> and {' or '.join(_SUFFIXES)}, position from 0"

# From the right, since a scene may have underscores of its own.
_PARTS = ("scene", "race", "gender", "age")


class PATA(Reader):
    """Reader of PATA (Seth, Hemani and Agarwal, CVPR 2023): `scene_race_gender_age|address` a line.

    The list gives addresses and no file names. Here the image of the n-th line, from 0, lies in `images` and
    is called as the line begins, then `_n`, then the extension of what was fetched: `office_indian_male_old_7.jpg`.
    A line whose image is not there is quarantined (`missing_file`), as is normal with dead addresses.
    """

    declaration: Declaration = load_declaration("pata")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return the list, and the captions if they exist: part of the release, though without labels.

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
                found=shown_in(folder),
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


def _fetched(root: Path) -> dict[str, list[str]]:
    """Return stem -> file names of the existing images."""
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
