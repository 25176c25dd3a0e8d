"""Image files to pixels: what can be decoded right is, everything else is refused with a reason.

Accepted are JPEG, PNG and WEBP, recognised by content. Decoding applies the EXIF orientation, composites alpha on
white, and converts CMYK, palettes, grey and 16-bit values to 8-bit RGB. Damage that the JPEG decoder repairs in silence
(bytes changed inside the picture, nothing missing) cannot be seen here.
"""

from __future__ import annotations

import io
import math
import os
import stat
import struct
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np
from PIL import Image, ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from plumbline.digests import digest_bytes
from plumbline.errors import DatasetError, ImageRejected
from plumbline.images.jpeg import whole_scan
from plumbline.images.parquet import lies_in_parquet, names_row, read_row_image
from plumbline.images.tars import read_member, split_tar_path

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
        actual, expected = f"key {clear}", "an alpha channel or 8-bit colours"
        raise ImageRejected("unsupported_format", "16-bit colour with a clear colour", found=actual, expected=expected)
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


# --- Image files to pixels

DECODING_VERSION = 1
"""Part of every encoder's identity. Raise it with any change of this module or of `upright_rgb` that gives an accepted
image other pixels (the EXIF turn, alpha on white, 16 bits to 8, the conversion to RGB): cached results of other pixels
are then left aside. What a new Pillow changes is seen by Pillow's own version.
"""

MAX_PIXELS = 89_478_485
"""A quarter of a GiB of RGB: where Pillow warns of a decompression bomb, here it is an error."""

MAX_FILE_BYTES = 1 << 28
MIN_SIDE = 2
MOST_SIDES = 200
"""Longer side over shorter, at most: a model scales the shorter one to hundreds of pixels, and the longer with it."""


class _Jpeg(JpegImageFile):
    """A JPEG whose EXIF block is not searched for a resolution: of no use here, and it warns when damaged."""

    def _read_dpi_from_exif(self) -> None:
        """Leave the resolution unknown."""


# The plug-ins themselves, not Image.open: it would warn of bombs through the process-wide warning filters,
# which threads cannot change safely, and would read a JPEG with several pictures as another format.
_PLUGINS: dict[str, type[ImageFile.ImageFile]] = {"JPEG": _Jpeg, "PNG": PngImageFile, "WEBP": WebPImageFile}
SUFFIXES = {"JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"), "PNG": (".png",), "WEBP": (".webp",)}
"""Accepted format, to the extensions that its files may have, in small or capital letters."""

_OTHER_FORMATS = {b"GIF8": "GIF", b"BM": "BMP", b"II*\0": "TIFF", b"MM\0*": "TIFF", b"%PDF": "PDF"}
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
# Beyond this the decoder gives up, although the format has room for 65,535.
_LONGEST_JPEG_SIDE = 65_500
_ACCEPTED = "JPEG, PNG or WEBP"


# Decoding one picture takes up to 20 bytes a pixel for a moment: 4 GB for two of the largest, however many threads.
_LARGE_PIXELS = 1 << 22
_LARGE = threading.Semaphore(2)


def _room(image: Image.Image) -> AbstractContextManager[object]:
    """Return what to hold while a picture is decoded: of large ones no more than two are, over all threads."""
    return _LARGE if image.width * image.height > _LARGE_PIXELS else nullcontext()


def decode(source: Path | str | bytes, *, suffix: str | None = None) -> Image.Image:
    """Decode one image to upright 8-bit RGB.

    Parameters
    ----------
    source : Path, str or bytes
        A file, whose extension must then agree with its content, or the bytes of one.
    suffix : str, optional
        With bytes: the extension of the file they came from, such as `.jpg`, to be compared with the content.

    Returns
    -------
    PIL.Image.Image
        Mode RGB, at least 2 by 2 pixels, without metadata, so that nothing downstream turns it a second time.

    Raises
    ------
    ImageRejected
        With `code` one of `missing_file`, `not_a_file`, `unreadable`, `file_too_large`, `empty_file`,
        `not_an_image`, `unsupported_format`, `wrong_extension`, `decompression_bomb`, `too_small`,
        `animated`, `truncated`, `corrupt`.
    """
    data, suffix = _bytes_and_suffix(source, suffix)
    image = _opened(data, suffix)
    with _room(image):
        try:
            image.load()
            rgb = upright_rgb(image)
        except Exception as error:
            _refuse(error)
    rgb.info = {}
    return rgb


