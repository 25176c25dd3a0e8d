"""Rows of Trident Probe Testing: accuracy under a probe, and which classes become it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.label_error_rows import LabelledTests, label_error_rows, true_genders
from plumbline.metrics.families.rows import Row, base_row, estimate_columns, noting_sets
from plumbline.metrics.rates import parity_differences
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.trident import (
    PROBE,
    RIGHT,
    TridentScores,
    probe_outcomes,
    score_tables,
)
from plumbline.statistics.bootstrap import jackknife_tables, resample_sums
from plumbline.statistics.counts import count_table
from plumbline.statistics.estimates import Estimate, estimate_table
from plumbline.statistics.groups import Groups, crossed_with_gender, label_codes
from plumbline.statistics.intervals import mean_of_proportions
from plumbline.statistics.permutation import permute_tables
from plumbline.statistics.reasons import group_size_reason, joined, small_groups_reason
from plumbline.statistics.seeds import generator
from plumbline.tables.schema import metric_frame
from plumbline.tables.suites import GENDERS, VALENCES, Suite


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

    def only(self, rows: NDArray[np.bool_]) -> ProbeTest:
        """Return the same tests on fewer images."""
        return replace(self, groups=replace(self.groups, codes=np.where(rows, self.groups.codes, -1)))


def trident_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of the Trident suites that the cell has logits and labels for.

    Single tests are by class; mixed tests are the same predictions by class × automatic gender label, with rows
    beside them that say what errors of that label do; composite tests have the 2C composite labels as
    candidates. Images whose label is no class of the suite are left out.
    """
    parts: list[Callable[[], list[Row]]] = []
    if (logits := cell.logits.get("trident")) and (classes := _classes(cell, logits.suite)):
        parts += _class_tests(cell, logits, classes, settings)
        if (mixed := _mixed(cell, classes)) and (composite := cell.logits.get("trident_composite")):
            kept = replace(mixed, codes=np.where(cell.rows("trident_composite"), mixed.codes, -1))
            test = _probe_test("trident_composite", composite, composite.logits, kept, kept, divisor=2)
            parts.append(partial(_score_rows, cell, test, {"paper": "composite"}, settings, gaps=False))
    rows = list(chain.from_iterable(side_by_side(parts)))
    return metric_frame(noting_sets(rows, cell.records))


def _class_tests(
    cell: Cell, logits: SuiteLogits, classes: Groups, settings: MetricSettings
) -> list[Callable[[], list[Row]]]:
    """Return what computes the rows of the single and the mixed tests."""
    kept = replace(classes, codes=np.where(cell.rows("trident"), classes.codes, -1))
    views = [("trident", kept)]
    if mixed := _mixed(cell, kept):
        views.append(("trident_mixed", mixed))
    parts: list[Callable[[], list[Row]]] = []
    for name, groups in views:
        divisor = 2 if name == "trident_mixed" else 1
        test = _probe_test(name, logits, logits.logits, kept, groups, divisor=divisor)
        definitions = {"paper": "paper", "released": "released", "plain": "logit"}
        parts.append(partial(_score_rows, cell, test, definitions, settings))
        if logits.cosine is not None:
            cosine = _probe_test(name, logits, logits.cosine, kept, groups, divisor=divisor)
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
    labelled = LabelledTests(
        _common(cell, test), _probes(test.suite), test.outcomes, classes, automatic, true
    )
    return [*parts, partial(label_error_rows, labelled, settings=settings)]


def _classes(cell: Cell, suite: Suite) -> Groups | None:
    if suite.attribute is None or suite.attribute not in cell.records.columns:
        return None
    codes = label_codes(cell.records[suite.attribute], suite.class_labels)
    return Groups(suite.attribute, suite.class_labels, codes) if (codes >= 0).any() else None


def _mixed(cell: Cell, classes: Groups) -> Groups | None:
    # Gender classes crossed with a guess of the gender would disaggregate a label by itself.
    if classes.attribute == "gender" or "auto_gender" not in cell.records.columns:
        return None
    groups = crossed_with_gender(classes, cell.records["auto_gender"])
    return groups if (groups.codes >= 0).any() else None


def _probe_test(
    name: str,
    logits: SuiteLogits,
    responses: NDArray[np.float32],
    classes: Groups,
    groups: Groups,
    *,
    divisor: int,
) -> ProbeTest:
    n_classes = len(logits.suite.class_labels)
    outcomes = probe_outcomes(responses[:, :n_classes], responses[:, n_classes:], classes.codes)
    base_classes = len(groups.names) // divisor
    return ProbeTest(name, logits.suite, outcomes, groups, divisor * (base_classes + 1))


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
    return rows + (_gap_rows(cell, test, settings) if gaps else [])


