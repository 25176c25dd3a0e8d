"""The one-probe tests of the Trident suites, their images seen by groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.trident import (
    probe_outcomes,
)
from plumbline.statistics.counts import count_table
from plumbline.statistics.groups import Groups, label_codes
from plumbline.tables.schema import Row
from plumbline.tables.suites import Suite


@dataclass(frozen=True)
class ProbeTest:
    """All one-probe tests of a suite, seen by groups.

    Attributes
    ----------
    suite_name : str
        As the rows say it: `trident`, `trident_mixed`, `trident_composite`.
    outcomes : (p, n) int64
        For each probe and image, see `probe_outcomes`.
    groups : Groups
    divisor : int
        What the released code divides the sum of class accuracies by.
    """

    suite_name: str
    suite: Suite
    outcomes: NDArray[np.int64]
    groups: Groups
    divisor: int

    @property
    def tables(self) -> NDArray[np.int64]:
        """Return the (p, g, 3) counts by probe, group and outcome."""
        return count_table(self.groups.codes, self.outcomes, n_groups=len(self.groups.names), n_outcomes=3)

    @property
    def probes(self) -> list[str]:
        """Return the words of the p probes."""
        return [probe.id for probe in self.suite.probes]

    def only(self, rows: NDArray[np.bool_]) -> ProbeTest:
        """Return the same tests on fewer images."""
        return replace(self, groups=replace(self.groups, codes=np.where(rows, self.groups.codes, -1)))


def true_classes(cell: Cell, suite: Suite) -> Groups | None:
    """Return the classes of the images by their labels; None where no image has one."""
    if suite.attribute is None or suite.attribute not in cell.records.columns:
        return None
    codes = label_codes(cell.records[suite.attribute], suite.class_labels)
    return Groups(suite.attribute, suite.class_labels, codes) if (codes >= 0).any() else None


def probe_test(
    name: str,
    logits: SuiteLogits,
    responses: NDArray[np.float32],
    classes: Groups,
    groups: Groups,
    *,
    divisor: int,
) -> ProbeTest:
    """Return the tests of a suite by responses to its candidates, of images of known class seen by groups.

    Parameters
    ----------
    divisor : int
        How many groups a class has: 2 where classes are crossed with gender.
    """
    n_classes = len(logits.suite.class_labels)
    outcomes = probe_outcomes(responses[:, :n_classes], responses[:, n_classes:], classes.codes)
    base_classes = len(groups.names) // divisor
    return ProbeTest(name, logits.suite, outcomes, groups, divisor * (base_classes + 1))


def probe_test_row(cell: Cell, test: ProbeTest, **columns: object) -> Row:
    """Return the columns that every row about the tests has."""
    return base_row(
        cell,
        suite=test.suite_name,
        suite_hash=test.suite.hash,
        attribute=test.groups.attribute,
        **columns,
    )
