"""Images inside Parquet files: such a file is a folder of images, addressed by row.

The path `data/train-00000-of-00002.parquet/17` names the image of row 17, counted from 0. It lies in the column
`image` as Hugging Face writes it: a struct whose field `bytes` holds the encoded picture, or those bytes alone.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any

from plumbline.errors import ImageRejected

if TYPE_CHECKING:
    import pyarrow as pa

IMAGE_COLUMN = "image"

MAX_GROUP_BYTES = 1 << 30
"""Of one row group's pictures; a row group is decoded whole."""

KEPT_BYTES = 1 << 28
"""Of decoded row groups that wait for the next row; the last two are kept whatever their size."""

_ROW = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)
_SUFFIX = ".parquet"
_KEPT_GROUPS = 2
_OPEN_FILES = 128


@dataclass(frozen=True)
class _File:
    """One state of a Parquet file: written again, it is another."""

    path: str
    inode: int
    changed_ns: int
    size: int


@dataclass(frozen=True)
class _Layout:
    """Where the rows lie: the first row after each row group, its size decoded, and the column to read."""

    ends: tuple[int, ...]
    sizes: tuple[int, ...]
    leaf: str


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
    one decoding a row group.

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
        `not_an_image` (no column of pictures) or `file_too_large` (the picture, or its row group).
    OSError
        If the file cannot be opened or read.
    """
    import pyarrow as pa

    try:
        file = _state(path.parent)
        layout = _layout(file)
        if not _ROW.fullmatch(path.name) or int(path.name) >= layout.ends[-1]:
            found, expected = f"row {path.name}", f"a row from 0 to {layout.ends[-1] - 1}"
            raise ImageRejected(
                "missing_file", "the Parquet file has no such row", found=found, expected=expected
            )
        row = int(path.name)
        group = bisect_right(layout.ends, row)
        pictures = _RECENT.get((file, group), lambda: _pictures(file, layout, group))
        picture = pictures[row - (layout.ends[group - 1] if group else 0)].as_buffer()
    except pa.ArrowException as error:
        raise _corrupt(error) from error
    except OSError as error:
        # Arrow says by an OSError without a number that what it read makes no sense.
        if error.errno is None:
            raise _corrupt(error) from error
        raise
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
    """The pictures of the row groups read last; two threads that want the same one read it once."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._lock = Lock()
        self._groups: OrderedDict[tuple[_File, int], Future[pa.ChunkedArray | None]] = OrderedDict()

    def get(self, key: tuple[_File, int], read: Callable[[], pa.ChunkedArray]) -> pa.ChunkedArray:
        with self._lock:
            waiting = self._groups.get(key)
            if waiting is None:
                mine = self._groups[key] = Future()
            else:
                self._groups.move_to_end(key)
        if waiting is not None:
            shared = waiting.result()
            # The other thread failed: each says so of its own row.
            return read() if shared is None else shared
        pictures = None
        try:
            pictures = read()
        finally:
            with self._lock:
                if pictures is None:
                    del self._groups[key]
                mine.set_result(pictures)
                self._forget()
        return pictures

    def _forget(self) -> None:
        done = {key: group.result() for key, group in self._groups.items() if group.done()}
        sizes = {key: pictures.nbytes for key, pictures in done.items() if pictures is not None}
        total = sum(sizes.values())
        for key in list(sizes)[:-_KEPT_GROUPS]:
            if total <= self._kept_bytes:
                return
            total -= sizes[key]
            del self._groups[key]


_RECENT = _RecentGroups(KEPT_BYTES)


def _state(path: Path) -> _File:
    about = path.stat()
    return _File(str(path), about.st_ino, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=_OPEN_FILES)
def _layout(file: _File) -> _Layout:
    from pyarrow import parquet

    with parquet.ParquetFile(file.path) as opened:
        leaf = _leaf(opened.schema_arrow)
        about = opened.metadata
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
    position = [about.schema.column(i).path for i in range(about.num_columns)].index(leaf)
    ends = tuple(accumulate((group.num_rows for group in groups), initial=0))[1:]
    sizes = tuple(group.column(position).total_uncompressed_size for group in groups)
    return _Layout(ends or (0,), sizes, leaf)


def _leaf(schema: pa.Schema) -> str:
    import pyarrow as pa

    kind: Any = schema.field(IMAGE_COLUMN).type if IMAGE_COLUMN in schema.names else pa.null()
    binary = (pa.binary(), pa.large_binary())
    if kind in binary:
        return IMAGE_COLUMN
    fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    if fields.get("bytes") in binary:
        return f"{IMAGE_COLUMN}.bytes"
    raise ImageRejected(
        "not_an_image",
        "the Parquet file has no column of pictures",
        found=", ".join(f"{field.name}: {field.type}" for field in schema),
        expected=f"{IMAGE_COLUMN}: struct<bytes: binary, path: string>, or binary",
    )


def _pictures(file: _File, layout: _Layout, group: int) -> pa.ChunkedArray:
    import pyarrow.compute as pc
    from pyarrow import parquet

    if layout.sizes[group] > MAX_GROUP_BYTES:
        found, expected = f"{layout.sizes[group]} bytes", f"at most {MAX_GROUP_BYTES} bytes"
        raise ImageRejected("file_too_large", "the row group is too large", found=found, expected=expected)
    with parquet.ParquetFile(file.path) as opened:
        column = opened.read_row_group(group, columns=[layout.leaf], use_threads=False).column(0)
    return column if layout.leaf == IMAGE_COLUMN else pc.struct_field(column, "bytes")


def _corrupt(error: Exception) -> ImageRejected:
    return ImageRejected(
        "corrupt", "the Parquet file does not read", found=str(error), expected="a sound Parquet file"
    )
