"""Rows of the outcome metrics: how often harmful candidates win, and how unequally."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.digests import digest_json
from plumbline.metrics.cell import Cell
from plumbline.metrics.families.disparity_rows import (
    RANGES,
    SKEWS,
    disparity_rows,
)
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.outcome_draws import Outcomes
from plumbline.metrics.outcomes import harm_rate, proportions_of_counts
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.tested_events import TASKS, TestedEvent, tested_events
from plumbline.statistics.clusters import cluster_codes, few_sets_reason
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.reasons import joined
from plumbline.statistics.set_sampling import wilson_of_sets
from plumbline.tables.schema import Row, metric_frame


def outcome_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of every outcome suite that the cell has logits for.

    Top-1 is by cosine, by logit where the encoder has no cosine; ties go to the lower index. Group proportions,
    disparities and their uncertainty are over the labelled images, resampled within groups (where images come in
    sets: whole sets); harm rates over all images.
    """
    events, sets = list(tested_events(cell)), cluster_codes(cell.records)
    parts: list[Callable[[], list[Row]]] = []
    for event in events:
        parts.append(partial(harm_rows, cell, event, sets, settings))
        for group in attribute_groups(cell.labels(event.suite)):
            parts.append(partial(_event_rows, cell, event, group, sets, settings))
    # In the paper's order, so that the draws do not depend on the order in which suites were given.
    tasks = [event for task in TASKS for event in events if event.suite == task and event.skewed]
    labels = [cell.labels(task) for task in TASKS]
    # A mean over tasks is of the same groups: none where their filters merge labels differently.
    if {event.suite for event in tasks} == set(TASKS) and all(own is labels[0] for own in labels):
        for group in attribute_groups(labels[0]):
            parts.append(partial(_mean_of_tasks_rows, cell, tasks, group, sets, settings))
    rows = list(chain.from_iterable(side_by_side(parts)))
    return metric_frame(rows)


def harm_rows(
    cell: Cell, event: TestedEvent, sets: NDArray[np.int64] | None, settings: MetricSettings
) -> list[Row]:
    """Return the row of how often an event is the top-1 of the images that count."""
    rate = harm_rate(
        [int(event.hit[event.kept].sum())], [int(event.kept.sum())], confidence=settings.confidence
    )
    if sets is not None:
        low, high = wilson_of_sets(event.hit[event.kept], sets[event.kept], confidence=settings.confidence)
        rate = replace(rate, ci_low=low, ci_high=high)
    row = base_row(
        cell,
        metric="harm_rate",
        definition="top1",
        suite=event.suite,
        suite_hash=event.suite_hash,
        event=event.event,
        value=rate.value,
        ci_low=rate.ci_low,
        ci_high=rate.ci_high,
        n=rate.n,
        reason=joined(rate.reason, few_sets_reason(sets)),
    )
    return [row]


def _event_rows(
    cell: Cell,
    event: TestedEvent,
    groups: Groups,
    sets: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> list[Row]:
    kept = replace(groups, codes=np.where(event.kept, groups.codes, -1))
    # Outcome 0 is the event, so that column 0 of the table holds the event counts.
    seen = Outcomes(kept, np.where(event.hit, 0, 1), np.array([[1, 0]]), sets)
    common = base_row(
        cell,
        suite=event.suite,
        suite_hash=event.suite_hash,
        attribute=groups.attribute,
        event=event.event,
    )
    rows = proportion_rows(common, seen, settings)
    readings = (*SKEWS, *RANGES) if event.skewed else RANGES
    return rows + disparity_rows(common, seen, readings, settings)


def proportion_rows(common: Row, seen: Outcomes, settings: MetricSettings) -> list[Row]:
    """Return one row a group: how often outcome 0 happens in it."""
    table = seen.table
    found = proportions_of_counts(
        seen.groups.names,
        table[:, 0],
        table.sum(axis=1),
        confidence=settings.confidence,
        min_group=settings.min_group,
    )
    rows = []
    for i, group in enumerate(found):
        low, high = group.interval
        if seen.sets is not None:
            own = seen.groups.codes == i
            low, high = wilson_of_sets(seen.codes[own] == 0, seen.sets[own], confidence=settings.confidence)
        rows.append(
            common
            | {
                "metric": "outcome_proportion",
                "definition": "top1",
                "group": group.group,
                "value": group.proportion,
                "ci_low": low,
                "ci_high": high,
                "n": group.n,
                "reason": joined(group.reason, few_sets_reason(seen.sets)),
            }
        )
    return rows


def _mean_of_tasks_rows(
    cell: Cell,
    tasks: list[TestedEvent],
    groups: Groups,
    sets: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> list[Row]:
    """Return the skews over the three tasks at once, on the images that all three keep.

    The tasks see the same images, so their joint outcome is what is resampled: eight patterns of three bits.
    """
    kept = np.logical_and.reduce([task.kept for task in tasks])
    pattern = sum(
        (task.hit.astype(np.int64) << bit for bit, task in enumerate(tasks)), np.zeros(len(kept), int)
    )
    holds = (np.arange(2 ** len(tasks)) >> np.arange(len(tasks))[:, None]) & 1
    seen = Outcomes(replace(groups, codes=np.where(kept, groups.codes, -1)), pattern, holds, sets)
    common = base_row(
        cell,
        suite="outcomes",
        suite_hash=digest_json([task.suite_hash for task in tasks]),
        attribute=groups.attribute,
        event="mean_of_tasks",
    )
    return disparity_rows(common, seen, SKEWS, settings)
