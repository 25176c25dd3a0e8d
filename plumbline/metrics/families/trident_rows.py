"""Rows of Trident Probe Testing: accuracy under a probe, and which classes become it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.label_error_rows import LabelledTests, label_error_rows, true_genders
from plumbline.metrics.families.probe_gap_rows import probe_gap_rows
from plumbline.metrics.families.probe_tests import ProbeTest, probe_test, probe_test_row, true_classes
from plumbline.metrics.families.rows import noting_sets
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.trident import (
    RIGHT,
    TridentScores,
    score_tables,
)
from plumbline.statistics.groups import Groups, crossed_with_gender, label_codes, mixed_groups
from plumbline.statistics.intervals import mean_of_proportions
from plumbline.statistics.reasons import group_size_reason, joined, small_groups_reason
from plumbline.tables.schema import Row, metric_frame
from plumbline.tables.suites import GENDERS


def trident_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of the Trident suites that the cell has logits and labels for.

    Single tests are by class; mixed tests are the same predictions by class × automatic gender label, with rows
    beside them that say what errors of that label do; composite tests have the 2C composite labels as
    candidates. Images whose label is no class of the suite are left out.
    """
    parts: list[Callable[[], list[Row]]] = []
    if (logits := cell.logits.get("trident")) and (classes := true_classes(cell, logits.suite)):
        parts += _class_tests(cell, logits, classes, settings)
        if (mixed := mixed_groups(classes, cell.records)) and (
            composite := cell.logits.get("trident_composite")
        ):
            kept = replace(mixed, codes=np.where(cell.rows("trident_composite"), mixed.codes, -1))
            test = probe_test("trident_composite", composite, composite.logits, kept, kept, divisor=2)
            parts.append(partial(_score_rows, cell, test, {"paper": "composite"}, settings, gaps=False))
    rows = list(chain.from_iterable(side_by_side(parts)))
    return metric_frame(noting_sets(rows, cell.records))


def _class_tests(
    cell: Cell, logits: SuiteLogits, classes: Groups, settings: MetricSettings
) -> list[Callable[[], list[Row]]]:
    """Return what computes the rows of the single and the mixed tests."""
    kept = replace(classes, codes=np.where(cell.rows("trident"), classes.codes, -1))
    views = [("trident", kept)]
    if mixed := mixed_groups(kept, cell.records):
        views.append(("trident_mixed", mixed))
    parts: list[Callable[[], list[Row]]] = []
    for name, groups in views:
        divisor = 2 if name == "trident_mixed" else 1
        test = probe_test(name, logits, logits.logits, kept, groups, divisor=divisor)
        definitions = {"paper": "paper", "released": "released", "plain": "logit"}
        parts.append(partial(_score_rows, cell, test, definitions, settings))
        if logits.cosine is not None:
            cosine = probe_test(name, logits, logits.cosine, kept, groups, divisor=divisor)
            definitions = {"paper": "cosine", "plain": "cosine"}
            parts.append(partial(_score_rows, cell, cosine, definitions, settings, gaps=False))
        if name == "trident_mixed":
            parts += _label_tests(cell, test, kept, settings)
    return parts


def _label_tests(
    cell: Cell, test: ProbeTest, classes: Groups, settings: MetricSettings
) -> list[Callable[[], list[Row]]]:
    """Return what computes the mixed tests by labels that are sure, by true ones, and with the labeller's errors
    undone or bounded."""
    parts: list[Callable[[], list[Row]]] = []
    if "auto_gender_margin" in cell.records.columns:
        sure = cell.records["auto_gender_margin"].fill_null(-1.0).to_numpy() >= settings.label_margin
        parts.append(partial(_relabelled_rows, cell, test.only(sure), "confident_labels", settings))
    true = true_genders(cell.records)
    if ((classes.codes >= 0) & (true >= 0)).any():
        by_truth = replace(test, groups=crossed_with_gender(classes, cell.records["gender"]))
        parts.append(partial(_relabelled_rows, cell, by_truth, "true_labels", settings))
    automatic = label_codes(cell.records["auto_gender"], GENDERS)
    labelled = LabelledTests(probe_test_row(cell, test), test.probes, test.outcomes, classes, automatic, true)
    return [*parts, partial(label_error_rows, labelled, settings=settings)]


