"""Contrastive outcome metrics: how often an event is an image's top-1, and how unequally over groups.

Source: Al Sahili et al., "Data Matters Most", section 3.4. All depend on the images through counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError
from plumbline.metrics.rates import adverse_impact_reason, checked_counts, impact_ratios, parity_differences
from plumbline.statistics.counts import count_table, shares
from plumbline.statistics.intervals import wilson
from plumbline.statistics.reasons import MIN_GROUP, empty_groups_reason, group_size_reason


@dataclass(frozen=True)
class GroupProportion:
    """How often an event is the top-1 of one group.

    Attributes
    ----------
    group : str
    count, n : int
        Images in the event, images of the group.
    proportion : float
        count / n; nan for an empty group.
    ci_low, ci_high : float
        Wilson interval.
    reason : str or None
        Why it is undefined, or that the group is small.
    """

    group: Any
    count: int
    n: int
    proportion: float
    ci_low: float
    ci_high: float
    reason: str | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Return (ci_low, ci_high)."""
        return self.ci_low, self.ci_high


@dataclass(frozen=True)
class OutcomeProportions:
    """Outcome proportions by group; index it with a group, or iterate over the groups' results.

    Attributes
    ----------
    groups : tuple
        Sorted, or as `levels` gave them.
    count, n : (g,) int64
    proportion, ci_low, ci_high : (g,) float64
    reason : tuple of str or None
    unlabelled : int
        Images in no group.
    """

    groups: tuple[Any, ...]
    count: NDArray[np.int64]
    n: NDArray[np.int64]
    proportion: NDArray[np.float64]
    ci_low: NDArray[np.float64]
    ci_high: NDArray[np.float64]
    reason: tuple[str | None, ...]
    unlabelled: int

    @property
    def interval(self) -> NDArray[np.float64]:
        """Return the (g, 2) intervals."""
        return np.stack([self.ci_low, self.ci_high], axis=1)

    def __getitem__(self, group: object) -> GroupProportion:
        """Return the result of one group."""
        i = self.groups.index(group)
        return GroupProportion(
            group=self.groups[i],
            count=int(self.count[i]),
            n=int(self.n[i]),
            proportion=float(self.proportion[i]),
            ci_low=float(self.ci_low[i]),
            ci_high=float(self.ci_high[i]),
            reason=self.reason[i],
        )

    def __iter__(self) -> Iterator[GroupProportion]:
        return (self[group] for group in self.groups)

    def __len__(self) -> int:
        return len(self.groups)


@dataclass(frozen=True)
class EventValue:
    """A value for each event: a float for one event, (e,) float64 for several.

    Attributes
    ----------
    value, ci_low, ci_high : float or (e,) float64
        The interval is nan for metrics whose interval needs resampling.
    n : int or (e,) int64
        Images behind the value.
    reason : str or None, or a tuple of them
    """

    value: Any
    ci_low: Any
    ci_high: Any
    n: Any
    reason: Any

    @property
    def interval(self) -> tuple[Any, Any]:
        """Return (ci_low, ci_high)."""
        return self.ci_low, self.ci_high


def outcome_proportions(
    in_event: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    levels: Sequence[Any] | None = None,
    confidence: float = 0.95,
    min_group: int = MIN_GROUP,
) -> OutcomeProportions:
    """Return p_g(E) = |images of g whose top-1 is in E| / n_g with its Wilson interval, for every group.

    Parameters
    ----------
    in_event : (n,) bool
        Whether the image's top-1 candidate belongs to the event.
    groups : (n,) labels
        None (or nan) is an unlabelled image: in no group.
    levels : sequence, optional
        The groups to report, in order; one without images is nan. Default: those that occur, sorted.
    min_group : int
        Smaller groups are reported and flagged in `reason`.

    Raises
    ------
    MetricError
        If the lengths differ, `in_event` is not boolean, or a group is not among `levels`.
    """
    event = np.asarray(in_event)
    labels = list(groups)
    if event.dtype != np.bool_ or event.shape != (len(labels),):
        raise MetricError(
            "in_event must be (n,) bool, one for each group label",
            found=f"{event.dtype} {event.shape}, {len(labels)} labels",
        )
    labelled = np.array([not _is_null(label) for label in labels], dtype=bool)
    found = {label for label, keep in zip(labels, labelled) if keep}
    names = tuple(sorted(found)) if levels is None else tuple(levels)
    if unknown := found - set(names):
        raise MetricError("a group is not among the levels", found=sorted(map(str, unknown)), expected=names)
    position = {name: i for i, name in enumerate(names)}
    codes = [position[label] if keep else -1 for label, keep in zip(labels, labelled)]
    # Outcome 0 is the event, so that column 0 of the table holds the event counts.
    table = count_table(codes, np.where(event, 0, 1), n_groups=len(names), n_outcomes=2)
    return proportions_of_counts(
        names,
        table[:, 0],
        table.sum(axis=1),
        confidence=confidence,
        min_group=min_group,
        unlabelled=int((~labelled).sum()),
    )


