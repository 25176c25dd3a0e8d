"""Millions of keys in little memory, and where each lies: 64-bit hashes in sorted arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

ABSENT = -1


class _Sorted(NamedTuple):
    hashes: NDArray[np.uint64]
    places: NDArray[np.int32]


class KeySet:
    """Says which keys it was given and with which number; 12 bytes a key.

    Two keys of one hash are taken for one: with 57 million keys the chance that any two meet is below 1 in 10,000.
    Hashes are of this process alone and are stored nowhere.
    """

    def __init__(self) -> None:
        # Each more than twice as long as the next: adding n keys one by one sorts each only log n times.
        self._sorted: list[_Sorted] = []

    @classmethod
    def of(cls, parts: Iterable[pl.Series]) -> tuple[KeySet, bool]:
        """Return the set of many parts' keys, numbered from 0, the first of equal ones; and whether some are equal."""
        hashes = [_hashes(keys) for keys in parts]
        places = np.repeat(np.arange(len(hashes), dtype=np.int32), list(map(len, hashes)))
        whole = np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])
        order = np.argsort(whole)
        whole, places = whole[order], places[order]
        first = np.ones(len(whole), dtype=bool)
        first[1:] = whole[1:] != whole[:-1]
        made = cls()
        if len(whole):
            starts = np.flatnonzero(first)
            made._sorted = [_Sorted(whole[starts], np.minimum.reduceat(places, starts))]
        return made, not first.all()

    def __len__(self) -> int:
        """Return the number of keys."""
        return sum(len(part.hashes) for part in self._sorted)

    def places(self, keys: pl.Series) -> NDArray[np.int32]:
        """Return (n,) the number that each key was added with, `ABSENT` where it was not."""
        return self._places(_hashes(keys))

    def add(self, keys: pl.Series, place: int) -> NDArray[np.bool_]:
        """Add keys with a number; return (n,) whether each was new, the first of equal ones only."""
        hashes = _hashes(keys)
        new = np.zeros(len(hashes), dtype=bool)
        new[np.unique(hashes, return_index=True)[1]] = True
        new &= self._places(hashes) == ABSENT
        fresh = np.sort(hashes[new])
        self._sorted.append(_Sorted(fresh, np.full(len(fresh), place, dtype=np.int32)))
        while len(self._sorted) > 1 and len(self._sorted[-2].hashes) <= 2 * len(self._sorted[-1].hashes):
            self._sorted[-2:] = [_merged(*self._sorted[-2:])]
        return new

    def _places(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        # Looked up in order the search walks through memory once, and is several times as fast.
        order = np.argsort(hashes)
        sought, found = hashes[order], np.full(len(hashes), ABSENT, dtype=np.int32)
        for part in self._sorted:
            if len(part.hashes):
                at = np.minimum(np.searchsorted(part.hashes, sought), len(part.hashes) - 1)
                there = part.hashes[at] == sought
                found[order[there]] = part.places[at[there]]
        return found


def _merged(first: _Sorted, second: _Sorted) -> _Sorted:
    hashes = np.concatenate([first.hashes, second.hashes])
    # A stable sort finds the two runs and only merges them.
    order = np.argsort(hashes, kind="stable")
    return _Sorted(hashes[order], np.concatenate([first.places, second.places])[order])


def _hashes(keys: pl.Series) -> NDArray[np.uint64]:
    return keys.hash().to_numpy().astype(np.uint64, copy=False)
