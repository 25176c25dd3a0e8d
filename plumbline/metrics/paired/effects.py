"""Paired comparisons of two sets of predictions on the same images: effect, interval, p, rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from plumbline.catalog.schema import Row
from plumbline.concurrency import run_threads
from plumbline.digests import digest_bytes, digest_json
from plumbline.metrics.disparities import Statistic, group_without_event, same_pairs, undefined_pairs, without_interval
from plumbline.metrics.family import MetricSettings
from plumbline.parts import current_parts
from plumbline.reasons import Reason, Reasons, empty_groups_reason, in_words, joined, reason, small_groups_reason
from plumbline.statistics.clusters import few_clusters_reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.groups import Groups
from plumbline.statistics.intervals import bca
from plumbline.statistics.paired import AnswerDraws, JackknifeCounts, count_answers, draw_answers, leave_one_out
from plumbline.statistics.permutation import p_value
from plumbline.statistics.seeds import generator

Key = tuple[str, ...]
"""Names one answer that every image gets, such as a suite and an event of it."""


@dataclass(frozen=True)
class Comparison:
    """The statistics to compare, for given answers and groups.

    Attributes
    ----------
    keys : tuple of Key
        The e answers, in the order in which the statistics take their counts.
    groups : Groups
        Code -1 for images that do not count. Without an attribute (`everyone`) all images are one group.
    statistics : tuple of Statistic
    columns : mapping
        Columns of its rows.
    """

    keys: tuple[Key, ...]
    groups: Groups
    statistics: tuple[Statistic, ...]
    columns: Mapping[str, object]


@dataclass(frozen=True)
class PairedAnswers:
    """The answers of several sides to the same images.

    Attributes
    ----------
    scores : mapping of str to mapping of Key to (n,) bool or int64
        By side. Yes or no, or how many of several tests the image passed.
    clusters : (n,) int64 or None
        Cluster of each image, where images come in clusters.
    """

    scores: Mapping[str, Mapping[Key, NDArray[Any]]] = field(repr=False)
    clusters: NDArray[np.int64] | None = None


class Compared(NamedTuple):
    """The answers of each side by key, and the comparisons to make."""

    scores: dict[str, dict[Key, NDArray[Any]]]
    comparisons: list[Comparison]


def everyone(kept: NDArray[np.bool_]) -> Groups:
    """Return the images that count as one group, of no attribute."""
    return Groups("", ("all images",), np.where(kept, 0, -1).astype(np.int64))


# --- Inference on the difference of two sides on the same images: two checkpoints, or before and after a mitigation.


@dataclass(frozen=True)
class SideNames:
    """Names of the two sides of a pair in reasons.

    Attributes
    ----------
    first, second : str
    template : str
        Phrase around a name, such as `the {} checkpoint`.
    conjunction : str
        What joins the two names in it.
    """

    first: str
    second: str
    template: str
    conjunction: str

    def describe(self, chosen: tuple[bool, bool]) -> str:
        """Return the phrase that names the chosen sides."""
        names = [name for name, is_chosen in zip((self.first, self.second), chosen) if is_chosen]
        return self.template.format(self.conjunction.join(names))

    def undefined(self, first: float, second: float) -> Reason:
        """Return the reason that a difference of two values is undefined."""
        return reason("undefined_for_side", side=self.describe((bool(np.isnan(first)), bool(np.isnan(second)))))


CHECKPOINTS = SideNames("first", "second", "the {} checkpoint", " and the ")
MITIGATION = SideNames("after", "before", "the state {} the mitigation", " and ")


def _extend_side_to_parity(
    estimate: Estimate,
    values: tuple[float, float],
    homogeneity: tuple[float, float],
    names: SideNames,
    confidence: float,
) -> Estimate:
    """Extend the interval to the case where a side with no significant disparity is at parity."""
    reached = (homogeneity[0] > 1 - confidence, homogeneity[1] > 1 - confidence)
    if np.isnan(estimate.ci_low) or not any(reached):
        return estimate
    why = reason("reaches_parity_of_side", side=names.describe(reached))
    return replace(
        estimate,
        ci_low=estimate.ci_low - (values[0] if reached[0] else 0.0),
        ci_high=estimate.ci_high + (values[1] if reached[1] else 0.0),
        reason=(*estimate.reason, why),
    )


def homogeneity_p_value(
    counts: NDArray[np.int64], totals: NDArray[np.int64], *, variances: NDArray[np.float64] | None = None
) -> float:
    """Return the Bonferroni-corrected p of Pearson's chi-squared test of homogeneity across groups.

    The minimum over events times their number, at most 1.

    Parameters
    ----------
    counts : (e, g) int
        Of scores: their sums.
    totals : (g,) int
        Empty groups are left out.
    variances : (e,) float, optional
        Of scores: their variance over all images of the groups, in the place of rate · (1 - rate).
    """
    from scipy.special import chdtrc

    seen = totals > 0
    x, n = counts[:, seen].astype(np.float64), totals[seen].astype(np.float64)
    rate = x.sum(axis=1, keepdims=True) / n.sum()
    if variances is None:
        varies, spread = ((rate > 0) & (rate < 1))[:, 0], n * rate * (1 - rate)
    else:
        varies, spread = variances > 0, n * variances[:, None]
    spread = np.where(varies[:, None], spread, 1.0)
    statistic = np.where(varies, ((x - n * rate) ** 2 / spread).sum(axis=1), 0.0)
    return float(min(1.0, chdtrc(len(n) - 1, statistic).min() * len(x)))


def clustered_homogeneity_p_value(
    counts: NDArray[np.int64],
    totals: NDArray[np.int64],
    resampled: NDArray,
    resampled_totals: NDArray,
    *,
    unseen: NDArray[np.float64],
) -> float:
    """Return the p of Wald's test of homogeneity across groups of clustered images; else as `homogeneity_p_value`.

    Parameters
    ----------
    counts, totals : (e, g), (g,) int
    resampled, resampled_totals : (e, g, r), (g, r)
        The same in resamples of whole clusters, whose covariance is that of the rates.
    unseen : (e, g) float
        Variance of a rate that no resample changes, see `unseen_variance`.
    """
    from scipy.special import chdtrc

    seen = (totals > 0) & (resampled_totals > 0).all(axis=1)
    if seen.sum() < 2:
        return 1.0
    rates = counts[:, seen] / totals[seen]
    drawn = resampled[:, seen].astype(np.float64) / resampled_totals[seen]
    p_values = [1.0]
    for rate, spread, least in zip(rates, drawn, unseen[:, seen]):
        gaps, covariance = rate[1:] - rate[0], np.atleast_2d(np.cov(spread[1:] - spread[0]))
        # A group that always, or never, has the event differs from others all the same.
        added = np.where(spread.var(axis=1) < 1e-12, least, 0.0)
        covariance = covariance + added[0] + np.diag(added[1:])
        if covariance.any():
            statistic = float(gaps @ np.linalg.pinv(covariance, hermitian=True) @ gaps)
            p_values.append(float(chdtrc(len(gaps), statistic)) * len(rates))
    return min(p_values)


def unseen_variance(scores: NDArray[Any], groups: Groups, clusters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the (e, g) variance that a group's rate may have where all its clusters answer alike.

    That of c clusters of which half a one answered otherwise, by the largest score s that an image got: s² / 2c².
    """
    codes = groups.codes
    sets = np.array([np.unique(clusters[codes == group]).size for group in range(len(groups.names))])
    largest = scores[:, codes >= 0].max(axis=1, initial=0).astype(np.float64)
    return (largest[:, None] / np.maximum(sets, 1)) ** 2 / 2


