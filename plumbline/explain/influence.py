"""How far a number moves when images are left out: what every way of finding it gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from plumbline.tables.row_identity import IDENTIFYING

MOST_TOLD = 8
MOST_IMAGES = 6
"""Images that stand for one entry."""


@dataclass(frozen=True)
class Moved:
    """What is left out, and how far the number then moves.

    Attributes
    ----------
    name : str
        An image, a set or a group, in words.
    without : float
        The number without it; nan where it is then undefined.
    change : float
        `without` less the number.
    images : tuple of str
        sha256 of images that are left out, those to be shown.
    of : int
        How many images the name stands for.
    alike : bool
        Whether any single one of them is left out, and not all of them together.
    """

    name: str
    without: float
    change: float
    images: tuple[str, ...]
    of: int
    alike: bool = False

    @property
    def told(self) -> str:
        """Return what is left out, in words."""
        if self.alike:
            return (
                f"one of {self.of:,} images alike: {self.name}" if self.of > 1 else f"one image: {self.name}"
            )
        return self.name if self.of == 1 else f"{self.name}: {self.of:,} images"


@dataclass(frozen=True)
class Influence:
    """The images that move a number most.

    Attributes
    ----------
    method : str
        What was left out, and how the number was found without it; where nothing could be left out, why.
    moved : tuple of Moved
        The largest changes first; those that change nothing are left out.
    """

    method: str
    moved: tuple[Moved, ...] = ()


def ranked(method: str, found: Iterable[Moved]) -> Influence:
    """Return what moves the number most first; what it is undefined without comes last: that is no change in size."""
    moving = [one for one in found if math.isnan(one.change) or abs(one.change) > 1e-12]
    moving.sort(key=lambda one: (math.isnan(one.change), -abs(one.change), one.name))
    said = method if moving else f"{method} None of them changes it."
    return Influence(said, tuple(moving[:MOST_TOLD]))


def same_measure(rows: pl.DataFrame, row: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows that measure the same as `row`."""
    return rows.filter(
        pl.col(name).eq_missing(pl.lit(row[name], dtype=rows.schema[name])) for name in IDENTIFYING
    )


def value_of(rows: pl.DataFrame, row: Mapping[str, Any]) -> float:
    """Return the value of the row that measures the same as `row`; nan where there is none."""
    found = same_measure(rows, row)["value"].to_list()
    return math.nan if len(found) != 1 or found[0] is None else float(found[0])


def left_out(
    row: Mapping[str, Any],
    units: Mapping[str, tuple[str, ...]],
    recompute: Callable[[frozenset[str]], pl.DataFrame],
    *,
    method: str,
) -> Influence:
    """Compute a number anew without each of some units, one at a time.

    Parameters
    ----------
    row : mapping
        The metric row.
    units : mapping of str to tuple of str
        Name of a group or set -> its images.
    recompute : callable
        From the images that are left out to metric rows of the same kind.
    method : str
        What is done, for the reader.

    Returns
    -------
    Influence
        Without entries, and saying so, if the stored data no longer give the stored number.
    """
    if row["value"] is None or not math.isfinite(row["value"]):
        return Influence(
            f"Not available: the number is undefined ({row['reason'] or 'no reason was recorded'})."
        )
    again = value_of(recompute(frozenset()), row)
    if not same_number(again, row["value"]):
        return Influence(
            f"Not available: computed anew from the stored data this number is {again:.6g}. "
            "The code, or data that the number depends on besides the images, has changed since."
        )
    found = []
    for name, images in units.items():
        without = value_of(recompute(frozenset(images)), row)
        found.append(Moved(name, without, without - row["value"], images[:MOST_IMAGES], len(images)))
    return ranked(method, found)


def same_number(one: float, other: float | None) -> bool:
    """Return whether two numbers agree up to rounding; no number agrees with none."""
    return other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
