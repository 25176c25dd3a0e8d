"""Rows of the robustness metrics: directional bias, its calibration and its templates, and the neutral control."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import Suite
from plumbline.concurrency import run_threads
from plumbline.metrics.cell import Cell, SuiteLogits, base_row
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.robustness.calibration import BINS, calibration, softmax_margin
from plumbline.metrics.robustness.directional_bias import (
    bias_over_images,
    directional_bias,
    gap_of_codes,
    intra_set_cosine,
    template_shift,
)
from plumbline.reasons import Reason, group_size_reason, joined, reason, small_groups_reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import Groups, attribute_groups

MAIN_CONTRAST = "positive_minus_negative"
BIAS_BINS = "bias_magnitude"
"""Column `attribute` of calibration rows: images are grouped by |Δ|, `group` names the bin."""


@dataclass(frozen=True)
class Poles:
    """The two ends of a task: prompts of these kinds, of the suite's `task:kind`."""

    task: str
    definition: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]


POLES = (
    Poles("crime", MAIN_CONTRAST, ("demographic",), ("crime", "non_human")),
    Poles("crime", "crime_vs_non_human", ("crime",), ("non_human",)),
    Poles("communion", MAIN_CONTRAST, ("positive",), ("negative",)),
    Poles("agency", MAIN_CONTRAST, ("positive",), ("negative",)),
)


