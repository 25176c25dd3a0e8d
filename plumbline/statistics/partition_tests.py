"""Permutation tests of the difference between the means of two groups, for many columns at once.

With the sizes of the groups fixed, the difference of means rises with the sum over the first group, so sums of the
centred columns are what is compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.partitions import SubsetBlock, count_subsets, is_enumerable, padded

Alternative = Literal["greater", "less", "two-sided"]

SLACK = 1e-12
"""Differences of means within this are ties, and a column whose values lie within it does not vary."""

_DOUBT = 1e-4
"""Single-precision sums of columns of unit variance are told apart when they differ by this times sqrt(n).

A hundred times what rounding was seen to do; what is closer is summed again in double precision.
"""


@dataclass(frozen=True)
class Tails:
    """How the difference of means compares with that of other partitions.

    Attributes
    ----------
    above, below : (m,) int64
        Partitions with a larger and with a smaller difference; the others tie.
    total : int
        Partitions compared with.
    exact : bool
        Whether they are all partitions there are, the observed one among them.
    """

    above: NDArray[np.int64]
    below: NDArray[np.int64]
    total: int
    exact: bool

    def p_values(self, alternative: Alternative = "greater", *, strict: bool = False) -> NDArray[np.float64]:
        """Return the p-value of each column.

        Parameters
        ----------
        alternative : {"greater", "less", "two-sided"}
            "two-sided" is twice the smaller of the two others, at most 1.
        strict : bool
            False: the share of partitions at least as extreme, and of random ones (1 + count) / (1 + total) (Phipson &
            Smyth 2010). True: the share of more extreme ones, which may be 0.
        """
        if alternative == "two-sided":
            sides = [self.p_values(side, strict=strict) for side in ("greater", "less")]
            return np.minimum(1.0, 2 * np.minimum(*sides))
        more, other = (self.above, self.below) if alternative == "greater" else (self.below, self.above)
        if strict:
            return more / self.total
        at_least = self.total - other
        return at_least / self.total if self.exact else (1 + at_least) / (1 + self.total)


@dataclass(frozen=True)
class Standardised:
    """Columns with mean 0 and variance 1, as the sums are compared.

    Attributes
    ----------
    values : (n, m) float64
        A column that does not vary is 0.
    deviation : (m,) float64
        What the columns were divided by; 0 where one does not vary.
    """

    values: NDArray[np.float64]
    deviation: NDArray[np.float64]


def standardised(columns: NDArray[np.float64]) -> Standardised:
    """Return centred and scaled columns."""
    centred = columns - columns.mean(axis=0)
    centred[:, np.ptp(columns, axis=0) <= SLACK] = 0.0
    deviation = np.sqrt((centred**2).mean(axis=0))
    return Standardised(centred / np.where(deviation > 0, deviation, 1.0), deviation)


def exact_tails(columns: NDArray[np.float64], in_a: NDArray[np.bool_]) -> Tails:
    """Compare with every partition.

    Parameters
    ----------
    columns : (n, m) float64
    in_a : (n,) bool
        The first group; both have images.
    """
    n = len(columns)
    size, sign = _smaller_side(in_a)
    centred = columns - columns.mean(axis=0)
    members = in_a if sign > 0 else ~in_a
    observed = centred[members].sum(axis=0)
    slack = SLACK * size * (n - size) / n
    below, above = count_subsets(centred, size, observed - slack, observed + slack)
    if sign < 0:
        above, below = below, above
    return Tails(above, below, math.comb(n, size), True)


def random_tails(
    columns: Standardised,
    mixtures: NDArray[np.float64],
    groups: list[NDArray[np.bool_]],
    sizes: list[int],
    blocks: Iterable[SubsetBlock],
) -> list[Tails]:
    """Compare with random partitions: one matrix product for all columns, and for groups of like size.

    Sums are taken in single precision; those too close to the observed one to be told apart are taken again in double,
    so the counts are those of double precision throughout.

    Parameters
    ----------
    columns : Standardised
        Of (n, m) columns.
    mixtures : (m, c) float64
        Further columns to test, as linear combinations of the columns before they were standardised.
    groups : list of (n,) bool
        Each is compared with all other images.
    sizes : list of int
        The sizes of the blocks' subsets, in their order: of each group its smaller side.

    Returns
    -------
    list of Tails
        One a group, over m + c columns.
    """
    values, scale, weights = _with_mixtures(columns, mixtures)
    n = len(values)
    sides = [_smaller_side(group) for group in groups]
    observed = [values[g if sign > 0 else ~g].sum(axis=0) for g, (_, sign) in zip(groups, sides)]
    # On the scale of the standardised sums; a column that does not vary only ever ties.
    slack = [SLACK * size * (n - size) / n / np.where(scale > 0, scale, 1.0) for size, _ in sides]
    single = padded(columns.values.astype(np.float32))
    shape = (len(groups), values.shape[1])
    above, below, total = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), 0
    for block in (part for drawn in blocks for part in drawn.parts()):
        total += len(block.bits)
        for place, base in enumerate(block.sums(single)):
            sums = np.concatenate([base, base @ weights.astype(np.float32)], axis=1)
            for g in [g for g, (size, _) in enumerate(sides) if size == sizes[place]]:
                more, less = _compare(block, place, sums, values, observed[g], slack[g], scale > 0)
                above[g] += more
                below[g] += less
    return [
        Tails(above[g], below[g], total, False) if sign > 0 else Tails(below[g], above[g], total, False)
        for g, (_, sign) in enumerate(sides)
    ]


def smaller_size(in_a: NDArray[np.bool_]) -> int:
    """Return the size of the smaller side of a partition, by which its subsets are drawn."""
    return _smaller_side(in_a)[0]


def takes_all(in_a: NDArray[np.bool_]) -> bool:
    """Return whether the partitions of these sizes are few enough to compare with all of them."""
    return is_enumerable(len(in_a), smaller_size(in_a))


def _smaller_side(in_a: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the size of the smaller side, and 1 if that is the group itself, -1 if it is the others."""
    inside = int(in_a.sum())
    return (inside, 1) if 2 * inside <= len(in_a) else (len(in_a) - inside, -1)