def check(source: Path | str | bytes, *, suffix: str | None = None) -> None:
    """Refuse exactly what `decode` refuses, without making the full picture.

    A JPEG of the plain kind is judged by its structure, at the speed of hashing it. Any other is read to its end
    but turned into pixels at an eighth of its size, in half of the time. Of PNG and WEBP all pixels are decoded once,
    in the file's own mode.

    Parameters
    ----------
    source : Path, str or bytes
        As for `decode`.
    suffix : str, optional
        With bytes: the extension of the file they came from, such as `.jpg`, to be compared with the content.

    Raises
    ------
    ImageRejected
        As `decode` does.
    """
    data, suffix = _bytes_and_suffix(source, suffix)
    _require_strict_pillow()
    named_jpeg = suffix is None or suffix.lower() in SUFFIXES["JPEG"]
    if not named_jpeg or plain_jpeg_size(data) is None:
        _check_decoded(data, suffix)


def _check_decoded(data: bytes, suffix: str | None) -> None:
    image = _opened(data, suffix)
    with _room(image):
        try:
            image.draft(image.mode, (1, 1))
            image.load()
            # What can still be refused depends on the mode and what the header says, never on the pixels: one will do.
            upright_rgb(image.crop((0, 0, 1, 1)))
        except Exception as error:
            _refuse(error)


def read_image_file(path: Path | str, *, follow: bool = True) -> bytes:
    """Return a file's bytes, or those of a picture in a Parquet file (`FILE.parquet/ROW`) or tar (`FILE.tar/NAME`).

    Parameters
    ----------
    follow : bool
        Whether `path` may be a link; if not, one is `unreadable`.

    Raises
    ------
    ImageRejected
        `missing_file`, `not_a_file` (a folder, a pipe, a device), `unreadable` or `file_too_large`; of a
        Parquet file also `corrupt` and `not_an_image`.
    """
    try:
        if lies_in_parquet(path):
            return read_row_image(Path(path), max_bytes=MAX_FILE_BYTES)
        if (in_tar := split_tar_path(path)) is not None:
            return read_member(*in_tar, max_bytes=MAX_FILE_BYTES)
        # A pipe is not waited for. As few system calls as can be: this runs once a file.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise ImageRejected("not_a_file", "the path is not a plain file", expected="a plain file")
            if about.st_size > MAX_FILE_BYTES:
                actual, limit = f"{about.st_size} bytes", f"at most {MAX_FILE_BYTES} bytes"
                raise ImageRejected(
                    "file_too_large", "the file is too large for an image", found=actual, expected=limit
                )
            data = os.read(descriptor, about.st_size + 1)
        finally:
            os.close(descriptor)
        # Some file systems give less at once.
        return data if len(data) == about.st_size else Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ImageRejected("missing_file", "the listed file does not exist", expected="a file") from error
    except (OSError, ValueError) as error:
        actual = getattr(error, "strerror", None) or str(error)
        raise ImageRejected(
            "unreadable", "the file cannot be read", found=actual, expected="a readable file"
        ) from error


def read_recorded_image(path: Path, image_id: str) -> bytes:
    """Return the bytes of an image of a dataset, which must still be those that were recorded.

    Parameters
    ----------
    path : Path
        As for `read_image_file`.
    image_id : str
        The sha256 that was recorded.

    Raises
    ------
    ImageRejected
        As `read_image_file` does; `changed` where the file has another sha256.
    """
    data = read_image_file(path)
    if (sha256 := digest_bytes(data)) != image_id:
        raise ImageRejected(
            "changed",
            "the file has changed since it was recorded, it is no longer the one in `records`",
            found=f"sha256 {sha256}, another than when its dataset was read",
            expected=f"sha256 {image_id}",
            hint="materialise `records` of this dataset again",
        )
    return data


def suffix_of(path: str) -> str | None:
    """Return the extension that a file's content must agree with, maybe empty; None for a row of a Parquet file."""
    if suffix := os.path.splitext(path)[1]:  # noqa: PTH122  (a Path for every file costs as much as its hash)
        return suffix
    return None if names_row(path) else PurePosixPath(path).suffix


