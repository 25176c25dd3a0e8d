"""Images inside tar files: such a file is a folder of images, addressed by member.

The path `00000.tar/000000017.jpg` names the member `000000017.jpg`. A tar is read by its headers, from one to the next;
of its content no more than one member is in memory at a time. Compressed tars are not read: no member of them can be
reached without all that stand before it.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import IO

from plumbline.errors import ImageRejected

SUFFIX = ".tar"

MAX_MEMBERS = 1_000_000
"""Of one tar; some 300 bytes each while it is read. Shards of img2dataset have 30,000."""

_LONGEST_HEADER = 1 << 16
_KNOWN_TARS = 4
# Of all settings for the members that follow, these say what comes out. tarfile goes through all for every member.
_KEPT_SETTINGS = ("path", "size")


@dataclass(frozen=True, slots=True)
class TarMember:
    """One member: its name, what it is (`file`, `folder`, or in words what else), and where its content lies."""

    name: str
    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class TarIndex:
    """The members of a tar in their order.

    Attributes
    ----------
    members : tuple of TarMember
        As far as the tar can be read; the content of the last one may be cut.
    damage : str or None
        Why it cannot be read to its end.
    """

    members: tuple[TarMember, ...]
    damage: str | None = None

    @cached_property
    def of_name(self) -> dict[str, TarMember]:
        """Return each member by its name; of several the first."""
        return {member.name: member for member in reversed(self.members)}


@dataclass(frozen=True)
class _Tar:
    """One state of a tar: written again, it is another."""

    path: str
    inode: int
    changed_ns: int
    size: int

    @classmethod
    def of(cls, path: str) -> _Tar:
        about = os.stat(path)  # noqa: PTH116
        return cls(path, about.st_ino, about.st_mtime_ns, about.st_size)


def tar_index(path: str | os.PathLike[str]) -> TarIndex:
    """Return what a tar holds, by its headers alone.

    Raises
    ------
    OSError
        If it cannot be opened or read.
    """
    return _index(_Tar.of(os.fspath(path)))


def split_tar_path(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """Return the tar and the member that a path names; None where no part of it is a tar file."""
    text = os.fspath(path)
    at = text.find(f"{SUFFIX}/")
    while at >= 0:
        archive, member = text[: at + len(SUFFIX)], text[at + len(SUFFIX) + 1 :]
        if os.path.isfile(archive):  # noqa: PTH113  (a Path for every file costs as much as its hash)
            return archive, member
        at = text.find(f"{SUFFIX}/", at + 1)
    return None


def read_member(archive: str, name: str, *, max_bytes: int) -> bytes:
    """Return the content of one member.

    Raises
    ------
    ImageRejected
        `missing_file` (no such member), `not_a_file`, `file_too_large` or `truncated`.
    OSError
        If the tar cannot be opened or read.
    """
    about = _Tar.of(archive)
    member = _index(about).of_name.get(name)
    if member is None:
        raise ImageRejected("missing_file", "the tar has no such member", found=name, expected="a member of the tar")
    if member.kind != "file":
        raise ImageRejected("not_a_file", "the member is not a plain file", found=member.kind, expected="a plain file")
    if member.size > max_bytes:
        size, expected = f"{member.size} bytes", f"at most {max_bytes} bytes"
        raise ImageRejected("file_too_large", "the member is too large", found=size, expected=expected)
    with open(archive, "rb") as file:  # noqa: PTH123
        data = os.pread(file.fileno(), member.size, member.offset)
    if len(data) < member.size:
        size, expected = f"{len(data)} bytes", f"{member.size} bytes"
        raise ImageRejected("truncated", "the tar is cut in this member", found=size, expected=expected)
    return data


@lru_cache(maxsize=_KNOWN_TARS)
def _index(tar: _Tar) -> TarIndex:
    members: list[TarMember] = []
    damage = None
    with open(tar.path, "rb") as file:  # noqa: PTH123
        try:
            members.extend(_members(_Headers(file), tar.size))
        except _Damaged as error:
            members, damage = error.members, str(error)
    return TarIndex(tuple(members), damage)


@dataclass
class _Damaged(Exception):
    """A tar that cannot be read further, with the members up to there."""

    why: str
    members: list[TarMember] = field(default_factory=list)

    def __str__(self) -> str:
        return self.why


@dataclass
class _Headers:
    """A file of which `tarfile` reads headers alone, none longer than `_LONGEST_HEADER`."""

    file: IO[bytes]

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, position: int) -> int:
        return self.file.seek(position)

    def read(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self.file.read(size)


class _Info(tarfile.TarInfo):
    """A header that builds no map of a sparse file, which is refused by its type."""

    def _proc_sparse(self, opened: tarfile.TarFile) -> tarfile.TarInfo:
        return self._proc_builtin(opened)  # type: ignore[attr-defined]

    def _proc_gnusparse(self, following: tarfile.TarInfo, *_: object) -> None:
        following.type = tarfile.GNUTYPE_SPARSE

    # The forms that extended headers have, of which `tarfile` reads the whole map.
    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse


def _plain_name(name: str) -> str:
    """Return the name of a member as the paths of a table have it: `./a//b` is `a/b`; an absolute one as it is."""
    return name if name.startswith("/") else "/".join(part for part in name.split("/") if part not in ("", "."))


def _members(stream: _Headers, size: int) -> Iterator[TarMember]:
    members: list[TarMember] = []
    try:
        with tarfile.open(  # type: ignore[call-overload]
            fileobj=stream, mode="r:", encoding="utf-8", errors="surrogateescape", tarinfo=_Info
        ) as opened:
            for info in iter(opened.next, None):
                # tarfile keeps every member for a second look, and every setting for the members that follow.
                opened.members.clear()
                kept = opened.pax_headers
                opened.pax_headers = {keyword: kept[keyword] for keyword in _KEPT_SETTINGS if keyword in kept}
                if len(members) == MAX_MEMBERS:
                    raise _Damaged(f"more than {MAX_MEMBERS} members")
                if info.size < 0:
                    raise _Damaged(f"the member {info.name[:200]!a} says that it is {info.size} bytes long")
                members.append(TarMember(_plain_name(info.name), _kind(info), info.offset_data, info.size))
                if info.isreg() and info.offset_data + info.size > size:
                    raise _Damaged(f"it is cut: it ends at byte {size}, in the member {info.name!a}")
            end = opened.offset
    except _Damaged as error:
        raise _Damaged(str(error), members) from error
    # Any: what tarfile raises on damaged bytes is documented nowhere.
    except Exception as error:
        raise _Damaged(f"{type(error).__name__}: {error}", members) from error
    stream.seek(end)
    block = stream.read(tarfile.BLOCKSIZE)
    # tarfile takes a damaged header for the end.
    if block != bytes(tarfile.BLOCKSIZE):
        what = "neither a header nor zeros" if len(block) == tarfile.BLOCKSIZE else "it is cut: no zero block"
        raise _Damaged(f"{what} at byte {end}", members)
    yield from members


def _kind(info: tarfile.TarInfo) -> str:
    if info.type == tarfile.GNUTYPE_SPARSE:
        return "a sparse file"
    if info.issym() or info.islnk():
        return "a link"
    if info.isdir():
        return "folder"
    return "file" if info.isreg() else f"an entry of type {info.type!r}"
