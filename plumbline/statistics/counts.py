"""Contingency tables of groups by outcomes: counting, shares, and estimates of their statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.reasons import joined, reason
from plumbline.statistics.bootstrap import TableStatistic, jackknife_tables
from plumbline.statistics.cluster_permutation import relabelling_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import bca, percentile
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.permutation import p_value


def count_table(groups: ArrayLike, outcomes: ArrayLike, *, n_groups: int, n_outcomes: int) -> NDArray[np.int64]:
    """Count images by group and outcome.

    Parameters
    ----------
    groups : (n,) int
        Group of each image, 0 .. n_groups - 1; -1 is an unlabelled image, which is in no group.
    outcomes : (..., n) int
        Outcome of each image, 0 .. n_outcomes - 1; leading axes are separate tables over the same images.

    Returns
    -------
    (..., n_groups, n_outcomes) int64

    Raises
    ------
    MetricError
        If the lengths differ or a code is out of range.
    """
    group, outcome = np.asarray(groups, dtype=np.int64), np.asarray(outcomes, dtype=np.int64)
    _check_codes(group, outcome, n_groups, n_outcomes)
    tables = int(np.prod(outcome.shape[:-1]))
    labelled = group >= 0
    cell = group[labelled] * n_outcomes + outcome.reshape(tables, -1)[:, labelled]
    size = n_groups * n_outcomes
    cell += size * np.arange(tables)[:, None]
    return np.bincount(cell.ravel(), minlength=tables * size).reshape(*outcome.shape[:-1], n_groups, n_outcomes)


def _check_codes(group: NDArray[np.int64], outcome: NDArray[np.int64], n_groups: int, n_outcomes: int) -> None:
    if group.ndim != 1 or outcome.shape[-1:] != group.shape:
        raise MetricError(
            "groups and outcomes must describe the same images",
            found=f"groups {group.shape}, outcomes {outcome.shape}",
            expected="(n,) and (..., n)",
        )
    if group.size and (group.min() < -1 or group.max() >= n_groups):
        raise MetricError(
            "a group code is out of range",
            found=f"{group.min()} .. {group.max()}",
            expected=f"0 .. {n_groups - 1}, or -1 for an unlabelled image",
        )
    if outcome.size and (outcome.min() < 0 or outcome.max() >= n_outcomes):
        raise MetricError(
            "an outcome code is out of range",
            found=f"{outcome.min()} .. {outcome.max()}",
            expected=f"0 .. {n_outcomes - 1}",
        )


def shares(count: NDArray[Any], n: NDArray[Any], empty: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """Return count / n, nan where n is 0, or where `empty` is True."""
    seen = (n > 0) if empty is None else ~empty
    return np.divide(count, n, out=np.full(np.shape(count), np.nan), where=seen)


def mean_shares(count: NDArray[Any], n: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean of count / n over the groups that are not empty, (..., g) to (...); nan where all are."""
    seen = n > 0
    share = np.divide(count, n, out=np.zeros(np.shape(count)), where=seen)
    return shares(share.sum(axis=-1), seen.sum(axis=-1))


def estimate_table(
    table: NDArray[np.int64],
    statistic: TableStatistic,
    *,
    resampled: NDArray[np.int64],
    permuted: NDArray[np.int64] | None = None,
    jackknife: Callable[[TableStatistic], Jackknife] | None = None,
    least_p: float = 0.0,
    parity: float = 0.0,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate a statistic of a (g, c) table with its BCa interval and permutation p.

    A disparity cannot fall below parity, and resampling biases it away from parity. Near parity the bootstrap interval
    almost never covers the true value, so when the permutation test does not reject "no difference"
    (p > 1 - confidence), the interval reaches from parity to the further of the BCa and percentile ends, and `reason`
    says so. It then contains parity exactly when the test does not reject. Coverage is in docs/calibration.md.

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
    least_p : float
        How small p can become at all (`plumbline.statistics.cluster_permutation`): it is no smaller, and `reason` says
        where that is no evidence.
    parity : float
        The value without any difference: 0, or 1 for a ratio of the smaller to the larger rate.
    """
    value = float(statistic(table[None])[0])
    if np.isnan(value):
        return Estimate(value, np.nan, np.nan, p=None if permuted is None else np.nan)
    replicates = statistic(resampled)
    left_out = jackknife_tables(table, statistic) if jackknife is None else jackknife(statistic)
    acceleration = float(left_out.acceleration)
    estimate = bca(value, replicates, acceleration=acceleration, confidence=confidence)
    if permuted is None:
        return estimate
    p = max(p_value(value, statistic(permuted), alternative="greater" if parity == 0 else "less"), least_p)
    if p > 1 - confidence:
        estimate = extend_to_parity(estimate, percentile(value, replicates, confidence=confidence), parity=parity)
    return replace(estimate, p=p, reason=joined(relabelling_reason(least_p, confidence), estimate.reason))


def extend_to_parity(estimate: Estimate, wider: Estimate, *, parity: float) -> Estimate:
    """Extend an interval to parity and to the ends of a wider one; leave it where those are undefined."""
    if np.isnan(wider.ci_low):
        return estimate
    ends = [parity, wider.ci_low, wider.ci_high, estimate.ci_low, estimate.ci_high]
    low, high = float(min(ends)), float(max(ends))
    return replace(estimate, ci_low=low, ci_high=high, reason=joined(wider.reason, reason("reaches_parity")))