def _with_mixtures(
    columns: Standardised, mixtures: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return all standardised columns, their deviations, and the weights that make the mixtures of the others."""
    raw = columns.deviation[:, None] * mixtures
    mixed = columns.values @ raw
    # Columns may cancel up to rounding.
    mixed[:, np.ptp(mixed, axis=0) <= SLACK] = 0.0
    deviation = np.sqrt((mixed**2).mean(axis=0))
    inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    values = np.concatenate([columns.values, mixed * inverse], axis=1)
    return values, np.concatenate([columns.deviation, deviation]), raw * inverse


def _compare(
    block: SubsetBlock,
    place: int,
    sums: NDArray[np.float32],
    values: NDArray[np.float64],
    observed: NDArray[np.float64],
    slack: NDArray[np.float64],
    varies: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many subsets of a block have a larger and a smaller sum than observed, per column."""
    doubt = _DOUBT * np.sqrt(block.n)
    larger, smaller = (
        sums > (observed + doubt).astype(np.float32),
        sums < (observed - doubt).astype(np.float32),
    )
    larger[:, ~varies] = smaller[:, ~varies] = False
    rows, columns = np.nonzero(~(larger | smaller) & varies)
    above, below = larger.sum(axis=0), smaller.sum(axis=0)
    if rows.size:
        subset, row = np.unique(rows, return_inverse=True)
        column, at = np.unique(columns, return_inverse=True)
        again = (block.members(subset, place) @ values[:, column])[row, at]
        difference = again - observed[columns]
        np.add.at(above, columns[difference > slack[columns]], 1)
        np.add.at(below, columns[difference < -slack[columns]], 1)
    return above, below
