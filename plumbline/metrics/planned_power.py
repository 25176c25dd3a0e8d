"""What an audit of so many images can find: known before anything is embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite
from plumbline.metrics.disparities import planned_detectable
from plumbline.statistics.groups import Groups


@dataclass(frozen=True)
class PlannedPower:
    """What an audit can find between the groups of an attribute of a dataset.

    Attributes
    ----------
    sizes : tuple of int
        Images of each group.
    skew, parity : float
        Max Skew and parity difference that 80% of such audits find, see `planned_detectable`; nan for none.
    tests, level : int, float
        Tests of Max Skew that are corrected together, and the p that a lone difference among them needs.
    """

    dataset: str
    attribute: str
    sizes: tuple[int, ...]
    skew: float
    parity: float
    tests: int
    level: float


def planned_power(
    cells: Mapping[tuple[str, str], Sequence[str]],
    groups: Mapping[str, Sequence[Groups]],
    *,
    rate: float,
    suite: Callable[[str], Suite] = load_suite,
) -> Iterator[PlannedPower]:
    """Give what an audit can find between groups of the datasets that outcome suites are asked of.

    Parameters
    ----------
    cells : mapping of (str, str) to sequence of str
        (dataset, encoder) -> its suites.
    groups : mapping of str to sequence of Groups
        By dataset.
    rate : float
        Assumed share of images in an event.
    suite : callable
        From the name of a suite to what it asks.
    """
    events = dict.fromkeys((dataset for dataset, _ in cells), 0)
    for (dataset, _), suites in cells.items():
        asked = [suite(name) for name in suites if name not in (*TRIDENT_SUITES, ZERO_SHOT)]
        events[dataset] += sum(len(suite.skewed_events) for suite in asked if suite.family == "outcomes")
    groups = {dataset: of_dataset for dataset, of_dataset in groups.items() if events.get(dataset)}
    tests = sum(events[dataset] * len(of_dataset) for dataset, of_dataset in groups.items())
    for dataset, of_dataset in groups.items():
        for each in of_dataset:
            sizes = np.bincount(each.codes[each.codes >= 0], minlength=len(each.names))
            if (sizes > 0).sum() > 1:
                level = 0.05 / tests
                skew, parity = planned_detectable(sizes[sizes > 0], rate=rate, level=level)
                yield PlannedPower(dataset, each.attribute, tuple(sizes[sizes > 0]), skew, parity, tests, level)
