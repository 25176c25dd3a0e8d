"""What decoding a Parquet column takes, from the headers of its pages.

The footer's sizes are only said; Arrow takes memory by the page headers, which it holds the content to. They are
read here, before anything is decoded, and by hand: Arrow hands out the footer and never a page header, and a package
for Thrift would want the format's interface file beside it, for these few fields. Their form is Thrift's compact
protocol (parquet.thrift of the Parquet format, and thrift-compact-protocol.md); of it only what a page header may
have is known here, and anything else is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from plumbline.errors import ImageRejected

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData

VALUE_BYTES = 32
"""What Arrow takes for a value at most beside its content: offsets, levels, its place in a dictionary."""

WRITE_AGAIN = (
    "write the file again in row groups of 1000 rows or fewer: "
    "python -c \"import pyarrow.parquet as q; old = q.ParquetFile('OLD.parquet'); "
    "new = q.ParquetWriter('NEW.parquet', old.schema_arrow); "
    '[new.write_batch(rows) for rows in old.iter_batches(1000)]; new.close()"'
)
"""What to do about a row group that is too large, or an encoding that is not accepted."""

_PAGE_BYTES = 1 << 10
_TRUE, _FALSE, _I32, _I64, _BINARY, _STRUCT = 1, 2, 5, 6, 8, 12
_LONGEST_VARINT = 10
_DEEPEST = 3
_DICTIONARY, _DATA, _DATA_V2 = 2, 0, 3
_HEADER_OF = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}
"""Kind of page -> the number of its own header in the page header, and of the encoding in that."""

# Both let a few bytes stand for any number of values or of equal beginnings. The number that would bound the first
# lies inside the compressed page, and Arrow cannot keep its values in a dictionary.
_UNBOUNDED = {6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}

_Struct = dict[int, "int | _Struct"]


class _Page(NamedTuple):
    """Its kind, its bytes once decompressed, and how many values it says to hold."""

    kind: int
    size: int
    values: int


def decoded_bytes(
    file: BinaryIO, chunk: ColumnChunkMetaData, *, rows: int, width: int, max_bytes: int
) -> int:
    """Return the most that one column of a row group takes while it is decoded with dictionaries kept.

    Parameters
    ----------
    file : binary file
        The Parquet file.
    chunk : ColumnChunkMetaData
        Of a column that is not repeated; only where it lies is believed.
    rows : int
        What the footer says of the row group.
    width : int
        Bytes of a value where all have the same; 0 for texts and bytes, which pages hold whole.
    max_bytes : int
        Where counting ends.

    Raises
    ------
    ImageRejected
        `file_too_large` (more than `max_bytes`), `unsupported_format` (an encoding that leaves the size open) or
        `corrupt` (a chunk outside the file, no page where one must be, or another number of rows).
    OSError
        If the file cannot be read.
    """
    total = seen = 0
    for page in _pages(file, *_range(file, chunk)):
        total += page.size + (VALUE_BYTES + width) * page.values + _PAGE_BYTES
        if total > max_bytes:
            found, expected = f"{total} bytes or more", f"at most {max_bytes} bytes"
            raise ImageRejected(
                "file_too_large",
                "the row group is too large",
                found=found,
                expected=expected,
                hint=WRITE_AGAIN,
            )
        seen += page.values if page.kind != _DICTIONARY else 0
    if seen != rows:
        raise corrupt(f"pages of {seen} values in a row group of {rows} rows")
    return total


def _range(file: BinaryIO, chunk: ColumnChunkMetaData) -> tuple[int, int]:
    """Return where a column chunk begins and ends, by the same rule as Arrow."""
    dictionary, data = chunk.dictionary_page_offset or 0, chunk.data_page_offset
    start = dictionary if 0 < dictionary < data else data
    end, size = start + chunk.total_compressed_size, file.seek(0, 2)
    if not 0 <= start <= end <= size:
        raise corrupt(f"a column chunk from byte {start} to {end} in a file of {size}")
    return start, end


def _pages(file: BinaryIO, start: int, end: int) -> Iterator[_Page]:
    position = start
    while position < end:
        file.seek(position)
        header = _struct(file)
        kind, size, compressed = (header.get(number) for number in (1, 2, 3))
        if not (isinstance(kind, int) and isinstance(size, int) and isinstance(compressed, int)):
            raise corrupt(f"no page header at byte {position}")
        values = _values(header, kind)
        following = file.tell() + compressed
        if min(size, compressed, values) < 0 or following > end:
            raise corrupt(f"a page header at byte {position} that cannot be")
        position = following
        yield _Page(kind, size, values)


def _values(header: _Struct, kind: int) -> int:
    own_number, encoding_number = _HEADER_OF.get(kind, (0, 0))
    own = header.get(own_number)
    if not isinstance(own, dict):
        raise corrupt(f"a page of the kind {kind} without its own header")
    values, encoding = own.get(1), own.get(encoding_number)
    if not isinstance(values, int) or not isinstance(encoding, int):
        raise corrupt("a page header without encoding or number of values")
    if encoding in _UNBOUNDED:
        raise ImageRejected(
            "unsupported_format",
            "the Parquet file has an encoding that is not accepted",
            found=_UNBOUNDED[encoding],
            expected="PLAIN or RLE_DICTIONARY for texts and bytes",
            hint=WRITE_AGAIN,
        )
    return values


def _struct(file: BinaryIO, depth: int = 1) -> _Struct:
    """Read one structure: its 32-bit numbers and structures by field number; everything else is passed over."""
    fields: _Struct = {}
    number = 0
    while kind := (head := _byte(file)) & 0x0F:
        step = head >> 4
        number = (number + step if step else _signed(_varint(file))) & 0xFFFF
        if kind == _I32:
            fields[number] = _signed(_varint(file) & 0xFFFFFFFF)
        elif kind == _STRUCT and depth < _DEEPEST:
            fields[number] = _struct(file, depth + 1)
        elif kind == _I64:
            _varint(file)
        elif kind == _BINARY:
            file.seek(_varint(file) & 0x7FFFFFFF, 1)
        elif kind not in (_TRUE, _FALSE):
            raise corrupt(f"a page header with a field of the kind {kind}")
    return fields


def _varint(file: BinaryIO) -> int:
    value = 0
    for position in range(_LONGEST_VARINT):
        byte = _byte(file)
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value
    raise corrupt("a page header with a number that does not end")


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _byte(file: BinaryIO) -> int:
    read = file.read(1)
    if not read:
        raise corrupt("a page header that does not end")
    return read[0]


def corrupt(found: str) -> ImageRejected:
    """Return the refusal of a damaged Parquet file."""
    return ImageRejected(
        "corrupt",
        "the Parquet file does not read",
        found=found,
        expected="a sound Parquet file",
        hint="check that the file is whole, or fetch it again",
    )
