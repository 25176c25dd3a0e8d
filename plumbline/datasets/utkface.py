"""UTKFace: a folder of images whose names are their labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline.datasets.containment import dataset_root
from plumbline.datasets.declaration import Declaration, load_declaration
from plumbline.datasets.records import Entry, Refusal
from plumbline.errors import DatasetError, ImageRejected

NAME_FORM = "[age]_[gender]_[race]_[date&time].jpg, also .jpg.chip.jpg"

_NAME = re.compile(r"(0|[1-9][0-9]*)_([0-9]+)_([0-9]+)_([0-9]+)\.jpg(\.chip\.jpg)?", re.ASCII | re.IGNORECASE)


class UTKFace:
    """Reader of UTKFace (Zhang, Song and Qi, CVPR 2017).

    The folder is the index: every file below it is listed, by path in code-point order, whatever it is. Links
    to folders are listed and not followed.
    """

    declaration: Declaration = load_declaration("utkface")

    def index_files(self, root: Path) -> Sequence[str]:
        """Return nothing: the names are the index."""
        return ()

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a file; a name of another form is a refusal, since a missing field cannot be told.

        Raises
        ------
        DatasetError
            If there is no file at all.
        """
        listed = [self._entry(path) for path in sorted(_files_below(dataset_root(root)))]
        if not listed:
            hint = f"put the images there, named {NAME_FORM}"
            raise DatasetError("the UTKFace folder holds no file", where=root, hint=hint)
        return listed

    def labels(self, entry: Entry) -> dict[str, str]:
        """Map gender, race and age; the age group follows from the age.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return self.declaration.labels(entry.raw)

    def _entry(self, path: str) -> Entry | Refusal:
        match = _NAME.fullmatch(path.rpartition("/")[2])
        if match is None:
            rejected = ImageRejected(
                "malformed_name", "the name does not give the labels", found=path, expected=NAME_FORM
            )
            return Refusal.of(rejected, path=path, stage="index")
        age, gender, race = match.groups()[:3]
        return Entry(path, None, {"age": age, "gender": gender, "race": race})


def _files_below(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root, onerror=_unlisted):
        here = Path(folder)
        below = "" if here == root else f"{here.relative_to(root).as_posix()}/"
        links = [name for name in folders if (here / name).is_symlink()]
        yield from (f"{below}{name}" for name in (*names, *links))


def _unlisted(error: OSError) -> None:
    raise DatasetError(
        "a folder of the dataset cannot be listed",
        where=error.filename,
        found=error.strerror,
        hint="make it readable, or move it out of the dataset",
    ) from error
