"""Max Skew: the largest relative gap between the selection rates of groups.

Source: Al Sahili et al., "Data Matters Most", section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.rates import checked_counts, undefined_pairs_reason
from plumbline.statistics.counts import shares


@dataclass(frozen=True)
class MaxSkew:
    """Largest relative gap between groups, see `max_skew`.

    Attributes
    ----------
    value : float
        At least 0; 0 is parity, 0.5 is "50% more often". nan if no pair is defined.
    per_event : (e,) float64
        The same for each event alone.
    pairs : (p,) or (e, p) float64
        Gap of every unordered pair, nan where undefined; like the input, with or without an axis of events.
    pair_index : (p, 2) int64
        The two groups of each pair.
    undefined_pairs : int
        Event × pair cells without a defined gap.
    reason : str or None
        Says that pairs are undefined, where some are.
    """

    value: float
    per_event: NDArray[np.float64]
    pairs: NDArray[np.float64]
    pair_index: NDArray[np.int64]
    undefined_pairs: int
    reason: str | None


def max_skew(
    event_counts: ArrayLike,
    group_totals: ArrayLike,
    *,
    over_pairs: Literal["mean", "max"] = "mean",
    smoothing: float | None = None,
) -> MaxSkew:
    """Return the relative gap of selection rates between groups (Data Matters Most, section 3.4).

    S_AB(E) = max(|p_A - p_B| / p_B, |p_B - p_A| / p_A), averaged over the defined event × pair cells. 12%
    against 8% gives 0.5.

    Parameters
    ----------
    event_counts : (g,) or (e, g) int
        Images of each group whose top-1 is in the event; one row an event.
    group_totals : (g,) int
        Images of each group.
    over_pairs : {"mean", "max"}
        "mean" is the paper's mean max skew; "max" takes an event's largest pair (then the mean over events).
    smoothing : float, optional
        With 0.5, rates are (x + ½) / (n + 1): defined where a group has no event. In general
        (x + s) / (n + 2s).

    Returns
    -------
    MaxSkew
        A pair with p = 0 in exactly one group, or with an empty group (also when smoothed), is undefined:
        nan, counted, and left out. Both zero: gap 0.

    Notes
    -----
    The gap cannot be negative, so chance alone makes it positive: two groups with equal true rates measure above
    0. `plumbline.statistics.estimate_table` gives the interval and the p-value that take this into account.

    Raises
    ------
    MetricError
        If there are fewer than two groups, a count is outside 0 .. n, or a parameter is unknown.
    """
    counts, totals = checked_counts(event_counts, group_totals, least_groups=2)
    if over_pairs not in ("mean", "max") or (smoothing is not None and not smoothing > 0):
        raise MetricError(
            "unknown variant of Max Skew",
            found=f"over_pairs={over_pairs!r}, smoothing={smoothing!r}",
            expected='over_pairs "mean" or "max"; smoothing None or positive',
        )
    events = np.atleast_2d(counts)
    pairs, index = _pair_gaps(events, totals, smoothing or 0.0)
    undefined = int(np.isnan(pairs).sum())
    per_event = np.array([_over(row, over_pairs) for row in pairs])
    value = _over(pairs if over_pairs == "mean" else per_event, "mean")
    return MaxSkew(
        value=value,
        per_event=per_event,
        pairs=pairs if counts.ndim == 2 else pairs[0],
        pair_index=index,
        undefined_pairs=undefined,
        reason=undefined_pairs_reason(undefined, pairs.size),
    )


class SkewSums(NamedTuple):
    """Max Skew as a sum over pairs of groups, for many tables.

    Attributes
    ----------
    total : (...) float64
        Sum of the gaps of the defined pairs (for "max": the largest).
    cells : (...) int64
        How many there are (for "max": 0 or 1).
    """

    total: NDArray[np.float64]
    cells: NDArray[np.int64]


def skew_sums(
    event_counts: NDArray[Any],
    group_totals: NDArray[Any],
    *,
    over_pairs: str = "mean",
    smoothing: float = 0.0,
) -> SkewSums:
    """Return Max Skew as sum and number of defined cells, for many tables at once.

    The relative gap of two rates is larger / smaller - 1, so that over sorted rates all pairs of a group
    take one running sum of 1 / rate: g log g instead of g² for each replicate. Agrees with `max_skew` to rounding.

    Parameters
    ----------
    event_counts, group_totals : (..., g), broadcastable
        Replicates of the counts.
    """
    counts, totals = np.broadcast_arrays(event_counts, group_totals)
    # Groups first and contiguous: every step below then runs along the replicates.
    x, n = (np.ascontiguousarray(np.moveaxis(a, -1, 0)) for a in (counts, totals))
    rates = np.sort(shares(x + smoothing, n + 2 * smoothing, empty=n == 0), axis=0)
    zero, positive = (rates == 0).sum(axis=0), (rates > 0).sum(axis=0)
    cells = zero * (zero - 1) // 2 + positive * (positive - 1) // 2
    inverse = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
    held = np.where(rates > 0, rates, 0.0)
    if over_pairs == "max":
        gap = np.maximum(held.max(axis=0) * inverse.max(axis=0) - 1, 0.0)
        return SkewSums(np.where(positive > 1, gap, 0.0), (cells > 0).astype(np.int64))
    ratios, smaller = np.zeros(rates.shape[1:]), np.zeros(rates.shape[1:])
    for rate, one_over in zip(held, inverse):
        ratios += rate * smaller
        smaller += one_over
    # Equal rates can leave a rounding error below parity, which would not tie with an exact 0.
    return SkewSums(np.maximum(ratios - positive * (positive - 1) // 2, 0.0), cells)


def skew_values(
    event_counts: NDArray[Any],
    group_totals: NDArray[Any],
    *,
    over_pairs: str = "mean",
    smoothing: float = 0.0,
) -> NDArray[np.float64]:
    """Return Max Skew of one event for many tables at once, (..., g) to (...); nan where undefined."""
    total, cells = skew_sums(event_counts, group_totals, over_pairs=over_pairs, smoothing=smoothing)
    return shares(total, cells)


def _pair_gaps(
    events: NDArray[np.int64], totals: NDArray[np.int64], smoothing: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the (e, p) gaps of all pairs, from cross-multiplied counts: 12% against 8% is 0.5 exactly."""
    first, second = np.triu_indices(len(totals), k=1)
    x, n = events + smoothing, totals + 2 * smoothing
    a, b = x[:, first] * n[second], x[:, second] * n[first]
    small, large = np.minimum(a, b), np.maximum(a, b)
    gaps = np.divide(large - small, small, out=np.full(small.shape, np.nan), where=small > 0)
    gaps[large == 0] = 0.0
    gaps[:, (totals[first] == 0) | (totals[second] == 0)] = np.nan
    return gaps, np.stack([first, second], axis=1).astype(np.int64)


def _over(gaps: NDArray[np.float64], how: str) -> float:
    defined = gaps[~np.isnan(gaps)]
    if not defined.size:
        return float("nan")
    return float(defined.mean() if how == "mean" else defined.max())
