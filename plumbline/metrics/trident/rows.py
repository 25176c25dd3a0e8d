"""The one-probe tests of the Trident suites, their images seen by groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import GENDERS, VALENCES, Suite
from plumbline.concurrency import run_threads
from plumbline.metrics.cell import Cell, SuiteLogits, base_row, flag_clustering
from plumbline.metrics.disparities import batched_parity_difference
from plumbline.metrics.equal_opportunity import equal_opportunity_rows
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.trident.label_error import CorrectedRates, corrected_rates, rate_bounds
from plumbline.metrics.trident.scores import CORRECT, PROBE, TridentScores, probe_outcomes, score_tables
from plumbline.reasons import (
    Reason,
    Reasons,
    empty_groups_reason,
    group_size_reason,
    joined,
    reason,
    small_groups_reason,
)
from plumbline.statistics.bootstrap import jackknife_tables, resample_sums
from plumbline.statistics.counts import count_table, estimate_table
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.groups import Groups, crossed_with_gender, label_codes, mixed_groups
from plumbline.statistics.intervals import wilson
from plumbline.statistics.permutation import permute_tables
from plumbline.statistics.seeds import generator


@dataclass(frozen=True)
class ProbeTest:
    """All one-probe tests of a suite, by group.

    Attributes
    ----------
    suite_name : str
        Column `suite` of the rows: `trident`, `trident_mixed`, `trident_composite`.
    outcomes : (p, n) int64
        For each probe and image, see `probe_outcomes`.
    groups : Groups
    released_divisor : int
        What the released code divides the sum of class accuracies by.
    """

    suite_name: str
    suite: Suite
    outcomes: NDArray[np.int64]
    groups: Groups
    released_divisor: int

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
    groups_per_class: int,
) -> ProbeTest:
    """Return the tests of a suite by responses to its candidates, of images of known class seen by groups.

    Parameters
    ----------
    groups_per_class : int
        2 where classes are crossed with gender, else 1.
    """
    n_classes = len(logits.suite.class_labels)
    outcomes = probe_outcomes(responses[:, :n_classes], responses[:, n_classes:], classes.codes)
    base_classes = len(groups.names) // groups_per_class
    return ProbeTest(name, logits.suite, outcomes, groups, groups_per_class * (base_classes + 1))


def probe_test_row(cell: Cell, test: ProbeTest, **columns: object) -> Row:
    """Return the columns that every row about the tests has."""
    return base_row(cell, suite=test.suite_name, suite_hash=test.suite.hash, attribute=test.groups.attribute, **columns)


# --- Rows of the gap between groups of P(class → probe).


def probe_gap_rows(cell: Cell, test: ProbeTest, settings: MetricSettings) -> list[Row]:
    """Return the gap between groups of P(class → probe), averaged over the probes of one valence.

    The probes of a valence share their images: what is resampled and permuted is the number of probes that an
    image is classified as.
    """
    rows = []
    for valence in VALENCES:
        chosen = np.array([probe.category == valence for probe in test.suite.probes])
        won = (test.outcomes[chosen] == PROBE).sum(axis=0)
        table = count_table(test.groups.codes, won, n_groups=len(test.groups.names), n_outcomes=int(chosen.sum()) + 1)
        sizes = table.sum(axis=1)
        if np.count_nonzero(sizes) < 2:
            continue
        names = (cell.model, cell.dataset, test.suite_name, test.groups.attribute, "probe_rate_gap", valence)
        estimate = _estimate_gap(table, names, settings)
        small = small_groups_reason(test.groups.names, sizes.tolist(), settings.min_group)
        rows.append(
            probe_test_row(cell, test, metric="probe_rate_gap", definition="by_valence", event=valence)
            | estimate.columns(small)
            | {"n": int(sizes.sum())}
        )
    return rows


def _estimate_gap(table: NDArray[np.int64], names: tuple[str, ...], settings: MetricSettings) -> Estimate:
    """Estimate the gap of a (g, k + 1) table: images of each group by how many of k probes they are classified as.

    It depends on the groups' sums alone, so sums and trials are drawn, (..., 2, g).
    """
    resampling, permuting = (generator(settings.seed, *names, use) for use in ("bootstrap", "permutation"))

    def summed(tables: NDArray[np.int64]) -> NDArray[np.int64]:
        sums = tables @ np.arange(tables.shape[-1])
        return np.stack([sums, tables.sum(axis=-1) * (tables.shape[-1] - 1)], axis=-2)

    def statistic(sums: NDArray[np.int64]) -> NDArray[np.float64]:
        return batched_parity_difference(sums[..., 0, :], sums[..., 1, :])

    drawn = resample_sums(table, resamples=settings.resamples, rng=resampling)
    trials = np.broadcast_to(summed(table)[1], drawn.shape)
    return estimate_table(
        summed(table),
        statistic,
        resampled=np.stack([drawn, trials], axis=-2),
        permuted=summed(permute_tables(table, permutations=settings.permutations, rng=permuting)),
        jackknife=lambda of_sums: jackknife_tables(table, lambda tables: of_sums(summed(tables))),
        confidence=settings.confidence,
    )


# --- Rows that say what errors of the automatic gender label do to the mixed Trident tests.


@dataclass(frozen=True)
class LabelledTests:
    """The one-probe tests of a suite on images with an automatic gender label.

    Attributes
    ----------
    common : dict
        Columns that every row has.
    probes : sequence of str
    outcomes : (p, n) int64
        See `plumbline.metrics.trident.scores.probe_outcomes`.
    classes : Groups
        True classes; -1 for images that do not count.
    automatic, true : (n,) int64
        Genders by the labeller and by the dataset, as positions in `GENDERS`; -1 where there is none.
    """

    common: Row
    probes: Sequence[str]
    outcomes: NDArray[np.int64]
    classes: Groups
    automatic: NDArray[np.int64]
    true: NDArray[np.int64]

    def table(self, labels: NDArray[np.int64], outcomes: NDArray[np.int64], n_outcomes: int) -> NDArray[np.int64]:
        """Count images by class, label and outcome, (..., C, 2, n_outcomes)."""
        known = (self.classes.codes >= 0) & (labels >= 0)
        codes = np.where(known, self.classes.codes * 2 + labels, -1)
        counted = count_table(codes, outcomes, n_groups=2 * len(self.classes.names), n_outcomes=n_outcomes)
        return counted.reshape(*counted.shape[:-2], len(self.classes.names), 2, n_outcomes)


def true_genders(records: pl.DataFrame) -> NDArray[np.int64]:
    """Return the dataset's own gender of each record as a position in `GENDERS`, -1 where it has none."""
    if "gender" not in records.columns:
        return np.full(records.height, -1, dtype=np.int64)
    return label_codes(records["gender"], GENDERS)


