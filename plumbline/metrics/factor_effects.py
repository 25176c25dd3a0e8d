"""What one design factor changes: differences of disparities between two checkpoints on the same images.

Source: Al Sahili et al., "Data Matters Most", sections 3.4 and 4.2 to 4.4, tables 2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.cores import side_by_side
from plumbline.digests import digest_bytes, digest_json
from plumbline.metrics.answered_dataset import AnsweredDataset, EventKey
from plumbline.metrics.factor_pairs import FactorPair
from plumbline.metrics.families.outcome_rows import SKEWS, TASKS, Disparity, TestedEvent
from plumbline.metrics.families.rows import Row, joined, small_groups_reason
from plumbline.metrics.paired_effect import Effect, alike_p_value, alike_p_value_of_sets, paired_effect
from plumbline.metrics.rates import empty_groups_reason, parity_differences, shares, undefined_pairs_reason
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.skew import skew_sums
from plumbline.statistics.clusters import few_sets_reason
from plumbline.statistics.groups import Groups
from plumbline.statistics.multiplicity import add_q_values
from plumbline.statistics.paired import AnswerDraws, LeftOut, draw_answers, leave_one_out
from plumbline.statistics.seeds import generator
from plumbline.tables.schema import Schema

EFFECT_SCHEMA: Schema = {
    # what was compared
    "factor": pl.String,
    "level_first": pl.String,
    "level_second": pl.String,
    "held": pl.String,
    "first": pl.String,
    "second": pl.String,
    "dataset": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "event": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    # the difference, and the two numbers of the metric table that it is the difference of
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "n": pl.Int64,
    "reason": pl.String,
    "value_first": pl.Float64,
    "value_second": pl.Float64,
}
"""One row an effect; `value` is `value_first` - `value_second`, `attribute` is null for harm rates."""

_EVERYONE = "all images"


def _parity(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    return parity_differences(counts, totals).mean(axis=-1)


def _harm(counts: NDArray[np.int64], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    return shares(counts.sum(axis=-1), np.broadcast_to(totals.sum(axis=-1), counts.shape[:-1])).mean(axis=-1)


HARM = Disparity("harm_rate", "top1", _harm)
PARITY = Disparity("parity_difference", "max_minus_min", _parity)
SKEW_EFFECTS = tuple(skew for skew in SKEWS if skew.definition in ("mean_over_pairs", "smoothed"))


def factor_effects(
    datasets: Iterable[AnsweredDataset], pairs: Sequence[FactorPair], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the effect of each factor: the value of the first checkpoint of each pair minus that of the second.

    For every event and attribute: Max Skew (`mean_over_pairs`, and `smoothed` beside it) where the event has one, and
    the parity difference; for every event the harm rate; and all of them for the mean over the three tasks.

    Parameters
    ----------
    datasets : iterable of AnsweredDataset
        Used one after the other. A pair is compared wherever both its checkpoints have answers.
    pairs : sequence of FactorPair

    Returns
    -------
    DataFrame
        In `EFFECT_SCHEMA`; no row without pairs. Positive: the first of the pair is the more biased, or does more
        harm. `n` counts the images behind both values.

        The interval is a paired BCa bootstrap over images: a resample holds both checkpoints' answers to an image.
        A disparity cannot fall below parity, and resampling adds to it; so where a chi-squared test (for images in
        sets: Wald's, by the spread over sets) finds no difference between the groups of one checkpoint, the interval
        is widened to that checkpoint at parity and `reason` says so.

        `p` is against "no effect on this reading", and is the largest of three: the share of random swaps of the two
        checkpoints' answers, image by image, that change it as much in either direction (exact for "they answer
        alike", which is more than "no effect": equal skews at very different harm rates are not alike); the level at
        which the BCa interval reaches 0; and the chi-squared p of the more biased of the two, since a disparity that
        may be none is no effect. So p is never below 1 - confidence while the interval holds 0. `q` is within
        `plumbline.statistics.multiplicity.FAMILIES`. Simulated coverage and level: docs/decisions, 12.
    """
    rows = chain.from_iterable(_dataset_rows(answered, pairs, settings) for answered in datasets)
    return add_q_values(pl.DataFrame(list(rows), schema=EFFECT_SCHEMA, orient="row"), of="factor_effects")


@dataclass(frozen=True)
class _Compared:
    """One event, or the three tasks together, on the images that count."""

    suite: str
    event: str
    keys: tuple[EventKey, ...]
    skewed: bool
    kept: NDArray[np.bool_]
    groups: list[Groups]


