"""Rows of the Trident suites: one-probe tests, by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import GENDERS, MIXED_SUITES, TRIDENT_SUITES, VALENCES, Suite
from plumbline.metrics.cell import Cell, RowPart, SuiteLogits, base_row, compute_rows, flag_clustering
from plumbline.metrics.disparities import batched_parity_difference, detectable_columns, group_rates
from plumbline.metrics.equal_opportunity import equal_opportunity_rows
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.trident.label_error import corrected_rates, rate_bounds
from plumbline.metrics.trident.scores import CORRECT, PROBE, probe_outcomes, score_tables
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
from plumbline.statistics.cluster_permutation import ClusterPermutation
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason, jackknife_clusters, resample_clusters
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.groups import Groups, count_table, crossed_with_gender, label_codes, mixed_groups
from plumbline.statistics.intervals import wilson
from plumbline.statistics.maxima import Disparity, estimate_disparity
from plumbline.statistics.permutation import permute_tables
from plumbline.statistics.seeds import generator


@dataclass(frozen=True)
class ProbeTest:
    """All one-probe tests of a suite, by group.

    Attributes
    ----------
    common : Row
        Columns of every row about them, but for `attribute`.
    settings : MetricSettings
    probes : mapping of str to str
        Word of each of the p probes -> its valence.
    outcomes : (p, n) int64
        For each probe and image, see `probe_outcomes`.
    groups : Groups
    released_divisor : int
        What the released code divides the sum of class accuracies by.
    clusters : (n,) int64 or None
        Cluster of each image, where they come in clusters.
    """

    common: Row
    settings: MetricSettings
    probes: Mapping[str, str]
    outcomes: NDArray[np.int64]
    groups: Groups
    released_divisor: int
    clusters: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        cell: Cell,
        name: str,
        logits: SuiteLogits,
        responses: NDArray[np.float32],
        *,
        classes: Groups,
        groups: Groups,
        settings: MetricSettings,
    ) -> ProbeTest:
        """Build the tests of a suite from the responses to its candidates, for images of known class, by group.

        Parameters
        ----------
        name : str
            Column `suite` of the rows. Those of `MIXED_SUITES` have two groups per class, one per gender.
        """
        suite, n_classes = logits.suite, len(logits.suite.class_labels)
        outcomes = probe_outcomes(responses[:, :n_classes], responses[:, n_classes:], classes.codes)
        probes = {probe.id: probe.category for probe in suite.probes}
        common = base_row(cell, suite=name, suite_hash=suite.hash)
        divisor = len(groups.names) + (2 if name in MIXED_SUITES else 1)
        return cls(common, settings, probes, outcomes, groups, divisor, cluster_codes(cell.records))

    def tables(self, outcomes: NDArray[np.int64], n_outcomes: int) -> NDArray[np.int64]:
        """Return the (..., g, n_outcomes) counts of images by group and outcome."""
        return count_table(self.groups.codes, outcomes, n_groups=len(self.groups.names), n_outcomes=n_outcomes)

    def row(self, metric: str, definition: str, **columns: object) -> Row:
        """Return the columns that every row about the tests has."""
        return self.common | {"attribute": self.groups.attribute, "metric": metric, "definition": definition} | columns

    def rate_rows(self, metric: str, definition: str, rates: EstimateArray) -> Iterator[Row]:
        """Give the rows of (p, g) rates."""
        for i, probe in enumerate(self.probes):
            for g, group in enumerate(self.groups.names):
                yield self.row(metric, definition, probe=probe, group=group) | rates[i, g].columns()


def true_classes(cell: Cell, suite: Suite) -> Groups | None:
    """Return the classes of the images by their labels; None where no image has one."""
    if suite.attribute is None or suite.attribute not in cell.records.columns:
        return None
    codes = label_codes(cell.records[suite.attribute], suite.class_labels)
    return Groups(suite.attribute, suite.class_labels, codes) if (codes >= 0).any() else None


# --- Rows of the gap between groups of P(class → probe).


def probe_gap_rows(test: ProbeTest, valence: str) -> Iterator[Row]:
    """Give the gap between groups of P(class → probe), averaged over the probes of one valence.

    The probes of a valence share their images: what is resampled and permuted is the number of probes that an
    image is classified as. Where images come in clusters, these are resampled, and their blocks permuted.
    """
    settings, groups = test.settings, test.groups
    chosen = np.array([each == valence for each in test.probes.values()])
    won = (test.outcomes[chosen] == PROBE).sum(axis=0)
    table = test.tables(won, int(chosen.sum()) + 1)
    sizes = table.sum(axis=1)
    if np.count_nonzero(sizes) < 2:
        return
    named = [str(test.common[key]) for key in ("model", "dataset", "suite")]
    names = (*named, groups.attribute, "probe_rate_gap", valence)
    if test.clusters is None:
        estimate, permuted = _estimate_gap(table, names, settings)
    else:
        trials = np.full(len(won), int(chosen.sum()))
        counted = np.stack([won, trials], axis=1)
        estimate, permuted = _estimate_cluster_gap(counted, groups, test.clusters, names, settings)
    permutation = None if test.clusters is None else ClusterPermutation.of(groups.codes, test.clusters)
    detectable = detectable_columns(
        permuted[..., :1, :],
        permuted[..., 1:, :],
        _gap_of_sums,
        sizes,
        settings,
        least_p=permutation.least_gap_p if permutation else 0.0,
        clusters=int(permutation.clusters.max()) + 1 if permutation else None,
        mixing=permutation.mixing(len(groups.names)) if permutation else None,
    )
    small = small_groups_reason(groups.names, sizes.tolist(), settings.min_group)
    few = few_clusters_reason(test.clusters)
    row = test.row("probe_rate_gap", "by_valence", event=valence)
    yield row | estimate.columns(small, few) | detectable | {"n": int(sizes.sum())}


def _gap_of_sums(won: NDArray[Any], trials: NDArray[Any]) -> NDArray[np.float64]:
    return batched_parity_difference(won[..., 0, :], trials[..., 0, :])


_GAP_OF_SUMS = Disparity(
    lambda sums: _gap_of_sums(sums[..., :1, :], sums[..., 1:, :]),
    lambda sums: group_rates(sums[..., :1, :], sums[..., 1:, :]),
    most=1.0,
)
"""The gap of (..., 2, g) wins and trials."""


def _estimate_cluster_gap(
    counted: NDArray[np.int64],
    groups: Groups,
    clusters: NDArray[np.int64],
    names: tuple[str, ...],
    settings: MetricSettings,
) -> tuple[Estimate, NDArray[np.int64]]:
    """Estimate the gap of (n, 2) probes that an image is classified as, and probes that there are, from clusters."""
    resampling, permuting = (generator(settings.seed, *names, use) for use in ("bootstrap", "permutation"))
    g, permutation = len(groups.names), ClusterPermutation.of(groups.codes, clusters)
    cell = permutation.clusters[permutation.blocks] * g + groups.codes[permutation.used]
    cells = (int(permutation.clusters.max()) + 1) * g
    sums = [np.bincount(cell, weights=column, minlength=cells) for column in counted[permutation.used].T]
    tables = np.stack(sums).astype(np.int64).reshape(2, -1, g).swapaxes(0, 1)
    sums_of_groups = permutation.sums(counted, n_groups=g, permutations=settings.permutations, rng=permuting)
    permuted = sums_of_groups.astype(np.int64).swapaxes(1, 2)
    estimate = estimate_disparity(
        tables.sum(axis=0),
        _GAP_OF_SUMS,
        resampled=resample_clusters(tables, resamples=settings.resamples, rng=resampling),
        permuted=permuted,
        jackknife=partial(jackknife_clusters, tables),
        least_p=permutation.least_gap_p,
        clusters=len(tables),
        confidence=settings.confidence,
    )
    return estimate, permuted


def _estimate_gap(
    table: NDArray[np.int64], names: tuple[str, ...], settings: MetricSettings
) -> tuple[Estimate, NDArray[np.int64]]:
    """Estimate the gap of a (g, k + 1) table: images of each group by how many of k probes they are classified as.

    It depends on the groups' sums alone, so sums and trials are drawn, (..., 2, g).
    """
    resampling, permuting = (generator(settings.seed, *names, use) for use in ("bootstrap", "permutation"))

    def summed(tables: NDArray[np.int64]) -> NDArray[np.int64]:
        # Not `@`, which would turn whole numbers around in memory, where permutations come last.
        sums = np.einsum("...c,c->...", tables, np.arange(tables.shape[-1]))
        return np.stack([sums, tables.sum(axis=-1) * (tables.shape[-1] - 1)], axis=-2)

    drawn = resample_sums(table, resamples=settings.resamples, rng=resampling)
    trials = np.broadcast_to(summed(table)[1], drawn.shape)
    permuted = summed(permute_tables(table, permutations=settings.permutations, rng=permuting))
    estimate = estimate_disparity(
        summed(table),
        _GAP_OF_SUMS,
        resampled=np.stack([drawn, trials], axis=-2),
        permuted=permuted,
        jackknife=lambda of_sums: jackknife_tables(table, lambda tables: of_sums(summed(tables))),
        confidence=settings.confidence,
    )
    return estimate, permuted


# --- Rows that say what errors of the automatic gender label do to the mixed Trident tests.


def true_genders(records: pl.DataFrame) -> NDArray[np.int64]:
    """Return the dataset's own gender of each record as a position in `GENDERS`, -1 where it has none."""
    if "gender" not in records.columns:
        return np.full(records.height, -1, dtype=np.int64)
    return label_codes(records["gender"], GENDERS)