def label_error_rows(tests: LabelledTests, *, settings: MetricSettings) -> list[Row]:
    """Return the rows of the mixed tests that tell the labeller's errors from the model's.

    Where a class has images of known gender: `label_corrected`, the rates by automatic label with the labeller's own
    confusion in that class undone (`plumbline.metrics.trident.label_error.corrected_rates`), as P(class → probe)
    and as macro accuracy. It takes errors to be unrelated to the model's answer: where it and `true_labels` part,
    they are not. Elsewhere `label_error_low` and `label_error_high`: how far P(class → probe) could lie from what
    is shown if the labeller were wrong as often as it may be, on whichever images.
    """
    counted = tests.table(tests.automatic, tests.outcomes, 3)
    # (C, automatic, true) to (C, true, automatic).
    both = np.where(tests.automatic >= 0, tests.true, -1)
    confusion = tests.table(both, np.maximum(tests.automatic, 0)[None], 2)[0]
    sizes, without = counted[0].sum(axis=-1), confusion.sum(axis=(1, 2)) == 0
    rows: list[Row] = []
    if not without.all():
        hits = np.moveaxis(counted[..., [PROBE, CORRECT]], -1, 0)
        corrected = corrected_rates(hits, sizes, confusion, confidence=settings.confidence)
        rows += _corrected_rows(tests, corrected, sizes.sum(axis=1), settings)
    if without.any():
        rows += _bound_rows(tests, counted[..., PROBE], sizes, confusion, settings)
    return rows


