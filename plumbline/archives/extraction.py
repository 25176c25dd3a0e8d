"""The extraction: only plain files and folders, under relative names, within limits, all of them or nothing.

Accepted are zip, tar, tar.gz, tar.bz2 and tar.xz, told by their first bytes. What an archive says of its sizes is not
believed but counted while it is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from plumbline.archives.limits import Limits, Usage
from plumbline.archives.member import GET_AGAIN, Member, Refused
from plumbline.archives.names import safe_parts
from plumbline.archives.new_folder import new_folder, writing
from plumbline.archives.opening import archive_members, decoded, decoding, open_archive
from plumbline.datasets.records import printable
from plumbline.errors import DatasetError

Progress = Callable[[int], None]

_CHUNK = 1 << 20


class Extracted(NamedTuple):
    """How many files came out, and their bytes."""

    files: int
    bytes: int


def extract_archive(
    archive: Path, folder: Path, *, limits: Limits | None = None, progress: Progress | None = None
) -> Extracted:
    """Extract an archive into a folder that is absent or empty; all of it, or nothing.

    Parameters
    ----------
    limits : Limits, optional
        By default large enough for the known datasets.
    progress : callable, optional
        Called with the bytes extracted so far.

    Returns
    -------
    Extracted
        Files and bytes.

    Raises
    ------
    DatasetError
        If the folder holds something or cannot be written, the archive is none, cut or damaged, or a member is no
        plain file or folder, has an absolute name, one with `..`, a drive, a backslash or control characters, comes
        twice, or goes beyond a limit. Nothing is left behind then.
    """
    with new_folder(folder) as unfinished, _naming(archive), ExitStack() as stack:
        file = stack.enter_context(open_archive(archive))
        usage = Usage(limits or Limits(), packed=os.fstat(file.fileno()).st_size)
        with decoding():
            members = archive_members(file, usage, stack)
        for member in decoded(members):
            with _naming(archive, member.name):
                _take(member, unfinished, usage, progress)
        if not usage.files:
            raise Refused(
                "the archive holds no file", found=None, expected="the dataset's files", hint=GET_AGAIN
            )
        return Extracted(usage.files, usage.written)


@contextmanager
def _naming(archive: Path, member: str = "") -> Iterator[None]:
    """Give a refusal its place."""
    try:
        yield
    except Refused as refused:
        raise DatasetError(
            refused.what,
            where=f"{archive}, member {printable(ascii(member))}" if member else archive,
            found=refused.found and printable(refused.found),
            expected=refused.expected,
            hint=refused.hint,
        ) from refused


def _take(member: Member, folder: Path, usage: Usage, progress: Progress | None) -> None:
    usage.members += 1
    usage.require_members(usage.members)
    if member.kind not in ("file", "folder"):
        raise Refused(
            "the archive holds something else than files and folders",
            found=member.kind,
            expected="a plain file",
        )
    path = folder.joinpath(*safe_parts(member.name))
    if member.kind == "folder":
        _make_folder(path, member.name)
        return
    usage.require_size(member.size)
    _make_folder(path.parent, member.name)
    with writing(path), _new_file(path, member.name) as file:
        for piece in _pieces(member, usage):
            file.write(piece)
            if progress is not None:
                progress(usage.written)
    usage.files += 1


def _make_folder(path: Path, name: str) -> None:
    with writing(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise _twice(name) from None


def _new_file(path: Path, name: str) -> IO[bytes]:
    try:
        # `x` follows no link and replaces nothing.
        return path.open("xb")
    except (FileExistsError, IsADirectoryError):
        raise _twice(name) from None


def _twice(name: str) -> Refused:
    return Refused("the archive holds the same name twice", found=ascii(name), expected="each name once")


def _pieces(member: Member, usage: Usage) -> Iterator[bytes]:
    """Yield the content of a file, counted."""
    size = 0
    with ExitStack() as stack:
        with decoding():
            content = stack.enter_context(member.content())
        for piece in decoded(iter(partial(content.read, _CHUNK), b"")):
            size += len(piece)
            usage.require_size(size)
            usage.write(len(piece))
            yield piece
    if size != member.size:
        raise Refused(
            "the archive's member is of another size",
            found=f"{size} bytes",
            expected=f"{member.size} bytes",
            hint=GET_AGAIN,
        )
