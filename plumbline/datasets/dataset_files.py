"""The files of a dataset, read in as few steps as can be while nothing about them is unusual."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from plumbline.datasets.containment import inside, leads_out
from plumbline.datasets.records import unsafe_characters
from plumbline.errors import ImageRejected
from plumbline.images.decoding import MAX_FILE_BYTES

# A link at the end is not followed, a pipe is not waited for: both then go the way that has the reasons.
_PLAIN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DatasetFiles:
    """The files of one dataset while it is read.

    Sound ones are read here, in as few steps as can be; `inside` and `read_image_file` have the rest and its reasons.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Folders without a link on the way to them. Looked at once a run: a dataset's files lie in few of them.
        self._straight: dict[str, bool] = {}

    def read_straight(self, path: str) -> bytes | None:
        """Return a plain file's bytes in four system calls; None if anything at all is unusual about it."""
        folder, _, name = path.rpartition("/")
        if name in ("", ".") or leads_out(path) or unsafe_characters(path) or not self._is_straight(folder):
            return None
        try:
            descriptor = os.open(f"{self.root}/{path}", _PLAIN_FILE)
        except (OSError, ValueError):
            return None
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
                return None
            data = os.read(descriptor, about.st_size + 1)
            return data if len(data) == about.st_size else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _is_straight(self, folder: str) -> bool:
        known = self._straight.get(folder)
        if known is None:
            try:
                known = not folder or os.path.realpath(inside(self.root, folder)) == f"{self.root}/{folder}"
            except ImageRejected:
                known = False
            self._straight[folder] = known
        return known
