"""What is compared of the outcome suites: their events, and the mean over the three tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.answered_dataset import AnsweredDataset, EventKey
from plumbline.metrics.families.disparity_rows import SKEWS
from plumbline.metrics.paired_comparisons import Comparison, Key, PairedAnswers, Reading, everyone
from plumbline.metrics.rates import parity_differences
from plumbline.metrics.tested_events import TASKS, TestedEvent
from plumbline.statistics.counts import shares
from plumbline.statistics.groups import Groups


def _parity(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return parity_differences(counts, totals).mean(axis=-1)


def _harm(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return shares(counts.sum(axis=-1), np.broadcast_to(totals.sum(axis=-1), counts.shape[:-1])).mean(axis=-1)


HARM = Reading("harm_rate", "top1", _harm, disparity=False)
PARITY = Reading("parity_difference", "max_minus_min", _parity)
SKEW_EFFECTS = tuple(
    Reading(skew.metric, skew.definition, skew.value, pairs=skew.pairs)
    for skew in SKEWS
    if skew.definition in ("mean_over_pairs", "smoothed")
)


def outcome_answers(answered: AnsweredDataset) -> PairedAnswers:
    """Return which images each checkpoint puts into which event."""
    hits: dict[str, dict[Key, NDArray[Any]]] = {
        model: {key: event.hit for key, event in own.items()} for model, own in answered.answers.items()
    }
    return PairedAnswers(hits, answered.clusters)


def outcome_comparisons(answered: AnsweredDataset) -> list[Comparison]:
    """Return what is compared: the harm rate of every event over all images, its disparities by every attribute.

    Columns are `suite`, `event` and `attribute` (null for harm rates). The disparities are the parity difference and,
    where the event has one, Max Skew (`mean_over_pairs`, `smoothed`). The mean over the three tasks is an event of
    `outcomes`, where all three were asked and have the same labels.
    """
    return list(_comparisons(answered))


def _comparisons(answered: AnsweredDataset) -> Iterator[Comparison]:
    every = {key: event for own in answered.answers.values() for key, event in own.items()}
    for key, event in every.items():
        yield from _of_events(key, {key: event}, answered.groups[key[0]])
    # In the paper's order, so that the draws do not depend on the order in which suites were given.
    tasks = {k: event for task in TASKS for k, event in every.items() if k[0] == task and event.skewed}
    labelled = [answered.groups[task] for task in TASKS if task in answered.groups]
    # A mean over tasks is of the same groups: none where their filters merge labels differently.
    if {suite for suite, _ in tasks} == set(TASKS) and all(own is labelled[0] for own in labelled):
        yield from _of_events(("outcomes", "mean_of_tasks"), tasks, labelled[0])


def _of_events(
    name: EventKey, events: Mapping[EventKey, TestedEvent], groups: list[Groups]
) -> Iterator[Comparison]:
    kept = np.logical_and.reduce([each.kept for each in events.values()])
    skewed = all(each.skewed for each in events.values())
    common = {"suite": name[0], "event": name[1]}
    yield Comparison(tuple(events), everyone(kept), (HARM,), common | {"attribute": None})
    for each in groups:
        own = replace(each, codes=np.where(kept, each.codes, -1))
        readings = (*SKEW_EFFECTS, PARITY) if skewed else (PARITY,)
        yield Comparison(tuple(events), own, readings, common | {"attribute": each.attribute})
