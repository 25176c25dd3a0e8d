"""Outcomes of images by group, and the draws by which their disparities are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.bootstrap import Jackknife, TableStatistic, jackknife_tables, resample_tables
from plumbline.statistics.clusters import resample_sets
from plumbline.statistics.counts import count_table
from plumbline.statistics.groups import Groups
from plumbline.statistics.permutation import permute_tables
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_sampling import jackknife_sets, permute_sets, set_tables


@dataclass(frozen=True)
class Draws:
    """What an estimate of counts is judged by, see `estimate_table`."""

    resampled: NDArray[np.int64]
    permuted: NDArray[np.int64]
    jackknife: Callable[[TableStatistic], Jackknife]


@dataclass(frozen=True)
class Outcomes:
    """What became of every image of the groups.

    Attributes
    ----------
    groups : Groups
        -1 for images that do not count.
    codes : (n,) int64
        Outcome of each image.
    holds : (e, c) int64
        Which outcomes belong to which event.
    sets : (n,) int64 or None
        Set of each image, where they come in sets: these are then what is resampled.
    """

    groups: Groups
    codes: NDArray[np.int64]
    holds: NDArray[np.int64]
    sets: NDArray[np.int64] | None

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """Return the (g, c) counts."""
        return count_table(self.groups.codes, self.codes, n_groups=self.n_groups, n_outcomes=self.n_outcomes)

    @property
    def n_groups(self) -> int:
        """Return g."""
        return len(self.groups.names)

    @property
    def n_outcomes(self) -> int:
        """Return c."""
        return int(self.holds.shape[1])

    def events(self, tables: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return event counts and, last, group sizes of (..., g, c) tables: (..., e + 1, g)."""
        found = np.empty((len(self.holds) + 1, tables.shape[-2], *tables.shape[:-2]), dtype=np.int64)
        # Replicates run along the last axis in memory, as the draws have them.
        outcomes = np.moveaxis(tables, (-2, -1), (0, 1))
        for event, holds in enumerate(self.holds):
            chosen = np.flatnonzero(holds)
            np.sum(
                outcomes[:, chosen] if len(chosen) > 1 else outcomes[:, chosen[0], None],
                axis=1,
                out=found[event],
            )
        np.sum(outcomes, axis=1, out=found[-1])
        return np.moveaxis(found, (0, 1), (-2, -1))

    def draws(self, names: list[str], settings: MetricSettings) -> Draws:
        """Draw resamples and permutations, from generators that are named by what they are for."""
        resampling, permuting = (
            generator(settings.seed, *names, use) for use in ("bootstrap", "permutation")
        )
        permuted = self.permuted(settings.permutations, permuting)
        if self.sets is None:
            resampled = resample_tables(self.table, resamples=settings.resamples, rng=resampling)
            return Draws(resampled, permuted, partial(jackknife_tables, self.table))
        tables = set_tables(
            self.groups.codes, self.codes, self.sets, n_groups=self.n_groups, n_outcomes=self.n_outcomes
        )
        resampled = resample_sets(tables, resamples=settings.resamples, rng=resampling)
        return Draws(resampled, permuted, partial(jackknife_sets, tables))

    def permuted(self, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return (r, g, c) tables as if group labels had been shuffled: over all images, or as their sets demand."""
        if self.sets is None:
            return permute_tables(self.table, permutations=permutations, rng=rng)
        return permute_sets(
            self.groups.codes,
            self.codes,
            self.sets,
            n_groups=self.n_groups,
            n_outcomes=self.n_outcomes,
            permutations=permutations,
            rng=rng,
        )
