"""JPEG files that are whole to their end mark, told from their structure without turning them into pixels.

Damage inside a scan changes pixels but stops no decoder. So of a file with one whole scan, the decoder need only judge
what stands before it, and of that not what differs from file to file: the size, comments, EXIF, numbers in quantisation
tables, and codes in Huffman tables that are sound. Sources: ITU-T T.81, annexes B and C; for what is sound beyond it,
libjpeg-turbo 3.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import mul
from typing import NamedTuple

# Baseline and extended sequential Huffman frames, with their tables, restart intervals and notes.
_FRAMES, _HUFFMAN, _SCAN, _QUANTISERS, _RESTARTS, _COMMENT = (0xC0, 0xC1), 0xC4, 0xDA, 0xDB, 0xDD, 0xFE
_NOTES = frozenset((_COMMENT, *range(0xE0, 0xF0)))
# EXIF, XMP and comments differ from file to file, and no decoder can fail over them.
_UNJUDGED = frozenset((0xE1, _COMMENT))

# A byte FF stands for itself only before 00; before anything else it begins a marker, or fills. Restarts may be there.
_OTHER_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7]")
_START, _END, _PADDING = b"\xff\xd8", b"\xff\xd9", b"\x00\xff"
_SMALL = b"\x00\x10\x00\x10"
_QUANTISER_BYTES, _QUANTISER = 65, bytes([1] * 64)
# One code, of one bit, for the value 0.
_HUFFMAN_TABLE = bytes([1, *[0] * 16])
# What a code of 1 to 16 bits takes of 65,536 bit patterns.
_CODE_SHARES = [1 << 15 - bit for bit in range(16)]
# What stands before the scan is kept, so that it may not be large.
_LONGEST_HEADER = 1 << 16


class WholeScan(NamedTuple):
    """A JPEG with one whole scan.

    Attributes
    ----------
    size : (int, int)
        Width and height in pixels, 0 where there is no frame.
    blank : bytes
        The file with nothing in its scan, 16 by 16 pixels, plain tables, without comments and EXIF: if a decoder
        accepts this one, it accepts the file, whose size alone is left to judge.
    """

    size: tuple[int, int]
    blank: bytes


def whole_scan(data: bytes) -> WholeScan | None:
    """Return what is left to judge of a JPEG with one whole scan; None of anything else, which may be sound as well.

    Parameters
    ----------
    data : bytes
        The file, from its first byte.
    """
    judged, position = [data[:2]], 2
    try:
        while data[position] == 0xFF and (kind := data[position + 1]) in _NOTES:
            end = position + 2 + (data[position + 2] << 8 | data[position + 3])
            if end < position + 4:
                return None
            if kind not in _UNJUDGED:
                judged.append(data[position:end])
            position = end
        # These bytes also stand inside a table, if seldom: what is cut there is left to the decoder.
        scan = data.index(b"\xff\xda", position, position + _LONGEST_HEADER)
        start = scan + 2 + (data[scan + 2] << 8 | data[scan + 3])
    except (IndexError, ValueError):
        return None
    judged.append(data[position:start])
    end = data.rfind(_END, start)
    if end < 0 or data[end + 2 :].strip(_PADDING) or _OTHER_MARK.search(data, start, end):
        return None
    header = b"".join(judged)
    return _blank(header) if len(header) <= _LONGEST_HEADER else None


@lru_cache(maxsize=128)
def _blank(header: bytes) -> WholeScan | None:
    """Return what is left to judge of what stands before a scan; None where it is not plain."""
    judged, position, kind, size = [_START], 2, 0, (0, 0)
    while kind != _SCAN and position + 4 <= len(header):
        kind, end = header[position + 1], position + 2 + (header[position + 2] << 8 | header[position + 3])
        plain = _plain(header[position:end])
        if plain is None or end > len(header):
            return None
        if kind in _FRAMES:
            height, width = header[position + 5 : position + 7], header[position + 7 : position + 9]
            size = int.from_bytes(width), int.from_bytes(height)
        judged.append(plain)
        position = end
    whole = kind == _SCAN and position == len(header)
    return WholeScan(size, b"".join([*judged, _END])) if whole else None


@lru_cache(maxsize=256)
def _plain(segment: bytes) -> bytes | None:
    """Return a segment without what differs from file to file; None of one that is not plain.

    Of most encoders, few segments differ between files, so answers are kept.
    """
    kind = segment[1] if segment[:1] == b"\xff" else 0
    if kind == _HUFFMAN:
        return _plain_huffman(segment)
    if kind == _QUANTISERS:
        return _plain_quantisers(segment)
    if kind in _FRAMES:
        return segment[:5] + _SMALL + segment[9:]
    return segment if kind in (_SCAN, _RESTARTS) or kind in _NOTES else None


def _plain_huffman(segment: bytes) -> bytes | None:
    """Return a DHT segment with one code a table; None where a table is not sound.

    Sound as T.81, annex C, asks: no more codes of a length than fit, none of ones only; and DC categories of 15 at
    most.
    """
    plain, position = [segment[:2], b""], 4
    while position < len(segment):
        counts = segment[position + 1 : position + 17]
        count = sum(counts)
        values = segment[position + 17 : position + 17 + count]
        if not 0 < count == len(values) <= 256 or sum(map(mul, counts, _CODE_SHARES)) >= 1 << 16:
            return None
        if segment[position] < 0x10 and max(values) > 15:
            return None
        plain += [segment[position : position + 1], _HUFFMAN_TABLE]
        position += 17 + count
    plain[1] = (2 + 9 * (len(plain) - 2)).to_bytes(2)
    return b"".join(plain)


def _plain_quantisers(segment: bytes) -> bytes:
    """Return a DQT segment with other numbers, none of which stops a decoder; as it is where it has 16-bit ones."""
    destinations = segment[4::_QUANTISER_BYTES]
    if len(segment) % _QUANTISER_BYTES != 4 or max(destinations, default=16) > 15:
        return segment
    return segment[:4] + b"".join(bytes([destination]) + _QUANTISER for destination in destinations)
