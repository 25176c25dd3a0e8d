"""Draws of units, such as images or whole sets, one row a replicate: with replacement, and by fair coins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def times_drawn(
    rows: int, units: int, *, rng: np.random.Generator, index: type[np.signedinteger[Any]] = np.int32
) -> NDArray[np.int64]:
    """Return (rows, units) how often each unit is drawn when as many as there are are drawn with replacement.

    Parameters
    ----------
    index : type
        Of the whole numbers that are drawn; a generator gives other draws for another type.
    """
    drawn = rng.integers(0, units, size=(rows, units), dtype=index)
    drawn += units * np.arange(rows, dtype=index)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)


def coins_tossed(rows: int, units: int, *, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return (rows, units) zeros and ones, each with probability ½."""
    drawn = np.frombuffer(rng.bytes(-(-rows * units // 8)), dtype=np.uint8)
    return np.unpackbits(drawn, count=rows * units).reshape(rows, units)
