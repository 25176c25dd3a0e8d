"""What is compared of two sides on the same images: of two checkpoints, or of one before and after a mitigation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.groups import Groups

Key = tuple[str, ...]
"""Names one answer that every image gets, such as a suite and an event of it."""


@dataclass(frozen=True)
class Reading:
    """One number that is read of the counts of answers by group.

    Attributes
    ----------
    value : callable
        (..., e, g) counts (of scores: sums) and (..., 1, g) totals to (...).
    pairs : bool
        Whether it is over pairs of groups, some of which may be undefined.
    disparity : bool
        Whether it is 0 where groups do not differ and never below: chance alone then adds to it.
    """

    metric: str
    definition: str
    value: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
    pairs: bool = False
    disparity: bool = True


@dataclass(frozen=True)
class Comparison:
    """What is read of some answers on the images of some groups.

    Attributes
    ----------
    keys : tuple of Key
        The e answers, in the order in which the readings take their counts.
    groups : Groups
        Code -1 for images that do not count. Without an attribute (`everyone`) it is of no groups but all images.
    readings : tuple of Reading
    columns : mapping
        Columns of its rows.
    """

    keys: tuple[Key, ...]
    groups: Groups
    readings: tuple[Reading, ...]
    columns: Mapping[str, object]


@dataclass(frozen=True)
class PairedAnswers:
    """The answers of several sides to the same images.

    Attributes
    ----------
    scores : mapping of str to mapping of Key to (n,) bool or int64
        By side. Yes or no, or how many of several tests the image passed.
    clusters : (n,) int64 or None
        Set of each image, where images come in sets.
    """

    scores: Mapping[str, Mapping[Key, NDArray[Any]]] = field(repr=False)
    clusters: NDArray[np.int64] | None = None


class Compared(NamedTuple):
    """The answers of each side by key, and what is compared of them."""

    scores: dict[str, dict[Key, NDArray[Any]]]
    comparisons: list[Comparison]


def everyone(kept: NDArray[np.bool_]) -> Groups:
    """Return the images that count as one group, of no attribute."""
    return Groups("", ("all images",), np.where(kept, 0, -1).astype(np.int64))
