"""Batch sizes: measured once per device, and reduced after an out-of-memory error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.device import is_out_of_memory, release_device_memory
from plumbline.digests import canonical_json, digest_json
from plumbline.encoders.encoder import DualEncoder, PairEncoder
from plumbline.errors import EncodingError, PlumblineError
from plumbline.storage import ShardCache
from plumbline.storage.files import commit_bytes

if TYPE_CHECKING:
    import torch
    from upath import UPath

CPU_BATCH_ROWS, CPU_BATCH_SIDE = 64, 224
"""Rows on a CPU for images of up to this side in pixels: more at once gain nothing. Larger images, fewer rows, so that
the pixels of a batch and a model's activations stay about as many. Nothing is measured: caches stay valid from machine
to machine."""

FIRST_TRIAL, MOST_ROWS = 8, 2048
LEAST_GAIN = 1.05
_TIMED_PASSES = 3
_TRIAL_TEXTS = ("a photo of a person",) * 8

Batch = TypeVar("Batch", bound=Any)


class OomRetry:
    """A forward pass that is split into smaller ones when the device runs out of memory.

    Parameters
    ----------
    forward : callable
        From a batch (a tensor or a list, cut along its rows), and what else it is given, to an array with as many
        rows; for `parts`, to anything.
    rows : int, optional
        At most so many at once from the beginning.
    refusal : type of error
        What is raised where the memory is too small for a single row.

    Attributes
    ----------
    passes : int
        Forward passes that went through.
    rows : int or None
        What a pass is limited to: halved, for good, whenever memory runs out. None without a limit.
    """

    def __init__(
        self, forward: Callable[..., Any], rows: int | None = None, *, refusal: type[PlumblineError] = EncodingError
    ) -> None:
        self._forward, self._refusal = forward, refusal
        self.passes = 0
        self.rows = rows

    def __call__(self, batch: Batch, *given: Any) -> NDArray[np.float32]:
        """Return the rows of the whole batch, in order.

        Raises
        ------
        EncodingError
            If memory runs out with a single row.
        """
        return np.concatenate(list(self.parts(batch, *given)))

    def parts(self, batch: Batch, *given: Any) -> Iterator[Any]:
        """Yield the result of each pass, in order; raises as a call does."""
        done = 0
        while done < len(batch):
            part = batch[done : done + (self.rows or len(batch))]
            result = self._attempt(part, given)
            if result is None:
                self.rows = max(1, len(part) // 2)
                continue
            self.passes += 1
            done += len(part)
            yield result

    def _attempt(self, part: Batch, given: tuple[Any, ...]) -> Any:
        """Return the result, or None where memory ran out; by then what the failed pass held is free."""
        try:
            return self._forward(part, *given)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(part) == 1:
                raise _too_small(str(error).splitlines()[0], self._refusal) from error
        release_device_memory()
        return None


def plan_batch_rows(
    encoder: DualEncoder | PairEncoder,
    cache: ShardCache,
    wanted: int | None = None,
    *,
    shard_rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Return the batch size of a model, in rows.

    The size is part of the key of a shard, so it must not change between a run and its resumption: on a CPU it follows
    from the size of a prepared image, on another device it is measured once and kept beside the shards.

    Parameters
    ----------
    cache : ShardCache
        Under whose root the measured size is kept, for these weights, number type, device and rows of a shard.
    wanted : int, optional
        Taken as it is. When absent: on a CPU 64 for prepared images of up to 224 x 224 pixels, and the power of two
        that is in proportion for larger ones; else doubled from 8 until memory runs out, the gain in images a second
        is below 5%, or 2048 or `shard_rows` would be passed.
    shard_rows : int
        A batch never crosses a shard, so that a larger one is not tried.
    clock : callable
        Seconds.

    Raises
    ------
    EncodingError
        If the device has not the memory for a single image.
    """
    if wanted is not None:
        return wanted
    if encoder.device == "cpu":
        return _rows_on_cpu(*_blank(encoder).shape[-2:])
    most = min(shard_rows, MOST_ROWS)
    what: dict[str, Any] = {k: v for k, v in asdict(encoder.identity).items() if k != "decoder"}
    what |= {"device": device_name(encoder.device), "most_rows": most}
    path = cache.root / "batch-sizes" / f"{digest_json(what)}.json"
    kept = _kept_rows(path)
    if kept is not None:
        return kept
    rows = _measure(encoder, most, clock)
    commit_bytes(path, canonical_json({"batch_rows": rows, **what}).encode())
    return rows


def device_name(device: str) -> str:
    """Return the product name of an accelerator, such as `NVIDIA H100 80GB HBM3`."""
    import torch

    return torch.cuda.get_device_name(device)


def _kept_rows(path: UPath) -> int | None:
    try:
        rows = json.loads(path.read_text("utf-8"))["batch_rows"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return rows if isinstance(rows, int) and rows > 0 else None


def _rows_on_cpu(height: int, width: int) -> int:
    """Return the largest power of two, up to 64, with no more pixels than 64 images of 224 x 224 have."""
    rows = CPU_BATCH_ROWS * CPU_BATCH_SIDE**2 // (height * width)
    return 1 << (max(1, min(rows, CPU_BATCH_ROWS)).bit_length() - 1)


def _blank(encoder: DualEncoder | PairEncoder) -> torch.Tensor:
    """Return a grey picture as the encoder prepares it: what its batches are made of."""
    from PIL import Image

    return encoder.prepare(Image.new("RGB", (640, 480), (127, 127, 127)))


def _measure(encoder: DualEncoder | PairEncoder, most: int, clock: Callable[[], float]) -> int:
    """Double the batch while throughput improves; start lower where even the first does not fit."""
    rows = first = min(FIRST_TRIAL, most)
    while (rate := _images_a_second(encoder, rows, clock)) is None:
        if rows == 1:
            raise _too_small(encoder.device)
        rows //= 2
    while rows >= first and 2 * rows <= most:
        doubled = _images_a_second(encoder, 2 * rows, clock)
        if doubled is None or doubled < LEAST_GAIN * rate:
            break
        rows, rate = 2 * rows, doubled
    return rows


def _images_a_second(encoder: DualEncoder | PairEncoder, rows: int, clock: Callable[[], float]) -> float | None:
    """Return the best throughput of some passes, or None when memory runs out."""
    one = _blank(encoder)
    try:
        batch = one.expand(rows, *one.shape).contiguous()
        # The first pass of a shape compiles, picks kernels and reserves memory.
        _forward(encoder, batch)
        seconds = []
        for _ in range(_TIMED_PASSES):
            start = clock()
            _forward(encoder, batch)
            seconds.append(clock() - start)
        return rows / max(min(seconds), 1e-9)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    release_device_memory()
    return None


def _forward(encoder: DualEncoder | PairEncoder, batch: torch.Tensor) -> NDArray[np.float32]:
    if hasattr(encoder, "embed_images"):
        return encoder.embed_images(batch)
    return encoder.score_pairs(batch, _TRIAL_TEXTS)


def _too_small(found: str, refusal: type[PlumblineError] = EncodingError) -> PlumblineError:
    return refusal(
        "the device has not the memory for a single row",
        found=found,
        expected="room for one image or text",
        hint="free the device of other programs, use bfloat16 there, or set `device: cpu`",
    )
