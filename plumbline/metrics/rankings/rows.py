"""Rows of the ranking metrics: whose faces come first when faces are ranked by how well a word fits them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.concurrency import run_threads
from plumbline.datasets.records import audited_attributes
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits, base_row, compute_rows
from plumbline.metrics.family import Family, MetricSettings
from plumbline.metrics.perception import template_means
from plumbline.metrics.rankings.ndkl import ndkl_estimates
from plumbline.metrics.rankings.ranking import ImageClusters, RankedGroups, Shares, few_permutations_reason
from plumbline.metrics.rankings.skew_at_k import TopSample, default_k, sample_top, skew_estimates
from plumbline.reasons import Reason, Reasons, group_size_reason, joined, reason, small_groups_reason
from plumbline.statistics.cluster_permutation import relabelling_reason
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.estimates import Estimate, EstimateArray
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.intervals import percentile_array
from plumbline.statistics.power import COLUMNS, LEVELS
from plumbline.statistics.rankings import rank_order

CHANCE = "chance"
"""Column `statistic` of what random rankings give: their mean, with the central interval of the draws."""


@dataclass(frozen=True)
class PromptRankings:
    """Rankings of the faces by each scale, then by each word.

    A face's score is its cosine with a word, mean over the templates; that of a scale is the mean over its words.

    Attributes
    ----------
    records : DataFrame
        The faces that count, by image id.
    names : tuple of dict
        The columns `event` (a scale) or `probe` (a word) of each ranking.
    scales : int
        How many of the rankings are of scales; these come first.
    scale_words : tuple of tuple of str
        The words of each scale.
    order : (m, n) int32
        Faces by rank, best first.
    """

    records: pl.DataFrame
    names: tuple[Row, ...]
    scales: int
    scale_words: tuple[tuple[str, ...], ...]
    order: NDArray[np.int32]


@dataclass(frozen=True)
class AttributeRankings:
    """The faces of one attribute's groups, ranked by every scale and word."""

    common: Row
    names: tuple[str, ...]
    ranked: RankedGroups
    prompts: PromptRankings
    k: int
    settings: MetricSettings

    @property
    def reasons(self) -> Reasons:
        """Return caveats that apply to statistics over all groups: small groups, few clusters, too few to test."""
        small = small_groups_reason(self.names, self.ranked.sizes.tolist(), self.settings.min_group)
        clusters = self.ranked.clusters
        least_p = 0.0 if clusters is None else clusters.permutation.least_gap_p
        return joined(small, self.few_clusters, relabelling_reason(least_p, self.settings.confidence))

    def least_p(self, group: int) -> float:
        """Return how small p of the count of a group can become; too few clusters that hold it allow no small one."""
        clusters = self.ranked.clusters
        return 0.0 if clusters is None else clusters.permutation.least_count_p(group)

    @property
    def few_permutations(self) -> Reason | None:
        """Return the caveat on tests of the k best from few permutations."""
        clusters = self.ranked.clusters
        return None if clusters is None else few_permutations_reason(len(clusters.drawn.labels), self.settings)

    @property
    def few_clusters(self) -> Reason | None:
        """Return the caveat on intervals from few clusters."""
        return few_clusters_reason(None if self.ranked.clusters is None else self.ranked.clusters.codes)

    def row(self, i: int, metric: str, definition: str, columns: Row) -> Row:
        """Return a row about ranking i."""
        named: Row = {"metric": metric, "definition": definition}
        return self.common | self.prompts.names[i] | named | columns

    def chance_row(self, metric: str, definition: str, chance: NDArray[np.float64]) -> Row:
        """Return what random rankings give: neither MaxSkew@k nor NDKL is 0 by chance."""
        tail = (1 - self.settings.confidence) / 2
        low, high = (float(end) for end in np.quantile(chance, [tail, 1 - tail]))
        random = Estimate(float(chance.mean()), low, high, self.ranked.n, reason=(reason("random_rankings"),))
        return self.common | {"metric": metric, "definition": definition, "statistic": CHANCE} | random.columns()


