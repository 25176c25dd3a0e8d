"""A decoded picture turned upright and to 8-bit RGB: EXIF orientation, alpha on white, 16 bits to 8."""

from __future__ import annotations

import struct

import numpy as np
from PIL import Image

from plumbline.errors import ImageRejected

_ORIENTATION_TAG, _SHORT = 0x0112, 3
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def upright_rgb(image: Image.Image) -> Image.Image:
    """Return a picture as it is to be looked at, mode RGB.

    Raises
    ------
    ImageRejected
        With code `unsupported_format`, of 16-bit colour with a clear colour.
    """
    return _as_rgb(_turned(image))


def _turned(image: Image.Image) -> Image.Image:
    turn = _TURNS.get(_orientation(image.info.get("exif", b"")))
    return image if turn is None else image.transpose(turn)


def _orientation(exif: bytes) -> int:
    """Return the EXIF orientation; 1, upright, where there is none or the block is damaged.

    Read here and not by Pillow, whose answer on a damaged block depends on the process's warning filters.
    """
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, start)
        for position in range(count):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, start + 2 + 12 * position)
            if (tag, kind) == (_ORIENTATION_TAG, _SHORT):
                return int(value)
    except struct.error:
        pass
    return 1


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        image = _eight_bit(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    clear = image.info.get("transparency")
    if isinstance(clear, tuple) and max(clear) > 255:
        # Pillow has cut the colours to 8 bits by now, so which pixels the 16-bit key meant is lost.
        found, expected = f"key {clear}", "an alpha channel or 8-bit colours"
        raise ImageRejected(
            "unsupported_format", "16-bit colour with a clear colour", found=found, expected=expected
        )
    layer = image if image.mode == "RGBA" else image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """Keep the high byte of 16-bit grey, as Pillow does for 16-bit colour; for grey it would clip at 255."""
    values = np.asarray(image).astype(np.uint32)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    clear = image.info.get("transparency")
    if clear is None:
        return grey
    return Image.merge("LA", (grey, Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8))))
