"""What every metric promises, declared beside its family and proved for all by one contract test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
