"""Columns of a Parquet file, read so that a damaged or hostile file takes neither the process nor its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from plumbline.errors import ImageRejected
from plumbline.images.parquet_pages import WRITE_AGAIN, corrupt, decoded_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

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
        self, path: Path | str, columns: Sequence[str] = (), *, metadata: FileMetaData | None = None
    ) -> None:
        from pyarrow import parquet

        self._path, self._columns = Path(path), list(columns)
        with damage_refused():
            # Without `pre_buffer`, a column is read piece by piece and does not lie in memory compressed as well.
            self._file = parquet.ParquetFile(
                path,
                metadata=metadata,
                read_dictionary=self._columns,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
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
            found, expected = f"{groups} row groups", f"at most {MAX_GROUPS} row groups"
            what = "the Parquet file has too many row groups"
            raise ImageRejected("file_too_large", what, found=found, expected=expected, hint=WRITE_AGAIN)
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
            As in `decoded_bytes` and `damage_refused`.
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
        left = max_bytes
        with self._path.open("rb") as file:
            for position in range(self.metadata.num_columns):
                kind = self.metadata.schema.column(position)
                if kind.path in self._columns or kind.path.startswith(beginnings):
                    chunk, width = chunks.column(position), max(kind.length, 0)
                    left -= decoded_bytes(file, chunk, rows=chunks.num_rows, width=width, max_bytes=left)


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
