"""Tars, read block by block to the zeros that end them.

The standard library takes a header that is damaged or cut for the end of the archive, follows chains of extended
headers by recursion and reads each of them whole. Here only its reading of one header block is used, which checks the
block's checksum. What a plain tar has no checksum for is the content of files and of extended headers; gzip, bzip2
and xz have one over everything.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, cast

from plumbline.archives.member import Damage, Member, Refused

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

# A volume's label (`tar --label`), in the place of a member.
_LABEL = b"V"

# A record of an extended header: `LENGTH KEYWORD=VALUE\n`.
_RECORD = re.compile(rb"([1-9]\d{0,6}) ([^=\0\n]+)=")
# Each of the three forms of a sparse file has one of these.
_SPARSE = frozenset({"GNU.sparse.size", "GNU.sparse.map", "GNU.sparse.major"})
# Every program may add keywords of its own; kept are these alone, so that they cannot fill the memory.
_NEEDED = _SPARSE | {"path", "size"}


def tar_members(read: Callable[[int], bytes], *, sealed: bool) -> Iterator[Member]:
    """Yield the members of a tar; the content of each can be read until the next is asked for.

    Parameters
    ----------
    read : callable
        Gives the next so many bytes of the tar, fewer only at its end.
    sealed : bool
        Whether a checksum of `read`'s own vouches for that end. If so the tar may end behind any member, as some
        programs write it. Else a zero block must tell the end from a cut; the second one may be missing.

    Raises
    ------
    Damage
        If a header is damaged, the end is missing, or something other than zeros stands behind it.
    Refused
        If an extended header is too large to be read.
    """
    return _Tar(read, sealed).members()


class _Tar:
    """One tar on its way through a stream that does not go back."""

    def __init__(self, read: Callable[[int], bytes], sealed: bool) -> None:
        self._read_some, self._sealed, self._at = read, sealed, 0
        self._of_all: dict[str, str] = {}

    def members(self) -> Iterator[Member]:
        while (header := self._header()) is not None:
            if header.type == _LABEL:
                continue
            kind = _KINDS.get(header.type, f"an entry of type {header.type!r}")
            if not _SPARSE.isdisjoint(header.pax_headers):
                kind = "a sparse file"
            content = _Content(self.read, header.size if kind == "file" else 0)
            yield Member(header.name, kind, header.size, content.opened)
            content.skip()
            self.read(-header.size % _BLOCK if kind == "file" else 0)
        self._require_end()

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        return self._whole(self._read_some(size), size)

    def _whole(self, data: bytes, size: int) -> bytes:
        self._at += len(data)
        if len(data) < size:
            raise Damage(
                f"it is cut: it ends at byte {self._at} of the tar, before the zero block behind its last member"
            )
        return data

    def _block(self) -> bytes:
        """Return the next block of a header, zeros where the tar ends without."""
        block = self._read_some(_BLOCK)
        return _ZEROS if self._sealed and not block else self._whole(block, _BLOCK)

    def _header(self) -> tarfile.TarInfo | None:
        """Return the next member's header, under its long name and with its own size; None at the end."""
        own: dict[str, str] = {}
        while (block := self._block()) != _ZEROS:
            header = self._parsed(block)
            if header.type not in _EXTENDING:
                return self._completed(header, {**self._of_all, **own})
            content = self._extension(header)
            if header.type == _LONG_NAME:
                own["path"] = content.rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif header.type != _LONG_LINK:
                (self._of_all if header.type == _EXTENDS_ALL else own).update(self._records(content))
        if own:
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
            raise Refused(
                "the archive holds an extended header that is too large",
                found=f"{header.size} bytes at byte {self._at - _BLOCK} of the tar",
                expected=f"at most {_LARGEST_EXTENSION} bytes",
            )
        return self.read(header.size + -header.size % _BLOCK)[: header.size]

    def _records(self, content: bytes) -> dict[str, str]:
        """Return the needed settings of an extended header."""
        found, position = {}, 0
        while position < len(content):
            start = _RECORD.match(content, position)
            end = position + int(start[1]) if start else 0
            if start is None or start.end() >= end or content[end - 1 : end] != b"\n":
                raise Damage(f"a damaged extended header before byte {self._at} of the tar")
            keyword = start[2].decode("utf-8", "surrogateescape")
            if keyword in _NEEDED:
                found[keyword] = content[start.end() : end - 1].decode("utf-8", "surrogateescape")
            position = end
        return found

    def _require_end(self) -> None:
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
