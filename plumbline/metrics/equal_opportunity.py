"""Equal opportunity: whether a class is recognised equally often in every group (Hardt, Price & Srebro 2016)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, Literal, overload

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.blocks import map_rows
from plumbline.catalog.schema import Row, metric_frame
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, RowPart, base_row, compute_rows
from plumbline.metrics.disparities import (
    ImageOutcomes,
    batched_parity_difference,
    detectable_columns,
    group_rates,
    outcomes_of_counts,
)
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.inputs import as_labels, draw_settings, label_places, require_as_many
from plumbline.metrics.outcomes import group_proportions
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.cluster_permutation import ClusterPermutation
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import Groups, attribute_groups, label_codes, shares
from plumbline.statistics.maxima import Disparity
from plumbline.statistics.permutation import permute_strata


@dataclass(frozen=True)
class EqualOpportunity:
    """True-positive rates by class and group, and how far apart they are.

    Attributes
    ----------
    rate : (C, g) float64
        Share of the images of a class and group whose top-1 is that class; nan without images.
    per_class : (C,) float64
        Largest minus smallest rate of the groups, in [0, 1]; nan with fewer than two groups.
    value, maximum : float
        Mean and largest of `per_class` over the classes in which it is defined; nan without one.
    n : int
        Images of these classes.
    reason : tuple of Reason
        Says that classes were left out.
    """

    rate: NDArray[np.float64]
    per_class: NDArray[np.float64]
    value: float
    maximum: float
    n: int
    reason: Reasons


@overload
def equal_opportunity_gap(
    correct: ArrayLike,
    totals: ArrayLike | None = None,
    *,
    classes: Any = None,
    groups: Any = None,
    interval: Literal[False] = False,
    seed: int | np.random.Generator = 0,
) -> EqualOpportunity: ...
@overload
def equal_opportunity_gap(
    correct: ArrayLike,
    totals: ArrayLike | None = None,
    *,
    classes: Any = None,
    groups: Any = None,
    interval: Literal[True] | MetricSettings,
    seed: int | np.random.Generator = 0,
) -> Estimate: ...
def equal_opportunity_gap(
    correct: ArrayLike,
    totals: ArrayLike | None = None,
    *,
    classes: Any = None,
    groups: Any = None,
    interval: bool | MetricSettings = False,
    seed: int | np.random.Generator = 0,
) -> EqualOpportunity | Estimate:
    """Return the gap between groups in the true-positive rate, by class, as mean and as largest over classes.

    Parameters
    ----------
    correct : (C, g) int, or (n,) predictions
        Images of each class and group whose top-1 is their class; or the class that was predicted of each image.
    totals : (C, g) int
        Images of each class and group; not with predictions.
    classes, groups : (n,) labels, optional
        With predictions: the true class and the group of each image; one that lacks either is left out.
    interval : bool or MetricSettings
        Whether interval and p of the mean over classes are computed, as the rows of an audit have them; settings
        in place of True set the number of draws.
    seed : int or Generator
        Of the draws.

    Returns
    -------
    EqualOpportunity, or with `interval` an Estimate of the mean over classes

    Raises
    ------
    MetricError
        If the shapes differ, there are fewer than two groups, or a count is outside 0 .. n.

    Examples
    --------
    >>> import plumbline
    >>> found = plumbline.equal_opportunity_gap(
    ...     ["cook", "cook", "cook", "nurse"], classes=["cook"] * 4, groups=["a", "a", "b", "b"]
    ... )
    >>> found.value
    0.5
    """
    if classes is not None:
        correct, totals = _counts_by_class(correct, classes, groups)
    counts, sizes = np.asarray(correct), np.asarray(totals)
    if counts.ndim != 2 or counts.shape != sizes.shape or counts.shape[1] < 2:
        raise MetricError(
            "counts must be by class and group, over at least two groups",
            found=f"correct {counts.shape}, totals {sizes.shape}",
            expected="(C, g), g at least 2",
        )
    if (counts < 0).any() or (counts > sizes).any():
        raise MetricError("a count lies outside 0 .. n", found=counts.tolist(), expected=sizes.tolist())
    gaps = batched_parity_difference(counts, sizes)
    defined = ~np.isnan(gaps)
    left_out, n = int((~defined).sum()), int(sizes[defined].sum())
    why = joined(reason("classes_left_out", left_out=left_out, classes=len(gaps)) if left_out else None)
    if interval is not False:
        estimate = _estimate_of_counts(counts, sizes, draw_settings(interval, seed))
        return replace(estimate, n=n, reason=joined(why, estimate.reason))
    return EqualOpportunity(
        rate=shares(counts, sizes),
        per_class=gaps,
        value=float(mean_gap(counts, sizes)),
        maximum=float(gaps[defined].max()) if defined.any() else float("nan"),
        n=n,
        reason=why,
    )


def mean_gap(correct: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean over classes of the largest difference of rates, (..., C, g) to (...), for many tables."""
    gaps = batched_parity_difference(correct, totals)
    defined = ~np.isnan(gaps)
    return shares(np.where(defined, gaps, 0.0).sum(axis=-1), defined.sum(axis=-1))


