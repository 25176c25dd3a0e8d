"""Archives that somebody else made, extracted so that nothing in them can reach beyond one new folder."""

from __future__ import annotations

import bz2
import copy
import fcntl
import gzip
import io
import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, TypeVar, cast

from plumbline.datasets.indexes import leads_out
from plumbline.datasets.records import printable, unsafe_characters
from plumbline.errors import DatasetError
from plumbline.storage.files import move_into_place

KINDS = "zip, tar, tar.gz, tar.bz2 or tar.xz"

GET_AGAIN = "nothing was extracted; get the archive from the dataset's own page again"
BY_HAND = (
    "nothing was extracted; if you trust who made the archive, unpack it yourself into the dataset's folder"
)


class Refused(Exception):
    """Why an archive is not extracted, in the words of a DatasetError, which adds the place.

    Parameters
    ----------
    what, found, expected, hint : str
        As of a PlumblineError. By default the archive may be whole, and the hint is to unpack it by hand.
    """

    def __init__(self, what: str, *, found: str | None, expected: str, hint: str = BY_HAND) -> None:
        self.what, self.found, self.expected, self.hint = what, found, expected, hint
        super().__init__(what, found)


class Damage(Refused):
    """An archive that is cut or changed; says what was met, and where."""

    def __init__(self, found: str) -> None:
        super().__init__(
            "the archive cannot be extracted", found=found, expected=f"a whole {KINDS}", hint=GET_AGAIN
        )


class Member(NamedTuple):
    """One entry of an archive.

    Attributes
    ----------
    name : str
        As its maker meant it, unchecked.
    kind : str
        `file`, `folder`, or what else it is, in words.
    size : int
        Bytes of its content, as the archive says.
    content : callable
        Opens the content of a file.
    """

    name: str
    kind: str
    size: int
    content: Callable[[], IO[bytes]]


# --- How much an archive may hold, and what it has taken so far.

# Below this much output a ratio says nothing: a folder of ten empty files compresses a thousandfold.
_RATIO_FREE_BYTES = 16 << 20


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold.

    Attributes
    ----------
    members : int
        Files and folders. Those of a zip are all in memory at once, at some 600 bytes each; CelebA has 200,000.
    total_bytes, file_bytes : int
        Of everything and of one file, extracted.
    ratio : float
        Extracted bytes over the bytes of the archive, from the first 16 MiB on. Pictures do not compress: the
        archives of the known datasets stay below 2.
    """

    members: int = 1_000_000
    total_bytes: int = 400 << 30
    file_bytes: int = 16 << 30
    ratio: float = 50.0


class Usage:
    """What one archive has taken so far; each method raises Refused beyond a limit.

    Parameters
    ----------
    packed : int
        Bytes of the archive itself.

    Attributes
    ----------
    members, files : int
        Entries met, and files written.
    written : int
        Bytes of those files.
    """

    def __init__(self, limits: Limits, packed: int) -> None:
        self.limits, self._packed = limits, packed
        self.members = self.files = self.written = self._unpacked = 0

    def require_members(self, count: int) -> None:
        """Refuse more members than may be."""
        if count > self.limits.members:
            raise Refused(
                "the archive holds too many members",
                found="more",
                expected=f"at most {self.limits.members} members",
            )

    def require_size(self, size: int) -> None:
        """Refuse a file, as it says it is or as it comes out, that is too large."""
        if size > self.limits.file_bytes:
            raise Refused(
                "the archive holds a file that is too large",
                found=f"{size} bytes or more",
                expected=f"at most {self.limits.file_bytes} bytes a file",
            )

    def unpack(self, more: int) -> None:
        """Count bytes of a decompressed tar with its headers and padding: they too can be what grows."""
        self._unpacked += more
        self._require_ratio(self._unpacked)

    def write(self, more: int) -> None:
        """Count bytes of a file."""
        self.written += more
        if self.written > self.limits.total_bytes:
            most = self.limits.total_bytes
            raise Refused(
                "the archive holds too much",
                found=f"more than {most} bytes",
                expected=f"at most {most} bytes in all",
            )
        self._require_ratio(self.written)

    def _require_ratio(self, size: int) -> None:
        if size > _RATIO_FREE_BYTES and size > self.limits.ratio * self._packed:
            raise Refused(
                "the archive grows too much when it is extracted",
                found=f"{size} bytes from {self._packed}",
                expected=f"at most {self.limits.ratio:g} times its size",
            )


# --- The names of members: relative, printable and of a length that a disk takes.

_LONGEST_PART, _LONGEST_NAME = 255, 1024


def safe_parts(name: str) -> list[str]:
    """Return the parts of a member's name; none for the archive's own folder, `.`.

    Raises
    ------
    Refused
        If the name is absolute or empty, has `..`, a drive, a backslash or control characters, is not UTF-8, or is
        too long.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    wrong = _wrong(name, parts)
    if wrong is not None:
        what, expected = wrong
        raise Refused(f"the archive holds {what}", found=ascii(name), expected=expected)
    return parts


