"""What every kind of shard shares: how rows are cut, which shards are there, and reading back what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import StorageError
from plumbline.storage import Shard, ShardCache

Progress = Callable[[int, int], None]
"""Called with (rows done, rows to do) of this run: what the cache had is neither, so that a rate is of work."""


class Span(NamedTuple):
    """Rows from `start` up to `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def pieces(self, rows: int) -> Iterator[Span]:
        """Yield the span in pieces of at most `rows`, in order."""
        for start in range(self.start, self.stop, rows):
            yield Span(start, min(start + rows, self.stop))


@dataclass
class ShardRow:
    """The shards of one result in row order: found in the cache, or still to be computed.

    Attributes
    ----------
    keys : list of str
        Cache key of each shard.
    shards : list of Shard or None
        None where it is missing or damaged.
    repaired, cached : int
        Missing ones that were committed once and are damaged now; and those that were found.
    """

    keys: list[str]
    shards: list[Shard | None]
    repaired: int
    cached: int

    @classmethod
    def find(cls, keys: Sequence[str], cache: ShardCache) -> ShardRow:
        """Look every key up; the bytes of each shard are checked."""
        shards = [cache.load(key) for key in keys]
        missing = [key for key, shard in zip(keys, shards) if shard is None]
        repaired = sum(cache.is_listed(key) for key in missing)
        return cls(list(keys), shards, repaired, len(keys) - len(missing))

    @property
    def computed(self) -> int:
        """Return how many shards were not in the cache."""
        return len(self.keys) - self.cached

    def index(self) -> tuple[tuple[str, str], ...]:
        """Return (key, sha256) of every shard; all must be there by now."""
        return tuple((shard.key, shard.sha256) for shard in self._whole())

    def array(self, name: str, *, width: int) -> NDArray[np.float32]:
        """Return the (n, width) rows of all shards, which must be there by now."""
        return joined([shard.arrays[name] for shard in self._whole()], width=width)

    def _whole(self) -> list[Shard]:
        return [shard for shard in self.shards if shard is not None]


def joined(arrays: Sequence[NDArray[Any]], *, width: int) -> NDArray[np.float32]:
    """Concatenate blocks of rows; no blocks give a (0, width) array."""
    return np.concatenate(arrays) if arrays else np.zeros((0, width), dtype=np.float32)


def read_recorded(
    shards: Sequence[tuple[str, str]], cache: ShardCache, *, array: str, asset: str
) -> list[NDArray[np.float32]]:
    """Return one array of each of the shards that were computed before, in order.

    Parameters
    ----------
    shards : sequence of (key, sha256)
    array : str
        Its name in the shard.
    asset : str
        What to materialise again if one is not as it was, for the message.

    Raises
    ------
    StorageError
        If one is gone, damaged, or holds other bytes than it did.
    """
    arrays = []
    for key, sha256 in shards:
        shard = cache.load(key)
        if shard is None or shard.sha256 != sha256:
            raise StorageError(
                f"a shard of `{asset}` is gone, damaged or another than the one that was recorded",
                where=key,
                found="nothing readable" if shard is None else f"sha256 {shard.sha256}",
                expected=f"sha256 {sha256}",
                hint=f"materialise `{asset}` of this cell again: only this shard is redone",
            )
        arrays.append(shard.arrays[array])
    return arrays
