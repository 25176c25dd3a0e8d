"""How sure an audit wants to be: the numbers that every metric family shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import ConfigError
from plumbline.metrics.cell import Cell
from plumbline.statistics.bootstrap import DrawSettings
from plumbline.statistics.reasons import MIN_GROUP


@dataclass(frozen=True)
class MetricSettings(DrawSettings):
    """Settings of the metric families: at least 100 resamples and permutations, and a confidence in (0.5, 1).

    Attributes
    ----------
    min_group : int
        Smaller groups are reported and flagged.
    label_margin : float
        Automatic gender labels below this margin |p_man - p_woman| are dropped in `confident_labels`, in
        [0, 1].
    label_error : float
        Share of automatic labels that may be wrong where a dataset has no gender of its own, in [0, 0.5): how far the
        rates by them could then move.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    min_group: int = MIN_GROUP
    label_margin: float = 0.2
    label_error: float = 0.15

    def __post_init__(self) -> None:
        ranges = {
            "resamples": (self.resamples >= 100, "at least 100"),
            "permutations": (self.permutations >= 100, "at least 100"),
            "confidence": (0.5 < self.confidence < 1, "between 0.5 and 1"),
            "min_group": (self.min_group >= 1, "at least 1"),
            "label_margin": (0 <= self.label_margin <= 1, "0 .. 1"),
            "label_error": (0 <= self.label_error < 0.5, "0 .. below 0.5"),
        }
        for name, (valid, expected) in ranges.items():
            if not valid:
                raise ConfigError(
                    "a statistics setting is out of range",
                    where=f"statistics.{name}",
                    found=getattr(self, name),
                    expected=expected,
                )


# --- What every metric promises, declared beside its family and proved for all by one contract test.

Measure = Callable[[NDArray[np.float64], NDArray[np.int64], int], NDArray[np.float64]]
"""Takes responses (n, g + 1), groups (n,) and g; gives the metric's values, () or (g,).

The last candidate is the event, the probe, or the score that is compared; the others are the groups' own classes.
"""


@dataclass(frozen=True)
class MetricTraits:
    """What a metric promises.

    Attributes
    ----------
    name : str
        As in the column `metric`.
    meaning, formula, source : str
        What it says, for people; how it is computed, in plain characters, with the definitions in parentheses; which
        paper and place it is from.
    function : callable
        The public function of `plumbline.metrics` that computes it.
    measure : callable
        The metric on responses and groups, so that one test can exercise all metrics.
    bounds : (float, float)
        Every defined value lies within.
    shape : {"scalar", "by_group"}
        One value, or one a group. Renaming groups leaves the first alone and permutes the second.
    when_identical : {"zero", "one", "equal", "undefined"} or None
        What groups that are answered alike give; None where the metric does not compare groups.
    empty_group : {"nan", "left_out"}
        An empty group's own value is nan; or the value is that of the other groups alone.
    ties : {"lower index wins", "by id", "no effect"}
        How equal responses are resolved: the first candidate wins; equal images are ordered by their id; or equal
        responses are nothing special.
    scale, shift : {"invariant", "equivariant"} or None
        What multiplying all responses by a positive number, or adding one, does to the value: nothing, or the same to
        the value. None where neither holds.
    headline : str or None
        The definition that stands for the metric where there is room for few numbers, such as MLflow's charts; None
        where it is not shown there.
    """

    name: str
    meaning: str
    formula: str
    source: str
    function: Callable[..., Any]
    measure: Measure
    bounds: tuple[float, float]
    shape: Literal["scalar", "by_group"]
    when_identical: Literal["zero", "one", "equal", "undefined"] | None
    empty_group: Literal["nan", "left_out"]
    ties: Literal["lower index wins", "by id", "no effect"] = "lower index wins"
    scale: Literal["invariant", "equivariant"] | None = "invariant"
    shift: Literal["invariant", "equivariant"] | None = "invariant"
    headline: str | None = None


# --- A metric family: what is computed together, becomes one asset, and is shown together.


class ComputeRows(Protocol):
    """A function from a cell to its metric rows."""

    def __call__(self, cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
        """Return a frame in the schema of `plumbline.catalog.schema`."""


@dataclass(frozen=True)
class MetricFamily:
    """Metrics that are computed and shown together.

    Attributes
    ----------
    name : str
        Also the asset's name.
    title : str
        For people.
    description : str
        For the person who clicks on the asset.
    owner : str
        Group that answers for it.
    code_version : str
        Raised whenever the same input would give other numbers.
    suites : tuple of str
        The families of suites it reads, see `plumbline.catalog.suites.Suite.family`.
    traits : tuple of MetricTraits
        What each of its metrics promises.
    compute : callable
        `compute(cell, settings=...)` gives the rows; none where the cell lacks the suites or labels.
    """

    name: str
    title: str
    description: str
    owner: str
    code_version: str
    suites: tuple[str, ...]
    traits: tuple[MetricTraits, ...]
    compute: ComputeRows

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of its metrics, as in the column `metric`."""
        return tuple(traits.name for traits in self.traits)
