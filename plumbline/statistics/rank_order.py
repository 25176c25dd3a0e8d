"""Rankings of images by score, best first, with ties broken by the images' ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError


def rank_order(scores: ArrayLike, ids: ArrayLike | NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return the images of every ranking from the highest score to the lowest.

    Parameters
    ----------
    scores : (n,) or (n, m) float
        One ranking a column. Compared as float64.
    ids : (n,) sortable, optional
        Equal scores are ordered by id; by position in the input where none are given, or where ids are equal too.

    Returns
    -------
    (m, n) int64
        Positions in the input; row j ranks column j.

    Raises
    ------
    MetricError
        If a score is not a finite number, or the ids are not one an image.
    """
    columns = np.asarray(scores, dtype=np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or not np.isfinite(columns).all():
        raise MetricError(
            "a ranking needs one finite score an image",
            where="scores",
            found=f"shape {columns.shape}, {int((~np.isfinite(columns)).sum())} not finite",
            expected="(n,) or (n, m), no nan",
        )
    if ids is None:
        return _descending(np.ascontiguousarray(columns.T))
    names = np.asarray(ids)
    if names.shape != (len(columns),):
        raise MetricError("ids must be one an image", found=names.shape, expected=(len(columns),))
    by_id = np.argsort(names, kind="stable")
    return by_id[_descending(np.ascontiguousarray(columns[by_id].T))]


def _descending(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sort the positions of each row by falling value, equal values by position."""
    order = np.empty(rows.shape, dtype=np.int64)
    # Row by row: the steps of one then stay in the cache of the core.
    for row, out in zip(rows, order):
        _sort_one(row, out)
    return order


def _sort_one(row: NDArray[np.float64], out: NDArray[np.int64]) -> None:
    """Sort one row into `out`.

    Each float becomes a whole number of the same order, whose lowest bits are given up for the position: then plain
    sorting does, which takes half the time of sorting positions. Where two numbers differ in nothing but the lost
    bits, the slow way decides. Scores that come from float32 lose only zeros.
    """
    bits = np.int64(max(1, (row.size - 1).bit_length()))
    low = np.int64((1 << int(bits)) - 1)
    # Adding 0 turns -0.0, which equals 0.0 but has other bits, into 0.0.
    keys = (0.0 - row).view(np.int64)
    keys ^= (keys >> 63) & np.iinfo(np.int64).max
    lost = bool((keys & low).any())
    keys &= ~low
    keys |= np.arange(row.size)
    keys.sort()
    np.bitwise_and(keys, low, out=out)
    if lost:
        keys >>= bits
        if (keys[1:] == keys[:-1]).any():
            out[:] = np.argsort(-row, kind="stable")
