"""Images as endpoints take them: data URLs that every decoder reads as the pixels that Plumbline sees."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image

from plumbline.digests import digest_bytes
from plumbline.errors import GenerationError, ImageRejected
from plumbline.images.decoding import decode, read_image_file, suffix_of

ENCODING_VERSION = 1
"""Part of the identity of every endpoint: raise it with any change of this module that sends other pixels."""

MOST_ORIGINAL_BYTES = 4 << 20
LONGEST_SIDE = 2048
"""Pixels. What larger pictures are made smaller to by the endpoints themselves."""

_PLAIN_MODES = ("RGB", "L")
_JPEG_QUALITY = 95
_MEDIA = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}


def image_url(path: Path, image_id: str) -> str:
    """Return an image as a data URL.

    The file's own bytes where they are at most `MOST_ORIGINAL_BYTES` and an ordinary decoder sees in them what
    `plumbline.images.decoding.decode` sees: servers differ in whether they turn a picture as its EXIF block says, and
    in what they put behind transparent pixels. Else the decoded picture as PNG; where that is larger than the limit, as
    JPEG of quality 95 whose longest side is at most `LONGEST_SIDE`.

    Parameters
    ----------
    path : Path
        As `plumbline.images.decoding.read_image_file` takes it.
    image_id : str
        sha256 that the file must have.

    Raises
    ------
    GenerationError
        If the file cannot be read, is no accepted image, or is another than when the dataset was read.
    """
    try:
        data = read_image_file(path)
        if (found := digest_bytes(data)) != image_id:
            raise GenerationError(
                "an image is another than when its dataset was read",
                where=path,
                found=f"sha256 {found}",
                expected=f"sha256 {image_id}",
                hint="materialise `records` again",
            )
        picture = decode(data, suffix=suffix_of(str(path)))
    except ImageRejected as error:
        raise GenerationError(
            "an image cannot be sent",
            where=path,
            found=f"{error.code}: {error.what}",
            hint="materialise `records` again",
        ) from error
    kind = _plain_kind(data, picture) if len(data) <= MOST_ORIGINAL_BYTES else None
    if kind is not None:
        return _data_url(kind, data)
    return _data_url(*_encoded(picture))


def _plain_kind(data: bytes, picture: Image.Image) -> str | None:
    """Return the format of bytes in which any decoder sees this picture, or None."""
    try:
        with Image.open(io.BytesIO(data), formats=list(_MEDIA)) as plain:
            same = plain.mode in _PLAIN_MODES and plain.convert("RGB").tobytes() == picture.tobytes()
            return plain.format if same and plain.size == picture.size and plain.format in _MEDIA else None
    except Exception:
        return None  # it is sent as decoded


def _encoded(picture: Image.Image) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    if buffer.tell() <= MOST_ORIGINAL_BYTES:
        return "PNG", buffer.getvalue()
    smaller, buffer = picture.copy(), io.BytesIO()
    smaller.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    smaller.save(buffer, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return "JPEG", buffer.getvalue()


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{_MEDIA[kind]};base64,{base64.b64encode(data).decode()}"
