"""Columns of a Parquet file, read so that a damaged or hostile file takes neither the process nor its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.errors import ImageRejected
from plumbline.parquet_pages import corrupt, decoded_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

_BUFFER_BYTES = 1 << 20


@contextmanager
def damage_refused() -> Iterator[None]:
    """Turn whatever a damaged file makes Arrow raise into a refusal.

    Raises
    ------
    ImageRejected
        `corrupt`; one that was raised inside passes as it is.
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
    except (pa.ArrowException, LookupError, ValueError, OverflowError, TypeError) as error:
        raise _corrupt(error) from error


def read_group(path: Path | str, group: int, columns: Sequence[str], *, max_bytes: int) -> pa.Table:
    """Decode columns of one row group; texts and bytes come as dictionaries, so that none is written out twice.

    Parameters
    ----------
    path : Path or str
        The Parquet file.
    group : int
        The row group, from 0.
    columns : sequence of str
        Paths in the schema, such as `image.bytes`; not repeated ones.
    max_bytes : int
        What decoding may take, over all columns.

    Raises
    ------
    ImageRejected
        As in `decoded_bytes`, and `corrupt` for anything else that does not read.
    OSError
        If the file cannot be opened or read.
    """
    from pyarrow import parquet

    with (
        damage_refused(),
        parquet.ParquetFile(path, read_dictionary=columns, buffer_size=_BUFFER_BYTES) as opened,
    ):
        _require_size(Path(path), opened.metadata, group, columns, max_bytes)
        return opened.read_row_group(group, columns=list(columns), use_threads=False)


def _require_size(
    path: Path, about: FileMetaData, group: int, columns: Sequence[str], max_bytes: int
) -> None:
    chunks = about.row_group(group)
    # Arrow reads by the beginning of the path: what else it takes along counts too.
    beginnings = tuple(f"{column}." for column in columns)
    left = max_bytes
    with path.open("rb") as file:
        for position in range(about.num_columns):
            kind = about.schema.column(position)
            if kind.path in columns or kind.path.startswith(beginnings):
                chunk, width = chunks.column(position), max(kind.length, 0)
                left -= decoded_bytes(file, chunk, rows=chunks.num_rows, width=width, max_bytes=left)


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
