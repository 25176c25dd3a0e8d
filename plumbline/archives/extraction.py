"""The extraction: only plain files and folders, under relative names, within limits, all of them or nothing.

Accepted are zip, tar, tar.gz, tar.bz2 and tar.xz, told by their first bytes. What an archive says of its sizes is not
believed but counted while it is written.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, cast

from plumbline.archives.member import Damage, Member
from plumbline.archives.new_folder import new_folder, writing
from plumbline.archives.tar_members import tar_members
from plumbline.archives.zip_members import count_members, zip_members
from plumbline.datasets.containment import leads_out
from plumbline.datasets.records import printable, unsafe_characters
from plumbline.errors import DatasetError

Progress = Callable[[int], None]

KINDS = "zip, tar, tar.gz, tar.bz2 or tar.xz"

_CHUNK = 1 << 20
_LONGEST_PART, _LONGEST_NAME = 255, 1024
# Below this much output a ratio says nothing: a folder of ten empty files compresses a thousandfold.
_RATIO_FREE_BYTES = 16 << 20
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_COMPRESSED: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


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
    with new_folder(folder) as unfinished:
        return _Extraction(archive, unfinished, limits or Limits(), progress).run()


class _Extraction:
    """One archive on its way into one folder."""

    def __init__(self, archive: Path, folder: Path, limits: Limits, progress: Progress | None) -> None:
        self.archive, self.folder, self.limits, self.progress = archive, folder, limits, progress
        self.member = ""
        self.files = self.written = self.unpacked = self.members = self.packed = 0

    def run(self) -> Extracted:
        with ExitStack() as stack:
            with self._reading():
                members = self._open(stack)
            while True:
                with self._reading():
                    member = next(members, None)
                if member is None:
                    break
                self.member = member.name
                self._take(member)
                self.member = ""
        if not self.files:
            raise DatasetError(
                "the archive holds no file", where=self.archive, expected="the dataset's files"
            )
        return Extracted(self.files, self.written)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn whatever the reading of a damaged or hostile archive raises into an error that names it."""
        try:
            yield
        except DatasetError:
            raise
        # Any: what decoders raise on such bytes is documented nowhere. Only they run in here.
        except Exception as error:
            found = str(error) if isinstance(error, Damage) else f"{type(error).__name__}: {error}"
            raise DatasetError(
                "the archive cannot be extracted",
                where=self._where(),
                found=printable(found),
                expected=f"a whole {KINDS}",
                hint="nothing was extracted; get the archive from the dataset's own page again",
            ) from error

    def _open(self, stack: ExitStack) -> Iterator[Member]:
        self.packed = self.archive.stat().st_size
        file = stack.enter_context(self.archive.open("rb"))
        start = file.read(512)
        if start.startswith(_ZIP):
            if count_members(file, most=self.limits.members) > self.limits.members:
                self._refuse_members()
            return zip_members(stack.enter_context(zipfile.ZipFile(file)))
        for signature, decompressed in _COMPRESSED.items():
            if start.startswith(signature):
                return self._tar(stack.enter_context(cast(IO[bytes], decompressed(self.archive))))
        if start[257:262] == b"ustar":
            file.seek(0)
            return self._tar(file)
        raise DatasetError(
            "this is not an archive of a known kind",
            where=self.archive,
            found=f"bytes {start[:8].hex(' ') or 'none'}",
            expected=KINDS,
        )

    def _tar(self, stream: IO[bytes]) -> Iterator[Member]:
        def read(size: int) -> bytes:
            data = stream.read(size)
            # Counted with headers and padding: they too can be what grows.
            self.unpacked += len(data)
            self._require_ratio(self.unpacked)
            return data

        return tar_members(read)

    def _take(self, member: Member) -> None:
        self.members += 1
        if self.members > self.limits.members:
            self._refuse_members()
        if member.kind not in ("file", "folder"):
            self._refuse(
                "the archive holds something else than files and folders", member.kind, "a plain file"
            )
        path = self.folder.joinpath(*self._safe_parts(member.name))
        if member.kind == "folder":
            self._make_folder(path)
            return
        if member.size > self.limits.file_bytes:
            self._refuse_size(member.size)
        self._make_folder(path.parent)
        with writing(path), self._new_file(path) as file:
            for piece in self._pieces(member):
                file.write(piece)
        self.files += 1

    def _safe_parts(self, name: str) -> list[str]:
        found, parts = ascii(name), [part for part in name.split("/") if part not in ("", ".")]
        if unsafe_characters(name):
            self._refuse(
                "the archive holds a name with control characters", found, "a printable name in UTF-8"
            )
        if leads_out(name) or "\\" in name:
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

    def _make_folder(self, path: Path) -> None:
        with writing(path):
            try:
                path.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                self._refuse_twice()

    def _new_file(self, path: Path) -> IO[bytes]:
        try:
            # `x` follows no link and replaces nothing.
            return path.open("xb")
        except (FileExistsError, IsADirectoryError):
            self._refuse_twice()

    def _pieces(self, member: Member) -> Iterator[bytes]:
        """Yield the content of a file, counted."""
        size = 0
        with ExitStack() as stack:
            with self._reading():
                content = stack.enter_context(member.content())
            while True:
                with self._reading():
                    piece = content.read(_CHUNK)
                if not piece:
                    break
                size += len(piece)
                self._count(len(piece), size)
                yield piece
                if self.progress is not None:
                    self.progress(self.written)
        if size != member.size:
            self._refuse("the archive's member is of another size", f"{size} bytes", f"{member.size} bytes")

    def _count(self, more: int, size: int) -> None:
        self.written += more
        if size > self.limits.file_bytes:
            self._refuse_size(size)
        if self.written > self.limits.total_bytes:
            most = self.limits.total_bytes
            self._refuse(
                "the archive holds too much", f"more than {most} bytes", f"at most {most} bytes in all"
            )
        self._require_ratio(self.written)

    def _require_ratio(self, size: int) -> None:
        if size > _RATIO_FREE_BYTES and size > self.limits.ratio * self.packed:
            self._refuse(
                "the archive grows too much when it is extracted",
                f"{size} bytes from {self.packed}",
                f"at most {self.limits.ratio:g} times its size",
            )

    def _refuse_members(self) -> NoReturn:
        most = f"at most {self.limits.members} members"
        self._refuse("the archive holds too many members", "more", most)

    def _refuse_twice(self) -> NoReturn:
        self._refuse("the archive holds the same name twice", ascii(self.member), "each name once")

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
