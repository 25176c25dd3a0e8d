"""JPEG files that are whole to their end mark, told from their structure without turning them into pixels.

Damage inside a scan changes pixels but stops no decoder. So of a file with one whole scan, the decoder need only judge
what stands before it, which many files of one dataset share. Source: ITU-T T.81,
annex B.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Baseline and extended sequential Huffman frames, with their tables, restart intervals and notes.
_FRAMES, _SCAN, _COMMENT = (0xC0, 0xC1), 0xDA, 0xFE
_SEGMENTS = frozenset((*_FRAMES, 0xC4, 0xDB, 0xDD, _SCAN, _COMMENT, *range(0xE0, 0xF0)))
# EXIF, XMP and comments differ from file to file, and no decoder can fail over them.
_UNJUDGED = frozenset((0xE1, _COMMENT))

# A byte FF stands for itself only before 00; before anything else it begins a marker, or fills. Restarts may be there.
_OTHER_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7]")
_START, _END, _PADDING = b"\xff\xd8", b"\xff\xd9", b"\x00\xff"
_SMALL = b"\x00\x10\x00\x10"


class WholeScan(NamedTuple):
    """A JPEG with one whole scan.

    Attributes
    ----------
    size : (int, int)
        Width and height in pixels, 0 where there is no frame.
    blank : bytes
        The file with nothing in its scan, 16 by 16 pixels, without comments and EXIF: if a decoder accepts this one,
        it accepts the file, whose size alone is left to judge.
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
    judged, position, kind, width, height = [data[:2]], 2, 0, 0, 0
    while kind != _SCAN:
        if data[position : position + 1] != b"\xff" or position + 4 > len(data):
            return None
        kind, length = data[position + 1], int.from_bytes(data[position + 2 : position + 4])
        end = position + 2 + length
        if kind not in _SEGMENTS or length < 2 or end > len(data):
            return None
        if kind in _FRAMES:
            height, width = (int.from_bytes(data[at : at + 2]) for at in (position + 5, position + 7))
            judged.append(data[position : position + 5] + _SMALL + data[position + 9 : end])
        elif kind not in _UNJUDGED:
            judged.append(data[position:end])
        position = end
    end = data.rfind(_END, position)
    whole = end >= 0 and not data[end + 2 :].strip(_PADDING)
    if not whole or _OTHER_MARK.search(data, position, end):
        return None
    return WholeScan((width, height), b"".join([*judged, _END]))
