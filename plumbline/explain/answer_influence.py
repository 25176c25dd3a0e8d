"""Leaving out one image, or one set, of a number that is a function of counts of answers: exact, for every image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.explain.influence import MOST_IMAGES, Influence, Moved, ranked, same_number
from plumbline.metrics.cell import Cell
from plumbline.metrics.families.disparity_rows import RANGES, SKEWS
from plumbline.metrics.outcome_draws import Outcomes
from plumbline.metrics.tested_events import TASKS, TestedEvent, tested_events
from plumbline.statistics.bootstrap import jackknife_tables
from plumbline.statistics.clusters import cluster_codes
from plumbline.statistics.counts import shares
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.set_sampling import jackknife_sets, set_tables

Value = Callable[[NDArray[np.int64]], NDArray[np.float64]]
_DISPARITIES = {(each.metric, each.definition): each for each in (*SKEWS, *RANGES)}
_ALL = "all images"


@dataclass(frozen=True)
class _Counted:
    """A number as a function of (k, g, c) tables of counts, with the name of each outcome."""

    seen: Outcomes
    value: Value
    outcomes: tuple[str, ...]
    surest: NDArray[np.float64]


def answer_influence(cell: Cell, row: Mapping[str, Any]) -> Influence | None:
    """Return which images move a number of the outcome suites most; None for a number of another kind.

    Images of one group with the same answer are alike: leaving out any one of them moves the number equally. Of each
    kind those are shown whose answer was the surest.
    """
    counted = _counted(cell, row)
    if counted is None:
        return None
    if row["value"] is None or not np.isfinite(row["value"]):
        return Influence(
            f"Not available: the number is undefined ({row['reason'] or 'no reason was recorded'})."
        )
    table = counted.seen.table
    if not same_number(float(counted.value(table[None])[0]), row["value"]):
        return Influence(
            "Not available: the stored answers no longer give this number; the code has changed since."
        )
    return _of_images(cell, counted, row) if counted.seen.sets is None else _of_sets(cell, counted, row)


def _counted(cell: Cell, row: Mapping[str, Any]) -> _Counted | None:
    if row["condition"] != "before" or row["statistic"] != "estimate":
        return None
    events = [event for event in tested_events(cell) if _is_asked(event, row)]
    if row["suite"] == "outcomes":
        events = [event for task in TASKS for event in events if event.suite == task]
    if not events:
        return None
    groups = _groups(cell, row, events[0])
    if groups is None:
        return None
    kept = np.logical_and.reduce([event.kept for event in events])
    if len(events) == 1:
        codes, holds = np.where(events[0].hit, 0, 1), np.array([[1, 0]])
        names: tuple[str, ...] = (f"given {events[0].event}", f"not given {events[0].event}")
    else:
        codes = sum(
            (event.hit.astype(np.int64) << bit for bit, event in enumerate(events)), np.zeros(len(kept), int)
        )
        holds = (np.arange(2 ** len(events)) >> np.arange(len(events))[:, None]) & 1
        names = tuple(
            "given "
            + (", ".join(e.event for e, held in zip(events, pattern) if held) or "none of the events")
            for pattern in holds.T
        )
    seen = Outcomes(
        replace(groups, codes=np.where(kept, groups.codes, -1)), codes, holds, cluster_codes(cell.records)
    )
    value = _value(seen, row)
    return None if value is None else _Counted(seen, value, names, _sureness(cell, events))


def _is_asked(event: TestedEvent, row: Mapping[str, Any]) -> bool:
    if row["suite"] == "outcomes":
        return event.skewed and row["event"] == "mean_of_tasks"
    return (event.suite, event.event) == (row["suite"], row["event"])


def _groups(cell: Cell, row: Mapping[str, Any], event: TestedEvent) -> Groups | None:
    if row["metric"] == "harm_rate":
        return Groups(_ALL, (_ALL,), np.zeros(cell.records.height, dtype=np.int64))
    return next(
        (g for g in attribute_groups(cell.labels(event.suite)) if g.attribute == row["attribute"]), None
    )


def _value(seen: Outcomes, row: Mapping[str, Any]) -> Value | None:
    if (row["metric"], row["definition"]) in (("harm_rate", "top1"), ("outcome_proportion", "top1")):
        group = 0 if row["metric"] == "harm_rate" else seen.groups.names.index(row["group"])
        return lambda tables: shares(tables[:, group, 0], tables[:, group].sum(axis=-1))
    reading = _DISPARITIES.get((row["metric"], row["definition"]))
    if reading is None:
        return None

    def value(tables: NDArray[np.int64]) -> NDArray[np.float64]:
        events = seen.events(tables)
        return reading.value(events[..., :-1, :], events[..., -1:, :])

    return value


def _sureness(cell: Cell, events: list[TestedEvent]) -> NDArray[np.float64]:
    """Return how far each image's best candidate is ahead of the best one that would have changed the answer."""
    if len(events) > 1:
        return np.zeros(cell.records.height)
    logits = cell.logits[events[0].suite]
    chosen = logits.suite.columns(*logits.suite.events[events[0].event])
    inside = np.isin(np.arange(logits.ranking.shape[1]), chosen)
    ahead = logits.ranking[:, inside].max(axis=1) - logits.ranking[:, ~inside].max(axis=1)
    return np.abs(ahead.astype(np.float64))


def _of_images(cell: Cell, counted: _Counted, row: Mapping[str, Any]) -> Influence:
    seen, ids = counted.seen, cell.records["image_id"].to_numpy()
    left = jackknife_tables(seen.table, counted.value)
    found = []
    for group, outcome in zip(*np.nonzero(left.counts)):
        own = np.flatnonzero((seen.groups.codes == group) & (seen.codes == outcome))
        own = own[np.argsort(-counted.surest[own], kind="stable")]
        without = float(left.values[group, outcome])
        name = f"{seen.groups.names[group]}, {counted.outcomes[outcome]}"
        found.append(
            Moved(name, without, without - row["value"], tuple(ids[own[:MOST_IMAGES]]), len(own), alike=True)
        )
    method = (
        "One image is left out at a time; exact, for every image. Images of one group with the same answer move the "
        "number equally, so they are told together: the change is that of leaving out any single one of them. Shown "
        "are those whose answer was the surest."
    )
    return ranked(method, found)


def _of_sets(cell: Cell, counted: _Counted, row: Mapping[str, Any]) -> Influence:
    seen, ids = counted.seen, cell.records["image_id"].to_numpy()
    assert seen.sets is not None
    tables = set_tables(
        seen.groups.codes, seen.codes, seen.sets, n_groups=seen.n_groups, n_outcomes=seen.n_outcomes
    )
    left = jackknife_sets(tables, counted.value)
    names = cell.records["set_id"].cast(pl.String).to_list()
    found = []
    for code, without in zip(np.unique(seen.sets[seen.groups.codes >= 0]), left.values[0]):
        own = np.flatnonzero((seen.sets == code) & (seen.groups.codes >= 0))
        name = f"set {names[own[0]]}" if names[own[0]] is not None else f"image {ids[own[0]][:12]}"
        images = tuple(ids[own[:MOST_IMAGES]])
        found.append(Moved(name, float(without), float(without) - row["value"], images, len(own)))
    return ranked("One set of images is left out at a time; exact, for every set.", found)
