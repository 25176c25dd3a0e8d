"""Rows on how robust the audit is: directional bias, its calibration, its templates, and the neutral control."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from plumbline.metrics.family import Family, MetricSettings, Traits
from plumbline.metrics.robustness.calibration import Calibration, calibration, mass_differences
from plumbline.metrics.robustness.directional_bias import (
    bias_over_images,
    directional_bias,
    directional_bias_gap,
    gap_of_codes,
    intra_set_cosine,
    template_shift,
)
from plumbline.metrics.robustness.template_agreement import rank_agreement
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.reasons import group_size_reason, joined, small_groups_reason

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
        common["reason"] = joined(small or found.reason, few_clusters_reason(sets))
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
    rows, few = [], few_clusters_reason(task.sets)
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
            | {"n": found.n, "reason": joined(between, small, found.reason, few_clusters_reason(sets))}
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
        rows += _bin_rows(common, found, few_clusters_reason(task.sets), settings)
        rows += _summary_rows(common, found, few_clusters_reason(task.sets), settings)
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


# --- The robustness family: what the audit's numbers owe to wording, to chance, and to faces that show
# nobody.

_DESCRIPTION = """
How far the contrastive audit can be trusted. Directional bias: how much nearer an image lies to a task's
positive prompts than to its negative ones, over all images and by group with the gap between groups, under
three wordings of the same prompts; the largest shift of its mean between wordings; and whether checkpoints
keep their order. Calibration: how often the best match is harmful at each size of that bias, and from which
size on it is more often harmful than not. Neutral control: the same numbers on portraits that show no gender
and no race, with how alike these look to the model. Every number has its sample size and a 95% interval.
"""


_CALIBRATION = "Al Sahili et al., Data Matters Most, appendix B"

_TRAITS = (
    Traits(
        name="directional_bias",
        meaning=(
            "How much nearer an image lies to a task's positive prompts than to its negative ones, as "
            "mean over images."
        ),
        formula="Δ = mean cosine to the positive prompts - mean cosine to the negative prompts",
        source="Al Sahili et al., Data Matters Most, appendices A and C",
        headline="positive_minus_negative",
        function=directional_bias,
        bounds=(-2, 2),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale="equivariant",
    ),
    Traits(
        name="directional_bias_gap",
        meaning="By how much the mean directional bias differs between groups.",
        formula="max_g mean_g Δ - min_g mean_g Δ",
        source="Plumbline, on the directional bias of Al Sahili et al., Data Matters Most",
        function=directional_bias_gap,
        bounds=(0, 4),
        shape="scalar",
        when_identical=0.0,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
    ),
    Traits(
        name="template_shift",
        meaning="By how much another wording of the prompts moves the mean directional bias.",
        formula="Δμ = max over pairs of templates of |mean Δ_s - mean Δ_t|",
        source="Al Sahili et al., Data Matters Most, appendix C",
        function=template_shift,
        bounds=(0, 4),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
        shift=None,
    ),
    Traits(
        name="template_rank_correlation",
        meaning="Whether checkpoints keep their order of directional bias under another wording.",
        formula="Spearman's ρ of the checkpoints' mean Δ under two templates",
        source="Al Sahili et al., Data Matters Most, appendix C",
        function=rank_agreement,
        bounds=(-1, 1),
        shape="scalar",
        when_identical=float("nan"),
        empty_group="left_out",
        ties="no effect",
    ),
    *(
        Traits(
            name=name,
            meaning=meaning,
            formula=formula,
            source=_CALIBRATION,
            function=calibration,
            bounds=bounds,
            shape="scalar",
            when_identical=None,
            empty_group="left_out",
            ties="no effect",
            scale=None,
            shift=None,
        )
        for name, bounds, meaning, formula in (
            (
                "calibration_p_harm",
                (0, 1),
                "How often the best match is harmful among images whose directional bias is of one size.",
                "|harmful images with low ≤ |Δ| < high| / |images with low ≤ |Δ| < high|",
            ),
            (
                "calibration_filled",
                (0, 1),
                "The share of images whose directional bias is of one size.",
                "|images with low ≤ |Δ| < high| / n",
            ),
            (
                "calibration_max_p_harm",
                (0, 1),
                "The largest share of harmful best matches at any size of the directional bias.",
                "max over the bins that hold images of calibration_p_harm",
            ),
            (
                "calibration_elbow",
                (0, 0.6),
                "From which size of the directional bias on the best match is more often harmful than not.",
                "lower end of the first bin with calibration_p_harm ≥ 0.5",
            ),
        )
    ),
    Traits(
        name="intra_set_cosine",
        meaning="How alike portraits that show no gender and no race look to a model.",
        formula="mean over pairs of images of cos(x, y)",
        source="Al Sahili et al., Data Matters Most, appendix A",
        function=intra_set_cosine,
        bounds=(-1, 1),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale=None,
        shift=None,
    ),
)

ROBUSTNESS = Family(
    name="robustness_metrics",
    title="Robustness",
    description=" ".join(_DESCRIPTION.split()),
    code_version="1",
    needs=("templates",),
    traits=_TRAITS,
    compute=robustness_rows,
)
