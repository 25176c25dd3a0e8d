"""Rates of groups from counts, for one table or many replicates, and the reasons why one is undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError

FOUR_FIFTHS = 0.8
"""Impact ratios below this are adverse impact by the four-fifths rule (29 CFR 1607.4 D)."""


def parity_differences(event_counts: NDArray[Any], group_totals: NDArray[Any]) -> NDArray[np.float64]:
    """Return max p - min p for many tables at once, (..., g) to (...); empty groups are left out."""
    low, high, groups = _rate_range(event_counts, group_totals)
    return np.where(groups > 1, high - low, np.nan)


def impact_ratios(event_counts: NDArray[Any], group_totals: NDArray[Any]) -> NDArray[np.float64]:
    """Return min p / max p for many tables at once, (..., g) to (...); nan where the event never happens."""
    low, high, groups = _rate_range(event_counts, group_totals)
    return np.divide(low, high, out=np.full(low.shape, np.nan), where=(high > 0) & (groups > 1))


def undefined_pairs_reason(undefined: int, pairs: int) -> str | None:
    """Say how many pairs of groups have no defined gap."""
    return f"{undefined} of {pairs} pairs undefined: no event in one group of the pair" if undefined else None


def adverse_impact_reason(ratio: float) -> str | None:
    """Say that an impact ratio falls under the four-fifths rule."""
    # 80/1000 over 100/1000 is 0.8 on paper and a rounding error less in binary.
    return "below four fifths" if ratio < FOUR_FIFTHS - 1e-12 else None


def checked_counts(
    event_counts: ArrayLike, group_totals: ArrayLike, *, least_groups: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return event counts (g,) or (e, g) and group totals (g,) as int64, or raise MetricError."""
    counts, totals = np.asarray(event_counts), np.asarray(group_totals)
    whole = all(
        a.size == 0 or (np.isfinite(a).all() and np.array_equal(a, np.trunc(a))) for a in (counts, totals)
    )
    if totals.ndim != 1 or counts.ndim not in (1, 2) or counts.shape[-1:] != totals.shape or not whole:
        raise MetricError(
            "event counts and group totals must be whole numbers over the same groups",
            found=f"event_counts {counts.dtype} {counts.shape}, group_totals {totals.dtype} {totals.shape}",
            expected="(g,) or (e, g), and (g,)",
        )
    if totals.size < least_groups:
        raise MetricError("too few groups", found=totals.size, expected=f"at least {least_groups}")
    if (counts < 0).any() or (counts > totals).any():
        raise MetricError(
            "an event count lies outside 0 .. n", found=counts.tolist(), expected=totals.tolist()
        )
    return counts.astype(np.int64), totals.astype(np.int64)


def _rate_range(
    counts: NDArray[Any], totals: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    counts, totals = np.broadcast_arrays(counts, totals)
    seen = totals > 0
    rates = counts / np.where(seen, totals, 1)
    low = np.where(seen, rates, np.inf).min(axis=-1)
    high = np.where(seen, rates, -np.inf).max(axis=-1)
    groups = seen.sum(axis=-1)
    return np.where(groups > 0, low, 0.0), np.where(groups > 0, high, 0.0), groups
