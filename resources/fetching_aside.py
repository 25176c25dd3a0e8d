"""Building a folder aside: it takes its place whole, and until then the earlier one keeps it."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plumbline.storage.files import move_into_place
from resources.fetched_note import CLIENT_NOTES


@contextmanager
def built_aside(folder: Path, commit: str) -> Iterator[Path]:
    """Give the hidden folder in which one commit is fetched; at the end it takes the place of `folder`.

    If anything fails the earlier folder stays, and the hidden one too: the same commit is gone on with, and what is
    left of another one is cleared, since two commits in one folder would be something that nobody published.

    Parameters
    ----------
    folder : Path
        Absent, or what an earlier fetch made.
    commit : str
        Hexadecimal.
    """
    unfinished = folder.with_name(f".{folder.name}.{commit}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    leftover = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]+\.unfinished")
    for path in list(folder.parent.iterdir()):
        if leftover.fullmatch(path.name) and path != unfinished:
            shutil.rmtree(path)
    yield unfinished
    # They would be listed as part of what was fetched.
    shutil.rmtree(unfinished / CLIENT_NOTES, ignore_errors=True)
    _swap(unfinished, folder)


def settle(folder: Path) -> None:
    """Finish a swap that was broken off, or undo it: one of the two folders is in its place, the other gone."""
    replaced = _replaced(folder)
    if not replaced.is_dir():
        return
    if folder.is_dir():
        shutil.rmtree(replaced)
    else:
        replaced.rename(folder)


def _swap(unfinished: Path, folder: Path) -> None:
    try:
        if folder.is_dir():
            # Waited for here, so that the moment without either folder is short.
            os.sync()
            folder.rename(_replaced(folder))
        move_into_place(unfinished, folder)
    finally:
        settle(folder)


def _replaced(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")
