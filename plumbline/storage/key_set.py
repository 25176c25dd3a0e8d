"""Millions of keys in little memory: a set of 64-bit hashes in sorted arrays."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray


class KeySet:
    """Says which keys it was given; 8 bytes a key.

    Two keys of one hash are taken for one: with 57 million keys the chance that any two meet is below 1 in 10,000.
    Hashes are of this process alone and are stored nowhere.
    """

    def __init__(self) -> None:
        # Sorted, each more than twice as long as the next: adding n keys one by one sorts each only log n times.
        self._sorted: list[NDArray[np.uint64]] = []

    def __len__(self) -> int:
        """Return the number of keys."""
        return sum(map(len, self._sorted))

    def has(self, keys: pl.Series) -> NDArray[np.bool_]:
        """Return (n,) whether each key was added."""
        return self._has(_hashes(keys))

    def add(self, keys: pl.Series) -> NDArray[np.bool_]:
        """Add keys; return (n,) whether each was new, the first of equal ones only."""
        hashes = _hashes(keys)
        new = np.zeros(len(hashes), dtype=bool)
        new[np.unique(hashes, return_index=True)[1]] = True
        new &= ~self._has(hashes)
        self._sorted.append(np.sort(hashes[new]))
        while len(self._sorted) > 1 and len(self._sorted[-2]) <= 2 * len(self._sorted[-1]):
            self._sorted[-2:] = [np.sort(np.concatenate(self._sorted[-2:]), kind="stable")]
        return new

    def _has(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        found = np.zeros(len(hashes), dtype=bool)
        for part in self._sorted:
            if len(part):
                at = np.searchsorted(part, hashes)
                found |= part[np.minimum(at, len(part) - 1)] == hashes
        return found


def _hashes(keys: pl.Series) -> NDArray[np.uint64]:
    return keys.hash().to_numpy().astype(np.uint64, copy=False)
