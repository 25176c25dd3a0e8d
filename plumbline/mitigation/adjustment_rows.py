"""Metric rows of a cell before and after its logit adjustments, on images that they were not fitted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from plumbline.mitigation.adjusted_cell import SUITES, AuditedCell, ProbeTests, required_tests
from plumbline.mitigation.adjustment_estimates import DEFINITION, AdjustmentEstimates, Judged
from plumbline.mitigation.logit_adjustment import LogitAdjustment, winners_by_trial
from plumbline.statistics.groups import Groups, mixed_groups
from plumbline.tables.schema import Row, metric_frame


def adjustment_rows(
    cell: AuditedCell,
    adjustments: Mapping[str, LogitAdjustment],
    *,
    confidence: float = 0.95,
    min_group: int = 30,
) -> pl.DataFrame:
    """Return metric rows of the cell before and after its adjustments, on test rows only.

    Suites: `trident` and, with the same factors and without their training images, `trident_mixed`; an
    adjustment of composite candidates has `trident_composite` alone. Metrics `macro_accuracy`, `probe_rate`
    (conditions `before` and the adjustment's id) and `macro_accuracy_gain` (after - before; positive is
    better); statistics `mean` and `sd` (ddof 1) over trials.

    Rows of macro accuracy and probe rates that share suite and definition are of the same test images.
    `test_rows` are those of the first adjustment of the suite and of all that share its training rows. An
    adjustment with other training rows (another N, other trials) has the definition `test_rows_of_` and its
    id, and so have all that share them in turn; `before` is there once for each definition. So the key of a
    row is unique, and every row stands beside the `before` that it is to be compared with. A gain is paired
    image by image on the adjustment's own test rows, whatever they are: its definition is always `test_rows`.

    Parameters
    ----------
    adjustments : mapping of str to LogitAdjustment
        By id, from `fit_cell` on this cell, in the order of the audit file. Empty where the cell has nothing
        to adjust: there are then no rows.

    Returns
    -------
    DataFrame
        Means carry an interval over test images, the fitted factors taken as given: Wilson for rates, normal
        (linearised, within groups) for macro accuracy and gain. `n` is the number of test rows a trial. Rows
        of an adjustment whose epoch test labels chose say so in `reason`.

    Raises
    ------
    MetricError
        If an adjustment was fitted on another cell: this one has nothing to adjust, or other probes or
        classes.
    """
    rows: list[Row] = []
    for candidates in SUITES:
        fits = {name: fit for name, fit in adjustments.items() if fit.candidates == candidates}
        if not fits:
            continue
        tests = required_tests(cell, candidates)
        pairs = list(_judged(tests, fits))
        for suite, groups in _views(cell, tests):
            estimates = AdjustmentEstimates(
                cell.model, cell.dataset, suite, tests.suite, groups, confidence, min_group
            )
            seen: set[str] = set()
            for before, after in pairs:
                if before.definition not in seen:
                    rows += estimates.of(before)
                    seen.add(before.definition)
                rows += estimates.of(after)
                rows += estimates.gains(before, after)
    return metric_frame(rows)


def _judged(tests: ProbeTests, fits: Mapping[str, LogitAdjustment]) -> Iterator[tuple[Judged, Judged]]:
    """Give the answers before and after each adjustment, on its own test rows."""
    labels = tests.classes.codes
    unadjusted = tests.responses.argmax(axis=-1)[:, None]
    for name, definition in _definitions(fits).items():
        fit = fits[name]
        test = fit.test_rows(len(labels)) & (labels >= 0)
        after = winners_by_trial(fit, tests.responses)
        before = np.broadcast_to(unadjusted, after.shape)
        yield (
            Judged("before", definition, before, test, labels),
            Judged(name, definition, after, test, labels, leaking=fit.leaking),
        )


def _definitions(fits: Mapping[str, LogitAdjustment]) -> dict[str, str]:
    """Name the test rows of each adjustment after the first that has them."""
    firsts: list[str] = []
    definitions = {}
    for name, fit in fits.items():
        sharing = (first for first in firsts if np.array_equal(fits[first].train_rows, fit.train_rows))
        first = next(sharing, name)
        if first == name:
            firsts.append(name)
        definitions[name] = DEFINITION if first == firsts[0] else f"{DEFINITION}_of_{first}"
    return definitions


def _views(cell: AuditedCell, tests: ProbeTests) -> Iterator[tuple[str, Groups]]:
    """Give the suites that the tests are reported as, with the groups that their images are seen by."""
    yield tests.suite.id, tests.classes
    if tests.suite.id == SUITES["single"] and (mixed := mixed_groups(tests.classes, cell.records)):
        yield "trident_mixed", mixed
