"""An archive opened: its kind told by its first bytes, and what its decoders raise turned into a refusal."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TypeVar, cast

from plumbline.archives.limits import Usage
from plumbline.archives.member import KINDS, Damage, Member, Refused
from plumbline.archives.tar_members import tar_members
from plumbline.archives.zip_members import count_members, zip_members

T = TypeVar("T")

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_COMPRESSED: dict[bytes, Callable[[IO[bytes]], object]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


def archive_members(file: IO[bytes], usage: Usage, stack: ExitStack) -> Iterator[Member]:
    """Return the members of an archive of any kind, counted in `usage` where a tar's own bytes count.

    Parameters
    ----------
    file : file
        The archive, at its start.
    stack : ExitStack
        Closes what reads it.

    Raises
    ------
    Refused
        If it is of no known kind, or a zip lists too many members.
    Exception
        Whatever a decoder raises: call it, and take each member, within `decoding`.
    """
    start = file.read(tarfile.BLOCKSIZE)
    file.seek(0)
    if _starts_tar(start):
        return _tar(file, usage, compressed=False)
    if start.startswith(_ZIP):
        usage.require_members(count_members(file, most=usage.limits.members))
        return zip_members(stack.enter_context(zipfile.ZipFile(file)))
    for signature, decompressed in _COMPRESSED.items():
        if start.startswith(signature):
            stream = stack.enter_context(cast(IO[bytes], decompressed(file)))
            return _tar(stream, usage, compressed=True)
    raise Refused(
        "this is not an archive of a known kind",
        found=f"bytes {start[:8].hex(' ') or 'none'}",
        expected=KINDS,
        hint="get the archive again, or unpack one of another kind yourself into the dataset's folder",
    )


def open_archive(archive: Path) -> IO[bytes]:
    """Open an archive's file.

    Raises
    ------
    Refused
        If the system does not let it be read.
    """
    try:
        return archive.open("rb")
    except OSError as error:
        raise Refused(
            "the archive cannot be opened",
            found=f"{type(error).__name__}: {error.strerror}",
            expected="a file that is there, with permission to read it",
            hint="correct its path or its permissions",
        ) from error


@contextmanager
def decoding() -> Iterator[None]:
    """Turn whatever the reading of a damaged or hostile archive raises into a refusal."""
    try:
        yield
    except Refused:
        raise
    # Any: what decoders raise on such bytes is documented nowhere. Only they run in here.
    except Exception as error:
        raise Damage(f"{type(error).__name__}: {error}") from error


def decoded(given: Iterator[T]) -> Iterator[T]:
    """Yield what a decoder gives, with its errors as refusals; errors of whoever takes it pass untouched."""
    while True:
        with decoding():
            item = next(given, None)
        if item is None:
            return
        yield item


def _starts_tar(block: bytes) -> bool:
    # By its checksum: the oldest form has no signature.
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _tar(stream: IO[bytes], usage: Usage, *, compressed: bool) -> Iterator[Member]:
    def read(size: int) -> bytes:
        data = stream.read(size)
        usage.unpack(len(data))
        return data

    return tar_members(read, sealed=compressed)
