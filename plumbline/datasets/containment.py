"""Paths that an index names, held inside the dataset's root."""

from __future__ import annotations

import os
import re
import stat
from itertools import accumulate, islice
from pathlib import Path

from plumbline.datasets.records import unsafe_characters
from plumbline.errors import DatasetError, ImageRejected

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:")


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
        hint = "correct `root` in the audit file, or put the dataset there: `plumbline fetch ID` gets it or says how"
        raise DatasetError(
            "the dataset's folder is not there", where=folder, found=found, expected="a folder", hint=hint
        )
    return folder.resolve()


def leads_out(path: str) -> bool:
    """Tell whether a listed path is absolute, on this system or on Windows, or has a part `..`."""
    return _ABSOLUTE.match(path) is not None or ".." in path.split("/")


def inside(root: Path, path: str) -> Path:
    """Return where a listed file lies.

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
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if unsafe_characters(path) or not parts:
        expected = "a relative path without control characters, in UTF-8"
        raise ImageRejected("bad_path", "the path cannot be used", found=repr(path), expected=expected)
    if leads_out(path):
        what = "the path leads out of the dataset's folder"
        raise ImageRejected("path_outside_root", what, found=path, expected="a path below it")
    # The root is real already: without a link below it nothing can lead out, and nothing above needs a look.
    steps = accumulate(parts, "{}/{}".format, initial=str(root))
    if not any(map(os.path.islink, islice(steps, 1, None))):
        return root.joinpath(*parts)
    real = Path(os.path.realpath(root.joinpath(*parts)))
    if not real.is_relative_to(root):
        what = "a link leads out of the dataset's folder"
        raise ImageRejected("path_outside_root", what, found=path, expected="a file below it")
    return real


def index_file(root: Path, name: str) -> Path:
    """Return where an index file lies: a plain file inside the dataset's folder.

    Ask before any opening of an index: a pipe in its place would be waited for without end.

    Parameters
    ----------
    root : Path
        The dataset's real folder, from `dataset_root`.
    name : str
        The file, relative to it, with `/`.

    Raises
    ------
    DatasetError
        If it is not there, leads out of the folder, or is a folder, a pipe or a device.
    """
    try:
        path = inside(root, name)
        plain = stat.S_ISREG(path.stat().st_mode)
    except ImageRejected as error:
        raise DatasetError(error.what, where=name, found=error.found, expected=error.expected) from error
    except OSError as error:
        raise unreadable_index(name, error.strerror) from error
    if not plain:
        raise unreadable_index(name, "a folder" if path.is_dir() else "a pipe or a device")
    return path


def unreadable_index(name: str, found: str | None) -> DatasetError:
    """Return the error of an index file that cannot be opened or read."""
    return DatasetError(
        "the index cannot be read",
        where=name,
        found=found,
        expected="a plain file",
        hint="check that the file is readable",
    )