def _relabelled_rows(cell: Cell, test: ProbeTest, definition: str, settings: MetricSettings) -> list[Row]:
    tables = test.tables
    scores = score_tables(tables, divisor=test.divisor, confidence=settings.confidence)
    rows = _group_rows(cell, test, scores, "probe_rate", definition, settings)
    return rows + _macro_rows(cell, test, tables, scores, {"paper": definition}, settings)


def _common(cell: Cell, test: ProbeTest, **columns: object) -> Row:
    return base_row(
        cell,
        suite=test.suite_name,
        suite_hash=test.suite.hash,
        attribute=test.groups.attribute,
        **columns,
    )


def _probes(suite: Suite) -> list[str]:
    return [candidate.id for candidate in suite.candidates if candidate.category != "class"]


def _accuracy_rows(cell: Cell, test: ProbeTest, scores: TridentScores, definition: str) -> list[Row]:
    return [
        _common(
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
        for i, probe in enumerate(_probes(test.suite))
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
        _common(
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
        for i, probe in enumerate(_probes(test.suite))
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
    for i, probe in enumerate(_probes(test.suite)):
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
                _common(cell, test, metric="macro_accuracy", definition=definition, probe=probe)
                | {"value": float(value), "ci_low": low[i] * scale, "ci_high": high[i] * scale}
                | {"n": int(sizes[i].sum()), "reason": reason}
            )
    return rows


def _gap_rows(cell: Cell, test: ProbeTest, settings: MetricSettings) -> list[Row]:
    """Return the gap between groups of P(class → probe), averaged over the probes of one valence.

    The probes of a valence see the same images: what is resampled and permuted is how many of them an image
    became.
    """
    rows = []
    categories = [c.category for c in test.suite.candidates if c.category != "class"]
    for valence in VALENCES:
        chosen = np.array([category == valence for category in categories])
        won = (test.outcomes[chosen] == PROBE).sum(axis=0)
        table = count_table(
            test.groups.codes, won, n_groups=len(test.groups.names), n_outcomes=int(chosen.sum()) + 1
        )
        sizes = table.sum(axis=1)
        if np.count_nonzero(sizes) < 2:
            continue
        names = (cell.model, cell.dataset, test.suite_name, test.groups.attribute, "probe_rate_gap", valence)
        estimate = _gap(
            table,
            resamples=settings.resamples,
            permutations=settings.permutations,
            resampling=generator(settings.seed, *names, "bootstrap"),
            permuting=generator(settings.seed, *names, "permutation"),
            confidence=settings.confidence,
        )
        small = small_groups_reason(test.groups.names, sizes.tolist(), settings.min_group)
        rows.append(
            _common(cell, test, metric="probe_rate_gap", definition="by_valence", event=valence)
            | {"n": int(sizes.sum())}
            | estimate_columns(estimate, small)
        )
    return rows


def _gap(
    table: NDArray[np.int64],
    *,
    resamples: int,
    permutations: int,
    resampling: np.random.Generator,
    permuting: np.random.Generator,
    confidence: float,
) -> Estimate:
    """Estimate the gap of a (g, k + 1) table of how many of k probes the images of each group became.

    It depends on each group's sum alone, so that sums are what is drawn: (..., 2, g) of sums and trials.
    """
    trials = table.sum(axis=1) * (table.shape[1] - 1)

    def summed(tables: NDArray[np.int64]) -> NDArray[np.int64]:
        sums = tables @ np.arange(tables.shape[-1])
        own = tables.sum(axis=-1) * (tables.shape[-1] - 1)
        return np.stack([sums, own], axis=-2)

    def statistic(sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return parity_differences(sums[..., 0, :], sums[..., 1, :])

    drawn = resample_sums(table, resamples=resamples, rng=resampling)
    return estimate_table(
        summed(table),
        statistic,
        resampled=np.stack([drawn, np.broadcast_to(trials, drawn.shape)], axis=-2),
        permuted=summed(permute_tables(table, permutations=permutations, rng=permuting)),
        jackknife=lambda of_sums: jackknife_tables(table, lambda tables: of_sums(summed(tables))),
        confidence=confidence,
    )
