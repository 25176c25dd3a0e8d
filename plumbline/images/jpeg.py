"""Which JPEG files a decoder must accept, told from their structure, without turning them into pixels.

Only the plain kind is recognised: one baseline or extended Huffman scan of grey or of three colours, whole to its
end mark. Damage inside the scan changes pixels but stops no decoder, so such a file is accepted either way.
Everything else is left to the decoder. Sources: ITU-T T.81, annexes B, C and F, and what libjpeg-turbo 3 and
Pillow's JPEG plug-in refuse beyond it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

# Baseline and extended sequential Huffman frames; progressive, lossless and arithmetic ones are not plain.
_FRAMES = (0xC0, 0xC1)
_HUFFMAN, _SCAN, _QUANTISERS, _RESTARTS, _COMMENT = 0xC4, 0xDA, 0xDB, 0xDD, 0xFE
_NOTES = frozenset((*range(0xE0, 0xF0), _COMMENT))
# What Pillow's plug-in reads out of application segments, and stumbles over where it is shorter than this.
_READ_BY_PILLOW = {0xE0: (b"JFIF", 7), 0xE2: (b"ICC_PROFILE\0", 14), 0xEE: (b"Adobe", 7)}
_PHOTOSHOP = (0xED, b"Photoshop 3.0\0")
# Beyond this the decoder gives up, although the format has room for 65,535.
_LONGEST_SIDE = 65_500
# Luma as often as the common encoders have it beside chroma once: 4:4:4 to 4:1:0.
_SAMPLINGS = frozenset((0x11, 0x12, 0x14, 0x21, 0x22, 0x24, 0x41, 0x42))
_QUANTISER_BYTES = 65
_WHOLE_SPECTRUM = b"\x00\x3f\x00"
_MOST_CODING_BYTES = 4096
# A byte FF stands for itself only before 00; before anything else it begins a marker, or fills.
_MARK = re.compile(rb"\xff[^\x00]")
_RESTART, _END = 0xD0, 0xD9
_PADDING = b"\x00\xff"


class _Coding(NamedTuple):
    """Width and height in pixels, and how many restart marks the scan must have."""

    width: int
    height: int
    restarts: int


@dataclass(slots=True)
class _Header:
    """What the segments up to the scan have said so far."""

    frame: bytes = b""
    scan: bytes = b""
    restart_interval: int = 0
    quantisers: set[int] = field(default_factory=set)
    huffman: set[int] = field(default_factory=set)

    def takes(self, kind: int, body: bytes) -> bool:
        """Note a segment; False where it is not plain."""
        if kind == _HUFFMAN:
            tables = huffman_tables(body)
            self.huffman |= tables
            return bool(tables)
        if kind == _QUANTISERS:
            self.quantisers.update(body[::_QUANTISER_BYTES])
            return bool(body) and len(body) % _QUANTISER_BYTES == 0 and max(self.quantisers) < 4
        if kind in _FRAMES:
            again, self.frame = bool(self.frame), body
            return not again
        if kind == _RESTARTS:
            self.restart_interval = int.from_bytes(body)
            return len(body) == 2
        if kind == _SCAN:
            self.scan = body
            return True
        return kind in _NOTES and _harmless(kind, body)


def plain_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a plain, whole JPEG; None for anything that the decoder has to judge.

    Parameters
    ----------
    data : bytes
        The file, from its first byte.

    Returns
    -------
    (int, int) or None
        In pixels. A size means that `plumbline.images.decoding.decode` accepts the file, if it accepts that size. None
        says nothing: the file may be sound.
    """
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    try:
        start = _after_notes(data)
        scan = data.find(b"\xff\xda", start)
        if scan < 0 or scan > start + _MOST_CODING_BYTES:
            return None
        # These bytes also occur inside a segment, if seldom; what is cut there is not plain.
        end = scan + 2 + (data[scan + 2] << 8 | data[scan + 3])
    except IndexError:
        return None
    coding = _coding(data[start:end])
    if coding is None or not _whole(data, end, coding.restarts):
        return None
    return coding.width, coding.height


