"""Partitions of images into two groups of fixed sizes: all of them, or as many random ones as wanted.

A permutation test of a difference of means compares the sum over one group with its sum in other partitions. Few
partitions are all enumerated; of many, random ones are drawn for all columns at once, as bits, and their sums are one
matrix product per block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.blocks import blocks as blocks_of_rows
from plumbline.errors import MetricError
from plumbline.statistics.permutation import tail_p_values
from plumbline.statistics.seeds import generator

EXACT_LIMIT = 200_000
"""With no more partitions than this all of them are enumerated."""

_BLOCK = 16_000_000
"""Images × subsets that are summed in one part."""

_WIDTH = 32
"""Bytes of each subset that are unpacked at once: what is unpacked stays in the processor's cache."""

_SUMMED = 256
"""Subsets that are summed together at least, some of many images at a time: the columns are read once for all."""

_DRAWN = 256_000_000
"""Images × subsets that are drawn at once: 32 MB as bits."""

_SPARSE = 0.25
"""Subsets of a smaller share of the images are first drawn too small on purpose, then filled, see `_random_bits`."""


_BITS = {
    precision: np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(precision)
    for precision in ("float32", "float64")
}
"""The eight bits of every byte: looking them up is faster than unpacking and converting."""


def is_enumerable(n: int, size: int) -> bool:
    """Return whether there are at most `EXACT_LIMIT` subsets of `size` of n images, so that all can be enumerated."""
    few, count = min(size, n - size), 1
    for i in range(1, few + 1):
        # C(n - few + i, i): it only grows, and the whole coefficient can have thousands of digits.
        count = count * (n - few + i) // i
        if count > EXACT_LIMIT:
            return False
    return True


