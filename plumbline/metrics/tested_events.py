"""The events of the outcome suites on the images of a cell: which images are in which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell

TASKS = ("crime", "communion", "agency")
"""Suites whose skews the paper averages (its footnote 2)."""


@dataclass(frozen=True)
class TestedEvent:
    """One event of a suite on the images of a cell.

    Attributes
    ----------
    hit : (n,) bool
        Whether the image's top-1 belongs to the event.
    kept : (n,) bool
        Rows that count.
    """

    suite: str
    suite_hash: str
    event: str
    skewed: bool
    hit: NDArray[np.bool_]
    kept: NDArray[np.bool_]


def tested_events(cell: Cell) -> Iterator[TestedEvent]:
    """Give the events of every outcome suite that the cell has logits for, by top-1; ties take the lower index."""
    for logits in cell.logits.values():
        suite = logits.suite
        if suite.family != "outcomes":
            continue
        top = logits.ranking.argmax(axis=1)
        for event, categories in suite.events.items():
            yield TestedEvent(
                suite=suite.id,
                suite_hash=suite.hash,
                event=event,
                skewed=event in suite.skewed_events,
                hit=np.isin(top, suite.columns(*categories)),
                kept=cell.rows(suite.id),
            )