def _wrong(name: str, parts: list[str]) -> tuple[str, str] | None:
    if any("\udc80" <= character <= "\udcff" for character in name):
        return "a name that is not UTF-8", "a name in UTF-8"
    if unsafe_characters(name):
        return "a name with control characters", "a printable name"
    if leads_out(name):
        return "a name that leads out of the folder", "a relative name, without `..`"
    if "\\" in name:
        return "a name with a backslash", "a name with `/` between its parts"
    if not parts and name.rstrip("/") != ".":
        return "a member without a name", "a name"
    if len(name) > _LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
        return "a name that is too long", f"at most {_LONGEST_NAME} characters, {_LONGEST_PART} bytes a part"
    return None


# --- A folder that is there complete or not at all, filled in an unfinished one beside it.


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


# --- The content of a zip's member, unpacked piece by piece.
#
# The standard library does so for deflated members. Of one packed by bzip2 or LZMA it unpacks at once
# whatever it reads, and four kilobytes of bzip2 can be gigabytes; so of these it only finds the packed
# bytes here.

_CHUNK = 1 << 16
# PKWARE's APPNOTE 5.8.8: version, length of the properties; they are those of a `.lzma` file's header.
_LZMA = struct.Struct("<2xHBL")
_LZMA_PROPERTIES = 5

_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor


