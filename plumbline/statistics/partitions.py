"""Partitions of images into two groups of fixed sizes: all of them, or as many random ones as wanted.

A permutation test of a difference of means compares the sum over one group with its sum in other partitions. Few
partitions are all enumerated; of many, random ones are drawn for all columns at once, as bits, and their sums are one
matrix product a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError

EXACT_LIMIT = 200_000
"""With no more partitions than this all of them are enumerated."""

_BLOCK = 8_000_000
"""Images × subsets that are summed at once: 32 MB as float32."""

_DRAWN = 256_000_000
"""Images × subsets that are drawn at once: 32 MB as bits."""

_SPARSE = 0.25
"""Share of images below which subsets are drawn too small at first."""

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
"""The eight bits of every byte: looking them up is thrice as fast as unpacking and converting."""


def is_enumerable(n: int, size: int) -> bool:
    """Return whether the subsets of `size` of n images are few enough (`EXACT_LIMIT`) to take all of them."""
    few, count = min(size, n - size), 1
    for i in range(1, few + 1):
        # C(n - few + i, i): it only grows, and the whole coefficient can have thousands of digits.
        count = count * (n - few + i) // i
        if count > EXACT_LIMIT:
            return False
    return True


def subset_sums(columns: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the column sums over every subset of `size` rows.

    A subset is one of the first half of the rows with one of the second, so its sum is theirs, one addition each. The
    halves are done alike.

    Parameters
    ----------
    columns : (n, m) float64
    size : int
        0 .. n.

    Returns
    -------
    (C(n, size), m) float64
        In a fixed but unspecified order.
    """
    n, m = columns.shape
    if size == 0:
        return np.zeros((1, m))
    if size == 1:
        return columns
    if size == n:
        return columns.sum(axis=0, keepdims=True)
    pairs = [(a[:, None, :] + b[None, :, :]).reshape(-1, m) for a, b in half_sums(columns, size)]
    return np.concatenate(pairs)


