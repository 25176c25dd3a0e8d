"""Zips, whose list of members must agree with the record that ends them before it is read into memory."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import IO, NamedTuple

from plumbline.archives.member import Damage, Member, Refused
from plumbline.archives.zip_content import METHODS, open_content

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