def max_gap(correct: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the largest over classes of the largest difference of rates, (..., C, g) to (...), for many tables."""
    gaps = np.where(np.isnan(gaps := batched_parity_difference(correct, totals)), -np.inf, gaps).max(axis=-1)
    return np.where(np.isneginf(gaps), np.nan, gaps)


# --- Rows of equal opportunity: are the classes of a dataset recognised equally often in every group?

Gap = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""A function of the correctly classified and of all images, both (..., C, g), that returns (...) values."""


@dataclass(frozen=True)
class ClassStratifiedOutcomes(ImageOutcomes):
    """Whether images of known class are recognised, by class × group; labels are shuffled within classes.

    Attributes
    ----------
    classes : int
        Number of classes, C. Code i of `groups` is group i % g of class i // g.
    """

    classes: int

    def split(self, tables: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (..., C × g, 2) tables by class and group, (..., C, g, 2)."""
        return tables.reshape(*tables.shape[:-2], self.classes, -1, 2)

    def permuted(self, permutations: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return (r, C × g, 2) tables as if group labels had been shuffled within each class, or its clusters."""
        if self.clusters is None:
            drawn = permute_strata(self.split(self.table), permutations=permutations, rng=rng)
            return drawn.reshape(len(drawn), self.n_groups, 2)
        shape = {"n_groups": self.n_groups // self.classes, "n_outcomes": 2}
        shuffled = [
            each.tables(self.codes, **shape, permutations=permutations, rng=rng)
            if each.used.any()
            else np.zeros((permutations, shape["n_groups"], 2), dtype=np.int64)
            for each in self.permutations_by_class
        ]
        # There are fewer permutations of very many images: keep as many as there are for every class.
        fewest = min(map(len, shuffled))
        return np.concatenate([tables[:fewest] for tables in shuffled], axis=1)

    @property
    def mixing(self) -> NDArray[np.float64] | None:
        """Return the (class, g, g) shares, see `ImageOutcomes.mixing`; each class is an event of its own."""
        n_groups = self.n_groups // self.classes
        each = [permutation.mixing(n_groups) for permutation in self.permutations_by_class]
        return np.stack(each) if each else None

    @cached_property
    def permutations_by_class(self) -> tuple[ClusterPermutation, ...]:
        """Return how labels of the clustered images of each class are dealt out; nothing without clusters."""
        if self.clusters is None:
            return ()
        of_class, group = np.divmod(self.groups.codes, self.n_groups // self.classes)
        return tuple(
            ClusterPermutation.of(np.where(of_class == i, group, -1), self.clusters) for i in range(self.classes)
        )

    @property
    def least_p(self) -> float:
        """Return how small p can become for a gap over all classes, whose labels are dealt out independently."""
        return float(np.prod([each.least_gap_p for each in self.permutations_by_class] or [0.0]))


def _counts_by_class(predicted: Any, classes: Any, groups: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (C, g) counts of right predictions and of images."""
    guesses, true, of = as_labels(predicted), label_places(classes), label_places(groups)
    require_as_many(predictions=guesses, classes=true, groups=of)
    right = np.array([guess == label for guess, label in zip(guesses, as_labels(classes))], dtype=bool)
    shape = (int(true.max(initial=-1)) + 1, int(of.max(initial=-1)) + 1)
    known = (true >= 0) & (of >= 0)
    cells = np.where(known, true * shape[1] + of, 0)
    counts, sizes = (np.bincount(cells[chosen], minlength=shape[0] * shape[1]) for chosen in (known & right, known))
    return counts.reshape(shape), sizes.reshape(shape)


def _estimate_of_counts(counts: NDArray[np.int64], sizes: NDArray[np.int64], settings: MetricSettings) -> Estimate:
    known = outcomes_of_counts(counts.ravel(), sizes.ravel())
    outcomes = ClassStratifiedOutcomes(known.groups, known.codes, known.event_membership, None, len(counts))
    draws = outcomes.draws(["equal_opportunity_gap", "mean_over_classes"], settings).mapped(outcomes.split)
    return draws.estimate(Disparity(partial(_of_tables, mean_gap), _rates, most=1.0), confidence=settings.confidence)


def equal_opportunity_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the rows of the classes that the cell has true labels for, by every other labelled attribute.

    The test has no probe: top-1 by logit among the classes alone, ties to the lower index. `event` is the class.
    """
    logits = cell.logits.get("trident")
    attribute = logits.suite.attribute if logits else None
    if logits is None or attribute is None or attribute not in cell.records.columns:
        return metric_frame([])
    names = logits.suite.class_labels
    classes = np.where(cell.rows("trident"), label_codes(cell.records[attribute], names), -1)
    correct = map_rows(lambda block: block[:, : len(names)].argmax(axis=1), logits.logits) == classes
    clusters = cluster_codes(cell.records)
    common = base_row(cell, suite=logits.suite.id, suite_hash=logits.suite.hash, definition="classes_alone")
    parts: list[RowPart] = []
    for groups in attribute_groups(cell.records):
        # A composite that crosses the class itself, such as gender_race, has no second group within a class of race.
        if attribute in (groups.attribute, *groups.attribute.split("_")) or len(groups.names) < 2:
            continue
        known = (classes >= 0) & (groups.codes >= 0)
        if known.any():
            crossed = Groups(
                groups.attribute,
                tuple(f"{name}, {group}" for name in names for group in groups.names),
                np.where(known, classes * len(groups.names) + groups.codes, -1),
            )
            codes = np.where(correct, 0, 1)
            outcomes = ClassStratifiedOutcomes(crossed, codes, np.array([[1, 0]]), clusters, len(names))
            of_attribute = common | {"attribute": groups.attribute}
            parts.append(partial(_attribute_rows, of_attribute, names, groups.names, outcomes, settings))
    return metric_frame(compute_rows(parts))


def _attribute_rows(
    common: Row,
    classes: tuple[str, ...],
    groups: tuple[str, ...],
    outcomes: ClassStratifiedOutcomes,
    settings: MetricSettings,
) -> Iterator[Row]:
    """Give the rates of every class and group, then the gap as mean and as largest over the classes, and of each."""
    for (label, group), rate in zip(product(classes, groups), group_proportions(outcomes, settings)):
        yield common | {"metric": "true_positive_rate", "event": label, "group": group} | rate.columns()
    yield from gap_rows(common, classes, outcomes, settings)


def gap_rows(
    common: Row, classes: tuple[str, ...], outcomes: ClassStratifiedOutcomes, settings: MetricSettings
) -> Iterator[Row]:
    """Give the gap as mean and as largest over the classes, and that of each class."""
    named = ("model", "dataset", "suite", "attribute")
    names = [*(str(common[key]) for key in named), "equal_opportunity_gap"]
    draws = outcomes.draws(names, settings).mapped(outcomes.split)
    table = draws.table
    left_out = equal_opportunity_gap(table[..., 0], table.sum(axis=-1)).reason

    least_of = [each.least_gap_p for each in outcomes.permutations_by_class] or [0.0] * len(classes)
    of_all, least = partial(Disparity, levels=_rates, most=1.0), outcomes.least_p
    every = slice(None)
    statistics: list[tuple[Row, Disparity, Gap, slice, Reasons, float]] = [
        ({"definition": "mean_over_classes"}, of_all(partial(_of_tables, mean_gap)), mean_gap, every, left_out, least),
        (
            {"definition": "max_over_classes"},
            of_all(partial(_of_tables, max_gap), over="all"),
            max_gap,
            every,
            left_out,
            least,
        ),
    ]
    for i, label in enumerate(classes):
        by_class: Row = {"definition": "by_class", "event": label}
        statistics.append((by_class, _gap_of_class(i), max_gap, slice(i, i + 1), (), least_of[i]))
    correct, totals = draws.permuted[..., 0], draws.permuted.sum(axis=-1)
    for columns, disparity, gap, chosen, why, least_p in statistics:
        counted = table[chosen]
        draws = replace(draws, least_p=least_p)
        estimate = draws.estimate(disparity, confidence=settings.confidence)
        undefined = reason("under_two_groups_with_images") if np.isnan(estimate.value) else None
        sizes = counted.sum(axis=-1)
        small, least = int((sizes < settings.min_group).sum()), settings.min_group
        # The names of the small cells are in the rows of the rates.
        few = reason("small_cells", small=small, cells=sizes.size, min_group=least) if small else None
        reasons = (why, undefined, few, few_clusters_reason(outcomes.clusters))
        row = common | {"metric": "equal_opportunity_gap"} | estimate.columns(*reasons)
        of_test = correct[:, chosen], totals[:, chosen], gap, sizes.sum(axis=0), settings
        row |= detectable_columns(
            *of_test,
            least_p=least_p,
            clusters=draws.clusters,
            null=draws.chance(disparity.value),
            mixing=None if draws.mixing is None else draws.mixing[chosen],
        )
        # Of a class with one group nothing is compared.
        yield row | {"n": int(sizes[(sizes > 0).sum(axis=-1) > 1].sum())} | columns


def _rates(tables: NDArray[np.int64]) -> NDArray[np.float64]:
    return group_rates(tables[..., 0], tables.sum(axis=-1))


def _gap_of_class(i: int) -> Disparity:
    def of_class(tables: NDArray[np.int64]) -> NDArray[np.float64]:
        return _of_tables(batched_parity_difference, tables[..., i, :, :])

    return Disparity(of_class, lambda tables: _rates(tables[..., i : i + 1, :, :]), most=1.0)


def _of_tables(value: Gap, tables: NDArray[np.int64]) -> NDArray[np.float64]:
    return value(tables[..., 0], tables.sum(axis=-1))
