"""Rows of the associations between groups of faces and the words of social perception."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.metrics.association_errors import Bounded, BoundedAssociations, bounded_associations
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.markedness_rows import markedness_parts
from plumbline.metrics.families.perception import Perception, perception_of
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.families.valence_correlation_rows import correlation_rows
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import few_sets_reason
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.partition_tests import (
    Tails,
    exact_tails,
    random_tails,
    smaller_size,
    standardised,
    takes_all,
)
from plumbline.statistics.reasons import joined, small_groups_reason
from plumbline.statistics.shared_partitions import random_subset_chains
from plumbline.tables.schema import Row, metric_frame

COMPOSITE = "gender_race"
OTHERS = "others"
"""The reference group where there are more than two: all labelled images that are not of the group."""


@dataclass(frozen=True)
class Contrast:
    """Two groups of images: A against B."""

    group: str
    reference: str
    in_a: NDArray[np.bool_]


def association_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the metric rows of the perception and markedness suites that the cell has cosines and labels for.

    With two groups the first by name is compared with the second (man - woman); with more each with all others. The
    test is one-sided as in the paper: p is small where the group lies closer to the word, large where its reference
    does; `two_sided` rows ask for either. Partitions count images as exchangeable. Where they come in sets that is too
    cautious for groups within sets and too bold for groups between them: `cluster_t` rows then test, two-sided, with
    the errors of the intervals, which respect sets.
    """
    # Drawn partitions belong to places: in the order of the images' ids, whatever order they came in.
    order = cell.records["image_id"].arg_sort().to_numpy()
    parts: list[Callable[[], list[Row]]] = []
    for logits in cell.logits.values():
        if logits.cosine is None:
            continue
        if logits.suite.family == "perception":
            parts += _perception_parts(cell, logits, order, settings)
        elif logits.suite.family == "markedness":
            parts += markedness_parts(cell, logits, order, settings)
    return metric_frame(list(chain.from_iterable(side_by_side(parts))))


def _perception_parts(
    cell: Cell, logits: SuiteLogits, order: NDArray[np.int64], settings: MetricSettings
) -> list[Callable[[], list[Row]]]:
    kept = order[cell.rows(logits.suite.id)[order]]
    labels = cell.labels(logits.suite.id)[kept]
    attributes = attribute_groups(labels)
    perception = perception_of(logits, kept, labels)
    parts: list[Callable[[], list[Row]]] = [
        partial(_attribute_rows, cell, perception, groups, settings)
        for groups in attributes
        if groups.attribute != COMPOSITE
    ]
    return [*parts, partial(correlation_rows, cell, perception, attributes, settings)]


def _comparisons(groups: Groups) -> list[Contrast]:
    """Return whom to compare with whom; nothing where only one group has a name."""
    if len(groups.names) == 2:
        return [Contrast(*groups.names, groups.codes == 0)]
    if len(groups.names) < 2:
        return []
    return [Contrast(name, OTHERS, groups.codes == i) for i, name in enumerate(groups.names)]


def _attribute_rows(
    cell: Cell, perception: Perception, groups: Groups, settings: MetricSettings
) -> list[Row]:
    labelled = groups.codes >= 0
    known = Groups(groups.attribute, groups.names, groups.codes[labelled])
    comparisons = _comparisons(known)
    if not comparisons:
        return []
    columns = perception.cosine[labelled]
    clusters = None if perception.clusters is None else perception.clusters[labelled]
    scales = np.stack(list(perception.scales.values()), axis=1)
    mixtures = np.column_stack([scales, *perception.dimensions.values()])
    tails = _compare(columns, mixtures, comparisons, settings)
    # A dimension is a column of its own: the words of one pole minus those of the other, image by image.
    poles = np.column_stack([columns, columns @ mixtures[:, scales.shape[1] :]])
    means = np.concatenate([scales, np.zeros((len(perception.dimensions), scales.shape[1]))])
    rows = []
    for comparison, compared in zip(comparisons, tails):
        found = bounded_associations(
            poles, comparison.in_a, means, clusters=clusters, confidence=settings.confidence
        )
        common = _common(cell, perception, groups.attribute, comparison, clusters, settings)
        rows += _comparison_rows(common, perception, found, compared)
        if clusters is not None:
            rows += _cluster_rows(common, perception, found)
    return rows