@dataclass(frozen=True)
class TestedTask:
    """Cosines of the images that count to one task's prompts.

    Attributes
    ----------
    cosine : (n, t, m) float64
        By template; the positive prompts come first.
    positive : int
        How many of them there are.
    groups : tuple of Groups
        Groups of these images, one entry per attribute.
    clusters : (n,) int64 or None
    """

    poles: Poles
    suite: Suite
    cosine: NDArray[np.float64]
    positive: int
    scale: float
    groups: tuple[Groups, ...]
    clusters: NDArray[np.int64] | None

    @cached_property
    def delta(self) -> NDArray[np.float64]:
        """Return the (n, t) directional bias of each image under each template."""
        return directional_bias(self.cosine[..., : self.positive], self.cosine[..., self.positive :]).delta

    def parts(self) -> Iterator[tuple[Row, NDArray[np.bool_]]]:
        """Give all images, then each group's, as the columns that name them and a mask."""
        yield {}, np.ones(len(self.cosine), dtype=bool)
        for groups in self.groups:
            for code, name in enumerate(groups.names):
                yield {"attribute": groups.attribute, "group": name}, groups.codes == code

    def clusters_of(self, mask: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        """Return the clusters of some of the images."""
        return None if self.clusters is None else self.clusters[mask]


def robustness_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the rows of the suite `templates`, and of the images alone where their embeddings are loaded.

    Without cosines there is no directional bias, and no rows of it. Calibration is under the suite's first template,
    the one of the main audit.
    """
    parts: list[Callable[[], list[Row]]] = [partial(_intra_set_rows, cell, settings)]
    for task in tested_tasks(cell):
        parts.append(partial(_bias_rows, cell, task, settings))
        parts.append(partial(_gap_rows, cell, task, settings))
        if len(task.suite.templates) > 1:
            parts.append(partial(_shift_rows, cell, task, settings))
        if task.poles.definition == MAIN_CONTRAST:
            parts.append(partial(_calibration_rows, cell, task, settings))
    return metric_frame(list(chain.from_iterable(run_threads(parts))))


def tested_tasks(cell: Cell) -> Iterator[TestedTask]:
    """Give every task of the templated suites for which the cell has cosines, on the images that count."""
    for logits in cell.logits.values():
        if logits.suite.family == "templates" and logits.cosine is not None:
            yield from _tasks_of(cell, logits)


def _tasks_of(cell: Cell, logits: SuiteLogits) -> Iterator[TestedTask]:
    suite = logits.suite
    # In an order of the images' own, so that sums round alike however the images are listed.
    order = cell.records["image_id"].arg_sort().to_numpy()
    chosen = order[cell.rows(suite.id)[order]]
    clusters = cluster_codes(cell.records)
    groups = tuple(Groups(g.attribute, g.names, g.codes[chosen]) for g in attribute_groups(cell.labels(suite.id)))
    for poles in POLES:
        sides = [_words(suite, poles.task, kinds) for kinds in (poles.positive, poles.negative)]
        if all(sides):
            yield TestedTask(
                poles=poles,
                suite=suite,
                cosine=logits.by_template([*sides[0], *sides[1]])[chosen],
                positive=len(sides[0]),
                scale=logits.logit_scale,
                groups=groups,
                clusters=None if clusters is None else clusters[chosen],
            )


def _words(suite: Suite, task: str, kinds: tuple[str, ...]) -> list[str]:
    categories = {f"{task}:{kind}" for kind in kinds}
    return list(dict.fromkeys(f"{c.category}:{c.word}" for c in suite.candidates if c.category in categories))


def _common(cell: Cell, task: TestedTask, **columns: object) -> Row:
    named = {"definition": task.poles.definition, "suite": task.suite.id, "suite_hash": task.suite.hash}
    return base_row(cell, **named, event=task.poles.task) | columns


def _intra_set_rows(cell: Cell, settings: MetricSettings) -> list[Row]:
    if cell.images is None:
        return []
    cosine = intra_set_cosine(cell.images, confidence=settings.confidence)
    common = base_row(cell, metric="intra_set_cosine", definition="all_pairs")
    return [
        common | {"statistic": statistic} | estimate.columns()
        for statistic, estimate in (("estimate", cosine.mean), ("sd", cosine.sd))
    ]


def _bias_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    """Return mean and standard deviation of Δ by template; by group the mean alone."""
    rows, delta = [], task.delta
    for named, mask in task.parts():
        clusters = task.clusters_of(mask)
        bias = bias_over_images(delta[mask], clusters=clusters, confidence=settings.confidence)
        small = group_size_reason(int(mask.sum()), settings.min_group) if named else None
        few = few_clusters_reason(clusters)
        for i, template in enumerate(task.suite.templates):
            statistics = {"estimate": bias.mean[i]} if named else {"estimate": bias.mean[i], "sd": bias.sd[i]}
            for statistic, estimate in statistics.items():
                row = _common(cell, task, metric="directional_bias", probe=template, **named)
                row |= estimate.columns() | {"statistic": statistic}
                rows.append(row | {"reason": joined(small or estimate.reason, few)})
    return rows


def _gap_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    """Return the largest difference between groups of the mean of Δ, by template."""
    rows = []
    for groups in task.groups:
        sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(groups.names))
        if np.count_nonzero(sizes) < 2:
            continue
        small = small_groups_reason(groups.names, sizes.tolist(), settings.min_group)
        for i, template in enumerate(task.suite.templates):
            gap = gap_of_codes(
                task.delta[:, i], groups.codes, groups.names, clusters=task.clusters, confidence=settings.confidence
            )
            row = _common(cell, task, metric="directional_bias_gap", attribute=groups.attribute, probe=template)
            rows.append(row | _difference_columns(gap, gap.between, small, task.clusters))
    return rows


def _shift_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    rows, delta = [], task.delta
    for named, mask in task.parts():
        clusters, n = task.clusters_of(mask), int(mask.sum())
        shift = template_shift(delta[mask], clusters=clusters, confidence=settings.confidence)
        small = group_size_reason(n, settings.min_group) if named else None
        between = [task.suite.templates[i] for i in shift.between] if n else []
        row = _common(cell, task, metric="template_shift", **named)
        rows.append(row | _difference_columns(shift, between, small, clusters))
    return rows


def _difference_columns(
    estimate: Estimate, between: Sequence[str], small: Reason | None, clusters: NDArray[np.int64] | None
) -> Row:
    """Return the columns of a largest difference, with what it is between; empty where there is none."""
    apart = reason("furthest_apart", first=between[0], second=between[1]) if between else None
    reasons = joined(apart, small, estimate.reason, few_clusters_reason(clusters))
    return estimate.columns() | {"reason": reasons}


def _calibration_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    cosine = task.cosine[:, 0]
    # The positive prompts come first in the suite too: ties go to the lower index.
    harmful = cosine.argmax(axis=1) >= task.positive
    scaled = softmax_margin(cosine, positive=task.positive, scale=task.scale)
    few, total = few_clusters_reason(task.clusters), len(cosine)
    rows = []
    for definition, delta in (("cosine", task.delta[:, 0]), ("scaled", scaled)):
        calibrated = calibration(delta, harmful, clusters=task.clusters, confidence=settings.confidence)
        common = _common(cell, task, definition=definition, probe=task.suite.templates[0], attribute=BIAS_BINS)
        for name, p_harm, bin_share in zip(BINS, calibrated.p_harm, calibrated.bin_share):
            empty = reason("empty_bin") if p_harm.n == 0 else None
            small = group_size_reason(p_harm.n or 0, settings.min_group)
            rows += [
                common | {"metric": metric, "group": name} | columns
                for metric, columns in (
                    ("calibration_p_harm", p_harm.columns(empty or small, few)),
                    ("calibration_filled", bin_share.columns(None if total else reason("no_images"), few)),
                )
            ]
        no_elbow = reason("no_elbow") if np.isnan(calibrated.elbow) else None
        rows.append(common | {"metric": "calibration_elbow", "value": calibrated.elbow, "n": total, "reason": no_elbow})
        maximum: Row = {"value": calibrated.maximum, "n": 0, "reason": reason("no_images")}
        if (b := calibrated.worst_bin) is not None:
            largest = calibrated.p_harm[b]
            small = group_size_reason(largest.n or 0, settings.min_group)
            maximum = largest.columns(reason("maximum_bin", bin=BINS[b]), small, few)
        rows.append(common | {"metric": "calibration_max_p_harm"} | maximum)
    return rows


ROBUSTNESS = Family(name="robustness_metrics", code_version="1", needs=("templates",), compute=robustness_rows)
