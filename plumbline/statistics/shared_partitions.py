"""Random partitions that many comparisons share: sizes that are alike grow from one another, and draws are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from plumbline.statistics.partitions import SubsetBlock, random_subsets
from plumbline.statistics.seeds import generator

_STEP = 16
"""Sizes within this part of the images are grown from one another: to add one costs as much as six in a product."""

_KEPT = 200_000_000
"""Bytes of draws that are kept."""

Key = tuple[int, tuple[int, ...], int, int]


def random_subset_chains(
    n: int, sizes: Iterable[int], *, count: int, seed: int
) -> Iterator[tuple[list[int], Iterable[SubsetBlock]]]:
    """Give random subsets of all the sizes.

    Subsets that differ by few images are cheaper to sum by what was added. What is drawn depends on the arguments
    alone, so that all encoders of a dataset share it; the latest draws are kept for the next encoder.

    Parameters
    ----------
    n : int
    sizes : iterable of int
        Within 1 .. n - 1, in any order.
    count : int
        Subsets of each size.
    seed : int

    Returns
    -------
    iterator of (list of int, iterable of SubsetBlock)
        Some of the sizes, ascending, and their subsets; every size comes once.
    """
    for chain in _chains(n, sizes):
        nbytes = count * (n // 8 + (chain[-1] - chain[0]) * (2 if n <= 2**16 else 4))
        key = (n, tuple(chain), count, seed)
        yield chain, _draw(key) if nbytes > _KEPT // 2 else _STORE.get(key)


def _chains(n: int, sizes: Iterable[int]) -> list[list[int]]:
    chains: list[list[int]] = []
    for size in sorted(set(sizes)):
        if chains and size - chains[-1][-1] <= n // _STEP:
            chains[-1].append(size)
        else:
            chains.append([size])
    return chains


def _draw(key: Key) -> Iterator[SubsetBlock]:
    n, sizes, count, seed = key
    return random_subsets(n, sizes, count=count, rng=generator(seed, "subsets", n, *sizes))


class _Store:
    """The latest draws, up to `_KEPT` bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[Key, tuple[SubsetBlock, ...]] = OrderedDict()

    def get(self, key: Key) -> tuple[SubsetBlock, ...]:
        """Return a draw, made now or earlier."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        # Not under the lock: other threads draw others meanwhile, and drawing twice gives the same.
        drawn = tuple(_draw(key))
        with self._lock:
            self._held[key] = drawn
            while self.nbytes > _KEPT:
                self._held.popitem(last=False)
        return drawn

    @property
    def nbytes(self) -> int:
        """Return the memory that the draws take."""
        return sum(block.nbytes for blocks in self._held.values() for block in blocks)


_STORE = _Store()
