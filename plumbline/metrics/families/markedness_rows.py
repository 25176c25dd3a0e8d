"""Rows of markedness: which groups a model takes for granted, and which it has to be told of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.families.rows import base_row, estimate_columns
from plumbline.metrics.markedness import mean_markedness
from plumbline.metrics.outcome_draws import Outcomes
from plumbline.metrics.rates import parity_differences
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import cluster_codes, few_sets_reason
from plumbline.statistics.estimates import estimate_table
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.reasons import empty_groups_reason, joined, small_groups_reason
from plumbline.tables.schema import Row

AVERAGED = "mean_over_templates"


def markedness_parts(
    cell: Cell, logits: SuiteLogits, order: NDArray[np.int64], settings: MetricSettings
) -> list[Callable[[], list[Row]]]:
    """Return what computes the rows of each attribute that the suite has words for.

    Parameters
    ----------
    order : (n,) int64
        The images in the order of their ids.
    """
    suite = logits.suite
    kept = order[cell.rows(suite.id)[order]]
    labels = cell.labels(suite.id)[kept]
    marked = {(candidate.category, candidate.word) for candidate in suite.candidates}
    parts: list[Callable[[], list[Row]]] = []
    for groups in attribute_groups(labels):
        names = tuple(name for name in groups.names if (groups.attribute, name) in marked)
        if names:
            # Labels without a word that marks them are no group here.
            places = np.array([names.index(n) if n in names else -1 for n in groups.names] + [-1])
            codes = places[groups.codes]
            parts.append(
                partial(
                    _attribute_rows,
                    cell,
                    logits,
                    kept,
                    Groups(groups.attribute, names, codes),
                    cluster_codes(labels),
                    settings,
                )
            )
    return parts


def _attribute_rows(
    cell: Cell,
    logits: SuiteLogits,
    kept: NDArray[np.int64],
    groups: Groups,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> list[Row]:
    prefers = _prefers_neutral(logits, kept, groups)
    common = base_row(cell, suite=logits.suite.id, suite_hash=logits.suite.hash, attribute=groups.attribute)
    rows = []
    for i, name in enumerate(groups.names):
        mask = groups.codes == i
        own = None if clusters is None else clusters[mask]
        readings = [(template, prefers[mask, t : t + 1]) for t, template in enumerate(logits.suite.templates)]
        for definition, answers in [*readings, (AVERAGED, prefers[mask])]:
            found = mean_markedness(
                answers, own, confidence=settings.confidence, min_group=settings.min_group
            )
            rows.append(
                common
                | {
                    "metric": "markedness",
                    "definition": definition,
                    "group": name,
                    "value": found.percent,
                    "ci_low": found.ci_low,
                    "ci_high": found.ci_high,
                    "n": found.n,
                    "reason": joined(found.reason, few_sets_reason(own) if found.n else None),
                }
            )
    return rows + _gap_rows(common, groups, prefers, clusters, settings)


def _prefers_neutral(logits: SuiteLogits, kept: NDArray[np.int64], groups: Groups) -> NDArray[np.bool_]:
    """Return the (n, t) answers: whether an image is closer to the neutral prompt than to its own group's."""
    neutral = logits.by_template([""])[kept, :, 0]
    prefers = np.zeros(neutral.shape, dtype=bool)
    for i, name in enumerate(groups.names):
        mask = groups.codes == i
        marked = logits.by_template([f"{groups.attribute}:{name}"])[kept[mask], :, 0]
        prefers[mask] = neutral[mask] > marked
    return prefers


def _gap_rows(
    common: Row,
    groups: Groups,
    prefers: NDArray[np.bool_],
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> list[Row]:
    """Return the gap between the most and the least marked group.

    An image's answer is the number of templates under which it prefers the neutral prompt to its own group's; answers
    are what is resampled, and what is dealt out to the groups at random: within sets where images come in them.
    """
    most = prefers.shape[1]
    answers = Outcomes(groups, prefers.sum(axis=1), np.arange(most + 1)[None], clusters)
    sizes = answers.table.sum(axis=1)
    if np.count_nonzero(sizes) < 2:
        return []
    percent = 100 * np.arange(most + 1) / most

    def gap(tables: NDArray[np.int64]) -> NDArray[np.float64]:
        return parity_differences(tables @ percent, tables.sum(axis=-1))

    names = [str(common[key]) for key in ("model", "dataset", "suite", "attribute")]
    draws = answers.draws([*names, "markedness_gap"], settings)
    estimate = estimate_table(
        answers.table,
        gap,
        resampled=draws.resampled,
        permuted=draws.permuted,
        jackknife=draws.jackknife,
        confidence=settings.confidence,
    )
    reasons = (
        empty_groups_reason(sizes),
        small_groups_reason(groups.names, sizes.tolist(), settings.min_group),
        few_sets_reason(clusters),
    )
    columns = {"metric": "markedness_gap", "definition": AVERAGED, "n": int(sizes.sum())}
    return [common | columns | estimate_columns(estimate, *reasons)]