def _comparisons(answered: AnsweredDataset) -> Iterator[_Compared]:
    every = {key: event for own in answered.answers.values() for key, event in own.items()}
    for key, event in every.items():
        yield _compared(key, {key: event}, answered.groups[key[0]])
    # In the paper's order, so that the draws do not depend on the order in which suites were given.
    tasks = {k: event for task in TASKS for k, event in every.items() if k[0] == task and event.skewed}
    labelled = [answered.groups[task] for task in TASKS if task in answered.groups]
    # A mean over tasks is of the same groups: none where their filters merge labels differently.
    if {suite for suite, _ in tasks} == set(TASKS) and all(own is labelled[0] for own in labelled):
        yield _compared(("outcomes", "mean_of_tasks"), tasks, labelled[0])


def _compared(name: EventKey, events: Mapping[EventKey, TestedEvent], groups: list[Groups]) -> _Compared:
    return _Compared(
        suite=name[0],
        event=name[1],
        keys=tuple(events),
        skewed=all(each.skewed for each in events.values()),
        kept=np.logical_and.reduce([each.kept for each in events.values()]),
        groups=groups,
    )


def _dataset_rows(
    answered: AnsweredDataset, pairs: Sequence[FactorPair], settings: MetricSettings
) -> list[Row]:
    present = [pair for pair in pairs if {pair.first, pair.second} <= answered.answers.keys()]
    if not present:
        return []
    parts = [
        partial(_view_rows, answered, groups, compared, present, settings)
        for groups, compared in _views(answered)
    ]
    found = chain.from_iterable(side_by_side(parts))
    return [row for _, row in sorted(found, key=lambda each: each[0])]


def _views(answered: AnsweredDataset) -> list[tuple[Groups, dict[int, _Compared]]]:
    """Return the images that are drawn together, and by place in the table what is compared on them."""
    views: dict[str, tuple[Groups, dict[int, _Compared]]] = {}
    for place, compared in enumerate(_comparisons(answered)):
        everyone = Groups("", (_EVERYONE,), np.zeros(len(compared.kept), dtype=np.int64))
        for groups in (everyone, *compared.groups):
            codes = np.where(compared.kept, groups.codes, -1)
            name = digest_json([groups.attribute, groups.names, digest_bytes(codes.tobytes())])
            views.setdefault(name, (replace(groups, codes=codes), {}))[1][place] = compared
    return list(views.values())


def _view_rows(
    answered: AnsweredDataset,
    groups: Groups,
    compared: Mapping[int, _Compared],
    pairs: Sequence[FactorPair],
    settings: MetricSettings,
) -> list[tuple[tuple[int, int], Row]]:
    """Return the rows of all that is compared on the same images and groups, each with its place in the table."""
    sizes = np.bincount(groups.codes[groups.codes >= 0], minlength=len(groups.names))
    if np.count_nonzero(sizes) < (2 if groups.attribute else 1):
        return []
    drawn = _Drawn.of(answered, groups, compared.values(), pairs, settings)
    left_out = empty_groups_reason(sizes) if groups.attribute else None
    small = (
        small_groups_reason(groups.names, sizes.tolist(), settings.min_group) if groups.attribute else None
    )
    found = []
    for place, each in compared.items():
        readings = (*SKEW_EFFECTS, PARITY) if each.skewed else (PARITY,)
        for number, pair in enumerate(pairs):
            if not (drawn.has(pair.first, each) and drawn.has(pair.second, each)):
                continue
            common = {"dataset": answered.dataset, "suite": each.suite, "event": each.event, **vars(pair)}
            left = drawn.left_out(pair, each)
            for reading in readings if groups.attribute else (HARM,):
                effect = drawn.effect(pair, each, reading, left, settings.confidence)
                reasons = (left_out, drawn.undefined(pair, each, reading), small)
                reason = joined(*reasons, few_sets_reason(answered.clusters), effect.reason)
                row = common | vars(effect) | {"reason": reason, "n": int(sizes.sum())}
                row |= {"metric": reading.metric, "definition": reading.definition}
                found.append(((number, place), row | {"attribute": groups.attribute or None}))
    return found