def ranking_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return Skew@k, MaxSkew@k and NDKL of every attribute with labels, for every scale and word of `perception`.

    Images are ranked by cosine, equal ones by image id; unlabelled images take no rank. Scales have rows against equal
    desired shares, against the shares of the ranked set, `floored` ones for groups that are absent from the top k, and
    `mean_of_words`: the mean of the Skew@k of its words in place of the Skew@k of their mean; words against equal
    shares. None for an encoder without cosines.
    """
    prepared = [
        partial(_attribute_rankings, cell, logits, prompts, groups, settings)
        for logits in cell.logits.values()
        if logits.suite.family == "perception" and logits.cosine is not None
        for prompts in [_prompts(cell, logits)]
        for groups in attribute_groups(prompts.records)
        if groups.attribute in audited_attributes(prompts.records)
    ]
    rankings = [each for each in run_threads(prepared) if each is not None]
    return metric_frame(compute_rows(partial(rows, each) for each in rankings for rows in (_top_rows, _ndkl_rows)))


def _prompts(cell: Cell, logits: SuiteLogits) -> PromptRankings:
    """Rank the faces that the filter keeps by every scale and word."""
    suite = logits.suite
    labels = cell.labels(suite.id)
    # By id from here on: neither ties nor draws then depend on the order of the rows.
    rows = labels["image_id"].arg_sort().to_numpy()
    rows = rows[cell.rows(suite.id)[rows]]
    words = list(dict.fromkeys(word for scale in suite.scales.values() for word in scale))
    by_word = logits.by_template(words, template_means, rows)
    names: list[Row] = [{"event": scale} for scale in suite.scales]
    names += [{"probe": word} for word in words]
    # One ranking after the other, and 32 bits a place: many rankings of many faces are large.
    order = np.empty((len(names), len(rows)), dtype=np.int32)
    for i, scale in enumerate(suite.scales.values()):
        order[i] = rank_order(by_word[:, [words.index(word) for word in scale]].mean(axis=1))[0]
    for i in range(len(words)):
        order[len(suite.scales) + i] = rank_order(by_word[:, i])[0]
    return PromptRankings(labels[rows], tuple(names), len(suite.scales), tuple(suite.scales.values()), order)


def _attribute_rankings(
    cell: Cell, logits: SuiteLogits, prompts: PromptRankings, groups: Groups, settings: MetricSettings
) -> AttributeRankings | None:
    """Leave the unlabelled images out of the rankings; None where nothing can be compared."""
    labelled = groups.codes >= 0
    n = int(labelled.sum())
    k = default_k(n) if settings.skew_k == "auto" else settings.skew_k
    if len(groups.names) < 2 or k < 1:
        return None
    if k > n:
        raise MetricError(
            "Skew@k needs as many images as k",
            where=f"{cell.model} on {cell.dataset}, {groups.attribute}",
            found=f"statistics.skew_k {k:,}, and {n:,} labelled images",
            expected=f"at most {n:,}, or `skew_k: auto`",
        )
    suite, codes = logits.suite, groups.codes[labelled]
    common = base_row(cell, suite=suite.id, suite_hash=suite.hash, attribute=groups.attribute)
    kept = prompts.order
    if not labelled.all():
        place = (np.cumsum(labelled) - 1).astype(np.int32)
        kept = np.stack([place[order[labelled[order]]] for order in prompts.order])
    clusters, images = None, cluster_codes(prompts.records)
    if images is not None:
        clusters = ImageClusters.of(images[labelled], codes, settings=settings, labels=_labels(common))
    ranked = RankedGroups(kept, codes, len(groups.names), clusters)
    return AttributeRankings(common, groups.names, ranked, prompts, k, settings)


def _labels(common: Row) -> list[str]:
    return [str(common[key]) for key in ("model", "dataset", "suite", "attribute")]


def _top_rows(ranking: AttributeRankings) -> Iterator[Row]:
    """Give the rows of Skew@k and MaxSkew@k."""
    k, settings, labels = ranking.k, ranking.settings, _labels(ranking.common)
    scales = ranking.ranked.only(slice(0, ranking.prompts.scales))
    samples: tuple[tuple[Shares, TopSample], ...] = (
        ("equal", sample_top(ranking.ranked, k=k, settings=settings, labels=[*labels, "all"])),
        ("ranked", sample_top(scales, k=k, settings=settings, labels=[*labels, "scales"], with_totals=True)),
    )
    for desired, top in samples:
        skew, largest, chance = skew_estimates(top, desired, confidence=settings.confidence)
        yield from _skew_rows(ranking, top, skew, desired)
        for i, each in enumerate(largest):
            yield ranking.row(
                i, "max_skew_at_k", desired, each.columns(ranking.reasons, ranking.few_permutations) | {"k": k}
            )
        yield ranking.chance_row("max_skew_at_k", desired, chance) | {"k": k}
        if desired == "equal":
            yield from _word_mean_rows(ranking, top)


def _word_mean_rows(ranking: AttributeRankings, top: TopSample) -> Iterator[Row]:
    """Give the mean over the words of a scale of Skew@k and MaxSkew@k against equal shares, absent groups floored.

    The paper does not say whether a dimension's skew is that of the ranking by its mean cosine, as the other rows have
    it, or the mean of the skews of its prompts. Replicates draw the same images for every word. The mean of the largest
    skews has no interval: in resamples each is too large, and an interval would nearly never hold the truth.
    """
    scales = ranking.prompts.scales
    place = {name["probe"]: scales + i for i, name in enumerate(ranking.prompts.names[scales:])}

    skew_of = np.log(np.maximum(np.arange(ranking.k + 1), 1) * (len(ranking.names) / ranking.k))

    for i, words in enumerate(ranking.prompts.scale_words):
        chosen = [place[word] for word in words]
        value, drawn = skew_of[top.counts[chosen]], skew_of.take(top.resampled[chosen])
        of_groups = percentile_array(value.mean(axis=0), drawn.mean(axis=0), confidence=ranking.settings.confidence)
        named = {"k": ranking.k}
        for j, group in enumerate(ranking.names):
            small = group_size_reason(int(top.sizes[j]), ranking.settings.min_group)
            columns = of_groups[j].columns(small, ranking.few_clusters) | named | {"n": int(top.sizes[j])}
            yield ranking.row(i, "skew_at_k", "mean_of_words", columns | {"group": group})
        largest = Estimate(float(value.max(axis=1).mean()), np.nan, np.nan, reason=(reason("mean_of_maxima"),))
        columns = largest.columns(ranking.reasons) | named | {"n": ranking.ranked.n}
        yield ranking.row(i, "max_skew_at_k", "mean_of_words", columns)


def _skew_rows(ranking: AttributeRankings, top: TopSample, estimates: EstimateArray, desired: Shares) -> Iterator[Row]:
    small = [group_size_reason(int(size), ranking.settings.min_group) for size in top.sizes]
    few, least_p = ranking.few_permutations, [ranking.least_p(j) for j in range(len(top.sizes))]
    floor = float(np.log(len(ranking.names) / ranking.k))
    for i, j in np.ndindex(estimates.value.shape):
        absent = reason("absent_from_top", k=ranking.k) if top.counts[i, j] == 0 else None
        untestable = relabelling_reason(least_p[j], ranking.settings.confidence)
        columns = estimates[i, j].columns(absent, small[j], ranking.few_clusters, untestable, few)
        columns |= {"group": ranking.names[j], "k": ranking.k}
        columns |= {name: np.nan for name, level in zip(COLUMNS, LEVELS) if level < least_p[j]}
        yield ranking.row(i, "skew_at_k", desired, columns)
        if absent and desired == "equal" and i < ranking.prompts.scales:
            low, high = (max(columns[end], floor) for end in ("ci_low", "ci_high"))
            columns |= {"value": floor, "ci_low": low, "ci_high": high}
            yield ranking.row(i, "skew_at_k", "floored", columns)


def _ndkl_rows(ranking: AttributeRankings) -> Iterator[Row]:
    """Give the rows of NDKL; words apart from scales, so that scales get more permutations."""
    scales, words = slice(0, ranking.prompts.scales), slice(ranking.prompts.scales, None)
    definitions: tuple[tuple[Shares, slice], ...] = (("equal", scales), ("ranked", scales), ("equal", words))
    for desired, chosen in definitions:
        estimates, chance = ndkl_estimates(ranking.ranked.only(chosen), desired, settings=ranking.settings)
        for i, each in enumerate(estimates, start=chosen.start):
            yield ranking.row(i, "ndkl", desired, each.columns(ranking.reasons))
        if chosen is scales and chance.size:
            yield ranking.chance_row("ndkl", desired, chance)


RANKINGS = Family(name="ranking_metrics", needs=("perception",), compute=ranking_rows)
