"""The content of a zip's member, unpacked piece by piece.

The standard library does so for deflated members. Of one packed by bzip2 or LZMA it unpacks at once whatever it reads,
and four kilobytes of bzip2 can be gigabytes; so of these it only finds the packed bytes here.
"""

from __future__ import annotations

import bz2
import copy
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, cast

from plumbline.archives.member import Damage

_CHUNK = 1 << 16
# PKWARE's APPNOTE 5.8.8: version, length of the properties; they are those of a `.lzma` file's header.
_LZMA = struct.Struct("<2xHBL")
_LZMA_PROPERTIES = 5

_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor


def open_content(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Open the content of a member of a known method.

    Raises
    ------
    Damage
        While it is read, if it is cut or of another checksum than the list says. The standard library has errors of
        its own for that.
    """
    unpacked = _BOUNDED.get(info.compress_type)
    if unpacked is None:
        return opened.open(info)
    packed_info = copy.copy(info)
    packed_info.compress_type, packed_info.file_size = zipfile.ZIP_STORED, info.compress_size
    # It is that of the content.
    del packed_info.CRC
    packed = opened.open(packed_info)
    return cast(IO[bytes], _Content(packed, unpacked(packed), size=info.file_size, checksum=info.CRC))


def _bzip2(_: IO[bytes]) -> _Decompressor:
    return bz2.BZ2Decompressor()


def _lzma(packed: IO[bytes]) -> _Decompressor:
    header = packed.read(_LZMA.size)
    if len(header) < _LZMA.size:
        raise Damage("the header of a member packed by LZMA is cut")
    length, coded, dictionary = _LZMA.unpack(header)
    if length != _LZMA_PROPERTIES:
        raise Damage(
            f"a member packed by LZMA has {length} bytes of properties instead of {_LZMA_PROPERTIES}"
        )
    pb, lp, lc = coded // 45, coded // 9 % 5, coded % 9
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": dictionary, "lc": lc, "lp": lp, "pb": pb}]
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)


_BOUNDED: dict[int, Callable[[IO[bytes]], _Decompressor]] = {
    zipfile.ZIP_BZIP2: _bzip2,
    zipfile.ZIP_LZMA: _lzma,
}
METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, *_BOUNDED})
"""Of a zip's methods of compression those that can be unpacked."""


class _Content(io.RawIOBase):
    """The content of one member, never more of it in memory than is asked for."""

    def __init__(self, packed: IO[bytes], decompressor: _Decompressor, *, size: int, checksum: int) -> None:
        self._packed, self._decompressor, self._left, self._expected = packed, decompressor, size, checksum
        self._checksum = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, none at the end."""
        data = b""
        # No further than the content: some LZMA has no mark at its end.
        most = self._left if size < 0 else min(size, self._left)
        while not data and most and not self._decompressor.eof:
            data = self._decompressor.decompress(self._input(), most)
        self._left -= len(data)
        self._checksum = zlib.crc32(data, self._checksum)
        if not data and self._checksum != self._expected:
            raise Damage("the content of a member has another checksum than the list says")
        return data

    def _input(self) -> bytes:
        if not self._decompressor.needs_input:
            return b""
        data = self._packed.read(_CHUNK)
        if not data:
            raise Damage("the content of a member is cut")
        return data

    def close(self) -> None:
        self._packed.close()
        super().close()
