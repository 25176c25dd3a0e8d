"""Maxima over groups: do their intervals hold the truth, with 2 to 14 groups, near parity and far from it?"""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics.disparities import RANGE_STATISTICS, SKEW_STATISTICS, Resamples, Statistic
from plumbline.statistics import bca, jackknife_tables, percentile, permute_tables, resample_tables

RESAMPLES, PERMUTATIONS = 400, 399
GROUPS, IMAGES, BASE_RATES = (2, 5, 7, 14), (50, 300, 1000, 10_000), (0.02, 0.1, 0.4)
TRUTHS = ("parity", "tiny", "one apart", "clear")
STATISTICS = (*SKEW_STATISTICS, *RANGE_STATISTICS)


def group_rates(groups: int, base: float, truth: str) -> NDArray[np.float64]:
    """Return how often the event happens in each group.

    Tiny and clear differences are spread evenly over the groups, from the lowest to 5% and to twice as much; one apart
    is 30% higher than the others, which are equal.
    """
    place = np.linspace(-0.5, 0.5, groups)
    if truth == "one apart":
        return base * np.where(place == 0.5, 1.3, 1.0)
    return base * {"parity": 1.0, "tiny": 1.05, "clear": 2.0}[truth] ** place


def before(draws: Resamples, statistic: Statistic, p: float) -> tuple[float, float]:
    """Return the interval of version 0.5: BCa, where the test does not reject with parity and the percentile ends."""
    value, replicates = float(statistic.of_events(draws.table)), statistic.of_events(draws.resampled)
    parity = 1.0 if statistic.scale == "ratio" else 0.0
    corrected = bca(value, replicates, acceleration=float(draws.jackknife(statistic.of_events).acceleration))
    ends = [corrected.ci_low, corrected.ci_high]
    if p > 0.05:
        wider = percentile(value, replicates)
        ends += [parity, wider.ci_low, wider.ci_high]
    return min(ends), max(ends)


def as_events(tables: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (..., 2, g) events and sizes of (..., g, 2) tables."""
    return np.stack([tables[..., 0], tables.sum(axis=-1)], axis=-2)


def drawn(seed: int, *, groups: int, images: int, base: float, truth: str) -> dict[str, Drawn]:
    """Return every statistic of one event, of groups of one size."""
    rng = np.random.default_rng([seed, groups, images])
    rates = group_rates(groups, base, truth)
    events = rng.binomial(images, rates)
    table = np.stack([events, images - events], axis=1)
    draws = Resamples(
        table,
        resample_tables(table, resamples=RESAMPLES, rng=rng),
        permute_tables(table, permutations=PERMUTATIONS, rng=rng),
        partial(jackknife_tables, table),
    ).mapped(as_events)
    found = {}
    for statistic in STATISTICS:
        estimate = draws.estimate(statistic.disparity_of_events(), confidence=0.95)
        true = float(statistic.of_events(np.stack([rates, np.ones(groups)]) * 1e12))
        low, high = before(draws, statistic, estimate.p) if np.isfinite(estimate.ci_low) else (np.nan, np.nan)
        found[f"{statistic.metric} {statistic.definition}"] = Drawn(
            estimate.value, true, estimate.ci_low, estimate.ci_high, estimate.p, truth == "parity",
            high - low, bool(low <= true <= high),
        )  # fmt: skip
    return found


BLOCK = Block(
    title="Maxima over groups: groups x images of each x base rate x truth",
    cells=tuple(
        Cell(
            f"{groups} x {images}, {base:.0%}, {truth}",
            partial(drawn, groups=groups, images=images, base=base, truth=truth),
        )
        for groups, images, base, truth in product(GROUPS, IMAGES, BASE_RATES, TRUTHS)
    ),
    worlds=400,
    few=("7 x 300, 40%, one apart", "14 x 1000, 40%, one apart", "2 x 300, 10%, clear"),
)