def _groups(tests: LabelledTests) -> Iterator[tuple[int, int, str]]:
    for c, name in enumerate(tests.classes.names):
        for g, gender in enumerate(GENDERS):
            yield c, g, f"{name}_{gender}"


def _corrected_rows(
    tests: LabelledTests, corrected: CorrectedRates, sizes: NDArray[np.int64], settings: MetricSettings
) -> Iterator[Row]:
    """Give the rows of corrected rates; `sizes` are the images of each class."""
    common = tests.common | {"definition": "label_corrected"}
    undefined = 2 * sum(n > 0 for n, why in zip(sizes.tolist(), corrected.reason) if why)
    left_out = reason("groups_not_corrected", undefined=undefined, groups=2 * len(sizes)) if undefined else None
    for i, probe in enumerate(tests.probes):
        for c, g, group in _groups(tests):
            rate, n = corrected.rates[0, i, c, g], int(sizes[c])
            reasons = (
                group_size_reason(n, settings.min_group),
                corrected.reason[c],
                _clipped(float(corrected.raw[0, i, c, g]), rate.ci_low),
            )
            named = {"metric": "probe_rate", "probe": probe, "group": group}
            yield common | named | rate.columns(*reasons) | {"n": n}
        named = {"metric": "macro_accuracy", "probe": probe}
        yield common | named | corrected.mean[1, i].columns(left_out) | {"n": int(sizes.sum())}


def _clipped(raw: float, low: float) -> Reasons:
    if not (raw < 0 or raw > 1):
        return ()
    return joined(reason("clipped", raw=raw), reason("errors_go_with_answers") if np.isnan(low) else None)


def _bound_rows(
    tests: LabelledTests,
    hits: NDArray[np.int64],
    sizes: NDArray[np.int64],
    confusion: NDArray[np.int64],
    settings: MetricSettings,
) -> Iterator[Row]:
    error, assumption = _assumed_error(confusion, settings)
    bounds = rate_bounds(hits, sizes, error=error, confidence=settings.confidence)
    for definition, rates in (("label_error_low", bounds.low), ("label_error_high", bounds.high)):
        common = tests.common | {"metric": "probe_rate", "definition": definition}
        for i, probe in enumerate(tests.probes):
            for c, g, group in _groups(tests):
                if confusion[c].sum():
                    continue
                n = int(sizes[c, g])
                columns = rates[i, c, g].columns(group_size_reason(n, settings.min_group), assumption)
                yield common | {"probe": probe, "group": group} | columns | {"n": n}


def _assumed_error(confusion: NDArray[np.int64], settings: MetricSettings) -> tuple[float, Reason]:
    """Return how many labels may be wrong: as many as where the truth is known, otherwise as the settings say."""
    known, wrong = int(confusion.sum()), int(confusion[:, 0, 1].sum() + confusion[:, 1, 0].sum())
    if not known:
        return settings.label_error, reason("assumed_label_error", error=settings.label_error)
    error = min(float(wilson(wrong, known, confidence=settings.confidence)[1]), 0.499)
    return error, reason("measured_label_error", error=error, wrong=wrong, known=known)


# --- Rows of Trident Probe Testing: accuracy with a probe, and misclassification as the probe.