def open_content(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Open the content of a member of a known method.

    Raises
    ------
    Damage
        While it is read, if it is cut or of another checksum than the list says. The standard library has errors of
        its own for that.
    """
    unpacked = _BOUNDED.get(info.compress_type)
    if unpacked is None:
        return opened.open(info)
    packed_info = copy.copy(info)
    packed_info.compress_type, packed_info.file_size = zipfile.ZIP_STORED, info.compress_size
    # It is that of the content.
    del packed_info.CRC
    packed = opened.open(packed_info)
    return cast(IO[bytes], _Content(packed, unpacked(packed), size=info.file_size, checksum=info.CRC))


def _bzip2(_: IO[bytes]) -> _Decompressor:
    return bz2.BZ2Decompressor()


def _lzma(packed: IO[bytes]) -> _Decompressor:
    header = packed.read(_LZMA.size)
    if len(header) < _LZMA.size:
        raise Damage("the header of a member packed by LZMA is cut")
    length, coded, dictionary = _LZMA.unpack(header)
    if length != _LZMA_PROPERTIES:
        raise Damage(
            f"a member packed by LZMA has {length} bytes of properties instead of {_LZMA_PROPERTIES}"
        )
    pb, lp, lc = coded // 45, coded // 9 % 5, coded % 9
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": dictionary, "lc": lc, "lp": lp, "pb": pb}]
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)


_BOUNDED: dict[int, Callable[[IO[bytes]], _Decompressor]] = {
    zipfile.ZIP_BZIP2: _bzip2,
    zipfile.ZIP_LZMA: _lzma,
}
METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, *_BOUNDED})
"""Of a zip's methods of compression those that can be unpacked."""


class _Content(io.RawIOBase):
    """The content of one member, never more of it in memory than is asked for."""

    def __init__(self, packed: IO[bytes], decompressor: _Decompressor, *, size: int, checksum: int) -> None:
        self._packed, self._decompressor, self._left, self._expected = packed, decompressor, size, checksum
        self._checksum = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, none at the end."""
        data = b""
        # No further than the content: some LZMA has no mark at its end.
        most = self._left if size < 0 else min(size, self._left)
        while not data and most and not self._decompressor.eof:
            data = self._decompressor.decompress(self._input(), most)
        self._left -= len(data)
        self._checksum = zlib.crc32(data, self._checksum)
        if not data and self._checksum != self._expected:
            raise Damage("the content of a member has another checksum than the list says")
        return data

    def _input(self) -> bytes:
        if not self._decompressor.needs_input:
            return b""
        data = self._packed.read(_CHUNK)
        if not data:
            raise Damage("the content of a member is cut")
        return data

    def close(self) -> None:
        self._packed.close()
        super().close()


# --- Zips, whose list of members must agree with the record that ends them before it is read into memory.

# What it becomes in memory is some six times as much.
_LARGEST_DIRECTORY = 128 << 20
_ENCRYPTED, _UTF8 = 0x1, 0x800
# The systems that a zip may say it was made on: Unix, macOS and DOS.
_UNIX, _DOS = (3, 19), 0
_THINGS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe, or what was read from one, as `zip` without file names does",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_LONGEST_COMMENT = 0xFFFF

# The records as PKWARE's APPNOTE lays them out (4.3.12, 4.3.14 to 4.3.16).
_ENTRY, _ENTRY_SIGNATURE = struct.Struct("<4s24x3H12x"), b"PK\x01\x02"
_END, _END_SIGNATURE = struct.Struct("<4s4H2LH"), b"PK\x05\x06"
_END64, _END64_SIGNATURE = struct.Struct("<4sQ2H2L4Q"), b"PK\x06\x06"
_LOCATOR, _LOCATOR_SIGNATURE = struct.Struct("<4sLQL"), b"PK\x06\x07"


class _Directory(NamedTuple):
    """Where the end record says that the list of members lies, and how many it has.

    Attributes
    ----------
    offset, size, end : int
        Bytes; `end` is where the end records begin.
    members : int
        As recorded.
    wraps : bool
        Whether that number has only 16 bits: some programs write longer lists so, counting from 0 again.
    """

    offset: int
    size: int
    end: int
    members: int
    wraps: bool


def count_members(file: IO[bytes], *, most: int) -> int:
    """Count the members that a zip lists, up to one more than `most`, and hold the list against the end record.

    Parameters
    ----------
    file : file
        Of any position.

    Raises
    ------
    Damage
        If the list is cut or has lost members.
    Refused
        If it is too large to be read, or the zip has parts in other files.
    """
    directory = _directory(file)
    if directory.offset + directory.size != directory.end:
        raise Damage(
            f"its list of members should be {directory.size} bytes from byte {directory.offset} on, "
            f"and end at byte {directory.end}"
        )
    if directory.size > _LARGEST_DIRECTORY:
        raise Refused(
            "the archive's list of members is too large",
            found=f"{directory.size} bytes",
            expected=f"at most {_LARGEST_DIRECTORY} bytes",
        )
    count = _counted(file, directory, most)
    if count <= most and (count & 0xFFFF if directory.wraps else count) != directory.members:
        raise Damage(f"its list of members has {count}, and {directory.members} by its end record")
    return count


def zip_members(opened: zipfile.ZipFile) -> Iterator[Member]:
    """Yield the members of a zip that `count_members` has passed; opening one compares it with the list."""
    for info in opened.infolist():
        name = _name(info)
        yield Member(name, _kind(info, name), info.file_size, partial(open_content, opened, info))


def _name(info: zipfile.ZipInfo) -> str:
    # As written: the other one ends at the first NUL.
    name = info.orig_filename
    if info.create_system in _UNIX and not info.flag_bits & _UTF8:
        # Programs there write UTF-8 without saying so, and the standard library takes it for code page 437.
        with suppress(UnicodeDecodeError):
            return name.encode("cp437").decode()
    # As PowerShell 5.1 separates the parts. On other systems it may be meant as a letter.
    return name.replace("\\", "/") if info.create_system == _DOS else name


def _kind(info: zipfile.ZipInfo, name: str) -> str:
    mode = stat.S_IFMT(info.external_attr >> 16)
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        return _THINGS.get(mode, f"an entry of mode {mode:o}")
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    if info.compress_type not in METHODS:
        return f"compressed by method {info.compress_type}"
    return "folder" if name.endswith("/") else "file"


def _directory(file: IO[bytes]) -> _Directory:
    length = file.seek(0, os.SEEK_END)
    tail_at = max(length - _END.size - _LONGEST_COMMENT, 0)
    file.seek(tail_at)
    tail = file.read()
    # Without a comment first, as the standard library looks for it: both must take the same record.
    start = len(tail) - _END.size
    if not (tail[start:].startswith(_END_SIGNATURE) and tail.endswith(b"\0\0")):
        start = tail.rfind(_END_SIGNATURE)
    if start < 0 or len(tail) < start + _END.size:
        raise Damage("it is cut: the record that ends a zip is missing")
    _, disk, first, here, members, size, offset, comment = _END.unpack_from(tail, start)
    if start + _END.size + comment != len(tail):
        raise Damage("something else than its comment stands behind the record that ends it")
    wide = _directory64(file, tail_at + start)
    if wide is not None:
        return wide
    if disk or first or here != members:
        raise _in_parts(here, members)
    return _Directory(offset, size, tail_at + start, members, wraps=True)


def _directory64(file: IO[bytes], end: int) -> _Directory | None:
    """Return what the records for large zips say, which stand right before the end record; None without them."""
    locator_at, record_at = end - _LOCATOR.size, end - _LOCATOR.size - _END64.size
    if record_at < 0:
        return None
    file.seek(record_at)
    record, locator = file.read(_END64.size), file.read(_LOCATOR.size)
    if not locator.startswith(_LOCATOR_SIGNATURE):
        return None
    _, disk, at, disks = _LOCATOR.unpack(locator)
    signature, length, _, _, here_disk, first, here, members, size, offset = _END64.unpack(record)
    if (signature, at, length) != (_END64_SIGNATURE, record_at, _END64.size - 12):
        raise Damage(f"its record for large zips is not where byte {locator_at} says, or of another length")
    if disk or disks > 1 or here_disk or first or here != members:
        raise _in_parts(here, members)
    return _Directory(offset, size, record_at, members, wraps=False)


def _in_parts(here: int, members: int) -> Refused:
    return Refused(
        "the archive has parts in other files",
        found=f"{here} members of {members} in this one",
        expected="one file",
    )


def _counted(file: IO[bytes], directory: _Directory, most: int) -> int:
    file.seek(directory.offset)
    position, count = directory.offset, 0
    while position < directory.end and count <= most:
        data = file.read(_ENTRY.size)
        if len(data) < _ENTRY.size or not data.startswith(_ENTRY_SIGNATURE):
            raise Damage(f"its list of members is damaged at byte {position}")
        following = sum(_ENTRY.unpack(data)[1:])
        position = file.seek(following, os.SEEK_CUR)
        count += 1
    if position > directory.end:
        raise Damage(f"its list of members ends at byte {directory.end}, in the middle of one")
    return count


# --- Tars, read block by block to the zeros that end them.
#
# The standard library takes a header that is damaged or cut for the end of the archive, follows chains of
# extended headers by recursion and reads each of them whole. Here only its reading of one header block is
# used, which checks the block's checksum. What a plain tar has no checksum for is the content of files
# and of extended headers; gzip, bzip2 and xz have one over everything.

_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)
_TAR_CHUNK = 1 << 20
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
            content = _TarContent(self.read, header.size if kind == "file" else 0)
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
        while padding := self._read_some(_TAR_CHUNK):
            if padding.strip(b"\0"):
                raise Damage(f"something other than zeros behind the end, byte {self._at} of the tar")
            self._at += len(padding)


class _TarContent(io.RawIOBase):
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
            self._left -= len(self._read_exactly(min(_TAR_CHUNK, self._left)))


# --- An archive opened: its kind told by its first bytes, and what its decoders raise turned into a
# refusal.

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


# --- The extraction: only plain files and folders, under relative names, within limits, all of them or
# nothing.
#
# Accepted are zip, tar, tar.gz, tar.bz2 and tar.xz, told by their first bytes. What an archive says of
# its sizes is not believed but counted while it is written.

Progress = Callable[[int], None]

_COPY_CHUNK = 1 << 20


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
        for piece in decoded(iter(partial(content.read, _COPY_CHUNK), b"")):
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
