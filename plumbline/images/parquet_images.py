"""Images inside Parquet files: such a file is a folder of images, addressed by row.

The path `data/train-00000-of-00002.parquet/17` names the image of row 17, counted from 0. It lies in the column
`image` as Hugging Face writes it: a struct whose field `bytes` holds the encoded picture, or those bytes alone.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from plumbline.errors import ImageRejected
from plumbline.images.parquet_columns import OpenColumns, damage_refused, holds_bytes, known_place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

IMAGE_COLUMN = "image"

MAX_GROUP_BYTES = 1 << 30
"""What one row group's pictures may take; a row group is decoded whole."""

KEPT_BYTES = min(1 << 31, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
"""Of decoded row groups that wait for the next row; the last two are kept whatever their size.

Threads that read rows in order have some hundreds under way, in several row groups: one that is forgotten too early
is decoded again for every row.
"""

_ROW = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)
_SUFFIX = ".parquet"
_KEPT_GROUPS = 2
_KEPT_OUTCOMES = 1024
_KNOWN_FILES = 32

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class _File:
    """One state of a Parquet file: written again, it is another."""

    path: str
    inode: int
    changed_ns: int
    size: int


@dataclass(frozen=True)
class _Layout:
    """Where the rows lie: the first row after each row group, the column to read, and the footer."""

    ends: tuple[int, ...]
    leaf: str
    metadata: FileMetaData


def names_row(path: PurePath | str) -> bool:
    """Tell whether a path has the form `FILE.parquet/ROW`; such a path has no extension of its own."""
    pure = PurePath(path)
    return pure.parent.suffix == _SUFFIX and _ROW.fullmatch(pure.name) is not None


def lies_in_parquet(path: Path) -> bool:
    """Tell whether the folder of a path is in fact a Parquet file."""
    return path.parent.suffix == _SUFFIX and path.parent.is_file()


def read_row_image(path: Path, *, max_bytes: int) -> bytes:
    """Return the encoded picture that a row holds.

    Row groups are decoded whole and the last ones kept, shared by all threads, so that rows read in order cost
    one decoding a row group. That one is damaged or too large is remembered, an error of the system is not.

    Parameters
    ----------
    path : Path
        `FILE.parquet/ROW`.
    max_bytes : int
        The most that a picture may have.

    Raises
    ------
    ImageRejected
        `missing_file` (no such row, or one without a picture), `corrupt` (no sound Parquet file),
        `unsupported_format` (an encoding that is not accepted), `not_an_image` (no column of pictures) or
        `file_too_large` (the picture, its row group, or too many of those).
    OSError
        If the file cannot be opened or read.
    """
    file = _state(path.parent)
    layout = _sound(_layout(file))
    if not _ROW.fullmatch(path.name) or int(path.name) >= layout.ends[-1]:
        found, expected = f"row {path.name}", f"a row from 0 to {layout.ends[-1] - 1}"
        raise ImageRejected(
            "missing_file", "the Parquet file has no such row", found=found, expected=expected
        )
    row = int(path.name)
    group = bisect_right(layout.ends, row)
    pictures = _RECENT.get((file, group), lambda: _pictures(file, layout, group))
    with damage_refused():
        picture = _picture(pictures, row - (layout.ends[group - 1] if group else 0))
    if picture is None:
        raise ImageRejected("missing_file", "the row holds no picture", found="null", expected="a picture")
    if picture.size > max_bytes:
        found, expected = f"{picture.size} bytes", f"at most {max_bytes} bytes"
        raise ImageRejected(
            "file_too_large", "the picture is too large for an image", found=found, expected=expected
        )
    data: bytes = picture.to_pybytes()
    return data


