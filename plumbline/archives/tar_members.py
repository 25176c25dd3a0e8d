"""Tars, read block by block to the two zero blocks that end them.

The standard library takes a header that is damaged or cut for the end of the archive, follows chains of extended
headers by recursion and reads each of them whole. Here only its reading of one header block is used, which checks the
block's checksum. What a plain tar has no checksum for is the content of files and of extended headers; gzip and xz
have one over everything.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, cast

from plumbline.archives.member import Damage, Member

_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)
_CHUNK = 1 << 20
# Of one extended header. Long names take a kilobyte, the attributes that systems store along with files some more.
_LARGEST_EXTENSION = 1 << 20

_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "a link",
    tarfile.LNKTYPE: "a link",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    tarfile.CHRTYPE: "a device or pipe",
    tarfile.BLKTYPE: "a device or pipe",
    tarfile.FIFOTYPE: "a device or pipe",
}
_EXTENDS_ONE = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENDS_ALL = tarfile.XGLTYPE
_LONG_NAME, _LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
_EXTENDING = (*_EXTENDS_ONE, _EXTENDS_ALL, _LONG_NAME, _LONG_LINK)

# A record of an extended header: `LENGTH KEYWORD=VALUE\n`. Keywords are those of POSIX, or begin with a vendor's name:
# one that is neither was one of them before a bit of it turned.
_RECORD = re.compile(rb"([1-9]\d{0,6}) ([^=\0\n]+)=")
_KEYWORD = re.compile(
    r"atime|charset|comment|ctime|gid|gname|hdrcharset|linkpath|mtime|path|size|uid|uname"
    r"|(realtime|security|[A-Z]\w*)\..+"
)
_NEEDED = re.compile(r"path|size|GNU\.sparse\..+")


def tar_members(read: Callable[[int], bytes]) -> Iterator[Member]:
    """Yield the members of a tar; the content of each can be read until the next is asked for.

    Parameters
    ----------
    read : callable
        Gives the next so many bytes of the tar, fewer only at its end.

    Raises
    ------
    Damage
        If a header is damaged, the two zero blocks of the end are missing, or something stands behind them.
    """
    return _Tar(read).members()


class _Tar:
    """One tar on its way through a stream that does not go back."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read_some, self._at = read, 0
        self._of_all: dict[str, str] = {}

    def members(self) -> Iterator[Member]:
        while (header := self._header()) is not None:
            kind = _KINDS.get(header.type, f"an entry of type {header.type!r}")
            if any(keyword.startswith("GNU.sparse.") for keyword in header.pax_headers):
                kind = "a sparse file"
            content = _Content(self.read, header.size if kind == "file" else 0)
            yield Member(header.name, kind, header.size, content.opened)
            content.skip()
            self.read(-header.size % _BLOCK if kind == "file" else 0)
        self._require_end()

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        data = self._read_some(size)
        self._at += len(data)
        if len(data) < size:
            raise Damage(
                f"it is cut: it ends at byte {self._at} of the tar, before the two zero blocks that end one"
            )
        return data

    def _header(self) -> tarfile.TarInfo | None:
        """Return the next member's header, under its long name and with its own size; None at the zero blocks."""
        own: dict[str, str] = {}
        extended = False
        while (block := self.read(_BLOCK)) != _ZEROS:
            header = self._parsed(block)
            if header.type not in _EXTENDING:
                return self._completed(header, {**self._of_all, **own})
            extended = True
            content = self._extension(header)
            if header.type == _LONG_NAME:
                own["path"] = content.rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif header.type != _LONG_LINK:
                (self._of_all if header.type == _EXTENDS_ALL else own).update(self._records(content))
        if extended and own:
            raise Damage(f"an extended header at the end, byte {self._at} of the tar, without its member")
        return None

    def _parsed(self, block: bytes) -> tarfile.TarInfo:
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise Damage(f"{error} at byte {self._at - _BLOCK} of the tar") from error
        if header.size < 0:
            raise Damage(f"a size of {header.size} at byte {self._at - _BLOCK} of the tar")
        return header

    def _completed(self, header: tarfile.TarInfo, settings: dict[str, str]) -> tarfile.TarInfo:
        # An empty value takes a setting back.
        header.pax_headers = {keyword: value for keyword, value in settings.items() if value}
        header.name = header.pax_headers.get("path", header.name)
        size = header.pax_headers.get("size", str(header.size))
        if not re.fullmatch(r"[0-9]{1,19}", size):
            raise Damage(f"a size of {size!r} in an extended header before byte {self._at} of the tar")
        header.size = int(size)
        return header

    def _extension(self, header: tarfile.TarInfo) -> bytes:
        if header.size > _LARGEST_EXTENSION:
            raise Damage(
                f"an extended header of {header.size} bytes at byte {self._at - _BLOCK} of the tar, "
                f"and none is read beyond {_LARGEST_EXTENSION}"
            )
        return self.read(header.size + -header.size % _BLOCK)[: header.size]

    def _records(self, content: bytes) -> dict[str, str]:
        """Return the needed settings of an extended header."""
        found, position = {}, 0
        while position < len(content):
            start = _RECORD.match(content, position)
            end = position + int(start[1]) if start else 0
            keyword = start[2].decode("utf-8", "surrogateescape") if start else ""
            sound = start is not None and start.end() < end and content[end - 1 : end] == b"\n"
            if start is None or not sound or not _KEYWORD.fullmatch(keyword):
                raise Damage(f"a damaged extended header before byte {self._at} of the tar")
            if _NEEDED.fullmatch(keyword):
                found[keyword] = content[start.end() : end - 1].decode("utf-8", "surrogateescape")
            position = end
        return found

    def _require_end(self) -> None:
        if self.read(_BLOCK) != _ZEROS:
            raise Damage(f"one zero block alone before byte {self._at} of the tar, where two end one")
        # To the end: the checksum of what was compressed stands behind it.
        while padding := self._read_some(_CHUNK):
            if padding.strip(b"\0"):
                raise Damage(f"something other than zeros behind the end, byte {self._at} of the tar")
            self._at += len(padding)


class _Content(io.RawIOBase):
    """The content of one member, no further."""

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self._read_exactly, self._left = read, size

    def opened(self) -> IO[bytes]:
        return cast(IO[bytes], self)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._read_exactly(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

    def skip(self) -> None:
        """Go on to the end of the content."""
        while self._left:
            self._left -= len(self._read_exactly(min(_CHUNK, self._left)))
