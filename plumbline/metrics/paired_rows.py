"""Rows of the differences of two sides on the same images: of two checkpoints, or of before and after a mitigation.

All that is compared on the same images and groups shares its draws; what the sides of a pair are is for the caller to
say. Source of the interval and the p: docs/decisions, 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np

from plumbline.cores import side_by_side
from plumbline.digests import digest_bytes, digest_json
from plumbline.metrics.paired_comparisons import Comparison, PairedAnswers
from plumbline.metrics.paired_draws import Drawn
from plumbline.metrics.paired_effect import (
    CHECKPOINTS,
    SideNames,
)
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import few_sets_reason
from plumbline.statistics.reasons import empty_groups_reason, joined, small_groups_reason
from plumbline.tables.schema import Row


def paired_rows(
    answers: PairedAnswers,
    comparisons: Sequence[Comparison],
    pairs: Sequence[tuple[str, str]],
    *,
    named: tuple[str, ...],
    settings: MetricSettings,
    names: SideNames = CHECKPOINTS,
) -> list[tuple[int, Row]]:
    """Return the difference of the first side of each pair minus the second, of every reading of every comparison.

    Parameters
    ----------
    pairs : sequence of (str, str)
        Sides. A pair is compared wherever both its sides have the answers.
    named : tuple of str
        What the draws are for: part of the generators' names.

    Returns
    -------
    list of (int, dict)
        Place of the pair, and the columns of the row: those of the comparison, `metric`, `definition`, `n` and those
        of `Effect`. By pair, then in the order of the comparisons. Nothing for a disparity of fewer than two groups
        with images, and for anything else without an image.
    """
    task = partial(_view_rows, answers, pairs=pairs, named=named, settings=settings, names=names)
    found = chain.from_iterable(side_by_side([partial(task, view) for view in _views(comparisons)]))
    ordered = sorted(found, key=lambda each: each[0])
    return [(pair, row) for (pair, _), row in ordered]


def _views(comparisons: Sequence[Comparison]) -> list[dict[int, Comparison]]:
    """Return the comparisons that are of the same images and groups, by their place in the table."""
    views: dict[str, dict[int, Comparison]] = {}
    for place, each in enumerate(comparisons):
        groups = each.groups
        name = digest_json([groups.attribute, groups.names, digest_bytes(groups.codes.tobytes())])
        views.setdefault(name, {})[place] = each
    return list(views.values())


def _view_rows(
    answers: PairedAnswers,
    compared: Mapping[int, Comparison],
    *,
    pairs: Sequence[tuple[str, str]],
    named: tuple[str, ...],
    settings: MetricSettings,
    names: SideNames,
) -> list[tuple[tuple[int, int], Row]]:
    """Return the rows of all that is compared on the same images and groups, each with its place in the table."""
    groups = next(iter(compared.values())).groups
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(groups.names))
    if not sizes.any():
        return []
    drawn = Drawn.of(answers, groups, compared.values(), pairs, named, settings)
    left_out = empty_groups_reason(sizes) if groups.attribute else None
    small = (
        small_groups_reason(groups.names, sizes.tolist(), settings.min_group) if groups.attribute else None
    )
    found: list[tuple[tuple[int, int], Row]] = []
    for place, each in compared.items():
        readings = [r for r in each.readings if np.count_nonzero(sizes) > 1 or not r.disparity]
        for number, pair in enumerate(pairs):
            if not readings or not (drawn.has(pair[0], each) and drawn.has(pair[1], each)):
                continue
            left = drawn.left_out(pair, each)
            for reading in readings:
                effect = drawn.effect(pair, each, reading, left, names, settings.confidence)
                reasons = (left_out, drawn.undefined(pair, each, reading, names), small)
                reason = joined(*reasons, few_sets_reason(answers.clusters), effect.reason)
                row = dict(each.columns) | vars(effect) | {"reason": reason, "n": int(sizes.sum())}
                row |= {"metric": reading.metric, "definition": reading.definition}
                found.append(((number, place), row))
    return found
