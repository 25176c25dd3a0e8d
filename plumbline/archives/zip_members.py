"""Zips, whose list of members must agree with the record that ends them before it is read into memory."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import IO, NamedTuple

from plumbline.archives.member import Damage, Member

# What it becomes in memory is some six times as much.
_LARGEST_DIRECTORY = 128 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
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
        If the list is cut, has lost members, is too large to be read, or the zip has parts in other files.
    """
    directory = _directory(file)
    if directory.offset + directory.size != directory.end:
        raise Damage(
            f"its list of members should be {directory.size} bytes from byte {directory.offset} on, "
            f"and end at byte {directory.end}"
        )
    if directory.size > _LARGEST_DIRECTORY:
        raise Damage(
            f"its list of members takes {directory.size} bytes, and none is read beyond {_LARGEST_DIRECTORY}"
        )
    count = _counted(file, directory, most)
    if count <= most and (count & 0xFFFF if directory.wraps else count) != directory.members:
        raise Damage(f"its list of members has {count}, and {directory.members} by its end record")
    return count


def zip_members(opened: zipfile.ZipFile) -> Iterator[Member]:
    """Yield the members of a zip that `count_members` has passed; opening one compares it with the list."""
    for info in opened.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)
        # The name as written: the other one ends at the first NUL.
        name = info.orig_filename
        kind = "folder" if name.endswith("/") else "file"
        if mode and mode not in (stat.S_IFREG, stat.S_IFDIR):
            kind = "a link" if mode == stat.S_IFLNK else "a device or pipe"
        elif info.flag_bits & _ENCRYPTED:
            kind = "encrypted"
        elif info.compress_type not in _METHODS:
            kind = f"compressed by method {info.compress_type}"
        yield Member(name, kind, info.file_size, partial(opened.open, info))


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
        raise Damage(f"{here} members in this file of {members} in all: it has parts in other files")
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
        raise Damage(f"{here} members in this file of {members} in all: it has parts in other files")
    return _Directory(offset, size, record_at, members, wraps=False)


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