class _RecentGroups:
    """The pictures of the row groups read last, or why one was refused.

    One is decoded at a time, which bounds the memory over all threads; the others read what is there meanwhile.
    """

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._lock, self._decoding = Lock(), Lock()
        self._groups: OrderedDict[tuple[_File, int], pa.ChunkedArray | ImageRejected] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: tuple[_File, int], read: Callable[[], pa.ChunkedArray]) -> pa.ChunkedArray:
        outcome = self._known(key)
        if outcome is None:
            with self._decoding:
                # Another thread may have decoded it while this one waited.
                outcome = self._known(key)
                if outcome is None:
                    outcome = _outcome(read)
                    self._keep(key, outcome)
        return _sound(outcome)

    def _known(self, key: tuple[_File, int]) -> pa.ChunkedArray | ImageRejected | None:
        with self._lock:
            if key in self._groups:
                self._groups.move_to_end(key)
            return self._groups.get(key)

    def _keep(self, key: tuple[_File, int], outcome: pa.ChunkedArray | ImageRejected) -> None:
        with self._lock:
            self._groups[key] = outcome
            self._held_bytes += _size(outcome)
            while len(self._groups) > _KEPT_GROUPS and self._too_many():
                _, forgotten = self._groups.popitem(last=False)
                self._held_bytes -= _size(forgotten)

    def _too_many(self) -> bool:
        return self._held_bytes > self._kept_bytes or len(self._groups) > _KEPT_OUTCOMES


_RECENT = _RecentGroups(KEPT_BYTES)


def _size(outcome: pa.ChunkedArray | ImageRejected) -> int:
    return 0 if isinstance(outcome, ImageRejected) else int(outcome.nbytes)


def _outcome(read: Callable[[], _Read]) -> _Read | ImageRejected:
    try:
        return read()
    except ImageRejected as refused:
        # A quarantine row has no place for a hint.
        refused.expected = "; ".join(str(part) for part in (refused.expected, refused.hint) if part)
        return _again(refused)


def _sound(outcome: _Read | ImageRejected) -> _Read:
    if isinstance(outcome, ImageRejected):
        raise _again(outcome)
    return outcome


def _again(refused: ImageRejected) -> ImageRejected:
    """Return a refusal anew: each caller adds its own place to one, and its own frames."""
    return ImageRejected(refused.code, refused.what, found=refused.found, expected=refused.expected)


def _state(path: Path) -> _File:
    about = path.stat()
    return _File(str(path), about.st_ino, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=_KNOWN_FILES)
def _layout(file: _File) -> _Layout | ImageRejected:
    return _outcome(lambda: _read_layout(file))


def _read_layout(file: _File) -> _Layout:
    with damage_refused(), OpenColumns(file.path) as opened:
        leaf = _leaf(opened.schema)
        return _Layout(tuple(accumulate(opened.group_rows())) or (0,), leaf, opened.metadata)


def _leaf(schema: pa.Schema) -> str:
    import pyarrow as pa

    kind: Any = schema.field(IMAGE_COLUMN).type if schema.names.count(IMAGE_COLUMN) == 1 else pa.null()
    if holds_bytes(kind):
        return IMAGE_COLUMN
    fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    if "bytes" in fields and holds_bytes(fields["bytes"]):
        return f"{IMAGE_COLUMN}.bytes"
    raise ImageRejected(
        "not_an_image",
        "the Parquet file has no column of pictures",
        found=", ".join(f"{field.name}: {field.type}" for field in schema),
        expected=f"{IMAGE_COLUMN}: struct<bytes: binary, path: string>, or binary",
    )


def _pictures(file: _File, layout: _Layout, group: int) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    with damage_refused(), OpenColumns(file.path, [layout.leaf], metadata=layout.metadata) as opened:
        column = opened.read(group, max_bytes=MAX_GROUP_BYTES).column(IMAGE_COLUMN)
        return column if layout.leaf == IMAGE_COLUMN else pc.struct_field(column, "bytes")


def _picture(pictures: pa.ChunkedArray, row: int) -> pa.Buffer | None:
    cell = pictures[row]
    place = cell.index.as_py()
    return None if place is None else cell.dictionary[known_place(place)].as_buffer()
