"""Archives that somebody else made, extracted so that nothing in them can reach beyond one new folder.

Accepted are zip, tar, tar.gz and tar.xz, told by their first bytes. Only plain files and folders come out, under
relative names; what an archive says of its sizes is not believed but counted while it is written.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from plumbline.datasets.records import printable, unsafe_characters
from plumbline.errors import DatasetError

Progress = Callable[[int], None]

_CHUNK = 1 << 20
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:")
_LONGEST_PART, _LONGEST_NAME = 255, 1024
# Below this much output a ratio says nothing: a folder of ten empty files compresses a thousandfold.
_RATIO_FREE_BYTES = 16 << 20
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ZIP_ENCRYPTED = 0x1
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError,
    EOFError, NotImplementedError, ValueError, OSError,
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold.

    Attributes
    ----------
    members : int
        Files and folders.
    total_bytes, file_bytes : int
        Of everything and of one file, extracted.
    ratio : float
        Extracted bytes over the bytes of the archive, from the first 16 MiB on. Pictures do not compress: the
        archives of the known datasets stay below 2.
    """

    members: int = 2_000_000
    total_bytes: int = 400 << 30
    file_bytes: int = 16 << 30
    ratio: float = 50.0


class Extracted(NamedTuple):
    """How many files came out, and their bytes."""

    files: int
    bytes: int


