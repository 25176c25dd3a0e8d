"""Reading ahead, decoding and preprocessing images for an encoder, and the gate for a faster decoder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.concurrency import usable_cores
from plumbline.digests import digest_sequence
from plumbline.encoders.batching import OomRetry
from plumbline.encoders.encoder import Crop, DualEncoder, Encoder, EncoderIdentity
from plumbline.encoders.sharding import Span
from plumbline.errors import EncodingError, ImageRejected
from plumbline.images.decoding import decode, plain_jpeg_size, read_recorded_image
from plumbline.imports import of_extra
from plumbline.storage import ShardCache
from plumbline.version import library_version

if TYPE_CHECKING:
    import torch

Prepare = Callable[[bytes], "torch.Tensor"]
# Batches that are decoded while one is in the model: bounds memory whatever the size of a shard.
DECODED_AHEAD = 2


@dataclass(frozen=True)
class ImageFiles:
    """Files and the sha256 of their bytes, in row order; a path may lead into a Parquet file.

    Attributes
    ----------
    paths, image_ids : sequences of length n
    """

    paths: Sequence[Path]
    image_ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> bytes:
        """Return the bytes of one image.

        Raises
        ------
        EncodingError
            If the file cannot be read or is no longer the one that was recorded.
        """
        try:
            return read_recorded_image(self.paths[row], self.image_ids[row])
        except ImageRejected as error:
            raise _unreadable(self.paths[row], error) from error

    def pixels(self, row: int, prepare: Prepare) -> torch.Tensor:
        """Return one image as `prepare` gives it.

        Raises
        ------
        EncodingError
            If the file cannot be read or decoded, is no longer the one that was recorded, or the preprocessing
            cannot take the picture; names the file.
        """
        data, path = self.read(row), self.paths[row]
        try:
            return prepare(data)
        except ImageRejected as error:
            raise _unreadable(path, error) from error
        except EncodingError as error:
            # The preprocessing knows the picture, not where it came from.
            where = path if error.where is None else f"{path}: {error.where}"
            raise error.restated(EncodingError, where=where) from error


def with_pillow(encoder: Encoder) -> Prepare:
    """Return what turns the bytes of a file into pixels as the checkpoint's own preprocessing does."""
    return lambda data: encoder.prepare(decode(data))


@contextmanager
def image_batches(
    files: ImageFiles, spans: Iterable[Span], prepare: Prepare, *, device: str, workers: int | None = None
) -> Iterator[Iterator[torch.Tensor]]:
    """Decode batches of rows in threads, in order and a bounded number of batches ahead.

    On leaving, what is still waiting is given up.

    Parameters
    ----------
    spans : iterable of Span
        Rows of each batch.
    prepare : callable
        From the bytes of a file to a (3, h, w) tensor; called from several threads.
    device : str
        For a CUDA device the batches are stacked in pinned memory, from which they are copied without waiting.
    workers : int, optional
        Threads that decode; one for each core of this process when absent.

    Yields
    ------
    iterator of (b, 3, h, w) tensors on the CPU

    Raises
    ------
    EncodingError
        While iterating: see `ImageFiles.pixels`.
    """
    pinned = device.startswith("cuda")
    decoders = ThreadPoolExecutor(workers or usable_cores(), thread_name_prefix="decode")
    # Copying rows together takes as long as decoding some of them: not in the thread that feeds the model.
    stacker = ThreadPoolExecutor(1, thread_name_prefix="stack")

    def stacked(rows: list[Future[torch.Tensor]]) -> torch.Tensor:
        return _stack([row.result() for row in rows], pinned=pinned)

    def batches() -> Iterator[torch.Tensor]:
        ahead: deque[Future[torch.Tensor]] = deque()
        for span in spans:
            rows = [decoders.submit(files.pixels, row, prepare) for row in range(span.start, span.stop)]
            ahead.append(stacker.submit(stacked, rows))
            if len(ahead) > DECODED_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    try:
        yield batches()
    finally:
        # The decoders first: a stacker that waits for a row that was given up then ends as well.
        decoders.shutdown(cancel_futures=True)
        stacker.shutdown(cancel_futures=True)


def _stack(rows: list[torch.Tensor], *, pinned: bool) -> torch.Tensor:
    import torch

    if not pinned:
        return torch.stack(rows)
    batch = torch.empty((len(rows), *rows[0].shape), dtype=rows[0].dtype, pin_memory=True)
    return torch.stack(rows, out=batch)


def _unreadable(path: Path, error: ImageRejected) -> EncodingError:
    before, hint = "a recorded image can no longer be read: ", "materialise `records` of this dataset again"
    return error.restated(EncodingError, before, where=path, hint=hint)


# A faster way from JPEG files to pixels.

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
    to a checkpoint is what `plumbline.encoders.images` asks.

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
        torch_version = library_version("torch").split("+")[0]
        self.name = f"simplejpeg-{library_version('simplejpeg')}/torch-{torch_version}/{encoder.identity.decoder}"

    def __call__(self, data: bytes) -> torch.Tensor:
        """Return (3, h, w) uint8 pixels; raises ImageRejected where Pillow's way does."""
        pixels = self._decoded(data)
        return self._own_way(data) if pixels is None else pixels

    def takes(self, data: bytes) -> bool:
        """Tell whether a file goes the fast way, by doing so."""
        return self._decoded(data) is not None

    def _decoded(self, data: bytes) -> torch.Tensor | None:
        """Return the pixels of a plain JPEG, or None for any other file."""
        size = plain_jpeg_size(data)
        if size is None or _is_turned(data):
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

    def _resized(self, pixels: NDArray[np.uint8], covered: tuple[float, float], size: tuple[int, int]) -> torch.Tensor:
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
    return of_extra("simplejpeg", "fast", instead="set `engine.decoder: pillow` in the audit file")