def trident_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of the Trident suites that the cell has logits and labels for.

    Single tests are by class; mixed tests are the same predictions by class × automatic gender label, with rows
    beside them that say what errors of that label do; composite tests have the 2C composite labels as
    candidates. Images whose label is no class of the suite are left out.
    """
    parts: list[Callable[[], list[Row]]] = []
    if (logits := cell.logits.get("trident")) and (classes := true_classes(cell, logits.suite)):
        parts += _class_tests(cell, logits, classes, settings)
        if (mixed := mixed_groups(classes, cell.records)) and (composite := cell.logits.get("trident_composite")):
            kept = replace(mixed, codes=np.where(cell.rows("trident_composite"), mixed.codes, -1))
            test = probe_test("trident_composite", composite, composite.logits, kept, kept, groups_per_class=2)
            parts.append(partial(_score_rows, cell, test, {"paper": "composite"}, settings, gaps=False))
    rows = list(chain.from_iterable(run_threads(parts)))
    return metric_frame(flag_clustering(rows, cell.records))


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
        groups_per_class = 2 if name == "trident_mixed" else 1
        test = probe_test(name, logits, logits.logits, kept, groups, groups_per_class=groups_per_class)
        definitions = {"paper": "paper", "released": "released", "plain": "logit"}
        parts.append(partial(_score_rows, cell, test, definitions, settings))
        if logits.cosine is not None:
            cosine = probe_test(name, logits, logits.cosine, kept, groups, groups_per_class=groups_per_class)
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
    cell: Cell, test: ProbeTest, definitions: dict[str, str], settings: MetricSettings, *, gaps: bool = True
) -> list[Row]:
    """Return the rows of tests; `definitions` names macro accuracy as in the paper, as released, and all else."""
    scores = _scores(test, settings)
    plain = definitions.get("plain", definitions["paper"])
    rows = [
        probe_test_row(cell, test, metric="accuracy", definition=plain, probe=probe) | accuracy.columns()
        for probe, accuracy in zip(test.probes, scores.accuracy)
    ]
    rows += _group_rows(cell, test, "class_accuracy", scores.class_accuracy, plain)
    rows += _group_rows(cell, test, "probe_rate", scores.probe_rate, plain)
    rows += _macro_rows(cell, test, scores, definitions, settings)
    return rows + (probe_gap_rows(cell, test, settings) if gaps else [])


def _scores(test: ProbeTest, settings: MetricSettings) -> TridentScores:
    return score_tables(
        test.tables,
        released_divisor=test.released_divisor,
        confidence=settings.confidence,
        min_group=settings.min_group,
    )


def _relabelled_rows(cell: Cell, test: ProbeTest, definition: str, settings: MetricSettings) -> list[Row]:
    scores = _scores(test, settings)
    rows = _group_rows(cell, test, "probe_rate", scores.probe_rate, definition)
    return rows + _macro_rows(cell, test, scores, {"paper": definition}, settings)


def _group_rows(cell: Cell, test: ProbeTest, metric: str, rates: EstimateArray, definition: str) -> list[Row]:
    return [
        probe_test_row(cell, test, metric=metric, definition=definition, probe=probe, group=group)
        | rates[i, g].columns()
        for i, probe in enumerate(test.probes)
        for g, group in enumerate(test.groups.names)
    ]


def _macro_rows(
    cell: Cell, test: ProbeTest, scores: TridentScores, definitions: dict[str, str], settings: MetricSettings
) -> list[Row]:
    variants = {"paper": scores.macro_accuracy, "released": scores.macro_accuracy_released}
    # The tests share their images, and with them the sizes of groups.
    sizes = test.tables[0].sum(axis=-1)
    reasons = (empty_groups_reason(sizes), small_groups_reason(test.groups.names, sizes.tolist(), settings.min_group))
    return [
        probe_test_row(cell, test, metric="macro_accuracy", definition=definitions[variant], probe=probe)
        | values[i].columns(*reasons)
        for i, probe in enumerate(test.probes)
        for variant, values in variants.items()
        if variant in definitions
    ]


# --- The Trident family: what one loaded word does to the classes of a dataset.


def _rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    return pl.concat([trident_rows(cell, settings=settings), equal_opportunity_rows(cell, settings=settings)])


TRIDENT = Family(name="trident_metrics", code_version="6", needs=("trident",), compute=_rows)