@dataclass(frozen=True)
class _Drawn:
    """The draws of one view, and the values of each checkpoint in them, which all its pairs share."""

    answered: AnsweredDataset
    groups: Groups
    draws: AnswerDraws
    column: Mapping[tuple[str, EventKey], int]
    known: dict[tuple[str, EventKey, str], NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        answered: AnsweredDataset,
        groups: Groups,
        compared: Iterable[_Compared],
        pairs: Sequence[FactorPair],
        settings: MetricSettings,
    ) -> _Drawn:
        keys = dict.fromkeys(key for each in compared for key in each.keys)
        models = dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second))
        columns = [(model, key) for model in models for key in keys if key in answered.answers[model]]
        name = (answered.dataset, groups.attribute, digest_bytes(groups.codes.tobytes()))
        draws = draw_answers(
            np.stack([answered.answers[model][key].hit for model, key in columns]),
            groups.codes,
            n_groups=len(groups.names),
            resamples=settings.resamples,
            permutations=settings.permutations,
            rng=generator(settings.seed, "factor_effects", *name),
            clusters=answered.clusters,
        )
        return cls(answered, groups, draws, {column: i for i, column in enumerate(columns)})

    def has(self, model: str, compared: _Compared) -> bool:
        return all((model, key) in self.column for key in compared.keys)

    def rows(self, model: str, compared: _Compared) -> NDArray[np.intp]:
        return np.array([self.column[model, key] for key in compared.keys], dtype=np.intp)

    def left_out(self, pair: FactorPair, compared: _Compared) -> LeftOut:
        first, second = (
            np.stack([self.answered.answers[model][key].hit for key in compared.keys])
            for model in (pair.first, pair.second)
        )
        return leave_one_out(
            first,
            second,
            self.groups.codes,
            n_groups=len(self.groups.names),
            clusters=self.answered.clusters,
        )

    def undefined(self, pair: FactorPair, compared: _Compared, reading: Disparity) -> str | None:
        if not reading.pairs:
            return None
        sizes = self.draws.sizes
        pairs = len(compared.keys) * len(sizes) * (len(sizes) - 1) // 2
        said = []
        for name, model in (("first", pair.first), ("second", pair.second)):
            _, cells = skew_sums(self.draws.counts[self.rows(model, compared)], sizes[None, :])
            if undefined := undefined_pairs_reason(pairs - int(cells.sum()), pairs):
                said.append(f"{name}: {undefined}")
        return joined(*said)

    def effect(
        self, pair: FactorPair, compared: _Compared, reading: Disparity, left: LeftOut, confidence: float
    ) -> Effect:
        one, other = self.rows(pair.first, compared), self.rows(pair.second, compared)
        sizes = self.draws.sizes
        first, second = (float(_value(reading, self.draws.counts[rows], sizes)) for rows in (one, other))
        if np.isnan(first - second):
            return Effect(np.nan, np.nan, np.nan, np.nan, _lacking(first, second), first, second)
        swapped = [
            _drawn_values(reading, counts, sizes[:, None]) for counts in self.draws.swapped(one, other)
        ]
        resampled = [self.resampled(model, compared, reading) for model in (pair.first, pair.second)]
        without = [_value(reading, counts, left.sizes) for counts in (left.first, left.second)]
        alike = None
        if reading.metric != HARM.metric:
            alike = (self.alike(one), self.alike(other))
        return paired_effect(
            first,
            second,
            resampled=resampled[0] - resampled[1],
            swapped=swapped[0] - swapped[1],
            acceleration=left.acceleration(without[0] - without[1]),
            alike=alike,
            confidence=confidence,
        )

    def alike(self, rows: NDArray[np.intp]) -> float:
        """Return the p of "groups do not differ" for the events in these rows."""
        draws = self.draws
        if self.answered.clusters is None:
            return alike_p_value(draws.counts[rows], draws.sizes)
        return alike_p_value_of_sets(
            draws.counts[rows], draws.sizes, draws.resampled[rows], draws.resampled_sizes
        )

    def resampled(self, model: str, compared: _Compared, reading: Disparity) -> NDArray[np.float64]:
        key = (model, (compared.suite, compared.event), f"{reading.metric} {reading.definition}")
        if key not in self.known:
            counts = self.draws.resampled[self.rows(model, compared)]
            self.known[key] = _drawn_values(reading, counts, self.draws.resampled_sizes)
        return self.known[key]


def _value(reading: Disparity, counts: NDArray, sizes: NDArray) -> NDArray[np.float64]:
    """Return a reading of (..., e, g) counts and (..., g) sizes."""
    return reading.value(counts, sizes[..., None, :])


def _drawn_values(reading: Disparity, counts: NDArray, sizes: NDArray) -> NDArray[np.float64]:
    """Return a reading of (e, g, r) counts and (g, r) or (g, 1) sizes, in double precision."""
    by_draw = np.moveaxis(counts.astype(np.float64), -1, 0)
    return _value(reading, by_draw, np.moveaxis(sizes.astype(np.float64), -1, 0))


def _lacking(first: float, second: float) -> str:
    lacking = [name for name, value in (("first", first), ("second", second)) if np.isnan(value)]
    return f"undefined for the {' and the '.join(lacking)} checkpoint"