def _compare(
    columns: NDArray[np.float64],
    mixtures: NDArray[np.float64],
    comparisons: list[Contrast],
    settings: MetricSettings,
) -> list[Tails]:
    """Compare the words, scales and dimensions of every comparison with other partitions of the same sizes."""
    tails: dict[str, Tails] = {}
    by_chance: list[Contrast] = []
    for comparison in comparisons:
        if takes_all(comparison.in_a):
            every = np.concatenate([columns, columns @ mixtures], axis=1)
            tails[comparison.group] = exact_tails(every, comparison.in_a)
        else:
            by_chance.append(comparison)
    ready = standardised(columns)
    sizes = [smaller_size(comparison.in_a) for comparison in by_chance]
    for chained, blocks in random_subset_chains(
        len(columns), sizes, count=settings.permutations, seed=settings.seed
    ):
        chosen = [c for c, size in zip(by_chance, sizes) if size in chained]
        found = random_tails(ready, mixtures, [c.in_a for c in chosen], chained, blocks)
        tails |= {comparison.group: tail for comparison, tail in zip(chosen, found)}
    return [tails[comparison.group] for comparison in comparisons]


def _common(
    cell: Cell,
    perception: Perception,
    attribute: str,
    comparison: Contrast,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Row:
    inside, n = int(comparison.in_a.sum()), len(comparison.in_a)
    names = (comparison.group, comparison.reference)
    return base_row(
        cell,
        suite=perception.suite_id,
        suite_hash=perception.suite_hash,
        attribute=attribute,
        group=comparison.group,
        reference_group=comparison.reference,
        n=n,
        reason=joined(
            small_groups_reason(names, [inside, n - inside], settings.min_group), few_sets_reason(clusters)
        ),
    )


def _comparison_rows(
    common: Row, perception: Perception, found: BoundedAssociations, tails: Tails
) -> list[Row]:
    words, scales, dimensions = perception.words, list(perception.scales), list(perception.dimensions)
    greater, either = tails.p_values(), tails.p_values("two-sided")
    beyond = tails.p_values(strict=True)
    n = int(str(common["n"]))
    rows = [
        _row(common, "sc_weat_effect", "paper", found.effect_size, i, greater[i], probe=word)
        for i, word in enumerate(words)
    ]
    # The sample standard deviation over n instead of n - 1.
    wider = _scaled(found.mean_effect_size, np.sqrt(n / (n - 1)))
    for i, scale in enumerate(scales):
        place = len(words) + i
        effect, event = found.mean_effect_size, {"event": scale}
        rows += [
            _row(common, "sc_weat_effect", "paper", effect, i, greater[place], **event),
            _row(common, "sc_weat_effect", "ddof_0", wider, i, greater[place], **event),
            _row(common, "sc_weat_effect", "strict", effect, i, beyond[place], **event),
            _row(common, "sc_weat_effect", "two_sided", effect, i, either[place], **event),
            _row(common, "sc_weat_statistic", "paper", found.mean_statistic, i, greater[place], **event),
        ]
    for i, dimension in enumerate(dimensions):
        place, column = len(words) + len(scales) + i, len(words) + i
        for definition, p in (("paper", greater[place]), ("two_sided", either[place])):
            rows.append(
                _row(common, "weat_effect", definition, found.effect_size, column, p, event=dimension)
            )
    return rows


def _cluster_rows(common: Row, perception: Perception, found: BoundedAssociations) -> list[Row]:
    """Return the scales and dimensions tested with set-respecting errors."""
    words = len(perception.words)
    rows = [
        _row(
            common,
            "sc_weat_effect",
            "cluster_t",
            found.mean_effect_size,
            i,
            found.mean_statistic.p_value[i],
            event=scale,
        )
        for i, scale in enumerate(perception.scales)
    ]
    for i, dimension in enumerate(perception.dimensions, start=words):
        p = found.statistic.p_value[i]
        rows.append(_row(common, "weat_effect", "cluster_t", found.effect_size, i, p, event=dimension))
    return rows


def _scaled(bounded: Bounded, factor: float) -> Bounded:
    return replace(
        bounded, value=bounded.value * factor, low=bounded.low * factor, high=bounded.high * factor
    )


def _row(
    common: Row, metric: str, definition: str, found: Bounded, i: int, p: float, **columns: object
) -> Row:
    value, low = float(found.value[i]), float(found.low[i])
    missing = None
    if np.isnan(value):
        missing = "the cosines do not vary"
    elif np.isnan(low):
        missing = "no interval: one image or set in a group"
    estimate = {"value": value, "ci_low": low, "ci_high": float(found.high[i]), "p": float(p)}
    reason = joined(missing, None if common["reason"] is None else str(common["reason"]))
    return common | {"metric": metric, "definition": definition, "reason": reason} | estimate | columns
