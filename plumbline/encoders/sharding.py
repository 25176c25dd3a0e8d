"""Shards: how rows are split, which shards are cached, and how missing ones are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.batching import OomRetry
from plumbline.errors import EncodingError
from plumbline.storage import ShardCache

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with (rows done, rows to do) of this run: what the cache had is neither, so that a rate is of work."""


class Span(NamedTuple):
    """Rows from `start` up to `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def of(self, values: Sequence[T]) -> Sequence[T]:
        """Return the entries of a sequence over all rows that belong to these."""
        return values[self.start : self.stop]

    def pieces(self, rows: int) -> Iterator[Span]:
        """Yield the span in pieces of at most `rows`, in order."""
        for start in range(self.start, self.stop, rows):
            yield Span(start, min(start + rows, self.stop))


@dataclass(frozen=True)
class ShardPlan:
    """How rows are split: into shards, which are cached, and those into batches, which go through the model.

    A batch never crosses a shard, so that a resumed run repeats at most one shard and gives the same bits.

    Attributes
    ----------
    rows, shard_rows, batch_rows : int
    """

    rows: int
    shard_rows: int
    batch_rows: int

    def shards(self) -> list[Span]:
        """Return the rows of each shard."""
        return list(Span(0, self.rows).pieces(self.shard_rows))

    def batches(self, shard: Span) -> list[Span]:
        """Return the rows of each batch of a shard."""
        return list(shard.pieces(self.batch_rows))


@dataclass(frozen=True)
class CacheStats:
    """How much of a call was computed, and how much was cached.

    Attributes
    ----------
    forward_passes : int
        Batches that went through the model now; 0 when everything was found in the cache.
    computed_shards, cached_shards, repaired_shards : int
        `repaired` counts the computed ones that were in the cache but failed their checksum.
    fitting_rows : int or None
        Rows of a pass after memory ran out on the device; None where the planned ones fitted.
    """

    forward_passes: int
    computed_shards: int
    cached_shards: int
    repaired_shards: int
    fitting_rows: int | None = None

    @classmethod
    def of(cls, arrays: Sequence[ShardedArray], forward: OomRetry) -> CacheStats:
        """Sum over arrays that were looked up and filled."""
        computed = sum(len(array.missing) for array in arrays)
        cached = sum(len(array.keys) for array in arrays) - computed
        return cls(forward.passes, computed, cached, sum(array.repaired for array in arrays), forward.rows)

    @classmethod
    def together(cls, calls: Sequence[CacheStats]) -> CacheStats:
        """Sum over calls of the engine; none give zeros."""
        fitting = [each.fitting_rows for each in calls if each.fitting_rows is not None]
        return cls(
            forward_passes=sum(each.forward_passes for each in calls),
            computed_shards=sum(each.computed_shards for each in calls),
            cached_shards=sum(each.cached_shards for each in calls),
            repaired_shards=sum(each.repaired_shards for each in calls),
            fitting_rows=min(fitting, default=None),
        )

    def counters(self) -> dict[str, int]:
        """Return the numbers, for metadata."""
        return {name: count for name, count in vars(self).items() if count is not None}


class ShardedArray:
    """The shards of one result in row order: cached, or still to be computed.

    Rows lie in one array from the beginning, into which each shard is read or computed: all shards beside it would
    hold them twice, and what is freed of so many blocks the allocator keeps.

    Attributes
    ----------
    name : str
        Of the array in each shard.
    width : int
        Its columns.
    keys : list of str
        Cache key of each shard.
    missing : list of int
        Positions of the shards that were not in the cache, or are damaged there.
    repaired : int
        How many of these were committed once.
    """

    def __init__(
        self, name: str, width: int, plan: ShardPlan, key_of: Callable[[Span], str], cache: ShardCache
    ) -> None:
        self._spans = plan.shards()
        self.name, self.width, self.keys = name, width, [key_of(span) for span in self._spans]
        self._rows = np.empty((plan.rows, width), dtype=np.float32)
        self._digests: dict[int, str] = {}
        for i, key in enumerate(self.keys):
            if (shard := cache.load(key)) is not None:
                self._put(i, shard.arrays[name], shard.sha256)
        self.missing = [i for i in range(len(self.keys)) if i not in self._digests]
        self.repaired = sum(cache.is_listed(self.keys[i]) for i in self.missing)

    def commit(self, position: int, rows: NDArray[np.float32], cache: ShardCache, details: Mapping[str, Any]) -> None:
        """Store the rows of a missing shard."""
        shard = cache.commit(self.keys[position], {self.name: np.ascontiguousarray(rows)}, details=details)
        self._put(position, rows, shard.sha256)

    def _put(self, position: int, rows: NDArray[np.float32], sha256: str) -> None:
        start, stop = self._spans[position]
        self._rows[start:stop] = rows
        self._digests[position] = sha256

    @property
    def shards(self) -> tuple[tuple[str, str], ...]:
        """Return (key, sha256) of every shard; all must be there by now."""
        return tuple((key, self._digests[i]) for i, key in enumerate(self.keys))

    @property
    def array(self) -> NDArray[np.float32]:
        """Return the (n, width) rows of all shards, which must be there by now."""
        if len(self._digests) < len(self.keys):
            raise KeyError(f"{len(self.keys) - len(self._digests)} shards of `{self.name}` are not there yet")
        return self._rows


def fill(
    arrays: Sequence[ShardedArray],
    plan: ShardPlan,
    cache: ShardCache,
    *,
    batches: Callable[[list[Span]], AbstractContextManager[Iterator[Any]]],
    forward: Callable[[Any, list[int]], NDArray[np.float32]],
    refuse: Callable[[NDArray[np.float32], Span, list[int]], None],
    device: str,
    progress: Progress | None = None,
) -> None:
    """Compute the shards that are missing, commit each, and put it into its row.

    Parameters
    ----------
    arrays : sequence of ShardedArray
        Results that come out of the same passes over a shard's rows, those that lack the shard.
    batches : callable
        From the rows of each batch to a context with the batches in order: one stream over all missing shards, so
        that the next is being decoded while one is written.
    forward : callable
        From a batch, and the positions in `arrays` of the results that lack it, to an array with as many rows and
        the columns of these results, one after the other.
    refuse : callable
        Raises where such rows of a shard, of a span, must not be kept.
    device : str
        For the details of a shard.
    progress : callable, optional
    """
    spans = plan.shards()
    missing = [set(array.missing) for array in arrays]
    lacking = {i: [r for r, shards in enumerate(missing) if i in shards] for i in range(len(spans))}
    pieces = {i: plan.batches(spans[i]) for i, without in lacking.items() if without}
    done, to_do = 0, sum(len(spans[i]) for i in pieces)
    with batches([piece for of_shard in pieces.values() for piece in of_shard]) as stream:
        for i, of_shard in pieces.items():
            blocks: list[NDArray[np.float32]] = []
            for _ in of_shard:
                blocks.append(forward(next(stream), lacking[i]))
                done += len(blocks[-1])
                if progress:
                    progress(done, to_do)
            details = {"rows": len(spans[i]), "device": device, "batches": len(blocks)}
            rows = np.concatenate(blocks)
            refuse(rows, spans[i], lacking[i])
            widths = np.cumsum([arrays[r].width for r in lacking[i]])
            for r, part in zip(lacking[i], np.split(rows, widths[:-1], axis=1), strict=True):
                arrays[r].commit(i, part, cache, details)


def require_shape(rows: NDArray[np.float32], expected: tuple[int, int], *, what: str) -> None:
    """Refuse an array of another shape than (rows, columns); `what` names its content in the message."""
    if rows.shape != expected:
        raise EncodingError(f"the model gave {what} of another shape", found=rows.shape, expected=expected)


def first_named(names: Sequence[object], bad: NDArray[np.bool_]) -> str:
    """Return the names of the first five of the rows that are marked, for a message."""
    marked = [str(name) for name, is_bad in zip(names, bad, strict=True) if is_bad]
    return ", ".join(marked[:5]) + (" …" if len(marked) > 5 else "")