# The proof that a checkpoint's embeddings stay the same where the fast decoder reads the images.

GATE_IMAGES = 32
MOST_LOOKED_AT = 512
"""Files among which those for the gate are searched: a dataset without plain JPEG files is not read to its end."""

LEAST_COSINE = 0.9999


@dataclass(frozen=True)
class DecoderGate:
    """Agreement of embeddings from the fast decoder with those of the checkpoint's own preprocessing.

    Attributes
    ----------
    decoder : str
        Name of the fast decoder.
    images : int
        Images that were embedded both ways: the first of the dataset that go the fast way, at most 32.
    looked_at : int
        Files at the start of the dataset among which these were searched, at most 512.
    least_cosine : float or None
        The smallest cosine of the two embeddings of an image; None where no image goes the fast way.
    worst : str or None
        That image's path.
    """

    decoder: str
    images: int
    looked_at: int
    least_cosine: float | None
    worst: str | None

    @property
    def used(self) -> bool:
        """Return whether the dataset is decoded the fast way: not without a file to prove it on."""
        return self.images > 0

    def counters(self) -> dict[str, int | float]:
        """Return the numbers, for metadata; `fast_decoder_used` is 0 or 1."""
        cosine = {} if self.least_cosine is None else {"decoder_gate_least_cosine": self.least_cosine}
        return {
            "fast_decoder_used": int(self.used),
            "decoder_gate_images": self.images,
            "decoder_gate_looked_at": self.looked_at,
            **cosine,
        }


def require_equal_embeddings(
    encoder: DualEncoder, fast: FastDecoder, files: ImageFiles, cache: ShardCache, forward: OomRetry
) -> DecoderGate:
    """Embed the first images of a dataset both ways and refuse the fast decoder where they differ.

    Which images those are is kept in the cache by the files that were searched, and the cosines by these images and
    everything else that they depend on: an image that is added to the dataset costs another search at most. Where no
    file goes the fast way, the gate says that the fast decoder is not to be used.

    Parameters
    ----------
    forward : OomRetry
        The encoder's image pass.

    Returns
    -------
    DecoderGate

    Raises
    ------
    EncodingError
        If a cosine is below 0.9999 or not a number; names the worst file.
    """
    identity = replace(encoder.identity, decoder=fast.name)
    most = min(len(files), MOST_LOOKED_AT)
    rows = _candidates(identity, fast, files, most, cache)
    looked_at = rows[-1] + 1 if len(rows) == GATE_IMAGES else most
    if not rows:
        return DecoderGate(fast.name, 0, looked_at, None, None)
    inputs = digest_sequence([files.image_ids[row] for row in rows])
    key = identity.cache_key("decoder gate", inputs=inputs, batch_rows=GATE_IMAGES)
    shard = cache.load(key)
    if shard is None:
        cosine = _cosines(encoder, fast, files, rows, forward)
        details = {"rows": len(rows), "device": encoder.device}
        shard = cache.commit(key, {"cosine": cosine}, details=details)
    cosines = shard.arrays["cosine"]
    # A cosine that is not a number comes first.
    worst = int(np.argmin(np.nan_to_num(cosines, nan=-np.inf)))
    least, path = float(cosines[worst]), str(files.paths[rows[worst]])
    if not least >= LEAST_COSINE:
        raise EncodingError(
            "the fast decoder moves the embeddings of this encoder",
            where=path,
            found=f"cosine {least:.6f} between the embeddings of its two decodings",
            expected=f"at least {LEAST_COSINE} on each of {len(rows)} images",
            hint="set `decoder: pillow`",
        )
    return DecoderGate(fast.name, len(rows), looked_at, least, path)


def _candidates(
    identity: EncoderIdentity, fast: FastDecoder, files: ImageFiles, most: int, cache: ShardCache
) -> list[int]:
    """Return the rows of the first files, among so many, that go the fast way."""
    inputs = digest_sequence(files.image_ids[:most])
    key = identity.cache_key("decoder candidates", inputs=inputs, batch_rows=GATE_IMAGES)
    shard = cache.load(key)
    if shard is None:
        fitting = (row for row in range(most) if fast.takes(files.read(row)))
        arrays = {"row": np.fromiter(islice(fitting, GATE_IMAGES), np.int64)}
        shard = cache.commit(key, arrays, details={"looked_at_most": most})
    rows: list[int] = shard.arrays["row"].tolist()
    return rows


def _cosines(
    encoder: DualEncoder, fast: FastDecoder, files: ImageFiles, rows: Sequence[int], forward: OomRetry
) -> NDArray[np.float64]:
    """Return the cosine of the two embeddings of each of the images, (n,)."""
    import torch

    a, b = (
        forward(torch.stack([files.pixels(row, way) for row in rows])).astype(np.float64)
        for way in (with_pillow(encoder), fast)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine: NDArray[np.float64] = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return cosine