# --- Draws of the answers of a side, shared by all pairs and statistics of a comparison.


@dataclass(frozen=True)
class SideDraws:
    """The answers of one side in a comparison, with their paired resamples.

    Attributes
    ----------
    scores : (e, n) bool or int64
    draws : AnswerDraws
        Of all answers of all sides to these images.
    rows : (e,) int64
        Rows of the draws that are these answers.
    """

    scores: NDArray[Any]
    draws: AnswerDraws
    rows: NDArray[np.intp]
    _resampled: dict[Statistic, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Return the (e, g) counts."""
        return self.draws.counts[self.rows]

    def resampled(self, statistic: Statistic) -> NDArray[np.float64]:
        """Return the (r,) values in the resamples."""
        if statistic not in self._resampled:
            counts, sizes = self.draws.resampled[self.rows], self.draws.resampled_sizes
            self._resampled[statistic] = _drawn_values(statistic, counts, sizes)
        return self._resampled[statistic]

    def homogeneity(self, groups: Groups, clusters: NDArray[np.int64] | None) -> float:
        """Return the p of homogeneity across groups."""
        if clusters is not None:
            resampled, unseen = self.draws.resampled[self.rows], unseen_variance(self.scores, groups, clusters)
            return clustered_homogeneity_p_value(
                self.counts, self.draws.sizes, resampled, self.draws.resampled_sizes, unseen=unseen
            )
        spread = None if self.scores.dtype == np.bool_ else self.scores[:, groups.codes >= 0].var(axis=1)
        return homogeneity_p_value(self.counts, self.draws.sizes, variances=spread)


@dataclass(frozen=True)
class PairedEffects:
    """The differences of two sides in one comparison; the first minus the second."""

    sides: tuple[SideDraws, SideDraws]
    groups: Groups
    clusters: NDArray[np.int64] | None
    names: SideNames
    confidence: float

    @cached_property
    def left_out(self) -> JackknifeCounts:
        """Return the counts of both sides with one image, or cluster, left out."""
        first, second = (side.scores for side in self.sides)
        return leave_one_out(first, second, self.groups.codes, n_groups=len(self.groups.names), clusters=self.clusters)

    @cached_property
    def homogeneity(self) -> tuple[float, float]:
        """Return each side's p of homogeneity across groups."""
        first, second = (side.homogeneity(self.groups, self.clusters) for side in self.sides)
        return first, second

    def undefined_pairs(self) -> Reasons:
        """Return how many pairs of groups are undefined on which side."""
        named = zip((self.names.first, self.names.second), self.sides)
        of_sides = [(name, *undefined_pairs(side.counts, side.draws.sizes)) for name, side in named]
        of_side = "undefined_pairs_of_side"
        return tuple(
            reason(of_side, side=name, undefined=lacking, pairs=of) for name, lacking, of in of_sides if lacking
        )

    def columns(self, statistic: Statistic, left_out: Reason | None, *reasons: Reason | None) -> Row:
        """Return the columns of the difference of one statistic, see `factor_effects`."""
        sizes = self.sides[0].draws.sizes
        first, second = (float(_value(statistic, side.counts, sizes)) for side in self.sides)
        estimate = Estimate(np.nan, np.nan, np.nan, p=np.nan, reason=(self.names.undefined(first, second),))
        if not np.isnan(first - second):
            if statistic.pairs and not same_pairs(self.sides[0].counts, self.sides[1].counts, sizes):
                estimate = replace(estimate, reason=(reason("other_pairs"),))
            else:
                estimate = self._difference(statistic, first, second)
        pairs = self.undefined_pairs() if statistic.pairs else ()
        return {
            **estimate.columns(),
            "value_first": first,
            "value_second": second,
            "reason": in_words(joined(left_out, pairs, *reasons, estimate.reason)),
            "n": int(sizes.sum()),
            "metric": statistic.metric,
            "definition": statistic.definition,
        }

    def _difference(self, statistic: Statistic, first: float, second: float) -> Estimate:
        if np.array_equal(self.sides[0].scores, self.sides[1].scores):
            # What every resample and every swap would give.
            return Estimate(0.0, np.nan, np.nan, p=1.0, reason=(reason("constant_resamples"),))
        (one, other), sizes, left = self.sides, self.sides[0].draws.sizes, self.left_out
        value = first - second
        without = [_value(statistic, counts, left.sizes) for counts in (left.first, left.second)]
        estimate = bca(
            value,
            one.resampled(statistic) - other.resampled(statistic),
            acceleration=left.acceleration(without[0] - without[1]),
            confidence=self.confidence,
            null=0.0,
        )
        swapped = [_drawn_values(statistic, each, sizes[:, None]) for each in one.draws.swapped(one.rows, other.rows)]
        p = [p_value(abs(value), np.abs(swapped[0] - swapped[1])), estimate.p]
        if statistic.over is not None:
            estimate = _extend_side_to_parity(estimate, (first, second), self.homogeneity, self.names, self.confidence)
            p.append(self.homogeneity[0] if value > 0 else self.homogeneity[1])
        estimate = replace(estimate, p=float(np.nanmax(np.array(p, dtype=np.float64))))
        if statistic.scale == "difference":  # of rates, and of differences of rates: no change is larger than 1
            low, high = (float(np.clip(end, -1.0, 1.0)) for end in (estimate.ci_low, estimate.ci_high))
            estimate = replace(estimate, ci_low=low, ci_high=high)
        if statistic.smoothed and any(group_without_event(side.counts, sizes) for side in self.sides):
            return without_interval(estimate)
        return estimate


def _value(statistic: Statistic, counts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
    """Return a statistic of (..., e, g) counts and (..., g) sizes."""
    return statistic.value(counts, sizes[..., None, :])


def _drawn_values(statistic: Statistic, counts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
    """Return a statistic of (e, g, r) counts and (g, r) or (g, 1) sizes, in double precision."""
    by_draw = np.moveaxis(counts.astype(np.float64), -1, 0)
    return _value(statistic, by_draw, np.moveaxis(sizes.astype(np.float64), -1, 0))


# --- Rows of the differences of two sides on the same images: of two checkpoints, or of before and after
# a mitigation.
#
# All that is compared on the same images and groups shares its draws; the caller says what the sides of a
# pair are. Interval and p: docs/decisions/0012.


def paired_rows(
    answers: PairedAnswers,
    comparisons: Sequence[Comparison],
    pairs: Sequence[tuple[str, str]],
    *,
    named: tuple[str, ...],
    settings: MetricSettings,
    names: SideNames = CHECKPOINTS,
) -> list[tuple[int, Row]]:
    """Return the difference of the first side of each pair minus the second, of every statistic of every comparison.

    Parameters
    ----------
    pairs : sequence of (str, str)
        Sides. A pair is compared wherever both its sides have the answers.
    named : tuple of str
        What the draws are for: part of the generators' names.

    Returns
    -------
    list of (int, dict)
        Place of the pair, and the columns of the row: those of the comparison and of `PairedEffects.columns`. By pair,
        then in the order of the comparisons. Nothing for a disparity of fewer than two groups with images, and for
        anything else without an image.
    """
    task = partial(_view_rows, answers, pairs=pairs, named=named, settings=settings, names=names)
    rows = chain.from_iterable(run_threads([partial(task, view) for view in _views(comparisons)]))
    ordered = sorted(rows, key=lambda each: each[0])
    if (parts := current_parts()) is not None:
        parts.forget_arrays()
    return [(pair, row) for (pair, _), row in ordered]


def _views(comparisons: Sequence[Comparison]) -> list[dict[int, Comparison]]:
    """Return the comparisons that are of the same images and groups, by their place in the table."""
    views: dict[str, dict[int, Comparison]] = {}
    for place, each in enumerate(comparisons):
        groups = each.groups
        name = digest_json([groups.attribute, groups.names, digest_bytes(groups.codes.tobytes())])
        views.setdefault(name, {})[place] = each
    return list(views.values())


def _all_equal(answers: PairedAnswers, keys: Iterable[Key], pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether the sides of every pair give the same answers: then nothing has to be drawn."""
    scores = answers.scores
    return all(
        np.array_equal(scores[first][key], scores[second][key])
        for first, second in pairs
        for key in keys
        if key in scores[first] and key in scores[second]
    )


def _view_rows(
    answers: PairedAnswers,
    compared: Mapping[int, Comparison],
    *,
    pairs: Sequence[tuple[str, str]],
    named: tuple[str, ...],
    settings: MetricSettings,
    names: SideNames,
) -> list[tuple[tuple[int, int], Row]]:
    """Return the rows of all that is compared on the same images and groups, each with its place in the table.

    A comparison is a part of the table: what it gives does not depend on what else is compared with the same draws.
    """
    parts = current_parts()
    if parts is None:
        return _drawn_rows(answers, compared, pairs=pairs, named=named, settings=settings, names=names)
    taken: dict[int, list[Row]] = {}
    digests: dict[int, str] = {}
    models = list(dict.fromkeys(chain.from_iterable(pairs)))
    for place, each in compared.items():
        scores = [answers.scores[side].get(key) for side in models for key in each.keys]
        digests[place] = parts.key(_drawn_rows, each, scores, answers.clusters, pairs, named, settings, names)
        if (kept := parts.find(digests[place])) is not None:
            taken[place] = kept
    lacking = {place: each for place, each in compared.items() if place not in taken}
    drawn = _drawn_rows(answers, lacking, pairs=pairs, named=named, settings=settings, names=names) if lacking else []
    for place in lacking:
        parts.keep(digests[place], [{"pair": pair, "row": row} for (pair, of), row in drawn if of == place])
    stored = [((each["pair"], place), each["row"]) for place, rows in taken.items() for each in rows]
    return [*drawn, *cast(list[tuple[tuple[int, int], Row]], stored)]


def _drawn_rows(
    answers: PairedAnswers,
    compared: Mapping[int, Comparison],
    *,
    pairs: Sequence[tuple[str, str]],
    named: tuple[str, ...],
    settings: MetricSettings,
    names: SideNames,
) -> list[tuple[tuple[int, int], Row]]:
    groups = next(iter(compared.values())).groups
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(groups.names))
    if not sizes.any():
        return []
    keys = dict.fromkeys(key for each in compared.values() for key in each.keys)
    models = dict.fromkeys(chain.from_iterable(pairs))
    columns = [(side, key) for side in models for key in keys if key in answers.scores[side]]
    scores = np.stack([answers.scores[side][key] for side, key in columns])
    if _all_equal(answers, keys, pairs):
        draws = count_answers(scores, groups.codes, n_groups=len(groups.names))
    else:
        draws = draw_answers(
            scores,
            groups.codes,
            n_groups=len(groups.names),
            resamples=settings.resamples,
            permutations=settings.permutations,
            rng=generator(settings.seed, *named, groups.attribute, digest_bytes(groups.codes.tobytes())),
            clusters=answers.clusters,
        )
    left_out = empty_groups_reason(sizes) if groups.attribute else None
    small = small_groups_reason(groups.names, sizes.tolist(), settings.min_group) if groups.attribute else None
    few = few_clusters_reason(answers.clusters)
    rows: list[tuple[tuple[int, int], Row]] = []
    for place, each in compared.items():
        statistics = [r for r in each.statistics if np.count_nonzero(sizes) > 1 or r.over is None]
        sides = {
            side: SideDraws(
                np.stack([answers.scores[side][key] for key in each.keys]),
                draws,
                np.array([columns.index((side, key)) for key in each.keys]),
            )
            for side in models
            if answers.scores[side].keys() >= set(each.keys)
        }
        for number, (first, second) in enumerate(pairs):
            if first in sides and second in sides:
                pair = (sides[first], sides[second])
                effects = PairedEffects(pair, groups, answers.clusters, names, settings.confidence)
                for statistic in statistics:
                    row = dict(each.columns) | effects.columns(statistic, left_out, small, few)
                    rows.append(((number, place), row))
    return rows