def half_sums(
    columns: NDArray[np.float64], size: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Give the sums over the subsets of the first half of the rows, and of the second, that together have `size`.

    Every subset of `size` rows is one of the first with one of the second, of exactly one of the pairs given.
    """
    half = len(columns) // 2
    for first in range(max(0, size - (len(columns) - half)), min(size, half) + 1):
        yield subset_sums(columns[:half], first), subset_sums(columns[half:], size - first)


class SubsetCounts(NamedTuple):
    """How many subsets of rows lie beyond bounds, in every column: (m,) int64 both."""

    below: NDArray[np.int64]
    above: NDArray[np.int64]


def count_subsets(
    columns: NDArray[np.float64], size: int, low: NDArray[np.float64], high: NDArray[np.float64]
) -> SubsetCounts:
    """Count the subsets of `size` rows whose sum lies below `low`, and above `high`, in every column.

    No subset is formed: with the sums of one half sorted, a search finds how many of them go with each of the other.

    Parameters
    ----------
    columns : (n, m) float64
    size : int
        0 .. n.
    low, high : (m,) float64
    """
    m = columns.shape[1]
    below, above = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
    for first, second in half_sums(columns, size):
        few, many = sorted((first, second), key=len)
        # By column, each of them contiguous.
        few, many = np.ascontiguousarray(few.T), np.sort(np.ascontiguousarray(many.T), axis=1)
        for c in range(m):
            below[c] += many[c].searchsorted(low[c] - few[c], side="left").sum()
            above[c] += (
                many[c].size * few[c].size - many[c].searchsorted(high[c] - few[c], side="right").sum()
            )
    return SubsetCounts(below, above)


@dataclass(frozen=True)
class SubsetBlock:
    """Random subsets of n images, each grown step by step.

    Attributes
    ----------
    n : int
    bits : (rows, w) uint8
        The subsets of the first size, a bit an image, the first image highest.
    added : tuple of (rows, d) uint16 or int32
        The images that make each further size of the one before.
    """

    n: int
    bits: NDArray[np.uint8]
    added: tuple[NDArray[np.integer], ...]

    @property
    def nbytes(self) -> int:
        """Return the memory that it takes."""
        return self.bits.nbytes + sum(step.nbytes for step in self.added)

    def parts(self) -> Iterator[SubsetBlock]:
        """Give the same subsets in parts that are small enough to be summed."""
        rows = max(1, _BLOCK // self.n)
        for start in range(0, len(self.bits), rows):
            part = slice(start, start + rows)
            yield SubsetBlock(self.n, self.bits[part], tuple(step[part] for step in self.added))

    def sums(self, columns: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Give the (rows, m) sums of columns over the subsets, for one size after the other.

        Parameters
        ----------
        columns : (n, m) float32, or as `padded` makes it
        """
        from scipy.sparse import csr_array

        rows, width = self.bits.shape
        columns = padded(columns)
        total = _BITS.take(self.bits, axis=0, mode="clip").reshape(rows, 8 * width) @ columns
        yield total
        for step in self.added:
            starts = np.arange(0, step.size + 1, step.shape[1], dtype=np.int32)
            ones = np.ones(step.size, dtype=np.float32)
            shape = (rows, len(columns))
            total = total + csr_array((ones, step.astype(np.int32).ravel(), starts), shape=shape) @ columns
            yield total

    def members(self, rows: NDArray[np.int64], size: int) -> NDArray[np.float64]:
        """Return the (k, n) membership, 0 or 1, of some subsets at the given place in the order of sizes."""
        inside = np.unpackbits(self.bits[rows], axis=1, count=self.n).astype(np.float64)
        for step in self.added[:size]:
            np.put_along_axis(inside, step[rows].astype(np.int64), 1.0, axis=1)
        return inside


def padded(columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return columns with rows of zeros up to the next multiple of 64, the bits of a subset; or as they are."""
    missing = -len(columns) % 64
    return np.pad(columns, ((0, missing), (0, 0))) if missing else columns


def random_subsets(
    n: int, sizes: Sequence[int], *, count: int, rng: np.random.Generator
) -> Iterator[SubsetBlock]:
    """Draw random subsets of n images, uniform over all subsets of their size, in blocks of bounded memory.

    Every image is in by a coin of about the right odds, which makes all subsets of one size equally likely; then images
    picked at random are flipped until the size is right, which keeps that. A subset of a further size is the one before
    with images added at random: uniform too, though not independent of it.

    Parameters
    ----------
    n : int
    sizes : sequence of int
        Ascending, distinct, within 1 .. n - 1.
    count : int
        Subsets of each size, at least 1.

    Raises
    ------
    MetricError
        If the sizes are out of range or order, or `count` is below 1.
    """
    ordered = all(a < b for a, b in pairwise(sizes))
    if not sizes or not ordered or sizes[0] < 1 or sizes[-1] >= n or count < 1:
        raise MetricError(
            "random subsets cannot be drawn",
            found=f"sizes {list(sizes)} of {n} images, {count} times",
            expected=f"ascending sizes within 1 .. {n - 1}, at least once",
        )
    rows = max(1, _DRAWN // n)
    for start in range(0, count, rows):
        bits = _coins(n, sizes[0], min(rows, count - start), rng)
        _flip_to_size(bits, n, sizes[0], rng)
        grown = bits.copy()
        added = tuple(_grow(grown, n, b - a, rng) for a, b in pairwise(sizes))
        yield SubsetBlock(n, bits, added)


def _coins(n: int, size: int, rows: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Toss a coin an image, 64 at once, so that the subsets have about the wanted size."""
    odds = size / n
    spread = math.sqrt(n * odds * (1 - odds))
    if odds < _SPARSE:
        # Images to take out are hard to hit where few are in: too small subsets are quicker to mend.
        odds = max(0.0, odds - 2 * spread / n)
    digits = 1
    while abs(round(odds * 2**digits) / 2**digits - odds) * n > spread / 2:
        digits += 1
    numerator = round(odds * 2**digits)
    if numerator == 0:
        return np.zeros((rows, 8 * -(-n // 64)), dtype=np.uint8)
    while numerator % 2 == 0:
        numerator, digits = numerator // 2, digits - 1
    shape = (rows, -(-n // 64))
    tossed = rng.integers(0, 2**64, size=shape, dtype=np.uint64)
    # From the last binary digit of the odds to the first: a further coin halves them, and a one adds a half.
    for digit in range(1, digits):
        coin = rng.integers(0, 2**64, size=shape, dtype=np.uint64)
        tossed = tossed | coin if numerator >> digit & 1 else tossed & coin
    bits = tossed.view(np.uint8)
    real = np.packbits(np.arange(8 * bits.shape[1]) < n)
    return bits & real


def _flip_to_size(bits: NDArray[np.uint8], n: int, size: int, rng: np.random.Generator) -> None:
    surplus = np.bitwise_count(bits).sum(axis=1, dtype=np.int64) - size
    _flip(bits, n, np.maximum(surplus, 0), rng, value=1)
    _flip(bits, n, np.maximum(-surplus, 0), rng, value=0)


def _grow(bits: NDArray[np.uint8], n: int, by: int, rng: np.random.Generator) -> NDArray[np.integer]:
    added = np.empty((len(bits), by), dtype=np.uint16 if n <= 2**16 else np.int32)
    _flip(bits, n, np.full(len(bits), by), rng, value=0, record=added)
    return added


def _flip(
    bits: NDArray[np.uint8],
    n: int,
    times: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    value: int,
    record: NDArray[np.integer] | None = None,
) -> None:
    """Flip as many bits of `value` of each row as `times` says, in place; `record` keeps which, in order.

    Images are picked at random, and the pick is repeated where the bit has the other value.
    """
    rows = np.flatnonzero(times > 0)
    done = np.zeros(len(rows), dtype=np.int64)
    while rows.size:
        place = rng.integers(0, n, size=rows.size, dtype=np.int32)
        byte, mask = place >> 3, (128 >> (place & 7)).astype(np.uint8)
        held = bits[rows, byte]
        right = ((held & mask) != 0) == bool(value)
        bits[rows, byte] = held ^ np.where(right, mask, np.uint8(0))
        if record is not None:
            record[rows[right], done[right]] = place[right]
        done += right
        unfinished = done < times[rows]
        rows, done = rows[unfinished], done[unfinished]
