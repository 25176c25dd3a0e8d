"""Datasets whose folder is the index: every file below it is listed, whatever it is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from plumbline.datasets.containment import dataset_root
from plumbline.datasets.declaration import Declaration
from plumbline.datasets.records import Entry, Refusal
from plumbline.errors import DatasetError, ImageRejected


class FolderIndexed(ABC):
    """Reader of a folder without an index file; a dataset adds what a path says of its image.

    Files are listed by path in code-point order. Links to folders are listed and not followed.

    Attributes
    ----------
    declaration : Declaration
        What is specific to the dataset.
    name, form : str, str
        What messages call the dataset, and what its files are called.
    """

    declaration: Declaration
    name: str
    form: str

    def index_files(self, root: Path) -> Sequence[str]:
        """Return nothing: the folder is the index."""
        return ()

    def entries(self, root: Path) -> Sequence[Entry | Refusal]:
        """Return one entry a file; a path that does not give the labels is a refusal and never guessed.

        Raises
        ------
        DatasetError
            If there is no file at all, or a folder cannot be listed.
        """
        listed = [self.entry(path) for path in sorted(_files_below(dataset_root(root)))]
        if not listed:
            hint = f"put the images there, named {self.form}"
            raise DatasetError(f"the {self.name} folder holds no file", where=root, hint=hint)
        return listed

    def labels(self, entry: Entry) -> dict[str, str]:
        """Map the path's own values to the records' words.

        Raises
        ------
        ImageRejected
            With code `unknown_label`.
        """
        return self.declaration.labels(entry.raw)

    @abstractmethod
    def entry(self, path: str) -> Entry | Refusal:
        """Return what a path, relative to the root and with `/`, says of its image."""

    def malformed(self, path: str) -> Refusal:
        """Return the refusal of a path that does not have the dataset's form."""
        rejected = ImageRejected(
            "malformed_name", "the name does not give the labels", found=path, expected=self.form
        )
        return Refusal.of(rejected, path=path, stage="index")


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