def label_error_rows(test: ProbeTest, true: NDArray[np.int64]) -> Iterator[Row]:
    """Give the rows of the mixed tests that tell the labeller's errors from the model's.

    Where a class has images of known gender: `label_corrected`, the rates by automatic label with the labeller's own
    confusion in that class undone (`plumbline.metrics.trident.label_error.corrected_rates`), as P(class → probe) and
    as macro accuracy. It assumes that errors do not depend on the model's answer, and that images of known gender are
    like the others; a difference from `true_labels` beyond the intervals speaks against that. Elsewhere
    `label_error_low` and `label_error_high`: bounds of P(class → probe) if the labeller is wrong at the assumed rate,
    on whichever images.

    Parameters
    ----------
    test : ProbeTest
        Its groups are classes crossed with the automatic gender.
    true : (n,) int64
        True gender of each image as a position in `GENDERS`; -1 where it is not known.
    """

    def by_class(tables: NDArray[np.int64]) -> NDArray[np.int64]:
        return tables.reshape(*tables.shape[:-2], -1, len(GENDERS), tables.shape[-1])

    counted = by_class(test.tables(test.outcomes, 3))
    # (C, automatic, true) to (C, true, automatic).
    known = replace(test, groups=replace(test.groups, codes=np.where(true >= 0, test.groups.codes, -1)))
    confusion = np.swapaxes(by_class(known.tables(np.maximum(true, 0), len(GENDERS))), -1, -2)
    sizes, without = counted[0].sum(axis=-1), confusion.sum(axis=(1, 2)) == 0
    if not without.all():
        yield from _corrected_rows(test, counted, sizes, confusion)
    if without.any():
        yield from _bound_rows(test, counted[..., PROBE], sizes, confusion)


