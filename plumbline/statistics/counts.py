"""Contingency tables of groups by outcomes: counting and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError


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
