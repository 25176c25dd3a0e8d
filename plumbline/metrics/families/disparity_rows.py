"""Rows of how unequally an outcome falls on groups, one a reading of the inequality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.families.rows import estimate_columns
from plumbline.metrics.outcome_draws import Outcomes
from plumbline.metrics.rates import (
    adverse_impact_reason,
    impact_ratios,
    parity_differences,
    undefined_pairs_reason,
)
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.skew import skew_sums
from plumbline.statistics.clusters import few_sets_reason
from plumbline.statistics.counts import shares
from plumbline.statistics.estimates import estimate_table
from plumbline.statistics.reasons import empty_groups_reason, joined, small_groups_reason
from plumbline.tables.schema import Row


@dataclass(frozen=True)
class Disparity:
    """One way to read the inequality of event counts over groups.

    Attributes
    ----------
    value : callable
        (..., e, g) event counts and (..., 1, g) totals to (...).
    parity : float
        Its value where groups do not differ.
    pairs : bool
        Whether it is over pairs of groups, some of which may be undefined.
    """

    metric: str
    definition: str
    value: Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
    parity: float = 0.0
    pairs: bool = False


def _skew(over_pairs: str = "mean", smoothing: float = 0.0) -> Callable[..., NDArray[np.float64]]:
    def value(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        total, cells = skew_sums(counts, totals, over_pairs=over_pairs, smoothing=smoothing)
        return shares(total.sum(axis=-1), cells.sum(axis=-1))

    return value


SKEWS = (
    Disparity("max_skew", "mean_over_pairs", _skew(), pairs=True),
    Disparity("max_skew", "max_over_pairs", _skew("max"), pairs=True),
    Disparity("max_skew", "smoothed", _skew(smoothing=0.5)),
)


RANGES = (
    Disparity("parity_difference", "max_minus_min", lambda x, n: parity_differences(x, n)[..., 0]),
    Disparity("impact_ratio", "min_over_max", lambda x, n: impact_ratios(x, n)[..., 0], parity=1.0),
)


def disparity_rows(
    common: Row, seen: Outcomes, readings: tuple[Disparity, ...], settings: MetricSettings
) -> list[Row]:
    """Return one row a reading."""
    table, groups, holds = seen.table, seen.groups, seen.holds
    sizes = table.sum(axis=1)
    if np.count_nonzero(sizes) < 2:
        return []
    named = ("model", "dataset", "suite", "event", "attribute", "probe")
    names = [str(common[key]) for key in named if key in common]
    draws = seen.draws(names, settings)
    # Every reading is of event counts and group sizes: these are taken from the draws once for all readings.
    resampled, permuted = seen.events(draws.resampled), seen.events(draws.permuted)
    rows = []
    for reading in readings:

        def statistic(events: NDArray[np.int64], reading: Disparity = reading) -> NDArray[np.float64]:
            return reading.value(events[..., :-1, :], events[..., -1:, :])

        estimate = estimate_table(
            seen.events(table),
            statistic,
            resampled=resampled,
            permuted=permuted,
            jackknife=lambda of_events: draws.jackknife(lambda tables: of_events(seen.events(tables))),
            parity=reading.parity,
            confidence=settings.confidence,
        )
        reasons = _reasons(reading, table, holds, estimate.value)
        small = small_groups_reason(groups.names, sizes.tolist(), settings.min_group)
        rows.append(
            common
            | {"metric": reading.metric, "definition": reading.definition, "n": int(sizes.sum())}
            | estimate_columns(estimate, reasons, small, few_sets_reason(seen.sets))
        )
    return rows


def _reasons(
    reading: Disparity, table: NDArray[np.int64], holds: NDArray[np.int64], value: float
) -> str | None:
    counts, sizes = holds @ table.T, table.sum(axis=1)
    pairs = len(holds) * len(sizes) * (len(sizes) - 1) // 2
    left_out = empty_groups_reason(sizes)
    if reading.pairs:
        _, cells = skew_sums(counts, sizes[None, :])
        return joined(left_out, undefined_pairs_reason(pairs - int(cells.sum()), pairs))
    if reading.metric == "impact_ratio":
        return joined(
            left_out, "the event never happens" if np.isnan(value) else adverse_impact_reason(value)
        )
    return left_out