def _corrected_rows(
    test: ProbeTest, counted: NDArray[np.int64], sizes: NDArray[np.int64], confusion: NDArray[np.int64]
) -> Iterator[Row]:
    hits, settings = np.moveaxis(counted[..., [PROBE, CORRECT]], -1, 0), test.settings
    corrected = corrected_rates(hits, sizes, confusion, confidence=settings.confidence)
    of_class = sizes.sum(axis=1).tolist()
    undefined = 2 * sum(n > 0 for n, why in zip(of_class, corrected.reason) if why)
    left_out = reason("groups_not_corrected", undefined=undefined, groups=2 * len(sizes)) if undefined else None
    for i, probe in enumerate(test.probes):
        for place, group in enumerate(test.groups.names):
            c, g = divmod(place, len(GENDERS))
            rate, n = corrected.rates[0, i, c, g], of_class[c]
            clipped = _clipped(float(corrected.raw[0, i, c, g]), rate.ci_low)
            columns = rate.columns(group_size_reason(n, settings.min_group), corrected.reason[c], clipped)
            yield test.row("probe_rate", "label_corrected", probe=probe, group=group) | columns | {"n": n}
        columns = corrected.mean[1, i].columns(left_out) | {"n": sum(of_class)}
        yield test.row("macro_accuracy", "label_corrected", probe=probe) | columns


def _clipped(raw: float, low: float) -> Reasons:
    if not (raw < 0 or raw > 1):
        return ()
    return joined(reason("clipped", raw=raw), reason("errors_go_with_answers") if np.isnan(low) else None)


def _bound_rows(
    test: ProbeTest, hits: NDArray[np.int64], sizes: NDArray[np.int64], confusion: NDArray[np.int64]
) -> Iterator[Row]:
    settings = test.settings
    error, assumption = _assumed_error(confusion, settings)
    bounds = rate_bounds(hits, sizes, error=error, confidence=settings.confidence)
    for definition, rates in (("label_error_low", bounds.low), ("label_error_high", bounds.high)):
        for i, probe in enumerate(test.probes):
            for place, group in enumerate(test.groups.names):
                c, g = divmod(place, len(GENDERS))
                if not confusion[c].sum():
                    n = int(sizes[c, g])
                    columns = rates[i, c, g].columns(group_size_reason(n, settings.min_group), assumption)
                    yield test.row("probe_rate", definition, probe=probe, group=group) | columns | {"n": n}


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
    return metric_frame(flag_clustering(compute_rows(_parts(cell, settings)), cell.records))