class _Member(NamedTuple):
    """One entry: `kind` is `file`, `folder`, or what else it is; `size` is what the archive says."""

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
        If the folder holds something, the archive is none or damaged, or a member is no plain file or folder, has
        an absolute name, one with `..`, a drive, a backslash or control characters, comes twice, or goes beyond a
        limit. Nothing is left behind then.
    """
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise DatasetError(
            "the folder to extract into holds something already",
            where=folder,
            expected="a folder that is absent or empty",
            hint="move it away, or name another folder in the audit file",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # A sibling, so that the finished folder moves in one step and never from one file system to another.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".unfinished", dir=folder.parent))
    try:
        extracted = _Extraction(archive, unfinished, limits or Limits(), progress).run()
        unfinished.chmod(0o755)
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return extracted


class _Extraction:
    """One archive on its way into one folder."""

    def __init__(self, archive: Path, folder: Path, limits: Limits, progress: Progress | None) -> None:
        self.archive, self.folder, self.limits, self.progress = archive, folder, limits, progress
        self.member = ""
        self.files = self.written = self.unpacked = self.members = 0

    def run(self) -> Extracted:
        with ExitStack() as stack:
            try:
                self.packed = self.archive.stat().st_size
                for member in self._open(stack):
                    self.member = member.name
                    self._take(member)
            except _BROKEN as error:
                raise DatasetError(
                    "the archive cannot be extracted",
                    where=self._where(),
                    found=printable(f"{type(error).__name__}: {error}"),
                    expected="a whole zip, tar, tar.gz or tar.xz, and room on the disk",
                ) from error
        if not self.files:
            raise DatasetError(
                "the archive holds no file", where=self.archive, expected="the dataset's files"
            )
        return Extracted(self.files, self.written)

    def _open(self, stack: ExitStack) -> Iterator[_Member]:
        with self.archive.open("rb") as file:
            start = file.read(512)
        if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return self._zip_members(stack.enter_context(zipfile.ZipFile(self.archive)))
        stream = stack.enter_context(self._stream(start))
        return self._tar_members(_Metered(stream, self._unpack))

    def _stream(self, start: bytes) -> io.BufferedIOBase:
        if start.startswith(b"\x1f\x8b"):
            return gzip.GzipFile(self.archive)
        if start.startswith(b"\xfd7zXZ\0"):
            return lzma.LZMAFile(self.archive)
        if start[257:262] == b"ustar":
            return self.archive.open("rb")
        raise DatasetError(
            "this is not an archive of a known kind",
            where=self.archive,
            found=f"bytes {start[:8].hex(' ') or 'none'}",
            expected="zip, tar, tar.gz or tar.xz",
        )

    def _zip_members(self, opened: zipfile.ZipFile) -> Iterator[_Member]:
        for info in opened.infolist():
            mode = stat.S_IFMT(info.external_attr >> 16)
            kind = "folder" if info.is_dir() else "file"
            if mode and mode not in (stat.S_IFREG, stat.S_IFDIR):
                kind = "a link" if mode == stat.S_IFLNK else "a device or pipe"
            elif info.flag_bits & _ZIP_ENCRYPTED:
                kind = "encrypted"
            elif info.compress_type not in _ZIP_METHODS:
                kind = f"compressed by method {info.compress_type}"
            # The name as written: the other one ends at the first NUL.
            yield _Member(info.orig_filename, kind, info.file_size, partial(opened.open, info))

    @staticmethod
    def _tar_members(stream: _Metered) -> Iterator[_Member]:
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for info in opened:
                kind = "folder" if info.isdir() else "file"
                if info.issym() or info.islnk():
                    kind = "a link"
                elif info.issparse() or not (info.isreg() or info.isdir()):
                    kind = "a sparse file" if info.issparse() else "a device or pipe"
                yield _Member(info.name, kind, info.size, partial(opened.extractfile, info))
        # The checksum of what was unpacked stands behind the end of the tar.
        while stream.read(_CHUNK):
            pass

    def _take(self, member: _Member) -> None:
        self.members += 1
        if self.members > self.limits.members:
            self._refuse(
                "the archive holds too many members", "more", f"at most {self.limits.members} members"
            )
        if member.kind not in ("file", "folder"):
            self._refuse(
                "the archive holds something else than files and folders", member.kind, "a plain file"
            )
        path = self.folder.joinpath(*self._safe_parts(member.name))
        if member.kind == "folder":
            path.mkdir(parents=True, exist_ok=True)
            return
        if member.size > self.limits.file_bytes:
            self._refuse_size(member.size)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = member.content()
        if content is None:
            self._refuse("the archive's member has no content", "nothing", "a plain file")
        with content, self._new_file(path) as file:
            self._copy(content, file)
        self.files += 1

    def _safe_parts(self, name: str) -> list[str]:
        found, parts = ascii(name), [part for part in name.split("/") if part not in ("", ".")]
        if unsafe_characters(name):
            self._refuse(
                "the archive holds a name with control characters", found, "a printable name in UTF-8"
            )
        if _ABSOLUTE.match(name) or "\\" in name or ".." in parts:
            self._refuse(
                "the archive holds a name that leads out of the folder",
                found,
                "a relative name, with `/`, without `..`",
            )
        if not parts and name.rstrip("/") != ".":
            self._refuse("the archive holds a member without a name", found, "a name")
        if len(name) > _LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
            self._refuse(
                "the archive holds a name that is too long", found[:80] + "…", "parts of at most 255 bytes"
            )
        return parts

    def _new_file(self, path: Path) -> IO[bytes]:
        try:
            # `x` follows no link and replaces nothing.
            return path.open("xb")
        except (FileExistsError, IsADirectoryError):
            self._refuse("the archive holds the same name twice", ascii(self.member), "each name once")

    def _copy(self, content: IO[bytes], file: IO[bytes]) -> None:
        size = 0
        while chunk := content.read(_CHUNK):
            size += len(chunk)
            self.written += len(chunk)
            if size > self.limits.file_bytes:
                self._refuse_size(size)
            if self.written > self.limits.total_bytes:
                limit = f"at most {self.limits.total_bytes} bytes in all"
                self._refuse(
                    "the archive holds too much", f"more than {self.limits.total_bytes} bytes", limit
                )
            self._require_ratio(self.written)
            file.write(chunk)
            if self.progress is not None:
                self.progress(self.written)

    def _unpack(self, size: int) -> None:
        self.unpacked += size
        self._require_ratio(self.unpacked)

    def _require_ratio(self, size: int) -> None:
        if size > _RATIO_FREE_BYTES and size > self.limits.ratio * self.packed:
            self._refuse(
                "the archive grows too much when it is extracted",
                f"{size} bytes from {self.packed}",
                f"at most {self.limits.ratio:g} times its size",
            )

    def _refuse_size(self, size: int) -> NoReturn:
        limit = f"at most {self.limits.file_bytes} bytes a file"
        self._refuse("the archive holds a file that is too large", f"{size} bytes or more", limit)

    def _refuse(self, what: str, found: str, expected: str) -> NoReturn:
        raise DatasetError(
            what,
            where=self._where(),
            found=printable(found),
            expected=expected,
            hint="nothing was extracted; get the archive from the dataset's own page again",
        )

    def _where(self) -> str:
        return f"{self.archive}, member {printable(ascii(self.member))}" if self.member else str(self.archive)


class _Metered(io.RawIOBase):
    """A stream that tells how much was read of it, headers included."""

    def __init__(self, stream: io.BufferedIOBase, meter: Callable[[int], None]) -> None:
        self._stream, self._meter = stream, meter

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._meter(len(data))
        return data
