"""Contrastive outcome metrics: how often the best match of an image falls in an event, by group.

Source: Al Sahili et al., "Data Matters Most", section 3.4. All are functions of counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import TASKS, Suite
from plumbline.digests import digest_json
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, CellName, RowPart, base_row, compute_rows
from plumbline.metrics.disparities import (
    PARITY,
    RANGE_STATISTICS,
    SKEW_STATISTICS,
    ImageOutcomes,
    checked_counts,
    disparity_rows,
)
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.inputs import as_labels, is_event
from plumbline.metrics.predictions import EventPredictions, event_predictions
from plumbline.reasons import MIN_GROUP, group_size_reason, joined, reason
from plumbline.statistics.clusters import cluster_codes, cluster_tables, cluster_wilson, few_clusters_reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.groups import Groups, attribute_groups, count_table, label_codes, shares
from plumbline.statistics.intervals import wilson
from plumbline.statistics.permutation import permute_strata, strata_mixing

# --- Definitions.


@dataclass(frozen=True)
class OutcomeProportions:
    """Share of each group whose best match is in the event; index it with a group for its estimate.

    Attributes
    ----------
    groups : tuple
        Sorted, or as `levels` gave them.
    count : (g,) int64
        Images in the event.
    proportions : EstimateArray
        (g,) count / n with Wilson intervals; nan for an empty group; reasons name empty and small groups.
    unlabelled : int
        Images in no group.
    """

    groups: tuple[Any, ...]
    count: NDArray[np.int64]
    proportions: EstimateArray
    unlabelled: int

    def __getitem__(self, group: object) -> Estimate:
        """Return the proportion of one group."""
        return self.proportions[self.groups.index(group)]


def outcome_proportions(
    in_event: ArrayLike,
    groups: Sequence[Any] | NDArray[Any],
    *,
    event: Collection[Any] | str | None = None,
    levels: Sequence[Any] | None = None,
    confidence: float = 0.95,
    min_group: int = MIN_GROUP,
) -> OutcomeProportions:
    """Return p_g(E) = |images of g whose top-1 is in E| / n_g with its Wilson interval, for every group.

    Parameters
    ----------
    in_event : (n,) bool, or predictions
        Whether the image's top-1 candidate belongs to the event; or that candidate, with `event`.
    groups : (n,) labels
        None (or nan) is an unlabelled image: in no group.
    event : collection or one prediction, optional
        Which predictions are the event.
    levels : sequence, optional
        The groups to report, in order; one without images is nan. Default: those that occur, sorted.
    min_group : int
        Smaller groups are reported and flagged in `reason`.

    Raises
    ------
    MetricError
        If the lengths differ, `in_event` is not boolean, or a group is not among `levels`.

    Examples
    --------
    >>> import plumbline
    >>> rates = plumbline.outcome_proportions(["thief", "nurse", "thief"], ["b", "a", "a"], event="thief")
    >>> rates.groups, rates["a"].value
    (('a', 'b'), 0.5)
    """
    hit = np.asarray(in_event) if event is None else is_event(in_event, event)
    labels = as_labels(groups)
    if hit.dtype != np.bool_ or hit.shape != (len(labels),):
        raise MetricError(
            "in_event must be (n,) bool, one for each group label",
            found=f"{hit.dtype} {hit.shape}, {len(labels)} labels",
        )
    labelled = [label is not None for label in labels]
    occurring = {label for label, keep in zip(labels, labelled) if keep}
    names = tuple(sorted(occurring)) if levels is None else tuple(levels)
    if unknown := occurring - set(names):
        raise MetricError("a group is not among the levels", found=sorted(map(str, unknown)), expected=names)
    position = {name: i for i, name in enumerate(names)}
    codes = [position[label] if keep else -1 for label, keep in zip(labels, labelled)]
    # Outcome 0 is the event, so that column 0 of the table holds the event counts.
    table = count_table(codes, np.where(hit, 0, 1), n_groups=len(names), n_outcomes=2)
    proportions = estimate_proportions(table[:, 0], table.sum(axis=1), confidence=confidence, min_group=min_group)
    return OutcomeProportions(names, table[:, 0], proportions, labelled.count(False))


def estimate_proportions(
    count: NDArray[np.int64], n: NDArray[np.int64], *, confidence: float, min_group: int | None
) -> EstimateArray:
    """Return count / n with Wilson intervals, for many groups at once.

    Parameters
    ----------
    min_group : int or None
        Reasons name empty groups and groups smaller than this; None for rates over all images.
    """
    if min_group is None:
        reasons = [joined(None if size else reason("no_images")) for size in n.ravel().tolist()]
    else:
        reasons = [joined(group_size_reason(size, min_group)) for size in n.ravel().tolist()]
    return EstimateArray(shares(count, n), *wilson(count, n, confidence=confidence), n, reason=reasons)


def harm_rate(
    event_counts: ArrayLike,
    group_totals: ArrayLike | None = None,
    *,
    event: Collection[Any] | str | None = None,
    confidence: float = 0.95,
) -> Estimate | EstimateArray:
    """Return h(E), the share of all images whose top-1 falls in E, with its Wilson interval.

    Parameters
    ----------
    event_counts, group_totals : as in `max_skew`, or (n,) predictions alone
        Unlabelled images count in harm rates: give them as a group of their own.
    event : collection or one prediction, optional
        Which predictions are the event.

    Returns
    -------
    Estimate or EstimateArray
        One event, or (e,). In [0, 1]; nan without images.

    Examples
    --------
    >>> import plumbline
    >>> found = plumbline.harm_rate(["thief", "nurse", "nurse", "nurse"], event="thief")
    >>> found.value, found.n
    (0.25, 4)
    """
    if group_totals is None:
        hits = is_event(event_counts, event)
        event_counts, group_totals = [int(hits.sum())], [len(hits)]
    counts, totals = checked_counts(event_counts, group_totals, least_groups=1)
    sums = np.atleast_1d(counts.sum(axis=-1))
    n = np.full(sums.shape, totals.sum())
    rates = estimate_proportions(sums, n, confidence=confidence, min_group=None)
    return rates[0] if counts.ndim == 1 else rates


# --- Rows of the outcome suites: how often harmful candidates win, and how unequally.


def outcome_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of every outcome suite that the cell has logits for.

    Top-1 is by cosine, by logit where the encoder has no cosine; ties go to the lower index. Group proportions,
    disparities and their uncertainty are over the labelled images, resampled within groups (where images come in
    clusters: whole clusters); harm rates over all images.
    """
    return metric_frame(compute_rows(_outcome_parts(cell, settings)))