def subset_sums(columns: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the column sums over every subset of `size` rows.

    Every subset is the union of a subset of the first half of the rows and one of the second, so its sum takes one
    addition. The sums over the halves are computed in the same way, recursively.

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


def half_sums(columns: NDArray[np.float64], size: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Give pairs of arrays: sums over subsets of the first half of the rows, and of the second, of `size` together.

    Every subset of `size` rows is the union of one subset from each side of exactly one pair.
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

    Subsets are not enumerated: the sums of one half are sorted, and a binary search counts the matches of each other.

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
            above[c] += many[c].size * few[c].size - many[c].searchsorted(high[c] - few[c], side="right").sum()
    return SubsetCounts(below, above)


@dataclass(frozen=True)
class SubsetBlock:
    """Random subsets of n images of several sizes, each a superset of that of the size before.

    Attributes
    ----------
    n : int
    bits : (rows, w) uint8
        The subsets of the first size, one bit per image, most significant bit first; padded to a multiple of 64.
    added : tuple of (rows, d) uint16 or int32
        The images that are added to the subsets of one size to give those of the next.
    """

    n: int
    bits: NDArray[np.uint8]
    added: tuple[NDArray[np.integer], ...]

    def parts(self) -> Iterator[SubsetBlock]:
        """Give the same subsets in parts that are small enough to be summed."""
        rows = max(_SUMMED, _BLOCK // self.n)
        for start in range(0, len(self.bits), rows):
            yield self.chosen(slice(start, start + rows))

    def chosen(self, rows: slice | NDArray[np.int64]) -> SubsetBlock:
        """Return some of the subsets."""
        return SubsetBlock(self.n, self.bits[rows], tuple(step[rows] for step in self.added))

    def sums(self, columns: NDArray[np.floating] | _Standardised) -> Iterator[NDArray[np.floating]]:
        """Give the (rows, m) sums of (n, m) columns over the subsets, for one size after the other.

        They have the precision of the columns, float32 or float64.
        """
        from scipy.sparse import csr_array

        kind = columns.dtype if isinstance(columns, np.ndarray) else np.dtype(np.float64)
        total = np.zeros((len(self.bits), columns.shape[1]), dtype=kind)
        room = np.empty((len(self.bits), _WIDTH, 8), dtype=kind)
        for start in range(0, self.bits.shape[1], _WIDTH):
            few, chosen = columns[8 * start : 8 * (start + _WIDTH)], self.bits[:, start : start + _WIDTH]
            unpacked = room if chosen.shape[1] == _WIDTH else np.empty((*chosen.shape, 8), dtype=kind)
            inside = _BITS[kind.name].take(chosen, axis=0, mode="clip", out=unpacked).reshape(len(chosen), -1)
            total += inside[:, : len(few)] @ few
        yield total
        for step in self.added:
            starts, ones = np.arange(0, step.size + 1, step.shape[1]), np.ones(step.size, dtype=kind)
            if isinstance(columns, np.ndarray):
                few, place = columns, step.ravel()
            else:
                images, place = np.unique(step, return_inverse=True)
                few, place = columns[images], place.ravel()
            total = total + csr_array((ones, place, starts), shape=(len(step), len(few))) @ few
            yield total


def random_subsets(n: int, sizes: Sequence[int], *, count: int, rng: np.random.Generator) -> Iterator[SubsetBlock]:
    """Draw random subsets of n images, uniform over all subsets of their size, in blocks of bounded memory.

    Each image is included independently with about the right probability, then random flips fix the size; both steps
    are uniform over the subsets of a size. A subset of a further size is the one before with images added at random:
    uniform too, though not independent of it.

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
        bits = _random_bits(n, sizes[0], min(rows, count - start), rng)
        _flip_to_size(bits, n, sizes[0], rng)
        grown = bits.copy()
        added = tuple(_grow(grown, n, b - a, rng) for a, b in pairwise(sizes))
        yield SubsetBlock(n, bits, added)


def _random_bits(n: int, size: int, rows: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw each image independently, 64 at once, so that the subsets have about the wanted size."""
    odds = size / n
    spread = math.sqrt(n * odds * (1 - odds))
    if odds < _SPARSE:
        # Rejection sampling of members is slow in sparse subsets: it is faster to add missing ones.
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


# --- Permutation tests of the difference between the means of two groups, for many columns at once.
#
# With the sizes of the groups fixed, the difference of means rises with the sum S over the first group. Divided by its
# standard error, sqrt(s_A² / a + s_B² / b), it rises with S / sqrt(V), where V is linear in the sum, over the first
# group, of the squared deviations from the mean of all: both tests need no more than sums over the same subsets. Of
# large groups V is known well enough from S itself, and squares, half of the work, are not summed.

Alternative = Literal["greater", "less", "two-sided"]

SLACK = 1e-12
"""Differences of means within this are ties, and a column whose values lie within it does not vary."""

FEW_IMAGES = 40
"""Below so many images in the smaller of two unequal groups Welch's test has a say."""

MANY_IMAGES = 1000
"""From so many images in the smaller group V is taken at its mean given S, see `equal_sum`."""

_DOUBT = 1e-4
"""Sums of n values of unit variance in single precision count as different above this times sqrt(n).

It is a hundred times the rounding error that was seen; sums closer than that are computed again in double precision.
"""


@dataclass(frozen=True)
class PermutationCounts:
    """How the difference of means compares with that of other partitions.

    Attributes
    ----------
    above, below : (m,) int64
        Partitions with a larger and with a smaller difference; the others tie.
    total : int
        Partitions compared with.
    exact : bool
        Whether they are all partitions there are, the observed one among them.
    tails : (2, m) float64 or None
        Of random partitions: p upwards and downwards of columns that none of them reaches, from a fitted tail; nan
        elsewhere.
    least : (2, m) float64 or None
        p upwards and downwards is no less than this, see `welch_p_values`.
    """

    above: NDArray[np.int64]
    below: NDArray[np.int64]
    total: int
    exact: bool
    tails: NDArray[np.float64] | None = None
    least: NDArray[np.float64] | None = None

    def p_values(self, alternative: Alternative = "greater", *, strict: bool = False) -> NDArray[np.float64]:
        """Return the p-value of each column.

        Parameters
        ----------
        alternative : {"greater", "less", "two-sided"}
            "two-sided" is twice the smaller of the two others, at most 1.
        strict : bool
            False: the share of partitions at least as extreme, and of random ones (1 + count) / (1 + total) (Phipson &
            Smyth 2010), or what the fitted tail tells where none is as extreme (`tail_p_values`). True: the share of
            more extreme ones, which may be 0.
        """
        if alternative == "two-sided":
            sides = [self.p_values(side, strict=strict) for side in ("greater", "less")]
            return np.minimum(1.0, 2 * np.minimum(*sides))
        greater = alternative == "greater"
        more, other = (self.above, self.below) if greater else (self.below, self.above)
        if strict:
            return more / self.total
        at_least, side = self.total - other, 0 if greater else 1
        p = at_least / self.total if self.exact else (1 + at_least) / (1 + self.total)
        if self.tails is not None:
            p = np.where(np.isnan(self.tails[side]) | (at_least > 0), p, self.tails[side])
        return p if self.least is None else np.fmax(p, self.least[side])


class PartitionTests(NamedTuple):
    """The two permutation tests of one group against the others, see `random_partition_test`.

    Attributes
    ----------
    studentised : PermutationCounts
        Of the difference of means over its standard error, of every column.
    raw : PermutationCounts
        Of the difference itself, of the columns that were asked for.
    """

    studentised: PermutationCounts
    raw: PermutationCounts


def welch_p_values(columns: NDArray[np.float64], in_a: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """Return p of Welch's (1947) t test, upwards and downwards, of columns of few images in groups of unequal size.

    There the spread of the smaller group is hardly known, and partitions of all images do not tell how little: with 12
    and 5 images, the 5 twice as spread, the studentised permutation test rejects a true null in 10% and Welch's in 6%.
    The larger p of both is taken; where images are exchangeable the test stays exact.

    Returns
    -------
    (2, m) float64 or None
        nan where a column does not vary in a group. None with `FEW_IMAGES` in each group, with groups of equal size,
        for which the permutation test keeps its level, and with a group of one image.
    """
    from scipy.special import stdtr

    if not 2 <= smaller_size(in_a) < FEW_IMAGES or 2 * smaller_size(in_a) == len(in_a):
        return None
    a, b = columns[in_a], columns[~in_a]
    of_a, of_b = (each.var(axis=0, ddof=1) / len(each) for each in (a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        df = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
        t = (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(of_a + of_b)
    p = np.stack([stdtr(df, -t), stdtr(df, t)])
    return np.where((np.ptp(columns, axis=0) > SLACK) & (of_a + of_b > 0), p, np.nan)


def variance_slope(size: int, n: int) -> float:
    """Return by how much V, over its mean, rises with the sum of z² - 1 over a subset of `size` of n images.

    z are deviations from the mean of all images over their standard deviation (ddof 0). The slope is 0 where both
    groups have equally many images: both tests then order the partitions alike; and where one has a single image, whose
    spread is unknown.
    """
    other = n - size
    if min(size, other) < 2:
        return 0.0
    slope = 1 / (size * (size - 1)) - 1 / (other * (other - 1))
    return slope / (slope * size + n / (other * (other - 1)))


def equal_sum(
    sums: NDArray[np.float64], squares: NDArray[np.float64], slope: float, skewness: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sums that are as extreme as an observed S / sqrt(V), where V is at its mean given the sum.

    Over all subsets the mean of V given S is 1 + slope × skewness × S. From `MANY_IMAGES` V varies around that by a few
    per cent at most: p changes by less than a hundredth of itself at .05, which is less than 10,000 draws can tell.

    Parameters
    ----------
    sums, squares : (m,) float64
        The observed sums of z and of z² - 1.
    skewness : (m,) float64
        Mean z³ of each column.
    """
    t, bend = _studentised(sums, squares, slope), slope * skewness
    # The root of s² = t² (1 + bend s) on the side of t.
    return (t**2 * bend + t * np.sqrt(t**2 * bend**2 + 4)) / 2


class _Standardised:
    """z and z² - 1 of (n, m) columns side by side, (., 2m), of the images that are asked for; 0 where nothing varies.

    `first` has z alone, (., m), of the first columns.

    They are never all in memory in double precision: of a million images they would take several times the columns.
    """

    def __init__(self, columns: NDArray[np.float64]) -> None:
        self._columns = columns
        self._mean = columns.mean(axis=0)
        self.varies = np.ptp(columns, axis=0) > SLACK
        self.deviation = np.where(self.varies, columns.std(axis=0), np.inf)
        self.shape = (len(columns), 2 * columns.shape[1])

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> NDArray[np.float64]:
        m = self._columns.shape[1]
        chosen = np.empty((len(self._columns[rows]), self.shape[1]))
        z, squares = chosen[:, :m], chosen[:, m:]
        np.subtract(self._columns[rows], self._mean, out=z)
        z /= self.deviation
        if squares.shape[1]:
            np.square(z, out=squares)
            squares -= self.varies
        return chosen

    def first(self, m: int) -> _Standardised:
        """Return the same of the first m columns, without squares."""
        few = copy(self)
        few._columns, few._mean = self._columns[:, :m], self._mean[:m]
        few.varies, few.deviation, few.shape = self.varies[:m], self.deviation[:m], (len(self._columns), m)
        return few

    def of_mixtures(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the (w, e) weights that z of the first w columns have in z of the last e, mixtures of theirs."""
        w, e = weights.shape
        return np.where(self.varies[:w], self.deviation[:w], 0.0)[:, None] * weights / self.deviation[-e:]

    def sums(self, members: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the (k, 2m) sums over each of (k, n) sets of members, and the mean z³ of each column, (m,)."""
        (n, m), total, cubes = (
            self._columns.shape,
            np.zeros((len(members), self.shape[1])),
            np.zeros(self.shape[1] // 2),
        )
        for part in blocks_of_rows(0, *self.shape):
            both = self[part]
            total += members[:, part].astype(np.float64) @ both
            cubes += np.einsum("ij,ij->j", both[:, :m], both[:, m:])
        # The sum of z itself is 0.
        return total, cubes / n


def _studentised(sums: NDArray[np.floating], squares: NDArray[np.floating], slope: float) -> NDArray[np.floating]:
    """Return S / sqrt(V) of sums of z and of z² - 1."""
    if not slope:
        return sums
    # V is positive; single precision may see it otherwise where one image has nearly all of it.
    variance = np.maximum(1 + sums.dtype.type(slope) * squares, sums.dtype.type(1e-6))
    return sums / np.sqrt(variance, out=variance)


def exact_partition_test(
    columns: NDArray[np.float64], in_a: NDArray[np.bool_], *, raw: slice = slice(0)
) -> PartitionTests:
    """Test the difference of means against all partitions.

    Parameters
    ----------
    columns : (n, m) float64
    in_a : (n,) bool
        The first group; both have images.
    raw : slice
        Columns whose difference of means is also tested as it is.
    """
    (n, m), size = columns.shape, smaller_size(in_a)
    swapped, slope = bool(in_a.sum() > size), variance_slope(size, n)
    standardised = _Standardised(columns)
    z, squares = np.hsplit(standardised[:], [m])
    observed, of_squares = np.hsplit(standardised.sums((~in_a if swapped else in_a)[None])[0][0], [m])
    slack = SLACK * size * (n - size) / n / standardised.deviation
    subsets = math.comb(n, size)
    counts = count_subsets(z, size, observed - slack, observed + slack)
    of_raw = _counts(counts.above[raw], counts.below[raw], subsets, swapped, exact=True)
    if slope:
        target = _studentised(observed, of_squares, slope)
        above, below = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=np.int64)
        for (first, second), (of_first, of_second) in zip(half_sums(z, size), half_sums(squares, size)):
            for c in range(m):
                sums = np.add.outer(first[:, c], second[:, c])
                difference = _studentised(sums, np.add.outer(of_first[:, c], of_second[:, c]), slope) - target[c]
                above[c] += np.count_nonzero(difference > slack[c])
                below[c] += np.count_nonzero(difference < -slack[c])
        counts = SubsetCounts(below=below, above=above)
    studentised = _counts(counts.above, counts.below, subsets, swapped, exact=True)
    return PartitionTests(replace(studentised, least=welch_p_values(columns, in_a)), of_raw)


def _counts(
    above: NDArray[np.int64],
    below: NDArray[np.int64],
    total: int,
    swapped: bool,
    *,
    exact: bool,
    tails: NDArray[np.float64] | None = None,
) -> PermutationCounts:
    """Return counts of subsets of the smaller group, and (2, m) tails, as those of the first group."""
    if swapped:
        above, below, tails = below, above, None if tails is None else tails[::-1]
    return PermutationCounts(above, below, total, exact, tails)


def random_partition_test(
    columns: NDArray[np.float64],
    groups: list[NDArray[np.bool_]],
    sizes: list[int],
    blocks: Iterable[SubsetBlock],
    *,
    raw: slice = slice(0),
    mixtures: NDArray[np.float64] | None = None,
) -> list[PartitionTests]:
    """Test the difference of means against random partitions, in one matrix product for groups of similar size.

    The studentised test keeps its level in large samples where the groups have unequal variances, and exactly where
    their images are exchangeable (Janssen 1997; Chung & Romano 2013); the raw one keeps it only in the latter case.

    Sums are in single precision first, which takes half the time, and in double where that cannot tell them from the
    observed sum: the counts are those of double precision.

    Parameters
    ----------
    columns : (n, m) float64
    groups : list of (n,) bool
        Each is compared with all other images.
    sizes : list of int
        The sizes of the blocks' subsets, in their order; each group is tested at its `smaller_size`.
    raw : slice
        Columns whose difference of means is also tested as it is.
    mixtures : (w, e) float64, optional
        The last e columns are the first w times these weights: where squares are not summed, their sums follow.

    Returns
    -------
    list of PartitionTests
        One per group.
    """
    n, m = columns.shape
    standardised = _Standardised(columns)
    of_size = [smaller_size(group) for group in groups]
    swapped = [bool(group.sum() > size) for group, size in zip(groups, of_size)]
    slopes = [variance_slope(size, n) for size in of_size]
    observed, skewness = standardised.sums(
        np.stack([~group if swap else group for group, swap in zip(groups, swapped)])
    )
    many = min(of_size) >= MANY_IMAGES
    targets = []
    for (sums, squares), slope in zip((np.hsplit(row, [m]) for row in observed), slopes):
        reached = equal_sum(sums, squares, slope, skewness) if many else _studentised(sums, squares, slope)
        targets.append(np.concatenate([reached, sums[raw]]))
    if many:
        slopes = [0.0] * len(groups)
    # Squares are summed only where a variance depends on them; otherwise mixtures of columns need no sums of their own.
    summed, mixed = standardised, None
    if not any(slopes):
        if mixtures is not None:
            mixed = standardised.of_mixtures(mixtures)
        summed = standardised.first(m if mixed is None else len(mixed))
    single = np.empty(summed.shape, dtype=np.float32)
    for part in blocks_of_rows(0, *summed.shape):
        single[part] = summed[part]

    def compared(sums: NDArray[np.floating], g: int) -> NDArray[np.floating]:
        """Return by how much each subset exceeds what was observed in group g: studentised, then raw, (rows, c)."""
        if mixed is not None:
            sums = np.concatenate([sums, sums @ mixed.astype(sums.dtype)], axis=1)
        both = [_studentised(sums[:, :m], sums[:, m:], slopes[g]), sums[:, :m][:, raw]]
        return np.asarray(np.concatenate(both, axis=1) - targets[g].astype(sums.dtype))

    varies = np.concatenate([standardised.varies, standardised.varies[raw]])
    above, below = (np.zeros((len(groups), len(varies)), dtype=np.int64) for _ in range(2))
    total, place = 0, {size: i for i, size in enumerate(sizes)}

    # Columns that no subset of the first part reaches: their values are kept for the tail.
    kept: list[NDArray[np.int64]] = []
    values: list[list[NDArray[np.floating]]] = [[] for _ in groups]

    def tally(sums: list[NDArray[np.floating]], slack: list[NDArray[np.floating]], *, ties: bool) -> NDArray[np.bool_]:
        """Count the subsets that lie beyond the slack and return which do not, (rows,): ties, or undecided."""
        sides, near = [], np.zeros(len(sums[0]), dtype=bool)
        for g, size in enumerate(of_size):
            difference = compared(sums[place[size]], g)
            if not ties:
                if len(kept) == g:
                    seldom = (difference.max(axis=0) < -slack[g]) | (difference.min(axis=0) > slack[g])
                    kept.append(np.flatnonzero(seldom & varies))
                values[g].append(difference[:, kept[g]])
            # Of columns that do not vary every sum is 0, and no subset lies beyond.
            sides.append((difference > slack[g], difference < -slack[g]))
            near |= ~(sides[g][0] | sides[g][1] | ~varies).all(axis=1)
        for g, (more, less) in enumerate(sides):
            above[g] += (more if ties else more[~near]).sum(axis=0)
            below[g] += (less if ties else less[~near]).sum(axis=0)
        return near

    doubt = np.full(m, _DOUBT * math.sqrt(n), dtype=np.float32)
    if mixed is not None:
        doubt[len(mixed) :] *= np.maximum(np.abs(mixed).sum(axis=0), 1.0)
    doubts = [np.concatenate([doubt, doubt[raw]])] * len(groups)
    slacks = [SLACK * size * (n - size) / n / standardised.deviation for size in of_size]
    slacks = [np.concatenate([slack, slack[raw]]) for slack in slacks]
    for block in blocks:
        total += len(block.bits)
        undecided = np.concatenate([tally(list(few.sums(single)), doubts, ties=False) for few in block.parts()])
        if undecided.any():
            tally(list(block.chosen(np.flatnonzero(undecided)).sums(summed)), slacks, ties=True)
    tests = []
    for g, swap in enumerate(swapped):
        target = targets[g][kept[g], None]
        drawn = np.concatenate(values[g]).T + target
        # Squares of what is nearly normal have a nearly exponential tail.
        target, drawn = target * np.abs(target), drawn * np.abs(drawn)
        tails = np.full((2, len(varies)), np.nan)
        for side, sign in enumerate((1, -1)):
            tails[side, kept[g]] = tail_p_values(sign * target[:, 0], sign * drawn)
        studentised, of_raw = (
            _counts(above[g][c], below[g][c], total, swap, exact=False, tails=tails[:, c])
            for c in (slice(m), slice(m, None))
        )
        tests.append(PartitionTests(replace(studentised, least=welch_p_values(columns, groups[g])), of_raw))
    return tests


def smaller_size(in_a: NDArray[np.bool_]) -> int:
    """Return the size of the smaller side of a partition, by which its subsets are drawn."""
    inside = int(in_a.sum())
    return min(inside, len(in_a) - inside)


def is_exact(in_a: NDArray[np.bool_]) -> bool:
    """Return whether the partitions of these sizes are few enough to compare with all of them."""
    return is_enumerable(len(in_a), smaller_size(in_a))


# --- Random partitions shared by many comparisons: similar sizes grow from one another, and draws are cached.

_STEP = 16
"""Sizes that differ by at most n / 16 share draws; to add one image costs as much as six in a matrix product."""

_KEPT = 50_000_000
"""Maximum bytes of a draw that is cached; larger ones are drawn anew. The cache holds four, enough for a dataset."""


def random_subset_chains(
    n: int, sizes: Iterable[int], *, count: int, seed: int
) -> Iterator[tuple[list[int], Iterable[SubsetBlock]]]:
    """Give random subsets of several sizes, in chains: similar sizes share draws.

    Sums over subsets that differ by few images are cheaper to update than to recompute. Draws depend on the arguments
    alone, so that all encoders of a dataset share them; the latest are cached for the next encoder.

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
    chains: list[list[int]] = []
    for size in sorted(set(sizes)):
        if chains and size - chains[-1][-1] <= n // _STEP:
            chains[-1].append(size)
        else:
            chains.append([size])
    for chain in chains:
        nbytes = count * (n // 8 + (chain[-1] - chain[0]) * (2 if n <= 2**16 else 4))
        yield chain, (_draw if nbytes > _KEPT else _kept_draw)(n, tuple(chain), count, seed)


def _draw(n: int, sizes: tuple[int, ...], count: int, seed: int) -> Iterable[SubsetBlock]:
    return random_subsets(n, sizes, count=count, rng=generator(seed, "subsets", n, *sizes))


# At most 200 MB.
@lru_cache(maxsize=4)
def _kept_draw(n: int, sizes: tuple[int, ...], count: int, seed: int) -> Iterable[SubsetBlock]:
    return tuple(_draw(n, sizes, count, seed))
