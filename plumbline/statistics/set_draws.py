"""Bootstrap draws of whole sets as numbers of times, and statistics of a sample in which sets count so many times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.unit_draws import coins_tossed, times_drawn

# Numbers of times that exist at once: 16 MB, whatever the number of sets and resamples.
_AT_ONCE = 2_000_000
# Half-widths of the bins around a quantile, in half standard deviations of its rank; beyond lies all the rest.
_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 20, 40])


def drawn_times(
    sets: int, *, resamples: int, rng: np.random.Generator, strata: NDArray[np.int64] | None = None
) -> Iterator[NDArray[np.float64]]:
    """Yield, in blocks, how often each set is drawn when as many sets as there are are drawn with replacement.

    Parameters
    ----------
    sets : int
        At least 1.
    strata : (sets,) int, optional
        Sets are drawn within their stratum, each of which keeps its size.

    Yields
    ------
    (b, sets) float64
        Whole numbers; the blocks have `resamples` rows in all.
    """
    parts = [np.arange(sets)] if strata is None else [np.flatnonzero(strata == s) for s in np.unique(strata)]
    step = max(1, _AT_ONCE // sets)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        times = np.empty((rows, sets))
        for part in parts:
            times[:, part] = times_drawn(rows, len(part), rng=rng)
        yield times


def fair_coins(units: int, *, draws: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yield (b, units) zeros and ones, each with probability ½, in blocks of `draws` rows in all."""
    step = max(1, _AT_ONCE // units)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        yield coins_tossed(rows, units, rng=rng).astype(np.float64)


@dataclass(frozen=True)
class WeightedQuantile:
    """A linear quantile of values that belong to units, when units count several times, or not at all.

    The values are sorted once and cut into bins, narrow where the quantile is. One matrix product counts the bins of
    every draw, and only the bin that holds the draw's quantile is looked at value by value: exact, and a hundredth of
    the work of gathering and sorting the values of every draw.

    Attributes
    ----------
    share : float
        In [0, 1]: 0.9 is the 90th percentile.
    values : (n,) float64
        Sorted.
    units : (n,) int64
        Unit of each.
    edges : (k + 1,) int64
        Where bins begin and end.
    counts : (u, k) float32
        Values of each unit in each bin; whole numbers, whose sums below 2^24 are exact.
    """

    share: float
    values: NDArray[np.float64]
    units: NDArray[np.int64]
    edges: NDArray[np.int64]
    counts: NDArray[np.float32]

    @classmethod
    def of(
        cls, values: NDArray[np.float64], units: NDArray[np.int64], *, n_units: int, share: float
    ) -> WeightedQuantile:
        """Sort (n,) values of (n,) units, of which there are `n_units`; n is at least 1."""
        n = len(values)
        order = np.argsort(values, kind="stable")
        away = np.maximum(1.0, np.sqrt(n) / 4) * np.concatenate([-_WIDTHS[::-1], _WIDTHS])
        edges = np.unique(np.clip(np.round(share * (n - 1) + away), 0, n).astype(np.int64))
        edges = np.unique(np.concatenate([[0], edges, [n]]))
        bins = len(edges) - 1
        cell = units[order] * bins + np.repeat(np.arange(bins), np.diff(edges))
        counts = np.bincount(cell, minlength=n_units * bins).reshape(n_units, bins)
        return cls(share, values[order], units[order], edges, counts.astype(np.float32))

    def at(self, times: NDArray[np.float64] | NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the (b,) quantiles, as `numpy.quantile`, when units count (b, u) times; nan without values."""
        counted = times.astype(np.float32, copy=False) @ self.counts
        upto = np.cumsum(counted, axis=1, dtype=np.float64)
        last = np.maximum(upto[:, -1], 1) - 1
        place = self.share * last
        low = np.floor(place)
        below = self._of_rank(low, times, upto)
        above = self._of_rank(np.minimum(low + 1, last), times, upto)
        found = below + (place - low) * (above - below)
        return np.where(upto[:, -1] > 0, found, np.nan)

    def _of_rank(
        self,
        rank: NDArray[np.float64],
        times: NDArray[np.float64] | NDArray[np.float32],
        upto: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the value that has `rank` values before it, (b,)."""
        bins = len(self.edges) - 1
        own = np.minimum((upto <= rank[:, None]).sum(axis=1), bins - 1)
        found = np.empty(len(rank))
        for chosen in np.unique(own):
            rows = np.flatnonzero(own == chosen)
            start, end = self.edges[chosen], self.edges[chosen + 1]
            before = upto[rows, chosen - 1] if chosen else np.zeros(len(rows))
            inside = np.cumsum(times[rows[:, None], self.units[start:end]], axis=1)
            within = (inside <= (rank[rows] - before)[:, None]).sum(axis=1)
            found[rows] = self.values[start + np.minimum(within, end - start - 1)]
        return found