@lru_cache(maxsize=128)
def huffman_tables(body: bytes) -> frozenset[int]:
    """Return the destinations (class × 16 + number) that a DHT segment fills; none where a table is not sound.

    Sound as T.81, annex C, asks: no more codes of a length than fit, none of ones only; and DC categories of at
    most 15. Most encoders write the same few tables into every file, so answers are kept.
    """
    destinations, position = set(), 0
    while position < len(body):
        destination, counts = body[position], body[position + 1 : position + 17]
        count = sum(counts)
        symbols = body[position + 17 : position + 17 + count]
        if destination & 15 > 3 or destination > 0x13 or len(counts) < 16 or not _codes_fit(counts):
            return frozenset()
        if not 0 < count == len(symbols) <= 256 or (destination < 0x10 and max(symbols) > 15):
            return frozenset()
        destinations.add(destination)
        position += 17 + count
    return frozenset(destinations)


def _codes_fit(counts: bytes) -> bool:
    code, room = 0, 1
    for count in counts:
        code, room = 2 * code + count, 2 * room
        if code >= room:
            return False
    return True


def _after_notes(data: bytes) -> int:
    """Return where the comments and the applications' segments end; the size of the file if one is not plain."""
    position, size = 2, len(data)
    while (kind := data[position + 1]) in _NOTES and data[position] == 0xFF:
        end = position + 2 + (data[position + 2] << 8 | data[position + 3])
        if not position + 4 <= end <= size or not _harmless(kind, data[position + 4 : min(end, position + 18)]):
            return size
        position = end
    return position


def _harmless(kind: int, body: bytes) -> bool:
    """Tell whether Pillow's plug-in reads nothing in this segment that it could stumble over."""
    if kind in _READ_BY_PILLOW:
        name, shortest = _READ_BY_PILLOW[kind]
        return len(body) >= shortest or not body.startswith(name)
    return kind != _PHOTOSHOP[0] or not body.startswith(_PHOTOSHOP[1])


@lru_cache(maxsize=128)
def _coding(segments: bytes) -> _Coding | None:
    """Read the segments from the first table to the head of the scan; None where they are not plain.

    The files of one dataset often have the same ones, so answers are kept.
    """
    header, position, size = _Header(), 0, len(segments)
    while position + 4 <= size and segments[position] == 0xFF:
        kind = segments[position + 1]
        end = position + 2 + (segments[position + 2] << 8 | segments[position + 3])
        if not position + 4 <= end <= size or not header.takes(kind, segments[position + 4 : end]):
            return None
        position = end
        if kind == _SCAN:
            return _agreed(header) if position == size else None
    return None


def _agreed(header: _Header) -> _Coding | None:
    """Check frame, scan and tables against each other."""
    frame, scan = header.frame, header.scan
    count = frame[5] if len(frame) > 5 else 0
    if count not in (1, 3) or len(frame) != 6 + 3 * count or frame[0] != 8:
        return None
    height, width = frame[1] << 8 | frame[2], frame[3] << 8 | frame[4]
    names, samplings, quantisers = frame[6::3], frame[7::3], frame[8::3]
    scanned = len(scan) == 4 + 2 * count and scan[0] == count and scan[1:-3:2] == names
    sound = (
        0 < width <= _LONGEST_SIDE
        and 0 < height <= _LONGEST_SIDE
        and len(set(names)) == count
        and samplings[0] in _SAMPLINGS
        and samplings[1:] == b"\x11\x11"[: count - 1]
        and scanned
        and scan.endswith(_WHOLE_SPECTRUM)
        and header.quantisers.issuperset(quantisers)
        and all({pair >> 4, 0x10 | pair & 15} <= header.huffman for pair in scan[2:-3:2])
    )
    if not sound:
        return None
    # A scan of one component is coded by blocks of 8 × 8, whatever its sampling.
    across, down = (8 * (samplings[0] >> 4), 8 * (samplings[0] & 15)) if count > 1 else (8, 8)
    units = -(-width // across) * -(-height // down)
    return _Coding(width, height, (units - 1) // header.restart_interval if header.restart_interval else 0)


def _whole(data: bytes, start: int, restarts: int) -> bool:
    """Tell whether the scan holds exactly the announced restarts and then the end, with padding behind at most."""
    kind, position = 0, start
    for number, mark in enumerate(islice(_MARK.finditer(data, start), restarts + 1)):
        kind, position = mark[0][1], mark.end()
        if kind != (_RESTART + number % 8 if number < restarts else _END):
            return False
    return kind == _END and (position == len(data) or not data[position:].strip(_PADDING))
