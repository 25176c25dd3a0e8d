"""Tables of numbers that are read a block of rows at a time, so that they need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1_000_000
"""Numbers of a block: 8 MB in double precision, which the memory allocator gives again without asking the system."""


class Rows(Protocol):
    """An array, or what gives the rows of one when they are asked for: `rows[:]` is all of them in memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (n, ...)."""

    def __len__(self) -> int:
        """Return n."""

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Return consecutive rows."""


def blocks(start: int, stop: int, width: int) -> Iterator[slice]:
    """Give slices of the rows from start to stop, of so many numbers each: one slice where they are few."""
    step = max(1, _BLOCK // max(width, 1))
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def map_rows(
    function: Callable[[NDArray[Any]], NDArray[Any]], table: Rows, chosen: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """Return what a function gives for the rows of a table, which it sees block by block.

    Parameters
    ----------
    function : callable
        (b, m) consecutive rows to (b, ...), each row by itself; it must take b = 0.
    table : (n, m) Rows
    chosen : (k,) int64, optional
        Which rows, each at most once, in any order; by default all.

    Returns
    -------
    (n, ...) or (k, ...) array
    """
    n, width = len(table), int(np.prod(table.shape[1:]))
    place = None
    if chosen is not None:
        place = np.full(n, -1)
        place[chosen] = np.arange(len(chosen))
    result: NDArray[Any] | None = None
    for rows in blocks(0, n, width):
        block, to = table[rows], rows if place is None else place[rows]
        if isinstance(to, np.ndarray) and (to < 0).any():
            block, to = block[to >= 0], to[to >= 0]
        values = function(block)
        if result is None:
            result = np.empty((n if chosen is None else len(chosen), *values.shape[1:]), dtype=values.dtype)
        result[to] = values
    return function(table[0:0]) if result is None else result
