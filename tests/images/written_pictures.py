"""Small pictures that the tests of images and datasets write, sound ones and ones that a library would not write."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
BLACK, WHITE = (0, 0, 0), (255, 255, 255)


def halves(
    left: object = RED, right: object = BLUE, *, mode: str = "RGB", size: tuple[int, int] = (32, 16)
) -> Image.Image:
    """Return a picture of two colours, side by side: what is turned, mirrored or misread shows."""
    width, height = size
    picture = Image.new(mode, size, left)
    picture.paste(right, (width // 2, 0, width, height))
    return picture


def noise(seed: int = 0) -> Image.Image:
    """Return 16 × 12 random pixels, which no other seed gives."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8))


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def jpeg_that_claims(width: int, height: int) -> bytes:
    """Return a JPEG whose header says that it is of this size."""
    data = encoded(halves(), "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + struct.pack(">HH", height, width) + data[frame + 9 :]


def png(header: tuple[int, int, int, int], rows: bytes, *, key: bytes = b"") -> bytes:
    """Write a PNG by hand: (width, height, depth, colour type), filtered rows, transparent colour."""
    width, height, depth, colour = header

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    body = (chunk(b"tRNS", key) if key else b"") + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + start + body + chunk(b"IEND", b"")


def grey_16_bit(values: list[list[int]], *, key: bytes = b"") -> bytes:
    rows = b"".join(b"\0" + struct.pack(f">{len(row)}H", *row) for row in values)
    return png((len(values[0]), len(values), 16, 0), rows, key=key)