def _bytes_and_suffix(source: Path | str | bytes, suffix: str | None) -> tuple[bytes, str | None]:
    if isinstance(source, bytes):
        return source, suffix
    return read_image_file(Path(source)), suffix_of(str(source)) if suffix is None else suffix


def plain_jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a JPEG that `decode` must accept; None for anything that it has to judge."""
    scan = whole_scan(data)
    sound = (
        scan is not None
        and min(scan.size) >= MIN_SIDE
        and math.prod(scan.size) <= MAX_PIXELS
        and max(scan.size) <= MOST_SIDES * min(scan.size)
        and max(scan.size) <= _LONGEST_JPEG_SIDE
        and _blank_accepted(scan.blank)
    )
    return scan.size if scan is not None and sound else None


@lru_cache(maxsize=128)
def _blank_accepted(blank: bytes) -> bool:
    try:
        _Jpeg(io.BytesIO(blank)).load()
    except Exception:
        return False
    return True


def _require_strict_pillow() -> None:
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise DatasetError(
            "Pillow was told to accept truncated images, so grey halves would count as pictures",
            where="PIL.ImageFile.LOAD_TRUNCATED_IMAGES",
            found=True,
            expected=False,
            hint="set it back to False where it was changed",
        )


def _opened(data: bytes, suffix: str | None) -> ImageFile.ImageFile:
    """Read the header and refuse what its words already exclude; no pixel is decoded yet."""
    _require_strict_pillow()
    kind = _kind(data)
    if suffix is not None and suffix.lower() not in SUFFIXES[kind]:
        actual, expected = f"{suffix or 'no extension'} on a {kind} file", " ".join(SUFFIXES[kind])
        raise ImageRejected("wrong_extension", "the extension contradicts the content", found=actual, expected=expected)
    try:
        if kind == "PNG":
            # Loading alone checks no checksums and does not miss an absent end.
            if _PNG_END not in data:
                raise EOFError("no IEND chunk")
            PngImageFile(io.BytesIO(data)).verify()
        image = _PLUGINS[kind](io.BytesIO(data))
    except Exception as error:
        _refuse(error)
    _refuse_by_header(image)
    return image


def _kind(data: bytes) -> str:
    if not data:
        raise ImageRejected("empty_file", "the file is empty", found="0 bytes", expected=_ACCEPTED)
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    for signature, name in _OTHER_FORMATS.items():
        if data.startswith(signature):
            raise ImageRejected("unsupported_format", "the format is not accepted", found=name, expected=_ACCEPTED)
    actual = f"bytes {data[:8].hex(' ')}"
    raise ImageRejected("not_an_image", "the content is not an image", found=actual, expected=_ACCEPTED)


def _refuse_by_header(image: ImageFile.ImageFile) -> None:
    width, height = image.size
    actual = f"{width} × {height} pixels"
    if width * height > MAX_PIXELS:
        limit = f"at most {MAX_PIXELS} pixels"
        raise ImageRejected("decompression_bomb", "the picture is too large", found=actual, expected=limit)
    if min(width, height) < MIN_SIDE:
        limit = f"at least {MIN_SIDE} × {MIN_SIDE}"
        raise ImageRejected("too_small", "the picture is too small to show anything", found=actual, expected=limit)
    if max(width, height) > MOST_SIDES * min(width, height):
        limit = f"a longer side of at most {MOST_SIDES} times the shorter"
        raise ImageRejected("decompression_bomb", "the picture is too narrow", found=actual, expected=limit)
    if getattr(image, "is_animated", False):
        frames = f"{getattr(image, 'n_frames', 'several')} frames"
        raise ImageRejected("animated", "the file holds an animation", found=frames, expected="one picture")


def _refuse(error: Exception) -> NoReturn:
    """Turn whatever damaged bytes made the decoder raise into a reason."""
    if isinstance(error, MemoryError | ImageRejected):
        raise error
    if isinstance(error, Image.DecompressionBombError):
        limit = f"at most {MAX_PIXELS} pixels"
        raise ImageRejected(
            "decompression_bomb", "the picture is too large", found=str(error), expected=limit
        ) from error
    actual = str(error) or type(error).__name__
    if "truncated" in actual.lower() or isinstance(error, EOFError):
        raise ImageRejected("truncated", "the file ends too early", found=actual, expected="a whole file") from error
    raise ImageRejected("corrupt", "the picture does not decode", found=actual, expected="a sound file") from error
