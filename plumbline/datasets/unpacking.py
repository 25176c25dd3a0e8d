"""Safe extraction of untrusted archives: nothing in them is written outside one new folder.

`zipfile` and `tarfile` read them. Only the content of plain files is taken: no link, device, owner or permission comes
out, names are relative and printable, and members, sizes and the ratio to the archive are capped. All of an archive
comes out, or nothing.
"""

from __future__ import annotations

import bz2
import errno
import fcntl
import gzip
import io
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from plumbline.datasets.indexes import leads_out
from plumbline.datasets.records import printable, unsafe_characters
from plumbline.errors import DatasetError
from plumbline.storage.files import move_into_place

BOUNDED_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""zipfile bounds what it unpacks at once for these two alone: 4 KiB of bzip2 can be gigabytes."""

KINDS = "zip, tar, tar.gz, tar.bz2 or tar.xz"

Progress = Callable[[int], None]
T = TypeVar("T")

_GET_AGAIN = "nothing was extracted; get the archive from the dataset's own page again"
_BY_HAND = "nothing was extracted; if you trust who made the archive, unpack it yourself into the dataset's folder"

_CHUNK = 1 << 20

# Below this much output a ratio says nothing: a folder of ten empty files compresses a thousandfold.
_RATIO_FREE_BYTES = 16 << 20

# A zip's list of members, which zipfile reads whole; CelebA's 200,000 names take 20 MB.
_LARGEST_DIRECTORY = 128 << 20

_LONGEST_PART, _LONGEST_NAME = 255, 1024


@dataclass(frozen=True)
class Limits:
    """Limits on the size and number of an archive's files.

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


class Extracted(NamedTuple):
    """Number and total bytes of the extracted files."""

    files: int
    bytes: int


class _Member(NamedTuple):
    """One entry of an archive.

    Attributes
    ----------
    name : str
        As its maker meant it, unchecked.
    kind : str
        `file`, `folder`, or what else it is, in words.
    size : int
        Bytes of its content, as the archive says; the libraries give no more than that.
    content : callable
        Opens the content of a file.
    """

    name: str
    kind: str
    size: int
    content: Callable[[], IO[bytes] | None]


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
    limits, where = limits or Limits(), str(archive)
    files = written = 0
    with new_folder(folder) as unfinished:
        try:
            file = _opened(archive)
            with file:
                # The open file's own: its name may be given to another, or taken away, meanwhile.
                require_ratio = partial(_require_ratio, packed=os.fstat(file.fileno()).st_size, ratio=limits.ratio)
                for count, member in enumerate(_decoded(_members(file, limits, require_ratio)), 1):
                    where = f"{archive}, member {printable(ascii(member.name))}"
                    _require_limits(member, limits, count=count, total=written + member.size)
                    require_ratio(written + member.size)
                    path = unfinished.joinpath(*_safe_parts(member.name))
                    if member.kind == "folder":
                        _make_folder(path)
                        continue
                    for size in _write(member, path):
                        written += size
                        if progress is not None:
                            progress(written)
                    files, where = files + 1, str(archive)
            if not files:
                raise DatasetError("the archive holds no file", expected="the dataset's files", hint=_GET_AGAIN)
        except DatasetError as refused:
            if refused.where is not None:
                raise
            raise refused.restated(DatasetError, where=where) from refused
    return Extracted(files, written)


def _write(member: _Member, path: Path) -> Iterator[int]:
    """Write a file that is not there yet; yield the bytes of each piece."""
    _make_folder(path.parent)
    size = 0
    with _writing(path):
        try:
            # `x` follows no link and replaces nothing.
            file = path.open("xb")
        except (FileExistsError, IsADirectoryError):
            raise _twice(path.name) from None
        with file:
            for piece in _decoded(_pieces(member)):
                size += len(piece)
                file.write(piece)
                yield len(piece)
    if size != member.size:
        raise _damaged(f"a member of {size} bytes that should have {member.size}")


def _pieces(member: _Member) -> Iterator[bytes]:
    content = member.content()
    if content is not None:
        with content:
            yield from iter(partial(content.read, _CHUNK), b"")