def _outcome_parts(cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    events, clusters = list(event_predictions(cell)), cluster_codes(cell.records)
    known: dict[int, list[Groups]] = {}

    def groups_of(labels: pl.DataFrame) -> list[Groups]:
        """Return the groups of labels that most suites have in common."""
        if id(labels) not in known:
            known[id(labels)] = attribute_groups(labels)
        return known[id(labels)]

    for event in events:
        yield partial(harm_rows, cell.name, event, clusters, settings)
        for groups in groups_of(cell.labels(event.suite)):
            yield partial(_event_rows, cell.name, event, groups, clusters, settings)
    # In the paper's order, so that the draws do not depend on the order in which suites were given.
    tasks = [event for task in TASKS for event in events if event.suite == task and event.skewed]
    labels = [cell.labels(task) for task in TASKS]
    # A mean over tasks is of the same groups: none where their filters merge labels differently.
    if {event.suite for event in tasks} == set(TASKS) and all(each is labels[0] for each in labels):
        for groups in groups_of(labels[0]):
            yield partial(_mean_of_tasks_rows, cell.name, tasks, groups, clusters, settings)


def harm_rows(
    cell: CellName, event: EventPredictions, clusters: NDArray[np.int64] | None, settings: MetricSettings
) -> Iterator[Row]:
    """Give the row of the harm rate: the share of the kept images whose best match is in the event."""
    hit = event.hit[event.kept]
    counted = np.array([hit.sum()]), np.array([len(hit)])
    rate = estimate_proportions(*counted, confidence=settings.confidence, min_group=None)[0]
    columns = rate.columns() | {"reason": joined(rate.reason, few_clusters_reason(clusters))}
    if clusters is not None:
        ends = cluster_wilson(hit, clusters[event.kept], confidence=settings.confidence)
        columns |= dict(zip(("ci_low", "ci_high"), ends))
    yield _common(cell, event, None) | columns | {"metric": "harm_rate", "definition": "top1"}


def event_outcomes(groups: Groups, event: EventPredictions, clusters: NDArray[np.int64] | None) -> ImageOutcomes:
    """Return the outcome of every kept image by group: 0 where its top-1 is in the event, otherwise 1."""
    kept = replace(groups, codes=np.where(event.kept, groups.codes, -1))
    return ImageOutcomes(kept, np.where(event.hit, 0, 1), np.array([[1, 0]]), clusters)


def _common(cell: CellName, event: EventPredictions, attribute: str | None) -> Row:
    return base_row(cell, suite=event.suite, suite_hash=event.suite_hash, event=event.event, attribute=attribute)


def _event_rows(
    cell: CellName,
    event: EventPredictions,
    groups: Groups,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Iterator[Row]:
    outcomes = event_outcomes(groups, event, clusters)
    common = _common(cell, event, groups.attribute)
    yield from proportion_rows(common, outcomes, settings)
    yield from disparity_rows(
        common, outcomes, (*SKEW_STATISTICS, *RANGE_STATISTICS) if event.skewed else RANGE_STATISTICS, settings
    )


def proportion_rows(common: Row, outcomes: ImageOutcomes, settings: MetricSettings) -> Iterator[Row]:
    """Give one row per group: the share whose best match is in the event."""
    for group, proportion in zip(outcomes.groups.names, group_proportions(outcomes, settings)):
        named = {"metric": "outcome_proportion", "definition": "top1", "group": group}
        yield common | named | proportion.columns()


def group_proportions(outcomes: ImageOutcomes, settings: MetricSettings) -> EstimateArray:
    """Return the share of each group in the event, with intervals over clusters where images come in clusters."""
    table = outcomes.table
    proportions = estimate_proportions(
        table[:, 0], table.sum(axis=1), confidence=settings.confidence, min_group=settings.min_group
    )
    if outcomes.clusters is None:
        return proportions
    ends = np.empty((len(proportions), 2))
    for i in range(len(ends)):
        rows = outcomes.groups.codes == i
        ends[i] = cluster_wilson(outcomes.codes[rows] == 0, outcomes.clusters[rows], confidence=settings.confidence)
    few = few_clusters_reason(outcomes.clusters)
    reasons = [joined(each, few) for each in proportions.reason]
    return replace(proportions, ci_low=ends[:, 0], ci_high=ends[:, 1], reason=reasons)


def _mean_of_tasks_rows(
    cell: CellName,
    tasks: list[EventPredictions],
    groups: Groups,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Iterator[Row]:
    """Return the skews over the three tasks at once, on the images that all three keep.

    The tasks see the same images, so their joint outcome is what is resampled: eight patterns of three bits.
    """
    kept = np.logical_and.reduce([task.kept for task in tasks])
    pattern = sum((task.hit.astype(np.int64) << bit for bit, task in enumerate(tasks)), np.zeros(len(kept), int))
    membership = (np.arange(2 ** len(tasks)) >> np.arange(len(tasks))[:, None]) & 1
    outcomes = ImageOutcomes(replace(groups, codes=np.where(kept, groups.codes, -1)), pattern, membership, clusters)
    common = base_row(
        cell,
        suite="outcomes",
        suite_hash=digest_json([task.suite_hash for task in tasks]),
        attribute=groups.attribute,
        event="mean_of_tasks",
    )
    return disparity_rows(common, outcomes, SKEW_STATISTICS, settings)


# --- Rows of captions by scene: each image is compared with its own scene's captions; the negative ones are the event.

CONTRASTED = ("race", "gender", "age")
"""Attributes whose groups have captions of their own, in the published suite."""

SCENE_STATISTICS = (replace(PARITY, definition="by_scene"),)
"""Statistics within one scene, where groups are small: a ratio is undefined in a group without the event."""


@dataclass(frozen=True)
class CaptionEvent:
    """The negative captions of one attribute, on the images that are compared with them.

    Attributes
    ----------
    predictions : EventPredictions
        Whether the best of the scene's captions is a negative one; `kept` where the image is compared.
    groups : Groups
        Of the attribute; -1 where the image is not compared or has no label.
    scenes : Groups
        -1 where the image is not compared.
    """

    predictions: EventPredictions
    groups: Groups
    scenes: Groups

    def outcomes(self, groups: Groups, clusters: NDArray[np.int64] | None) -> ImageOutcomes:
        """Return the outcomes of some groups; labels are shuffled within scenes."""
        codes = np.where(self.predictions.hit, 0, 1)
        return SceneStratifiedOutcomes(groups, codes, np.array([[1, 0]]), clusters, scenes=self.scenes.codes)


@dataclass(frozen=True)
class SceneStratifiedOutcomes(ImageOutcomes):
    """Outcomes whose group labels are shuffled within scenes, since each scene has captions of its own.

    Where images also come in clusters, labels are shuffled as in `ImageOutcomes.permuted`.

    Attributes
    ----------
    scenes : (n,) int64
    """

    scenes: NDArray[np.int64]

    def permuted(self, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return (r, g, 2) tables as if group labels had been shuffled within each scene."""
        if self.clusters is not None:
            return super().permuted(permutations, rng)
        return permute_strata(self._by_scene, permutations=permutations, rng=rng).sum(axis=1)

    @property
    def mixing(self) -> NDArray[np.float64] | None:
        """Return which groups' images a group has after labels were shuffled within scenes."""
        return super().mixing if self.clusters is not None else strata_mixing(self._by_scene.sum(axis=-1))

    @cached_property
    def _by_scene(self) -> NDArray[np.int64]:
        """Return the (s, g, 2) counts."""
        shape = {"n_groups": self.n_groups, "n_outcomes": self.n_outcomes}
        return cluster_tables(self.groups.codes, self.codes, self.scenes, **shape)


def caption_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the rows of the caption suites: shares by group over all scenes and by scene, and their disparities.

    For each attribute that has captions of its own: event `negative_<attribute>_caption`, top-1 by cosine (by logit
    where the encoder has none) among the captions of the image's scene; ties go to the lower index, the positive
    captions first. `probe` names the scene of rows by scene. Scenes that lack positive or negative captions are
    skipped, and so are those that show fewer than two groups of the attribute.
    """
    return metric_frame(compute_rows(_caption_parts(cell, settings)))


def _caption_parts(cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    clusters = cluster_codes(cell.records)
    for event in caption_events(cell):
        yield partial(_overall_rows, cell.name, event, clusters, settings)
        for code in range(len(event.scenes.names)):
            yield partial(_scene_rows, cell.name, event, code, clusters, settings)


def caption_events(cell: Cell) -> Iterator[CaptionEvent]:
    """Give the event of every attribute for which the cell has captions and labels."""
    for logits in cell.logits.values():
        labels = cell.labels(logits.suite.id)
        if logits.suite.family != "captions" or "scene" not in labels.columns:
            continue
        scores = logits.scores[:]
        for attribute in (name for name in _contrasted(logits.suite) if name in labels.columns):
            names = tuple(sorted(labels[attribute].cast(pl.String).drop_nulls().unique()))
            groups = Groups(attribute, names, label_codes(labels[attribute], names))
            event = _caption_event(logits.suite, scores, groups, labels["scene"], cell.rows(logits.suite.id))
            if event.predictions.kept.any():
                yield event


def _contrasted(suite: Suite) -> tuple[str, ...]:
    """Return the attributes whose groups have captions of their own: the published ones first, in their order."""
    return tuple(dict.fromkeys((*CONTRASTED, *(each.category.split(":")[1] for each in suite.candidates))))


def _caption_event(
    suite: Suite, scores: NDArray[np.float32], groups: Groups, scene: pl.Series, counts: NDArray[np.bool_]
) -> CaptionEvent:
    """Compare every image with the captions of its scene."""
    hit, codes = np.zeros(len(scene), dtype=bool), np.full(len(scene), -1)
    names: list[str] = []
    for name in scene.cast(pl.String).drop_nulls().unique().sort():
        positive, negative = (suite.columns(f"{name}:{groups.attribute}:{side}") for side in ("pos", "neg"))
        rows = (scene == name).fill_null(False).to_numpy() & counts
        if positive and negative and len(np.unique(groups.codes[rows & (groups.codes >= 0)])) > 1:
            hit[rows] = scores[rows][:, positive + negative].argmax(axis=1) >= len(positive)
            codes[rows] = len(names)
            names.append(name)
    name, compared = f"negative_{groups.attribute}_caption", codes >= 0
    return CaptionEvent(
        predictions=EventPredictions(suite.id, suite.hash, name, True, hit, compared),
        groups=replace(groups, codes=np.where(compared, groups.codes, -1)),
        scenes=Groups("scene", tuple(names), codes),
    )


def _overall_rows(
    cell: CellName, event: CaptionEvent, clusters: NDArray[np.int64] | None, settings: MetricSettings
) -> Iterator[Row]:
    outcomes = event.outcomes(event.groups, clusters)
    common, by_scene = (_common(cell, event.predictions, name) for name in (event.groups.attribute, "scene"))
    yield from harm_rows(cell, event.predictions, clusters, settings)
    yield from proportion_rows(by_scene, event.outcomes(event.scenes, clusters), settings)
    yield from proportion_rows(common, outcomes, settings)
    yield from disparity_rows(common, outcomes, (*SKEW_STATISTICS, *RANGE_STATISTICS), settings)


def _scene_rows(
    cell: CellName, event: CaptionEvent, code: int, clusters: NDArray[np.int64] | None, settings: MetricSettings
) -> Iterator[Row]:
    within = replace(event.predictions, kept=event.scenes.codes == code)
    outcomes = event_outcomes(event.groups, within, clusters)
    common = _common(cell, within, event.groups.attribute) | {"probe": event.scenes.names[code]}
    yield from proportion_rows(common, outcomes, settings)
    yield from disparity_rows(common, outcomes, SCENE_STATISTICS, settings)


# --- The outcome family: which candidate is the top-1, how often it is harmful, by group.


def _rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    return pl.concat([outcome_rows(cell, settings=settings), caption_rows(cell, settings=settings)])


OUTCOMES = Family(name="outcome_metrics", needs=("outcomes", "captions"), compute=_rows)
