"""A folder that is there complete or not at all, filled in an unfinished one beside it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plumbline.errors import DatasetError
from plumbline.storage.atomic import move_into_place


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to fill, which becomes `folder` at the end, or is gone if anything fails.

    What a killed process left is cleared first. One process at a time may fill it.

    Parameters
    ----------
    folder : Path
        Absent or empty.

    Raises
    ------
    DatasetError
        If it holds something, another process fills it, or the place cannot be written.
    """
    _require_vacant(folder)
    # A sibling, so that the finished folder moves in one step and never from one file system to another.
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    with writing(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with _held(unfinished):
        try:
            with writing(unfinished):
                _clear(unfinished)
            yield unfinished
            with writing(folder):
                move_into_place(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what the system says of a place that is written to into a DatasetError."""
    try:
        yield
    except OSError as error:
        raise DatasetError(
            "the dataset's folder cannot be written",
            where=error.filename or place,
            found=f"{type(error).__name__}: {error.strerror or error}",
            expected="a folder, with permission to write in it and room on its disk",
            hint="free some space, or name another folder as `root` in the audit file",
        ) from error


def _require_vacant(folder: Path) -> None:
    with writing(folder):
        found = None
        if folder.is_symlink():
            found = "a link"
        elif folder.is_dir():
            found = next((f"`{path.name}` and perhaps more" for path in folder.iterdir()), None)
        elif folder.exists():
            found = "a file"
    if found is not None:
        raise DatasetError(
            "the folder to extract into holds something already",
            where=folder,
            found=found,
            expected="a folder that is absent or empty",
            hint="move it away, or name another folder in the audit file",
        )


@contextmanager
def _held(unfinished: Path) -> Iterator[None]:
    """Hold a folder, new or left behind, for this process; the lock goes with the process, however it ends."""
    with writing(unfinished):
        unfinished.mkdir(exist_ok=True)
        descriptor = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _locked(unfinished, descriptor):
            raise DatasetError(
                "another process is extracting into this folder",
                where=unfinished,
                expected="one extraction at a time",
                hint="wait for it to end, and run the command again",
            )
        yield
    finally:
        os.close(descriptor)


def _locked(unfinished: Path, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between the opening and the lock another process may have finished it and moved it into place.
        return os.path.samestat(os.fstat(descriptor), unfinished.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
