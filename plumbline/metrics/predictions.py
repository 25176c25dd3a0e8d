"""What the encoder predicts: the top-1 candidate of every image, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell
from plumbline.statistics.clusters import cluster_codes
from plumbline.statistics.groups import Groups, attribute_groups


@dataclass(frozen=True)
class EventPredictions:
    """Which images of a cell are classified into one event of a suite.

    Attributes
    ----------
    skewed : bool
        Whether Max Skew is computed for the event.
    hit : (n,) bool
        Whether the image's top-1 belongs to the event.
    kept : (n,) bool
        Images that the suite's filter keeps.
    """

    suite: str
    suite_hash: str
    event: str
    skewed: bool
    hit: NDArray[np.bool_]
    kept: NDArray[np.bool_]


def event_predictions(cell: Cell) -> Iterator[EventPredictions]:
    """Give the events of every outcome suite that the cell has logits for, by top-1; ties take the lower index."""
    for logits in cell.logits.values():
        suite = logits.suite
        if suite.family != "outcomes":
            continue
        top = logits.top()
        for event, categories in suite.events.items():
            yield EventPredictions(
                suite=suite.id,
                suite_hash=suite.hash,
                event=event,
                skewed=event in suite.skewed_events,
                hit=np.isin(top, suite.columns(*categories)),
                kept=cell.rows(suite.id),
            )


# --- Predictions of several checkpoints on the same images: all that a comparison of them needs.

EventKey = tuple[str, str]
"""A suite and an event of it."""


@dataclass(frozen=True)
class Predictions:
    """The answers of several checkpoints to one dataset: no logits, only which images are in which event.

    Attributes
    ----------
    groups : mapping of str to list of Groups
        By suite: the groups of its filtered labels. Suites with the same labels share one list.
    clusters : (n,) int64 or None
        Cluster of each image, where images come in clusters.
    answers : mapping of str to mapping of (str, str) to EventPredictions
        By checkpoint, then by suite and event. Images stand in the order of their ids.
    """

    dataset: str
    groups: Mapping[str, list[Groups]]
    clusters: NDArray[np.int64] | None
    answers: Mapping[str, Mapping[EventKey, EventPredictions]] = field(repr=False)


def predictions_of(cells: Iterable[Cell]) -> Predictions:
    """Collect the predictions of several checkpoints on one dataset, one cell at a time.

    Raises
    ------
    MetricError
        If there is no cell, or the cells are not of one dataset with the same images.
    """
    groups: dict[str, list[Groups]] = {}
    answers: dict[str, dict[EventKey, EventPredictions]] = {}
    known: tuple[str, pl.Series, NDArray[np.int64] | None] | None = None
    for cell in cells:
        images = cell.records["image_id"]
        known = known or (cell.dataset, images, cluster_codes(cell.records))
        if cell.dataset != known[0] or not images.equals(known[1]):
            raise MetricError(
                "checkpoints are compared on the same images",
                where=f"{cell.dataset}|{cell.model}",
                found=f"{len(images)} images of {cell.dataset}",
                expected=f"the {len(known[1])} images of {known[0]}",
                hint="run `plumbline audit`, so that all cells are of the same records",
            )
        # Draws go by position: the order of the ids makes results independent of that of the rows.
        order = images.arg_sort().to_numpy()
        answers[cell.model] = {
            (event.suite, event.event): replace(event, hit=event.hit[order], kept=event.kept[order])
            for event in event_predictions(cell)
        }
        of_labels: dict[int, list[Groups]] = {}
        for suite, _ in answers[cell.model]:
            labels = cell.labels(suite)
            if suite not in groups:
                groups[suite] = of_labels.setdefault(id(labels), _ordered_groups(labels, order))
    if known is None:
        raise MetricError("a dataset without cells has no effects")
    clusters = None if known[2] is None else known[2][known[1].arg_sort().to_numpy()]
    return Predictions(known[0], groups, clusters, answers)


def _ordered_groups(labels: pl.DataFrame, order: NDArray[np.int64]) -> list[Groups]:
    return [replace(groups, codes=groups.codes[order]) for groups in attribute_groups(labels)]
