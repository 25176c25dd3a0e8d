"""Rows of the ranking metrics: who comes first when faces are ranked by how well a word fits them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.desired_shares import equal_shares
from plumbline.metrics.families.rows import base_row
from plumbline.metrics.ranking_estimates import Desired, Estimates, ndkl_estimates, skew_estimates
from plumbline.metrics.ranking_samples import RankedGroups, TopSample, deal_in_sets, sample_top, usual_k
from plumbline.metrics.rankings import skew_values
from plumbline.metrics.settings import MetricSettings
from plumbline.statistics.clusters import cluster_codes, few_sets_reason
from plumbline.statistics.groups import AUDITED_ATTRIBUTES, Groups, attribute_groups
from plumbline.statistics.rank_order import rank_order
from plumbline.statistics.reasons import group_size_reason, joined, small_groups_reason
from plumbline.tables.schema import Row, metric_frame

CHANCE = "chance"
"""Column `statistic` of what random rankings give: the mean as value, the middle of the draws as interval."""


@dataclass(frozen=True)
class Prompts:
    """What the faces are ranked by: the scales, then their words.

    A face's score is its cosine with a word, mean over the templates; that of a scale is the mean over its words.

    Attributes
    ----------
    records : DataFrame
        The faces that count, by image id.
    names : tuple of dict
        The columns `event` (a scale) or `probe` (a word) of each ranking.
    scales : int
        How many of the rankings are of scales; these come first.
    order : (m, n) int64
        Faces by rank, best first.
    """

    records: pl.DataFrame
    names: tuple[Row, ...]
    scales: int
    order: NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """The faces of one attribute's groups, ranked by every scale and word."""

    common: Row
    names: tuple[str, ...]
    ranked: RankedGroups
    prompts: Prompts
    k: int
    settings: MetricSettings

    @property
    def small(self) -> str | None:
        """Name the small groups."""
        return small_groups_reason(self.names, self.ranked.sizes.tolist(), self.settings.min_group)