def proportions_of_counts(
    groups: tuple[Any, ...],
    count: NDArray[np.int64],
    n: NDArray[np.int64],
    *,
    confidence: float = 0.95,
    min_group: int = MIN_GROUP,
    unlabelled: int = 0,
) -> OutcomeProportions:
    """Return the outcome proportions of groups whose images, (g,) in the event and (g,) in all, are counted."""
    low, high = wilson(count, n, confidence=confidence)
    return OutcomeProportions(
        groups=groups,
        count=count,
        n=n,
        proportion=shares(count, n),
        ci_low=low,
        ci_high=high,
        reason=tuple(group_size_reason(int(size), min_group) for size in n),
        unlabelled=unlabelled,
    )


def harm_rate(event_counts: ArrayLike, group_totals: ArrayLike, *, confidence: float = 0.95) -> EventValue:
    """Return h(E), the share of all images whose top-1 falls in E, with its Wilson interval.

    Parameters
    ----------
    event_counts, group_totals : as in `max_skew`
        Unlabelled images count in harm rates: give them as a group of their own.

    Returns
    -------
    EventValue
        In [0, 1]; nan without images.
    """
    counts, totals = checked_counts(event_counts, group_totals, least_groups=1)
    hits, n = counts.sum(axis=-1), totals.sum()
    low, high = wilson(hits, n, confidence=confidence)
    reason = None if n else "no images"
    return _event_value(shares(hits, np.broadcast_to(n, hits.shape)), low, high, n, reason)


def parity_difference(event_counts: ArrayLike, group_totals: ArrayLike) -> EventValue:
    """Return the demographic-parity difference max p - min p over groups.

    Parameters
    ----------
    event_counts, group_totals : as in `max_skew`

    Returns
    -------
    EventValue
        In [0, 1], 0 is parity. Empty groups are left out and named in `reason`; nan with fewer than two
        others.
    """
    counts, totals = checked_counts(event_counts, group_totals, least_groups=2)
    value = parity_differences(counts, totals)
    return _event_value(value, np.nan, np.nan, totals.sum(), empty_groups_reason(totals))


def impact_ratio(event_counts: ArrayLike, group_totals: ArrayLike) -> EventValue:
    """Return the impact ratio min p / max p over groups.

    Parameters
    ----------
    event_counts, group_totals : as in `max_skew`

    Returns
    -------
    EventValue
        In [0, 1], 1 is parity; `reason` says "below four fifths" under 0.8. nan if the event never happens:
        there is then nothing to share out.
    """
    counts, totals = checked_counts(event_counts, group_totals, least_groups=2)
    value = impact_ratios(counts, totals)
    reasons = [
        empty_groups_reason(totals)
        or ("the event never happens" if np.isnan(v) else adverse_impact_reason(v))
        for v in np.atleast_1d(value)
    ]
    return _event_value(
        value, np.nan, np.nan, totals.sum(), reasons[0] if value.ndim == 0 else tuple(reasons)
    )


def _event_value(value: NDArray[Any], low: Any, high: Any, n: Any, reason: Any) -> EventValue:
    if np.ndim(value) == 0:
        return EventValue(float(value), float(low), float(high), int(n), reason)
    shape = np.shape(value)
    reasons = reason if isinstance(reason, tuple) else (reason,) * shape[0]
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), shape).copy() for end in (low, high))
    return EventValue(np.asarray(value), low, high, np.broadcast_to(n, shape).copy(), reasons)


def _is_null(label: object) -> bool:
    return label is None or (isinstance(label, float) and np.isnan(label))
