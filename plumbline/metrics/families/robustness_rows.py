"""Rows on how robust the audit is: directional bias, its calibration, its templates, and the neutral control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.metrics.calibration import Calibration, calibration, mass_differences
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.directional_bias import (
    bias_over_images,
    directional_bias,
    gap_of_codes,
    template_shift,
)
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.intra_set_cosine import intra_set_cosine
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import cluster_codes, few_sets_reason
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.reasons import group_size_reason, joined, small_groups_reason
from plumbline.tables.schema import Row, metric_frame
from plumbline.tables.suites import Suite

DEFAULT = "positive_minus_negative"
BINNED = "bias_magnitude"
"""What the column `attribute` says of calibration: images are grouped by |Δ|, `group` names the bin."""


@dataclass(frozen=True)
class Poles:
    """The two ends of a task: prompts of these kinds, of the suite's `task:kind`."""

    task: str
    definition: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]


POLES = (
    Poles("crime", DEFAULT, ("demographic",), ("crime", "non_human")),
    Poles("crime", "crime_vs_non_human", ("crime",), ("non_human",)),
    Poles("communion", DEFAULT, ("positive",), ("negative",)),
    Poles("agency", DEFAULT, ("positive",), ("negative",)),
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
        Of the same images.
    sets : (n,) int64 or None
    """

    poles: Poles
    suite: Suite
    cosine: NDArray[np.float64]
    positive: int
    scale: float
    groups: tuple[Groups, ...]
    sets: NDArray[np.int64] | None

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

    def sets_of(self, mask: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        """Return the sets of some of the images."""
        return None if self.sets is None else self.sets[mask]


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
        if task.poles.definition == DEFAULT:
            parts.append(partial(_calibration_rows, cell, task, settings))
    return metric_frame(list(chain.from_iterable(side_by_side(parts))))


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
    sets = cluster_codes(cell.records)
    groups = tuple(
        Groups(g.attribute, g.names, g.codes[chosen]) for g in attribute_groups(cell.labels(suite.id))
    )
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
                sets=None if sets is None else sets[chosen],
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
    found = intra_set_cosine(cell.images, confidence=settings.confidence)
    common = base_row(cell, metric="intra_set_cosine", definition="all_pairs", n=found.n, reason=found.reason)
    return [
        common | {"statistic": statistic, "value": value, "ci_low": ends[0], "ci_high": ends[1]}
        for statistic, value, ends in (
            ("estimate", found.mean, found.mean_interval),
            ("sd", found.sd, found.sd_interval),
        )
    ]


def _bias_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    """Return mean and standard deviation of Δ by template; by group the mean alone."""
    rows, delta = [], task.delta
    for named, mask in task.parts():
        sets = task.sets_of(mask)
        found = bias_over_images(delta[mask], clusters=sets, confidence=settings.confidence)
        small = group_size_reason(found.n, settings.min_group) if named else None
        common = _common(cell, task, metric="directional_bias", n=found.n, **named)
        common["reason"] = joined(small or found.reason, few_sets_reason(sets))
        for i, template in enumerate(task.suite.templates):
            for statistic, value, ends in (
                ("estimate", found.mean, found.mean_interval),
                *(() if named else (("sd", found.sd, found.sd_interval),)),
            ):
                estimate = {"value": value[i], "ci_low": ends[i, 0], "ci_high": ends[i, 1]}
                rows.append(common | {"probe": template, "statistic": statistic} | estimate)
    return rows


def _gap_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    """Return the largest difference between groups of the mean of Δ, by template."""
    rows, few = [], few_sets_reason(task.sets)
    for groups in task.groups:
        sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(groups.names))
        if np.count_nonzero(sizes) < 2:
            continue
        small = small_groups_reason(groups.names, sizes.tolist(), settings.min_group)
        for i, template in enumerate(task.suite.templates):
            found = gap_of_codes(
                task.delta[:, i],
                groups.codes,
                groups.names,
                clusters=task.sets,
                confidence=settings.confidence,
            )
            between = f"furthest apart: {' and '.join(found.groups)}"
            rows.append(
                _common(cell, task, metric="directional_bias_gap", attribute=groups.attribute, probe=template)
                | {"value": found.value, "ci_low": found.ci_low, "ci_high": found.ci_high, "p": found.p}
                | {"n": found.n, "reason": joined(between, small, found.reason, few)}
            )
    return rows


def _shift_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    rows, delta = [], task.delta
    for named, mask in task.parts():
        sets = task.sets_of(mask)
        found = template_shift(delta[mask], clusters=sets, confidence=settings.confidence)
        small = group_size_reason(found.n, settings.min_group) if named else None
        one, other = (task.suite.templates[i] for i in found.templates)
        between = f"furthest apart: {one} and {other}" if found.n else None
        rows.append(
            _common(cell, task, metric="template_shift", **named)
            | {"value": found.value, "ci_low": found.ci_low, "ci_high": found.ci_high, "p": found.p}
            | {"n": found.n, "reason": joined(between, small, found.reason, few_sets_reason(sets))}
        )
    return rows


def _calibration_rows(cell: Cell, task: TestedTask, settings: MetricSettings) -> list[Row]:
    cosine = task.cosine[:, 0]
    # The positive prompts come first in the suite too: ties go to the lower index.
    harmful = cosine.argmax(axis=1) >= task.positive
    scaled = mass_differences(cosine, positive=task.positive, scale=task.scale)
    rows = []
    for definition, delta in (("cosine", task.delta[:, 0]), ("scaled", scaled)):
        found = calibration(delta, harmful, clusters=task.sets, confidence=settings.confidence)
        common = _common(cell, task, definition=definition, probe=task.suite.templates[0])
        common["attribute"] = BINNED
        rows += _bin_rows(common, found, few_sets_reason(task.sets), settings)
        rows += _summary_rows(common, found, few_sets_reason(task.sets), settings)
    return rows


def _bin_rows(common: Row, found: Calibration, few: str | None, settings: MetricSettings) -> list[Row]:
    rows, total = [], int(found.n.sum())
    for b, name in enumerate(bin_names(found)):
        n, own = int(found.n[b]), common | {"group": name}
        small = "no image in this bin" if n == 0 else group_size_reason(n, settings.min_group)
        rows.append(
            own
            | {"metric": "calibration_p_harm", "value": found.p_harm[b], "n": n}
            | {"ci_low": found.ci_low[b], "ci_high": found.ci_high[b], "reason": joined(small, few)}
        )
        rows.append(
            own
            | {"metric": "calibration_filled", "value": found.filled[b], "n": total}
            | {"ci_low": found.filled_low[b], "ci_high": found.filled_high[b]}
            | {"reason": joined(None if total else "no images", few)}
        )
    return rows


def _summary_rows(common: Row, found: Calibration, few: str | None, settings: MetricSettings) -> list[Row]:
    total, names = int(found.n.sum()), bin_names(found)
    no_elbow = "no elbow: no bin in which half of the images are harmed" if np.isnan(found.elbow) else None
    elbow = {"metric": "calibration_elbow", "value": found.elbow, "n": total, "reason": no_elbow}
    maximum: Row = {"metric": "calibration_max_p_harm", "value": found.maximum, "n": 0, "reason": "no images"}
    if (b := found.maximum_bin) is not None:
        small = group_size_reason(int(found.n[b]), settings.min_group)
        maximum |= {
            "n": int(found.n[b]),
            "ci_low": found.ci_low[b],
            "ci_high": found.ci_high[b],
            "reason": joined(f"in {names[b]}", small, few),
        }
    return [common | elbow, common | maximum]


def bin_names(found: Calibration) -> list[str]:
    """Return the bins as intervals: `[0.1, 0.2)`."""
    return [
        f"[{low:.1f}, {'∞' if np.isinf(high) else f'{high:.1f}'})" for low, high in zip(found.low, found.high)
    ]
