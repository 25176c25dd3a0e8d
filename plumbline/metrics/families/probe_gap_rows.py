"""Rows of the gap between groups of P(class → probe)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell
from plumbline.metrics.families.probe_tests import ProbeTest, probe_test_row
from plumbline.metrics.families.rows import estimate_columns
from plumbline.metrics.rates import parity_differences
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.trident import (
    PROBE,
)
from plumbline.statistics.bootstrap import jackknife_tables, resample_sums
from plumbline.statistics.counts import count_table
from plumbline.statistics.estimates import Estimate, estimate_table
from plumbline.statistics.permutation import permute_tables
from plumbline.statistics.reasons import small_groups_reason
from plumbline.statistics.seeds import generator
from plumbline.tables.schema import Row
from plumbline.tables.suites import VALENCES


def probe_gap_rows(cell: Cell, test: ProbeTest, settings: MetricSettings) -> list[Row]:
    """Return the gap between groups of P(class → probe), averaged over the probes of one valence.

    The probes of a valence see the same images: what is resampled and permuted is how many of them an image
    became.
    """
    rows = []
    for valence in VALENCES:
        chosen = np.array([probe.category == valence for probe in test.suite.probes])
        won = (test.outcomes[chosen] == PROBE).sum(axis=0)
        table = count_table(
            test.groups.codes, won, n_groups=len(test.groups.names), n_outcomes=int(chosen.sum()) + 1
        )
        sizes = table.sum(axis=1)
        if np.count_nonzero(sizes) < 2:
            continue
        names = (cell.model, cell.dataset, test.suite_name, test.groups.attribute, "probe_rate_gap", valence)
        estimate = _gap(
            table,
            resamples=settings.resamples,
            permutations=settings.permutations,
            resampling=generator(settings.seed, *names, "bootstrap"),
            permuting=generator(settings.seed, *names, "permutation"),
            confidence=settings.confidence,
        )
        small = small_groups_reason(test.groups.names, sizes.tolist(), settings.min_group)
        rows.append(
            probe_test_row(cell, test, metric="probe_rate_gap", definition="by_valence", event=valence)
            | {"n": int(sizes.sum())}
            | estimate_columns(estimate, small)
        )
    return rows


def _gap(
    table: NDArray[np.int64],
    *,
    resamples: int,
    permutations: int,
    resampling: np.random.Generator,
    permuting: np.random.Generator,
    confidence: float,
) -> Estimate:
    """Estimate the gap of a (g, k + 1) table of how many of k probes the images of each group became.

    It depends on each group's sum alone, so that sums are what is drawn: (..., 2, g) of sums and trials.
    """
    trials = table.sum(axis=1) * (table.shape[1] - 1)

    def summed(tables: NDArray[np.int64]) -> NDArray[np.int64]:
        sums = tables @ np.arange(tables.shape[-1])
        own = tables.sum(axis=-1) * (tables.shape[-1] - 1)
        return np.stack([sums, own], axis=-2)

    def statistic(sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return parity_differences(sums[..., 0, :], sums[..., 1, :])

    drawn = resample_sums(table, resamples=resamples, rng=resampling)
    return estimate_table(
        summed(table),
        statistic,
        resampled=np.stack([drawn, np.broadcast_to(trials, drawn.shape)], axis=-2),
        permuted=summed(permute_tables(table, permutations=permutations, rng=permuting)),
        jackknife=lambda of_sums: jackknife_tables(table, lambda tables: of_sums(summed(tables))),
        confidence=confidence,
    )