def ranking_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return Skew@k, MaxSkew@k and NDKL of every attribute with labels, for every scale and word of `perception`.

    Images are ranked by cosine, equal ones by image id; unlabelled images take no rank. Scales have rows against equal
    desired shares, against the shares of the ranked set, and `floored` ones for groups that are absent from the top
    k; words against equal shares. None for an encoder without cosines.
    """
    prepared = [
        partial(_ranking, cell, logits, prompts, groups, settings)
        for logits in cell.logits.values()
        if logits.suite.family == "perception" and logits.cosine is not None
        for prompts in [_prompts(cell, logits)]
        for groups in attribute_groups(prompts.records)
        if groups.attribute in AUDITED_ATTRIBUTES
    ]
    rankings = [each for each in side_by_side(prepared) if each is not None]
    parts: list[Callable[[], list[Row]]] = []
    for ranking in rankings:
        parts += [partial(_top_rows, ranking), partial(_whole_rows, ranking)]
    return metric_frame(list(chain.from_iterable(side_by_side(parts))))


def _ranking(
    cell: Cell,
    logits: SuiteLogits,
    prompts: Prompts,
    groups: Groups,
    settings: MetricSettings,
) -> Ranking | None:
    """Leave the unlabelled images out of the rankings; None where nothing can be compared."""
    labelled = groups.codes >= 0
    k = usual_k(int(labelled.sum()))
    if len(groups.names) < 2 or k < 1:
        return None
    suite, codes = logits.suite, groups.codes[labelled]
    common = base_row(cell, suite=suite.id, suite_hash=suite.hash, attribute=groups.attribute)
    place, order = np.cumsum(labelled) - 1, prompts.order
    kept = place[order[labelled[order]].reshape(len(order), -1)]
    sets, dealt = cluster_codes(prompts.records), None
    if sets is not None:
        sets = sets[labelled]
        dealt = deal_in_sets(codes, sets, settings=settings, labels=_labels(common))
    ranked = RankedGroups(kept, codes, len(groups.names), sets, dealt)
    return Ranking(common, groups.names, ranked, prompts, k, settings)


def _labels(common: Row) -> list[str]:
    """Return what draws for these rankings alone are named by."""
    return [str(common[key]) for key in ("model", "dataset", "suite", "attribute")]


def _prompts(cell: Cell, logits: SuiteLogits) -> Prompts:
    """Return what the faces that count are ranked by."""
    suite = logits.suite
    labels = cell.labels(suite.id)
    # By id from here on: neither ties nor draws then depend on the order of the rows.
    rows = np.argsort(labels["image_id"].to_numpy(), kind="stable")
    rows = rows[cell.rows(suite.id)[rows]]
    words = list(dict.fromkeys(word for scale in suite.scales.values() for word in scale))
    by_word = logits.by_template(words)[rows].mean(axis=1)
    by_scale = [by_word[:, [words.index(word) for word in own]].mean(axis=1) for own in suite.scales.values()]
    names: list[Row] = [{"event": scale} for scale in suite.scales]
    names += [{"probe": word} for word in words]
    order = rank_order(np.column_stack([*by_scale, by_word]))
    return Prompts(labels[rows], tuple(names), len(by_scale), order)


def _top_rows(ranking: Ranking) -> list[Row]:
    """Return the rows of Skew@k and MaxSkew@k."""
    settings, k, labels = ranking.settings, ranking.k, _labels(ranking.common)
    scales = ranking.ranked.only(slice(0, ranking.prompts.scales))
    readings: tuple[tuple[TopSample, Desired], ...] = (
        (sample_top(ranking.ranked, k=k, settings=settings, labels=[*labels, "all"]), "equal"),
        (sample_top(scales, k=k, settings=settings, labels=[*labels, "scales"], with_totals=True), "ranked"),
    )
    rows: list[Row] = []
    for top, desired in readings:
        by_group, largest = skew_estimates(top, desired, confidence=settings.confidence)
        rows += _skew_rows(ranking, top, by_group, desired) + _max_rows(ranking, largest, desired)
        rows.append(_chance_row(ranking, "max_skew_at_k", desired, largest) | {"k": k})
    return rows


def _skew_rows(ranking: Ranking, top: TopSample, found: Estimates, desired: Desired) -> list[Row]:
    rows: list[Row] = []
    sizes = ranking.ranked.sizes
    few = few_sets_reason(ranking.ranked.sets)
    small = [group_size_reason(int(size), ranking.settings.min_group) for size in sizes]
    shares = equal_shares(len(sizes))
    for i, j in np.ndindex(found.value.shape):
        row = _row(ranking, i, found, (i, j), metric="skew_at_k", definition=desired)
        row |= {"group": ranking.names[j], "k": ranking.k, "n": int(sizes[j])}
        absent = f"no image of the group among the {ranking.k} best" if top.counts[i, j] == 0 else None
        row["reason"] = joined(absent, small[j], few, _interval_reason(found, (i, j)))
        rows.append(row)
        if absent and desired == "equal" and i < ranking.prompts.scales:
            floor = float(skew_values(np.zeros(1), shares[:1], k=ranking.k, floor=True)[0])
            ends = [max(float(end), floor) for end in (found.low[i, j], found.high[i, j])]
            floored = {"definition": "floored", "value": floor, "ci_low": ends[0], "ci_high": ends[1]}
            rows.append(row | floored)
    return rows


def _max_rows(ranking: Ranking, found: Estimates, desired: Desired) -> list[Row]:
    rows: list[Row] = []
    few = few_sets_reason(ranking.ranked.sets)
    for i in range(len(found.value)):
        row = _row(ranking, i, found, i, metric="max_skew_at_k", definition=desired)
        reason = joined(ranking.small, few, _interval_reason(found, i))
        rows.append(row | {"k": ranking.k, "n": ranking.ranked.n, "reason": reason})
    return rows


def _whole_rows(ranking: Ranking) -> list[Row]:
    """Return the rows of NDKL."""
    rows: list[Row] = []
    few = few_sets_reason(ranking.ranked.sets)
    for desired, chosen in _chosen(ranking):
        ranked = ranking.ranked.only(chosen)
        found = ndkl_estimates(ranked, desired, settings=ranking.settings)
        untested = "not tested: too many images in sets to shuffle" if np.isnan(found.p).any() else None
        single = "no interval: all images are of one set" if np.isnan(found.low).any() else None
        reason = joined(ranking.small, few, single, untested)
        rows += [
            _row(ranking, chosen.start + i, found, i, metric="ndkl", definition=desired)
            | {"n": ranking.ranked.n, "reason": reason}
            for i in range(len(found.value))
        ]
        if chosen.start == 0 and untested is None:
            rows.append(_chance_row(ranking, "ndkl", desired, found))
    return rows


def _chosen(ranking: Ranking) -> Iterator[tuple[Desired, slice]]:
    """Give desired shares with the rankings that have rows for them; words apart, so that scales get more draws."""
    yield "equal", slice(0, ranking.prompts.scales)
    yield "ranked", slice(0, ranking.prompts.scales)
    yield "equal", slice(ranking.prompts.scales, None)


def _row(ranking: Ranking, i: int, found: Estimates, at: int | tuple[int, int], **columns: object) -> Row:
    return (
        ranking.common
        | ranking.prompts.names[i]
        | columns
        | {
            "value": float(found.value[at]),
            "ci_low": float(found.low[at]),
            "ci_high": float(found.high[at]),
            "p": float(found.p[at]),
        }
    )


def _interval_reason(found: Estimates, at: int | tuple[int, int]) -> str | None:
    if np.isnan(found.low[at]):
        return "no interval: the resamples do not vary"
    if found.percentile[at]:
        return "percentile interval: every resample lies on one side of the estimate"
    if found.widened[at]:
        return "interval reaches the value without preference: no significant difference"
    return None


def _chance_row(ranking: Ranking, metric: str, definition: str, found: Estimates) -> Row:
    """Return what random rankings give: neither measure is 0 by chance, so a reader needs it beside the values."""
    assert found.chance is not None
    tail = (1 - ranking.settings.confidence) / 2
    low, high = np.quantile(found.chance, [tail, 1 - tail])
    return ranking.common | {
        "metric": metric,
        "definition": definition,
        "statistic": CHANCE,
        "value": float(found.chance.mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "n": ranking.ranked.n,
        "reason": "random rankings of these groups: not an estimate of the model",
    }
