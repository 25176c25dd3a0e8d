"""How many rows go through a model at once: found once for a device, and fewer where its memory is short."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import canonical_json, digest_json
from plumbline.encoders.encoder import DualEncoder, PairEncoder
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache
from plumbline.storage.atomic import commit_bytes

if TYPE_CHECKING:
    import torch
    from upath import UPath

CPU_BATCH_ROWS = 64
"""On a CPU more rows at once gain nothing, and a fixed number keeps caches valid from machine to machine."""

FIRST_TRIAL, MOST_ROWS = 8, 2048
LEAST_GAIN = 1.05
_TIMED_PASSES = 3
_TRIAL_TEXTS = ("a photo of a person",) * 8
# What torch, its allocators and its libraries say when memory runs out, beside torch.OutOfMemoryError.
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")

Batch = TypeVar("Batch", bound=Any)


class FittingForward:
    """A forward pass that is cut into smaller ones where the device has not the memory for it.

    Parameters
    ----------
    forward : callable
        From a batch (a tensor or a list, cut along its rows), and what else it is given, to an array with as many
        rows.

    Attributes
    ----------
    passes : int
        Forward passes that went through.
    rows : int or None
        What a pass is limited to since memory ran out; None while every batch has fitted.
    """

    def __init__(self, forward: Callable[..., NDArray[np.float32]]) -> None:
        self._forward = forward
        self.passes = 0
        self.rows: int | None = None

    def __call__(self, batch: Batch, *given: Any) -> NDArray[np.float32]:
        """Return the rows of the whole batch, in order.

        Raises
        ------
        EncodingError
            If memory runs out with a single row.
        """
        return np.concatenate(list(self._parts(batch, given)))

    def _parts(self, batch: Batch, given: tuple[Any, ...]) -> Iterator[NDArray[np.float32]]:
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

    def _attempt(self, part: Batch, given: tuple[Any, ...]) -> NDArray[np.float32] | None:
        """Return the result, or None where memory ran out; by then what the failed pass held is free."""
        try:
            return self._forward(part, *given)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(part) == 1:
                raise _too_small(str(error).splitlines()[0]) from error
        _release_device_memory()
        return None


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether an error of torch means that memory ran out, on a device or on the CPU."""
    import torch

    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or any(word in words for word in _MEMORY_WORDS)


def plan_batch_rows(
    encoder: DualEncoder | PairEncoder,
    cache: ShardCache,
    wanted: int | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Return how many rows go through a model at once.

    The size is part of the key of a shard, so it must not change between a run and its resumption: on a CPU it is
    fixed, on another device it is measured once and kept beside the shards.

    Parameters
    ----------
    cache : ShardCache
        Under whose root the measured size is kept, for these weights, number type and device.
    wanted : int, optional
        Taken as it is. When absent: 64 on a CPU; else doubled from 8 until memory runs out, the gain in images a
        second is below 5%, or 2048 is reached.
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
        return CPU_BATCH_ROWS
    what = {k: v for k, v in asdict(encoder.identity).items() if k != "decoder"}
    what["device"] = device_name(encoder.device)
    path = cache.root / "batch-sizes" / f"{digest_json(what)}.json"
    kept = _kept_rows(path)
    if kept is not None:
        return kept
    rows = _measure(encoder, clock)
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


def _measure(encoder: DualEncoder | PairEncoder, clock: Callable[[], float]) -> int:
    """Double the batch while it pays; start lower where even the first does not fit."""
    rows = FIRST_TRIAL
    while (rate := _images_a_second(encoder, rows, clock)) is None:
        if rows == 1:
            raise _too_small(encoder.device)
        rows //= 2
    while FIRST_TRIAL <= rows < MOST_ROWS:
        doubled = _images_a_second(encoder, 2 * rows, clock)
        if doubled is None or doubled < LEAST_GAIN * rate:
            break
        rows, rate = 2 * rows, doubled
    return rows


def _images_a_second(
    encoder: DualEncoder | PairEncoder, rows: int, clock: Callable[[], float]
) -> float | None:
    """Return the best rate of some passes, or None where memory runs out."""
    from PIL import Image

    one = encoder.prepare(Image.new("RGB", (640, 480), (127, 127, 127)))
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
    _release_device_memory()
    return None


def _forward(encoder: DualEncoder | PairEncoder, batch: torch.Tensor) -> NDArray[np.float32]:
    if hasattr(encoder, "embed_images"):
        return encoder.embed_images(batch)
    return encoder.score_pairs(batch, _TRIAL_TEXTS)


def _too_small(found: str) -> EncodingError:
    return EncodingError(
        "the device has not the memory for a single row",
        found=found,
        expected="room for one image or text",
        hint="free the device of other programs, use bfloat16 there, or set `device: cpu`",
    )


def _release_device_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
