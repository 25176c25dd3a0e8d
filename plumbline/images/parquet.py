"""Images inside Parquet files, and columns of such files, read with Arrow row group by row group within a limit.

A row group is decoded whole, so what it takes is bounded by what the file's footer says of it before it is decoded. A
footer that lies is not seen through (docs/decisions/0037-libraries-for-parsers.md).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from plumbline.errors import ImageRejected

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyarrow.parquet import ColumnChunkMetaData, FileMetaData

VALUE_BYTES = 32
"""What Arrow takes for a value at most beside its content: offsets, levels, its place in a dictionary."""

WRITE_AGAIN = (
    "write the file again in row groups of 1000 rows or fewer: "
    "python -c \"import pyarrow.parquet as q; old = q.ParquetFile('OLD.parquet'); "
    "new = q.ParquetWriter('NEW.parquet', old.schema_arrow); "
    '[new.write_batch(rows) for rows in old.iter_batches(1000)]; new.close()"'
)
"""What to do about a row group that is too large, or an encoding that is not accepted."""

# Both let a few bytes stand for any number of values or of equal beginnings, so the footer's sizes bound nothing.
_UNBOUNDED = ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")


def _decoded_bytes(chunk: ColumnChunkMetaData, *, width: int) -> int:
    """Return what one column of a row group takes while it is decoded with dictionaries kept, as the footer has it.

    Parameters
    ----------
    width : int
        Bytes of a value where all have the same; 0 for texts and bytes, which pages hold whole.

    Raises
    ------
    ImageRejected
        `unsupported_format`, of an encoding that leaves the size open.
    """
    unbounded = next((encoding for encoding in _UNBOUNDED if encoding in chunk.encodings), None)
    if unbounded is not None:
        raise ImageRejected(
            "unsupported_format",
            "the Parquet file has an encoding that is not accepted",
            found=unbounded,
            expected="PLAIN or RLE_DICTIONARY for texts and bytes",
            hint=WRITE_AGAIN,
        )
    size, values = chunk.total_uncompressed_size, chunk.num_values
    if min(size, values) < 0:
        raise corrupt(f"a column of {values} values in {size} bytes")
    return int(size + (VALUE_BYTES + width) * values)


def corrupt(found: str) -> ImageRejected:
    """Return the refusal of a damaged Parquet file."""
    return ImageRejected(
        "corrupt",
        "the Parquet file does not read",
        found=found,
        expected="a sound Parquet file",
        hint="check that the file is whole, or fetch it again",
    )


# --- Columns of a Parquet file

MAX_GROUPS = 50_000
"""Row groups of one file: its footer, in which each is described, is held in memory while the file is read."""

_BUFFER_BYTES = 1 << 20


@contextmanager
def damage_refused() -> Iterator[None]:
    """Turn whatever a damaged file makes Arrow raise into a refusal.

    Raises
    ------
    ImageRejected
        `corrupt`, or `unsupported_format` for a type that Arrow knows no way to read; one that was raised inside
        passes as it is.
    OSError
        As raised inside, if the system gave it a number: then the reading failed and not the file.
    MemoryError
        As raised inside: the machine is short of memory.
    """
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise
    except OSError as error:
        # Arrow says by an OSError without a number that what it read makes no sense.
        if error.errno is not None:
            raise
        raise _corrupt(error) from error
    except pa.ArrowNotImplementedError as error:
        raise ImageRejected(
            "unsupported_format",
            "the Parquet file has a column that cannot be read",
            found=str(error),
            expected="texts, bytes, numbers or dates",
            hint="write that column again as text",
        ) from error
    except (pa.ArrowException, LookupError, ValueError, OverflowError, TypeError) as error:
        raise _corrupt(error) from error


def most_bytes() -> int:
    """Return what the values of a table may take that is read whole: a quarter of the machine's memory.

    Who reads it copies it once, so that it takes half for a moment.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def read_frame(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read a Parquet table that somebody else wrote; see `read_columns`."""
    import polars as pl

    return pl.DataFrame(read_columns(path, columns))


def read_columns(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read columns of a Parquet table that somebody else wrote, by default all of them.

    With Arrow, and validated: polars ends the process where a damaged length is more than memory can hold, and panics
    at texts that are none. A text that a file of a few bytes repeats a million times is counted before it is written
    out.

    Raises
    ------
    ImageRejected
        `file_too_large` (more than `most_bytes()`), and as in `damage_refused`.
    """
    import pyarrow as pa

    most, size, parts = most_bytes(), 0, []
    with damage_refused():
        with OpenColumns(path) as plain:
            names = plain.schema.names if columns is None else list(columns)
            # Without what the file's writer noted beside the columns, which may be no text either.
            schema = pa.schema([pa.field(name, plain.schema.field(name).type) for name in names])
        leaves = map(plain.metadata.schema.column, range(plain.metadata.num_columns))
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        with OpenColumns(path, names, metadata=plain.metadata, texts=texts) as table:
            for group, filled in enumerate(table.group_rows()):
                if filled:  # One without rows has no page either.
                    part = table.read(group, max_bytes=most)
                    part.validate(full=True)
                    size += sum(map(_bytes_of, part.columns))
                    if size > most:
                        raise _table_too_large(size, most)
                    parts.append(part.cast(schema))
        whole = pa.concat_tables(parts) if parts else schema.empty_table()
        whole.validate(full=True)
        return whole


def _bytes_of(column: pa.ChunkedArray) -> int:
    """Return what the values of a column take once each is written out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        return sum(_bytes_of(pc.struct_field(column, place)) for place in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _bytes_of(pc.list_flatten(column))
    if not pa.types.is_dictionary(kind):
        return int(column.nbytes)
    lengths = (pc.take(pc.binary_length(chunk.dictionary), chunk.indices) for chunk in column.chunks)
    return sum(pc.sum(each, min_count=0).as_py() for each in lengths)


def _table_too_large(size: int, most: int) -> ImageRejected:
    return ImageRejected(
        "file_too_large",
        "the table is too large to be read whole",
        found=f"{size} bytes or more",
        expected=f"at most {most} bytes, a quarter of this machine's memory",
        hint="split the table, and leave out columns that nothing reads",
    )


class OpenColumns:
    """Columns of a Parquet file, decoded by row group: a context manager that closes the file.

    The footer is parsed once, or not at all where it was before: that takes as long as the file has row groups.
    Texts and bytes come as dictionaries, so that none is written out twice.

    Parameters
    ----------
    path : Path or str
        The Parquet file.
    columns : sequence of str
        Paths in the schema, such as `image.bytes`; not repeated ones.
    metadata : FileMetaData, optional
        The file's footer, from an earlier opening.
    texts : sequence of str, optional
        Paths of the texts and bytes among them, where a column holds others inside.

    Attributes
    ----------
    metadata : FileMetaData
        The footer.
    schema : pyarrow.Schema
        The columns of the file; `columns` have the types in which they are read.

    Raises
    ------
    ImageRejected
        `corrupt`.
    OSError
        If the file cannot be opened or read.
    """

    def __init__(
        self,
        path: Path | str,
        columns: Sequence[str] = (),
        *,
        metadata: FileMetaData | None = None,
        texts: Sequence[str] | None = None,
    ) -> None:
        from pyarrow import parquet

        self._columns = list(columns)
        texts = self._columns if texts is None else list(texts)
        with damage_refused():
            # Without `pre_buffer`, a column is read piece by piece and does not lie in memory compressed as well.
            self._file = parquet.ParquetFile(
                path, metadata=metadata, read_dictionary=texts, buffer_size=_BUFFER_BYTES, pre_buffer=False
            )
            self.metadata: FileMetaData = self._file.metadata
            self.schema: pa.Schema = self._file.schema_arrow

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def group_rows(self) -> list[int]:
        """Return how many rows each row group is said to have.

        Raises
        ------
        ImageRejected
            `file_too_large` (more than `MAX_GROUPS`) or `corrupt`.
        """
        groups = self.metadata.num_row_groups
        if groups > MAX_GROUPS:
            actual, expected = f"{groups} row groups", f"at most {MAX_GROUPS} row groups"
            what = "the Parquet file has too many row groups"
            raise ImageRejected("file_too_large", what, found=actual, expected=expected, hint=WRITE_AGAIN)
        rows = [self.metadata.row_group(group).num_rows for group in range(groups)]
        if min(rows, default=0) < 0:
            raise corrupt(f"a row group of {min(rows)} rows")
        return rows

    def read(self, group: int, *, max_bytes: int) -> pa.Table:
        """Decode the columns of one row group that has rows.

        Parameters
        ----------
        group : int
            The row group, from 0.
        max_bytes : int
            What decoding may take, over all columns.

        Raises
        ------
        ImageRejected
            `file_too_large`, and as in `damage_refused`.
        OSError
            If the file cannot be read.
        """
        with damage_refused():
            self._require_size(group, max_bytes)
            return self._file.read_row_group(group, columns=self._columns, use_threads=False)

    def _require_size(self, group: int, max_bytes: int) -> None:
        chunks = self.metadata.row_group(group)
        # Arrow reads by the beginning of the path: what else it takes along counts too.
        beginnings = tuple(f"{column}." for column in self._columns)
        total = 0
        for position in range(self.metadata.num_columns):
            kind = self.metadata.schema.column(position)
            if kind.path in self._columns or kind.path.startswith(beginnings):
                total += _decoded_bytes(chunks.column(position), width=max(kind.length, 0))
        if total > max_bytes:
            actual, expected = f"{total} bytes", f"at most {max_bytes} bytes"
            what = "the row group is too large"
            raise ImageRejected("file_too_large", what, found=actual, expected=expected, hint=WRITE_AGAIN)


def holds_text(kind: pa.DataType) -> bool:
    """Tell whether a type is texts, in any of Arrow's forms; a dictionary is what its values are."""
    import pyarrow as pa

    return _values_of(kind) in (pa.string(), pa.large_string(), pa.string_view())


def holds_bytes(kind: pa.DataType) -> bool:
    """Tell whether a type is bytes of any length, as `holds_text` does."""
    import pyarrow as pa

    return _values_of(kind) in (pa.binary(), pa.large_binary(), pa.binary_view())


def _values_of(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def known_place(place: int) -> int:
    """Return a place in a dictionary, which Arrow takes as the file says it: a negative one would count from the end.

    Raises
    ------
    IndexError
        If it is negative.
    """
    if place < 0:
        raise IndexError(f"place {place} of a dictionary")
    return place


def _corrupt(error: Exception) -> ImageRejected:
    return corrupt(str(error) or type(error).__name__)


# --- Images inside Parquet files: such a file is a folder of images, addressed by row
#
# The path `data/train-00000-of-00002.parquet/17` names the image of row 17, counted from 0. It lies in
# the column `image` as Hugging Face writes it: a struct whose field `bytes` holds the encoded picture, or
# those bytes alone; or in a column of bytes that img2dataset names by the format.

IMAGE_COLUMN = "image"
FORMAT_COLUMNS = ("jpg", "png", "webp")
"""What img2dataset calls its column of encoded pictures."""

MAX_GROUP_BYTES = 1 << 30
"""What one row group's pictures may take; a row group is decoded whole."""

_MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_DECODED_AT_ONCE = max(1, min(4, _MACHINE_BYTES // 4 // MAX_GROUP_BYTES))
"""Row groups that threads decode together: a quarter of the memory holds so many of the largest."""

KEPT_BYTES = min(1 << 31, _MACHINE_BYTES // 8)
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


def lies_in_parquet(path: Path | str) -> bool:
    """Tell whether the folder of a path is in fact a Parquet file."""
    folder = os.path.dirname(path)  # noqa: PTH120  (a Path for every file costs as much as its hash)
    return folder.endswith(_SUFFIX) and Path(folder).suffix == _SUFFIX and Path(folder).is_file()


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
    about = path.parent.stat()
    file = _File(str(path.parent), about.st_ino, about.st_mtime_ns, about.st_size)
    layout = _sound(_layout(file))
    if not _ROW.fullmatch(path.name) or int(path.name) >= layout.ends[-1]:
        actual, expected = f"row {path.name}", f"a row from 0 to {layout.ends[-1] - 1}"
        raise ImageRejected("missing_file", "the Parquet file has no such row", found=actual, expected=expected)
    row = int(path.name)
    group = bisect_right(layout.ends, row)
    pictures = _RECENT.get((file, group), lambda: _pictures(file, layout, group))
    with damage_refused():
        picture = _picture(pictures, row - (layout.ends[group - 1] if group else 0))
    if picture is None:
        raise ImageRejected("missing_file", "the row holds no picture", found="null", expected="a picture")
    if picture.size > max_bytes:
        actual, expected = f"{picture.size} bytes", f"at most {max_bytes} bytes"
        raise ImageRejected("file_too_large", "the picture is too large for an image", found=actual, expected=expected)
    data: bytes = picture.to_pybytes()
    return data


class _RecentGroups:
    """The pictures of the row groups read last, or why one was refused; shared by all threads.

    Each is decoded once, by the thread that asks first. Different ones are decoded at once, as many as there are locks:
    that bounds the memory over all threads.
    """

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._lock, self._decoding = Lock(), [Lock() for _ in range(_DECODED_AT_ONCE)]
        self._groups: OrderedDict[tuple[_File, int], pa.ChunkedArray | ImageRejected] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: tuple[_File, int], read: Callable[[], pa.ChunkedArray]) -> pa.ChunkedArray:
        outcome = self._kept(key)
        if outcome is None:
            with self._decoding[key[1] % len(self._decoding)]:
                # Another thread may have decoded it meanwhile.
                outcome = self._kept(key)
                if outcome is None:
                    outcome = _outcome(read)
                    self._keep(key, outcome)
        return _sound(outcome)

    def _kept(self, key: tuple[_File, int]) -> pa.ChunkedArray | ImageRejected | None:
        with self._lock:
            if key in self._groups:
                self._groups.move_to_end(key)
            return self._groups.get(key)

    def _keep(self, key: tuple[_File, int], outcome: pa.ChunkedArray | ImageRejected) -> None:
        with self._lock:
            self._groups[key] = outcome
            self._held_bytes += _size(outcome)
            while len(self._groups) > _KEPT_GROUPS and (
                self._held_bytes > self._kept_bytes or len(self._groups) > _KEPT_OUTCOMES
            ):
                _, forgotten = self._groups.popitem(last=False)
                self._held_bytes -= _size(forgotten)


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
    if (named := format_column(schema)) is not None and IMAGE_COLUMN not in schema.names:
        return named
    fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    if "bytes" in fields and holds_bytes(fields["bytes"]):
        return f"{IMAGE_COLUMN}.bytes"
    raise ImageRejected(
        "not_an_image",
        "the Parquet file has no column of pictures",
        found=", ".join(f"{field.name}: {field.type}" for field in schema),
        expected=f"{IMAGE_COLUMN}: struct<bytes: binary, path: string>, or binary",
    )


def format_column(schema: pa.Schema) -> str | None:
    """Return the column of `FORMAT_COLUMNS` that holds encoded pictures; None where there is none, or several."""
    names = [name for name in FORMAT_COLUMNS if schema.names.count(name) == 1 and holds_bytes(schema.field(name).type)]
    return names[0] if len(names) == 1 else None


def _pictures(file: _File, layout: _Layout, group: int) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    with damage_refused(), OpenColumns(file.path, [layout.leaf], metadata=layout.metadata) as opened:
        name, _, of_struct = layout.leaf.partition(".")
        column = opened.read(group, max_bytes=MAX_GROUP_BYTES).column(name)
        return pc.struct_field(column, of_struct) if of_struct else column


def _picture(pictures: pa.ChunkedArray, row: int) -> pa.Buffer | None:
    cell = pictures[row]
    place = cell.index.as_py()
    return None if place is None else cell.dictionary[known_place(place)].as_buffer()
