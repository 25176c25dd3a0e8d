"""One number of a table of counts with everything that a metric row says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.bootstrap import TableStatistic, jackknife_tables
from plumbline.statistics.intervals import bca
from plumbline.statistics.permutation import p_value


@dataclass(frozen=True)
class Estimate:
    """A value with its interval and p-value.

    Attributes
    ----------
    value, ci_low, ci_high : float
        nan where undefined.
    p : float or None
        Against "no difference between groups"; None if that was not tested.
    reason : str or None
        Why something is undefined.
    """

    value: float
    ci_low: float
    ci_high: float
    p: float | None
    reason: str | None


def estimate_table(
    table: NDArray[np.int64],
    statistic: TableStatistic,
    *,
    resampled: NDArray[np.int64],
    permuted: NDArray[np.int64] | None = None,
    alternative: Literal["greater", "less"] = "greater",
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a statistic of a (g, c) table with its BCa interval and permutation p.

    Parameters
    ----------
    table : (g, c) int
    statistic : callable
        Takes (k, g, c) tables, gives (k,) values.
    resampled, permuted : (r, g, c) int
        Draws of `resample_tables` and `permute_tables`; several statistics may share them.
    alternative : {"greater", "less"}
        The side on which groups differ.
    """
    value = float(statistic(table[None])[0])
    if np.isnan(value):
        return Estimate(value, np.nan, np.nan, None if permuted is None else np.nan, None)
    interval = bca(
        value,
        statistic(resampled),
        acceleration=jackknife_tables(table, statistic).acceleration,
        confidence=confidence,
    )
    p = None if permuted is None else p_value(value, statistic(permuted), alternative=alternative)
    return Estimate(value, interval.low, interval.high, p, interval.reason)
