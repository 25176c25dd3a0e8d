"""Paths that an index names, held inside the dataset's root."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from plumbline.datasets.records import unsafe_characters
from plumbline.errors import DatasetError, ImageRejected


def dataset_root(root: Path | str) -> Path:
    """Return the real path of a dataset's folder.

    Raises
    ------
    DatasetError
        If it does not exist or is no folder.
    """
    folder = Path(root)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        hint = "correct `root` in the audit file, or put the dataset there"
        raise DatasetError(
            "the dataset's folder is not there", where=folder, found=found, expected="a folder", hint=hint
        )
    return folder.resolve()


def leads_out(path: str) -> bool:
    """Tell whether a listed path is absolute, on this system or on Windows, or has a part `..`."""
    pure = PurePosixPath(path)
    return pure.is_absolute() or bool(PureWindowsPath(path).drive) or ".." in pure.parts


def inside(root: Path, path: str) -> Path:
    """Return the real path of a listed file.

    Parameters
    ----------
    root : Path
        The dataset's real folder, from `dataset_root`.
    path : str
        As listed: relative, with `/`.

    Raises
    ------
    ImageRejected
        `path_outside_root` for an absolute path, one with `..`, or a link that leads out; `bad_path` for an
        empty one or one with characters that no table can hold.
    """
    pure = PurePosixPath(path)
    if unsafe_characters(path) or not pure.parts:
        expected = "a relative path without control characters, in UTF-8"
        raise ImageRejected("bad_path", "the path cannot be used", found=repr(path), expected=expected)
    if leads_out(path):
        raise ImageRejected(
            "path_outside_root",
            "the path leads out of the dataset's folder",
            found=path,
            expected="a path below it",
        )
    try:
        real = (root / pure).resolve()
    except (OSError, RuntimeError) as error:
        raise ImageRejected("unreadable", "the path cannot be followed", found=str(error)) from error
    if not real.is_relative_to(root):
        raise ImageRejected(
            "path_outside_root",
            "a link leads out of the dataset's folder",
            found=path,
            expected="a file below it",
        )
    return real