def _make_folder(path: Path) -> None:
    with _writing(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise _twice(path.name) from None


def _refusal(what: str, *, found: str, expected: str, hint: str = _BY_HAND) -> DatasetError:
    """Return why an archive is not extracted; the place is added where it is known."""
    return DatasetError(what, found=printable(found), expected=expected, hint=hint)


def _twice(name: str) -> DatasetError:
    return _refusal("the archive holds the same name twice", found=ascii(name), expected="each name once")


def _damaged(found: str) -> DatasetError:
    """Return the refusal of an archive that is cut or changed."""
    return _refusal("the archive cannot be extracted", found=found, expected=f"a whole {KINDS}", hint=_GET_AGAIN)


def _decoded(given: Iterator[T]) -> Iterator[T]:
    """Yield what a decoder gives, with its errors as refusals; errors of whoever takes it pass untouched."""
    while True:
        try:
            item = next(given, None)
        except DatasetError:
            raise
        # Any: what decoders raise on damaged bytes is documented nowhere. Only they run in here.
        except Exception as error:
            raise _damaged(f"{type(error).__name__}: {error}") from error
        if item is None:
            return
        yield item


# --- Checks


def _require(holds: bool, what: str, *, found: str, expected: str) -> None:
    if not holds:
        raise _refusal(f"the archive {what}", found=found, expected=expected)


def _require_limits(member: _Member, limits: Limits, *, count: int, total: int) -> None:
    """Refuse what is no plain file or folder, or goes beyond a limit by what its header says."""
    _require_members(count, limits.members)
    plain, file_bytes, most = member.kind in ("file", "folder"), limits.file_bytes, limits.total_bytes
    _require(plain, _NOT_PLAIN, found=member.kind, expected="a plain file")
    expected = f"at most {file_bytes} bytes a file"
    _require(
        member.size <= file_bytes, "holds a file that is too large", found=f"{member.size} bytes", expected=expected
    )
    expected = f"at most {most} bytes in all"
    _require(total <= most, "holds too much", found=f"more than {most} bytes", expected=expected)


_NOT_PLAIN = "holds something else than files and folders"


def _require_members(count: int, most: int) -> None:
    _require(count <= most, "holds too many members", found="more", expected=f"at most {most} members")


def _require_ratio(size: int, *, packed: int, ratio: float) -> None:
    small, expected = size <= max(_RATIO_FREE_BYTES, ratio * packed), f"at most {ratio:g} times its size"
    _require(small, "grows too much when it is extracted", found=f"{size} bytes from {packed}", expected=expected)


def _safe_parts(name: str) -> list[str]:
    """Return the parts of a member's name; none for the archive's own folder, `.`."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    undecoded = any("\udc80" <= character <= "\udcff" for character in name)
    too_long = len(name) > _LONGEST_NAME or any(len(part.encode("utf-8", "replace")) > _LONGEST_PART for part in parts)
    at_most = f"at most {_LONGEST_NAME} characters, {_LONGEST_PART} bytes a part"
    for wrong, what, expected in (
        (undecoded, "a name that is not UTF-8", "a name in UTF-8"),
        (unsafe_characters(name), "a name with control characters", "a printable name"),
        (leads_out(name), "a name that leads out of the folder", "a relative name, without `..`"),
        ("\\" in name, "a name with a backslash", "a name with `/` between its parts"),
        (not parts and name.rstrip("/") != ".", "a member without a name", "a name"),
        (too_long, "a name that is too long", at_most),
    ):
        _require(not wrong, f"holds {what}", found=ascii(name), expected=expected)
    return parts


# --- Reading: zips and tars, told apart by their first bytes

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")

# Long enough that no tar begins with one by the name of its first member.
_COMPRESSED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    rb"\x1f\x8b\x08": lambda file: gzip.GzipFile(fileobj=file),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.BZ2File,
    rb"\xfd7zXZ\x00": lzma.LZMAFile,
}


def _opened(archive: Path) -> _BoundedReader:
    try:
        if archive.is_fifo():  # it waits until somebody writes
            raise OSError(errno.EINVAL, "it is a pipe")
        return _BoundedReader(io.FileIO(archive))
    except OSError as error:
        raise _refusal(
            "the archive cannot be opened",
            found=f"{type(error).__name__}: {error.strerror}",
            expected="a file that is there, with permission to read it",
            hint="correct its path or its permissions",
        ) from error


def _members(file: _BoundedReader, limits: Limits, count_unpacked: Callable[[int], None]) -> Iterator[_Member]:
    """Yield the members of an archive; the content of each can be read until the next is asked for."""
    start = file.read(tarfile.BLOCKSIZE)
    file.seek(0)
    # First: one in a thousand headers of a gzip has the checksum of a tar by chance.
    for signature, decompressed in _COMPRESSED.items():
        if re.match(signature, start):
            with decompressed(file) as stream:
                yield from _tar_members(_TarStream(stream, count_unpacked), sealed=True)
            return
    if _starts_tar(start):
        yield from _tar_members(_TarStream(file, count_unpacked), sealed=False)
        return
    if start.startswith(_ZIP):
        yield from _zip_members(file, limits)
        return
    raise _refusal(
        "this is not an archive of a known kind",
        found=f"bytes {start[:8].hex(' ') or 'none'}",
        expected=KINDS,
        hint="get the archive again, or unpack one of another kind yourself into the dataset's folder",
    )


class _BoundedReader(io.BufferedReader):
    """A file of which no library reads more at once than a zip's list of members may take.

    Attributes
    ----------
    most_members : int or None
        While a zip's list is read: how many members it may hold, counted before there is an object of each.
    """

    most_members: int | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        if (size or 0) > _LARGEST_DIRECTORY:
            what, expected = "the archive's list of members is too large", f"at most {_LARGEST_DIRECTORY} bytes"
            raise _refusal(what, found=f"{size} bytes", expected=expected)
        data = super().read(size)
        if self.most_members is not None:
            _require_members(data.count(_ZIP_ENTRY), self.most_members)
        return data


_ZIP_ENTRY = b"PK\1\2"
_ZIP_END_BYTES = 22


def _zip_members(file: _BoundedReader, limits: Limits) -> Iterator[_Member]:
    file.most_members = limits.members
    with zipfile.ZipFile(file) as opened:
        file.most_members = None
        members = opened.infolist()
        file.seek(-_ZIP_END_BYTES - len(opened.comment), os.SEEK_END)
        end = file.read(_ZIP_END_BYTES)
        recorded = int.from_bytes(end[10:12], "little")
        # In longer lists the number counts from 0 again, or is the largest there is.
        if not end.startswith(_ZIP[1]) or recorded not in (len(members) & 0xFFFF, 0xFFFF):
            raise _damaged(f"its list of members has {len(members)}, and {recorded} by its end record")
        for info in members:
            name = _zip_name(info)
            yield _Member(name, _zip_kind(info, name), info.file_size, partial(opened.open, info))


def _zip_name(info: zipfile.ZipInfo) -> str:
    # As written: `filename` ends at the first NUL.
    name, dos, unix = info.orig_filename, 0, (3, 19)
    if info.create_system in unix and not info.flag_bits & 0x800:
        # Programs there, macOS's own among them, write UTF-8 without saying so, and zipfile takes it for code page 437.
        with suppress(UnicodeDecodeError):
            return name.encode("cp437").decode()
    # As PowerShell 5.1 separates the parts. On other systems it may be meant as a letter.
    return name.replace("\\", "/") if info.create_system == dos else name


def _zip_kind(info: zipfile.ZipInfo, name: str) -> str:
    mode = stat.S_IFMT(info.external_attr >> 16)
    if mode == stat.S_IFLNK:
        return "a link"
    if mode == stat.S_IFIFO:
        return "a pipe, or what was read from one, as `zip` without file names does"
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        return f"an entry of mode {mode:o}"
    if info.flag_bits & 0x1:
        return "encrypted"
    if info.compress_type not in BOUNDED_METHODS:
        return f"compressed by method {info.compress_type}"
    if name.endswith("/"):
        return "named as a folder, with content" if info.file_size else "folder"
    return "file"


def _starts_tar(block: bytes) -> bool:
    # By its checksum: the oldest form has no signature.
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _tar_members(stream: _TarStream, *, sealed: bool) -> Iterator[_Member]:
    """Yield the members of a tar.

    Parameters
    ----------
    sealed : bool
        Whether the checksum of a compression vouches for the end. If so the tar may end behind any member, as some
        programs write it; else a zero block must tell the end from a cut.
    """
    with tarfile.open(  # type: ignore[call-overload]
        fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape", tarinfo=_Header
    ) as opened:
        for info in iter(opened.next, None):
            # tarfile keeps every member for a second look.
            opened.members.clear()
            _forget_settings(opened)
            if info.type != _VOLUME_LABEL:
                yield _Member(info.name, _tar_kind(info), info.size, partial(opened.extractfile, info))
    stream.require_end(sealed=sealed)


# Of all settings for the members that follow, these say what comes out. tarfile goes through all for every member.
_KEPT_SETTINGS = ("path", "size", "hdrcharset")


def _forget_settings(opened: tarfile.TarFile) -> None:
    kept = opened.pax_headers
    opened.pax_headers = {keyword: kept[keyword] for keyword in _KEPT_SETTINGS if keyword in kept}


class _Header(tarfile.TarInfo):
    """A header of a tar, with checks before `tarfile` takes what follows it apart.

    It uses private methods of `tarfile.TarInfo`, the same in Python 3.11 to 3.13; a test holds that they are there.
    Some releases read an extended header in quadratic time (CVE-2024-6232), and all build the map of a sparse file
    before anybody can refuse it.
    """

    def _proc_sparse(self, opened: tarfile.TarFile) -> tarfile.TarInfo:
        # As a plain file: it is refused by its type, with its name.
        return self._proc_builtin(opened)  # type: ignore[attr-defined]

    def _proc_pax(self, opened: tarfile.TarFile) -> tarfile.TarInfo:
        _forget_settings(opened)
        opened.fileobj.check_next(_require_plain_records)  # type: ignore[attr-defined]
        return super()._proc_pax(opened)  # type: ignore[misc]


_RECORD = re.compile(rb"([0-9]{1,8}) ([^=\n]{1,1024})=")
_MANY_DIGITS = re.compile(rb"[0-9]{%d}" % (_LONGEST_PART + 1))


def _require_plain_records(header: bytes) -> None:
    """Refuse an extended header that is not, to its end or a NUL, records of the form `LENGTH KEYWORD=VALUE\\n`.

    A run of more digits than a name may have letters is refused as well: `tarfile` looks through each of them again
    from every digit on.
    """
    if _MANY_DIGITS.search(header):
        raise _damaged(f"an extended header with a number of more than {_LONGEST_PART} digits")
    at = 0
    while header[at : at + 1].strip(b"\0"):
        record = _RECORD.match(header, at)
        end = at + int(record[1]) if record else 0
        if record is None or end <= record.end() or header[end - 1 : end] != b"\n":
            raise _damaged("an extended header that is not made of records")
        plain = not record[2].startswith(b"GNU.sparse.")
        _require(plain, _NOT_PLAIN, found="a sparse file", expected="a plain file")
        at = end


_VOLUME_LABEL = b"V"
"""Of `tar --label`, in the place of a member."""


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.type == tarfile.GNUTYPE_SPARSE:
        return "a sparse file"
    if info.issym() or info.islnk():
        return "a link"
    if info.isdev():
        return "a device or pipe"
    if info.isdir():
        return "folder"
    return "file" if info.isfile() else f"an entry of type {info.type!r}"


class _TarStream:
    """A tar, decompressed from front to end and counted: its headers and padding too can be what grows.

    tarfile takes a damaged header for the end of the archive; `require_end` tells the two apart.
    """

    def __init__(self, stream: IO[bytes], count_unpacked: Callable[[int], None]) -> None:
        self._stream, self._count_unpacked, self._at, self._last = stream, count_unpacked, 0, b""
        self._check: Callable[[bytes], None] | None = None

    def check_next(self, check: Callable[[bytes], None]) -> None:
        """Have what is read next checked before `tarfile` gets it."""
        self._check = check

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        if position < self._at:
            raise tarfile.ReadError(f"a negative size before byte {self._at} of the tar")
        while self._at < position and self.read(min(_CHUNK, position - self._at)):
            pass

    def read(self, size: int) -> bytes:
        # Contents are read in chunks; extended headers are read whole.
        what, expected = "holds an extended header that is too large", f"at most {_CHUNK} bytes"
        _require(size <= _CHUNK, what, found=f"{size} bytes", expected=expected)
        self._last = self._stream.read(size)
        self._at += len(self._last)
        self._count_unpacked(self._at)
        check, self._check = self._check, None
        if check is not None:
            check(self._last)
        return self._last

    def require_end(self, *, sealed: bool) -> None:
        """Refuse a tar that does not end with a zero block and nothing but zeros behind it."""
        if len(self._last) < tarfile.BLOCKSIZE and not (sealed and not self._last):
            raise _damaged(f"it is cut: it ends at byte {self._at} of the tar, before the zero block")
        # To the end: the checksum of what was compressed stands behind it.
        while self._last:
            if self._last.strip(b"\0"):
                raise _damaged(f"neither a header nor zeros before byte {self._at} of the tar")
            self.read(_CHUNK)


# --- A folder that is there complete or not at all, filled in an unfinished one beside it


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
    with _writing(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(unfinished):
        try:
            with _writing(unfinished):
                for path in unfinished.iterdir():
                    path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
            yield unfinished
            with _writing(folder):
                move_into_place(unfinished, folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


@contextmanager
def _writing(place: Path) -> Iterator[None]:
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
    with _writing(folder):
        content = None
        if folder.is_symlink():
            content = "a link"
        elif folder.is_dir():
            content = next((f"`{path.name}` and perhaps more" for path in folder.iterdir()), None)
        elif folder.exists():
            content = "a file"
    if content is not None:
        raise DatasetError(
            "the folder to extract into holds something already",
            where=folder,
            found=content,
            expected="a folder that is absent or empty",
            hint="move it away, or name another folder in the audit file",
        )


@contextmanager
def _locked(unfinished: Path) -> Iterator[None]:
    """Hold a folder, new or left behind, for this process; the lock goes with the process, however it ends."""
    with _writing(unfinished):
        unfinished.mkdir(exist_ok=True)
        descriptor = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the opening and the lock another process may have finished it and moved it into place.
            held = os.path.samestat(os.fstat(descriptor), unfinished.lstat())
        except (BlockingIOError, FileNotFoundError):
            held = False
        if not held:
            raise DatasetError(
                "another process is extracting into this folder",
                where=unfinished,
                expected="one extraction at a time",
                hint="wait for it to end, and run the command again",
            )
        yield
    finally:
        os.close(descriptor)
