"""Image files to batches of pixels: decoded by threads ahead of the model, each file proven to be the recorded one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.cores import usable_cores
from plumbline.digests import digest_bytes
from plumbline.encoders.encoder import Encoder
from plumbline.encoders.sharding import Span
from plumbline.errors import EncodingError, ImageRejected
from plumbline.images.decoding import decode, read_image_file

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

    def __post_init__(self) -> None:
        """Refuse lists of different lengths."""
        if len(self.paths) != len(self.image_ids):
            raise EncodingError(
                "every image needs a path and an id",
                found=f"{len(self.paths)} paths, {len(self.image_ids)} ids",
                expected="as many of both",
            )

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> bytes:
        """Return the bytes of one image.

        Raises
        ------
        EncodingError
            If the file cannot be read or is no longer the one that was recorded.
        """
        path, image_id = self.paths[row], self.image_ids[row]
        try:
            data = read_image_file(path)
        except ImageRejected as error:
            raise _unreadable(path, error) from error
        if (found := digest_bytes(data)) != image_id:
            raise EncodingError(
                "an image has changed since it was recorded",
                where=path,
                found=f"sha256 {found}",
                expected=f"sha256 {image_id}",
                hint="materialise `records` of this dataset again",
            )
        return data

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
            raise EncodingError(
                error.what,
                where=path if error.where is None else f"{path}: {error.where}",
                found=error.found,
                expected=error.expected,
                hint=error.hint,
            ) from error


def with_pillow(encoder: Encoder) -> Prepare:
    """Return what turns the bytes of a file into pixels as the checkpoint's own preprocessing does."""
    return lambda data: encoder.prepare(decode(data))


@contextmanager
def image_batches(
    files: ImageFiles,
    spans: Iterable[Span],
    prepare: Prepare,
    *,
    device: str,
    workers: int | None = None,
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
    return EncodingError(
        f"a recorded image can no longer be read: {error.what}",
        where=path,
        found=error.found,
        expected=error.expected,
        hint="materialise `records` of this dataset again",
    )
