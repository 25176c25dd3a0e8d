"""Metrics on responses and groups, as the contract test calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.outcomes import OutcomeProportions, outcome_proportions
from plumbline.metrics.traits import Measure


def proportions(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> OutcomeProportions:
    """Return the outcome proportions of the event that the last candidate is."""
    return outcome_proportions(responses.argmax(axis=1) == g, groups.tolist(), levels=range(g))


def on_counts(value: Callable[..., Any]) -> Measure:
    """Return the measure of a metric on event counts (g,) and group totals (g,)."""

    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        result = proportions(responses, groups, g)
        return np.asarray(value(result.count, result.n))

    return measure