def _parts(cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    yield from _published_parts(cell, settings)
    for name, logits in cell.logits.items():
        if name in TRIDENT_SUITES or logits.suite.family != "trident":
            continue
        if (classes := true_classes(cell, logits.suite)) is not None:
            kept = replace(classes, codes=np.where(cell.rows(name), classes.codes, -1))
            yield from _single_parts(cell, name, logits, kept, kept, settings)


def _single_parts(
    cell: Cell, name: str, logits: SuiteLogits, classes: Groups, groups: Groups, settings: MetricSettings
) -> Iterator[RowPart]:
    """Give the tests of the classes with each probe, and the gaps between groups by the probes' valence."""
    test_of = partial(ProbeTest.of, cell, name, logits, classes=classes, groups=groups, settings=settings)
    test = test_of(logits.logits[:])
    yield partial(_score_rows, test, "logit", main=True)
    for valence in VALENCES:
        yield partial(probe_gap_rows, test, valence)
    if logits.cosine is not None:
        yield partial(_score_rows, test_of(logits.cosine[:]), "cosine")
    if name in MIXED_SUITES:
        yield from _label_parts(cell, test, classes)


def _published_parts(cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    logits = cell.logits.get("trident")
    classes = true_classes(cell, logits.suite) if logits else None
    if logits is None or classes is None:
        return
    kept = replace(classes, codes=np.where(cell.rows("trident"), classes.codes, -1))
    for name, groups in (("trident", kept), ("trident_mixed", mixed_groups(kept, cell.records))):
        if groups is not None:
            yield from _single_parts(cell, name, logits, kept, groups, settings)
    mixed, composite = mixed_groups(classes, cell.records), cell.logits.get("trident_composite")
    if mixed and composite:
        kept = replace(mixed, codes=np.where(cell.rows("trident_composite"), mixed.codes, -1))
        test = ProbeTest.of(
            cell, "trident_composite", composite, composite.logits[:], classes=kept, groups=kept, settings=settings
        )
        yield partial(_score_rows, test, "composite")


def _label_parts(cell: Cell, test: ProbeTest, classes: Groups) -> Iterator[RowPart]:
    """Give the mixed tests by confident labels, by true labels, and with the labeller's errors undone or bounded."""
    if "auto_gender_margin" in cell.records.columns:
        sure = cell.records["auto_gender_margin"].fill_null(-1.0).to_numpy() >= test.settings.label_margin
        groups = replace(test.groups, codes=np.where(sure, test.groups.codes, -1))
        yield partial(_score_rows, replace(test, groups=groups), "confident_labels", relabelled=True)
    true = true_genders(cell.records)
    if ((classes.codes >= 0) & (true >= 0)).any():
        by_truth = replace(test, groups=crossed_with_gender(classes, cell.records["gender"]))
        yield partial(_score_rows, by_truth, "true_labels", relabelled=True)
    yield partial(label_error_rows, test, true)


def _score_rows(test: ProbeTest, definition: str, *, main: bool = False, relabelled: bool = False) -> Iterator[Row]:
    """Give the rows of tests.

    Parameters
    ----------
    definition : str
        Column `definition` of the rows, except macro accuracy of the main tests: that is `paper` and `released`.
    main : bool
        Whether these are the main tests, whose macro accuracy has both definitions.
    relabelled : bool
        Whether labels differ from those of the main tests: then only probe rates and macro accuracy are given.
    """
    tables, settings = test.tables(test.outcomes, 3), test.settings
    scores = score_tables(
        tables, released_divisor=test.released_divisor, confidence=settings.confidence, min_group=settings.min_group
    )
    if not relabelled:
        for probe, accuracy in zip(test.probes, scores.accuracy):
            yield test.row("accuracy", definition, probe=probe) | accuracy.columns()
        yield from test.rate_rows("class_accuracy", definition, scores.class_accuracy)
    yield from test.rate_rows("probe_rate", definition, scores.probe_rate)
    # The tests share their images, and with them the sizes of groups.
    sizes = tables[0].sum(axis=-1)
    reasons = (empty_groups_reason(sizes), small_groups_reason(test.groups.names, sizes.tolist(), settings.min_group))
    macro = {definition: scores.macro_accuracy}
    if main:
        macro = {"paper": scores.macro_accuracy, "released": scores.macro_accuracy_released}
    for variant, values in macro.items():
        for probe, value in zip(test.probes, values):
            yield test.row("macro_accuracy", variant, probe=probe) | value.columns(*reasons)


# --- The Trident family: what one loaded word does to the classes of a dataset.


def _rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    return pl.concat([trident_rows(cell, settings=settings), equal_opportunity_rows(cell, settings=settings)])


TRIDENT = Family(name="trident_metrics", needs=("trident",), compute=_rows)