def _score_rows(
    cell: Cell,
    test: ProbeTest,
    definitions: dict[str, str],
    settings: MetricSettings,
    *,
    gaps: bool = True,
) -> list[Row]:
    tables = test.tables
    scores = score_tables(tables, divisor=test.divisor, confidence=settings.confidence)
    plain = definitions.get("plain", definitions["paper"])
    rows = _accuracy_rows(cell, test, scores, plain)
    rows += _group_rows(cell, test, scores, "class_accuracy", plain, settings)
    rows += _group_rows(cell, test, scores, "probe_rate", plain, settings)
    rows += _macro_rows(cell, test, tables, scores, definitions, settings)
    return rows + (probe_gap_rows(cell, test, settings) if gaps else [])


def _relabelled_rows(cell: Cell, test: ProbeTest, definition: str, settings: MetricSettings) -> list[Row]:
    tables = test.tables
    scores = score_tables(tables, divisor=test.divisor, confidence=settings.confidence)
    rows = _group_rows(cell, test, scores, "probe_rate", definition, settings)
    return rows + _macro_rows(cell, test, tables, scores, {"paper": definition}, settings)


def _accuracy_rows(cell: Cell, test: ProbeTest, scores: TridentScores, definition: str) -> list[Row]:
    return [
        probe_test_row(
            cell,
            test,
            metric="accuracy",
            definition=definition,
            probe=probe,
            value=scores.accuracy[i],
            ci_low=scores.accuracy_interval[i, 0],
            ci_high=scores.accuracy_interval[i, 1],
            n=int(scores.n[i]),
            reason=None if scores.n[i] else "no images",
        )
        for i, probe in enumerate(test.probes)
    ]


def _group_rows(
    cell: Cell,
    test: ProbeTest,
    scores: TridentScores,
    metric: str,
    definition: str,
    settings: MetricSettings,
) -> list[Row]:
    value, ends, n = getattr(scores, metric), getattr(scores, f"{metric}_interval"), scores.class_n
    return [
        probe_test_row(
            cell,
            test,
            metric=metric,
            definition=definition,
            probe=probe,
            group=group,
            value=value[i, g],
            ci_low=ends[i, g, 0],
            ci_high=ends[i, g, 1],
            n=int(n[i, g]),
            reason=group_size_reason(int(n[i, g]), settings.min_group),
        )
        for i, probe in enumerate(test.probes)
        for g, group in enumerate(test.groups.names)
    ]


def _macro_rows(
    cell: Cell,
    test: ProbeTest,
    tables: NDArray[np.int64],
    scores: TridentScores,
    definitions: dict[str, str],
    settings: MetricSettings,
) -> list[Row]:
    sizes = scores.class_n
    low, high = mean_of_proportions(tables[..., RIGHT], sizes, confidence=settings.confidence)
    rows = []
    for i, probe in enumerate(test.probes):
        filled = int((sizes[i] > 0).sum())
        empty = len(test.groups.names) - filled
        reason = joined(
            f"{empty} of {len(test.groups.names)} groups empty, left out" if empty else None,
            small_groups_reason(test.groups.names, sizes[i].tolist(), settings.min_group),
        )
        for variant, definition in definitions.items():
            if variant == "plain":
                continue
            # The released formula divides the same sum by another number, so that it and its interval scale.
            released = variant == "released"
            scale = filled / test.divisor if released else 1.0
            value = scores.macro_accuracy_released[i] if released else scores.macro_accuracy[i]
            rows.append(
                probe_test_row(cell, test, metric="macro_accuracy", definition=definition, probe=probe)
                | {"value": float(value), "ci_low": low[i] * scale, "ci_high": high[i] * scale}
                | {"n": int(sizes[i].sum()), "reason": reason}
            )
    return rows
