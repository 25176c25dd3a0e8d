"""A faster way from JPEG files to pixels, used only where `decoder_gate` proves that embeddings stay the same."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.encoder import Crop, Encoder
from plumbline.encoders.image_batches import with_pillow
from plumbline.errors import EncodingError
from plumbline.images.decoding import MAX_PIXELS, MIN_SIDE
from plumbline.images.jpeg_structure import plain_size

if TYPE_CHECKING:
    import torch

# A JPEG can be decoded at a half, a quarter or an eighth of its size for nearly nothing; what is left for the
# antialiased resize must still be twice the wanted size, or it would soften the picture.
_REDUCTIONS, _SPARE_DETAIL = (8, 4, 2), 2
# Where the crop is found out, a pixel's position is written into two bytes of its colour.
_MOST_POSITIONS = 1 << 16
_SCAN, _APPLICATION_1 = 0xDA, 0xE1
# Entries of an EXIF directory in both byte orders: tag 0x0112, type short, then one value, 1: upright.
_ORIENTATION = (b"\x12\x01\x03\x00", b"\x01\x12\x00\x03")
_UPRIGHT = (b"\x12\x01\x03\x00\x01\x00\x00\x00\x01\x00", b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x01")


class FastDecoder:
    """From the bytes of a file to `prepare`d pixels, by simplejpeg and torch where the file is a plain JPEG.

    Plain is a baseline JPEG, grey or YCbCr, that no EXIF entry turns; every other file goes the checkpoint's own
    way. The crop is the checkpoint's own in either case. Pixels differ by two grey levels at most. A large image is
    shrunk while it is decoded, by 2, 4 or 8, and then resized from at least twice the wanted size: photographs were
    seen to differ there by three grey levels at most, and by a third of one on average. Whether that matters
    to a checkpoint is what `plumbline.encoders.decoder_gate` asks.

    Parameters
    ----------
    encoder : Encoder
        Its `crop` must say that its preprocessing is a resize of the shorter side and a central crop.

    Attributes
    ----------
    name : str
        For `EncoderIdentity.decoder`.

    Raises
    ------
    EncodingError
        If the encoder's preprocessing is another, or simplejpeg is not installed.
    """

    def __init__(self, encoder: Encoder) -> None:
        if encoder.crop is None:
            raise EncodingError(
                "the fast decoder cannot stand in for this encoder's preprocessing",
                found=f"family {encoder.family}: more than a resize of the shorter side and a central crop",
                expected="an encoder with such a preprocessing, as CLIP has",
                hint="set `decoder: pillow`",
            )
        self._jpeg: Any = _simplejpeg()
        self._crop: Crop = encoder.crop
        self._encoder, self._own_way = encoder, with_pillow(encoder)
        self._corners: dict[tuple[int, int], tuple[int, int]] = {}
        self.name = (
            f"simplejpeg-{version('simplejpeg')}/torch-{version('torch').split('+')[0]}/"
            f"{encoder.identity.decoder}"
        )

    def __call__(self, data: bytes) -> torch.Tensor:
        """Return (3, h, w) uint8 pixels; raises ImageRejected where Pillow's way does."""
        pixels = self._decoded(data)
        return self._own_way(data) if pixels is None else pixels

    def takes(self, data: bytes) -> bool:
        """Tell whether a file goes the fast way, by doing so."""
        return self._decoded(data) is not None

    def _decoded(self, data: bytes) -> torch.Tensor | None:
        """Return the pixels of a plain JPEG, or None for any other file."""
        size = plain_size(data)
        if size is None or min(size) < MIN_SIDE or size[0] * size[1] > MAX_PIXELS or _is_turned(data):
            return None
        width, height = size
        long = int(self._crop.size * max(size) / min(size))
        if long >= _MOST_POSITIONS:
            return None
        factor = self._reduction(min(size))
        try:
            if self._jpeg.decode_jpeg_header(data)[2] not in ("YCbCr", "Gray"):
                return None
            pixels = self._jpeg.decode_jpeg(
                data, colorspace="RGB", min_height=-(-height // factor), min_width=-(-width // factor)
            )
        except ValueError:
            # Damaged inside: whether it is still a picture is for Pillow to say.
            return None
        target = (self._crop.size, long) if height <= width else (long, self._crop.size)
        covered = (height / factor, width / factor)
        return self._cropped(self._resized(pixels, covered, target))

    def _reduction(self, shorter: int) -> int:
        """Return by how much the JPEG decoder itself may shrink an image."""
        spared = _SPARE_DETAIL * self._crop.size
        return next((factor for factor in _REDUCTIONS if shorter // factor >= spared), 1)

    def _resized(
        self, pixels: NDArray[np.uint8], covered: tuple[float, float], size: tuple[int, int]
    ) -> torch.Tensor:
        """Resize what the picture covers of the pixels: the last row and column of a shrunk one are partly beyond."""
        import torch
        from torch.nn.functional import interpolate

        image = torch.from_numpy(pixels).permute(2, 0, 1)
        if image.shape[1:] == size:
            return image
        options: dict[str, Any] = {
            "mode": self._crop.interpolation, "align_corners": False, "antialias": True,
        }  # fmt: skip
        if image.shape[1:] == covered:
            return interpolate(image[None], size=size, **options)[0]
        # A hair more, since torch rounds the new size down; what lies beyond the picture is cut off.
        scale = [(side + 1e-6) / part for side, part in zip(size, covered, strict=True)]
        resized = interpolate(image[None], scale_factor=scale, recompute_scale_factor=False, **options)[0]
        return resized[:, : size[0], : size[1]]

    def _cropped(self, image: torch.Tensor) -> torch.Tensor:
        shape, side = (int(image.shape[1]), int(image.shape[2])), self._crop.size
        if shape not in self._corners:
            # Two threads may both find it out; they find the same.
            self._corners[shape] = self._corner(shape)
        top, left = self._corners[shape]
        return image[:, top : top + side, left : left + side].contiguous()

    def _corner(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return where the encoder's own crop of a resized image begins, found out on an image of positions.

        Libraries round the middle of an odd margin differently.
        """
        from PIL import Image

        positions = np.zeros((*shape, 3), dtype=np.uint8)
        along = np.arange(max(shape)).reshape((1, -1) if shape[0] <= shape[1] else (-1, 1))
        positions[..., 0], positions[..., 1] = along % 256, along // 256
        kept = self._encoder.prepare(Image.fromarray(positions)).numpy()
        first = int(kept[0, 0, 0]) + 256 * int(kept[1, 0, 0])
        top, left = (0, first) if shape[0] <= shape[1] else (first, 0)
        expected = positions[top : top + self._crop.size, left : left + self._crop.size].transpose(2, 0, 1)
        if not np.array_equal(kept, expected):
            raise EncodingError(
                "the encoder does more to an image of the right size than to crop it",
                found=f"family {self._encoder.family}, an image of {shape[1]} × {shape[0]} pixels",
                expected=f"its central {self._crop.size} × {self._crop.size} pixels as they are",
                hint="set `decoder: pillow`",
            )
        return top, left


def _is_turned(data: bytes) -> bool:
    """Tell whether the EXIF block of a JPEG may say that the picture lies on its side; sound structure assumed."""
    position, exif = 2, b""
    while data[position + 1] != _SCAN:
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4])
        if data[position + 1] == _APPLICATION_1:
            exif += data[position + 4 : end]
        position = end
    return sum(map(exif.count, _ORIENTATION)) > sum(map(exif.count, _UPRIGHT))


def _simplejpeg() -> Any:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError as error:
        raise EncodingError(
            "the fast decoder needs the package simplejpeg",
            found="not installed",
            expected="simplejpeg",
            hint="pip install -c constraints.txt -e '.[fast]', or set `decoder: pillow`",
        ) from error
