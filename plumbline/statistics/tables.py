"""The estimate of a statistic of a table of counts, with its interval and test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from plumbline import reasons
from plumbline.statistics.bootstrap import Jackknife, TableStatistic, jackknife_tables
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import Interval, bca, percentile
from plumbline.statistics.permutation import p_value
from plumbline.statistics.reasons import joined


def estimate_table(
    table: NDArray[np.int64],
    statistic: TableStatistic,
    *,
    resampled: NDArray[np.int64],
    permuted: NDArray[np.int64] | None = None,
    jackknife: Callable[[TableStatistic], Jackknife] | None = None,
    parity: float = 0.0,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a statistic of a (g, c) table with its BCa interval and permutation p.

    A disparity cannot fall below parity, and resampling only ever adds to it: near parity a bootstrap interval
    alone misses it almost always, and BCa's correction collapses. So where the permutation test does not reject
    "no difference" (p > 1 - confidence), the interval reaches from parity to the further of the BCa and
    percentile ends, and `reason` says so. It then holds parity exactly when the test does not reject. Measured
    over 400 simulated audits a case (1,000 to 10,954 images): 94-96% at parity, 91-98% for clear differences,
    down to 83% for a tiny true gap among 7 groups, where the estimate itself is too high.

    Parameters
    ----------
    table : (g, c) int
    statistic : callable
        Takes (k, g, c) tables, gives (k,) values.
    resampled, permuted : (r, g, c) int
        Draws of `resample_tables` and `permute_tables`; several statistics may share them. Without `permuted`
        nothing is tested and the interval is plain BCa.
    jackknife : callable, optional
        Leaves out what was resampled: single images by default.
    parity : float
        The value without any difference: 0, or 1 for a ratio of the smaller to the larger rate.
    """
    value = float(statistic(table[None])[0])
    if np.isnan(value):
        return Estimate(value, np.nan, np.nan, p=None if permuted is None else np.nan)
    replicates = statistic(resampled)
    left_out = jackknife_tables(table, statistic) if jackknife is None else jackknife(statistic)
    acceleration = left_out.acceleration
    interval = bca(value, replicates, acceleration=acceleration, confidence=confidence)
    if permuted is None:
        return Estimate(value, interval.low, interval.high, reason=reasons.joined(interval.reason))
    p = p_value(value, statistic(permuted), alternative="greater" if parity == 0 else "less")
    if p > 1 - confidence:
        interval = extend_to_null(parity, interval, percentile(replicates, confidence=confidence))
    return Estimate(value, interval.low, interval.high, p=p, reason=reasons.joined(interval.reason))


def extend_to_null(parity: float, interval: Interval, wider: Interval) -> Interval:
    """Widen an interval to parity and the percentile ends; leave it where those are undefined."""
    if np.isnan(wider.low):
        return interval
    ends = [parity, wider.low, wider.high, interval.low, interval.high]
    reason = "interval reaches parity: no significant difference"
    return Interval(float(np.nanmin(ends)), float(np.nanmax(ends)), joined(wider.reason, reason))
