"""The draws of two sides on the same images, which all that is compared on these images shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_bytes
from plumbline.metrics.paired_comparisons import Comparison, Key, PairedAnswers, Reading
from plumbline.metrics.paired_effect import (
    Effect,
    SideNames,
    alike_p_value,
    alike_p_value_of_sets,
    paired_effect,
)
from plumbline.metrics.rates import undefined_pairs_reason
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.skew import skew_sums
from plumbline.statistics.groups import Groups
from plumbline.statistics.paired import AnswerDraws, LeftOut, draw_answers, leave_one_out
from plumbline.statistics.reasons import joined
from plumbline.statistics.seeds import generator


@dataclass(frozen=True)
class Drawn:
    """The draws of one view, and the values of each side in them, which all its pairs share."""

    answers: PairedAnswers
    groups: Groups
    draws: AnswerDraws
    column: Mapping[tuple[str, Key], int]
    known: dict[tuple[str, tuple[Key, ...], str], NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        answers: PairedAnswers,
        groups: Groups,
        compared: Iterable[Comparison],
        pairs: Sequence[tuple[str, str]],
        named: tuple[str, ...],
        settings: MetricSettings,
    ) -> Drawn:
        """Draw for all sides and answers that are compared on some groups."""
        keys = dict.fromkeys(key for each in compared for key in each.keys)
        sides = dict.fromkeys(chain.from_iterable(pairs))
        columns = [(side, key) for side in sides for key in keys if key in answers.scores[side]]
        draws = draw_answers(
            np.stack([answers.scores[side][key] for side, key in columns]),
            groups.codes,
            n_groups=len(groups.names),
            resamples=settings.resamples,
            permutations=settings.permutations,
            rng=generator(settings.seed, *named, groups.attribute, digest_bytes(groups.codes.tobytes())),
            clusters=answers.clusters,
        )
        return cls(answers, groups, draws, {column: i for i, column in enumerate(columns)})

    def has(self, side: str, compared: Comparison) -> bool:
        """Return whether a side has all answers of a comparison."""
        return all((side, key) in self.column for key in compared.keys)

    def rows(self, side: str, compared: Comparison) -> NDArray[np.intp]:
        """Return the rows of the draws that are a side's answers."""
        return np.array([self.column[side, key] for key in compared.keys], dtype=np.intp)

    def scores(self, side: str, compared: Comparison) -> NDArray[Any]:
        """Return the (e, n) answers of a side."""
        return np.stack([self.answers.scores[side][key] for key in compared.keys])

    def left_out(self, pair: tuple[str, str], compared: Comparison) -> LeftOut:
        """Return the counts of both sides with one image, or set, left out."""
        first, second = (self.scores(side, compared) for side in pair)
        return leave_one_out(
            first, second, self.groups.codes, n_groups=len(self.groups.names), clusters=self.answers.clusters
        )

    def undefined(
        self, pair: tuple[str, str], compared: Comparison, reading: Reading, names: SideNames
    ) -> str | None:
        """Say how many pairs of groups are undefined on which side, for a reading over pairs."""
        if not reading.pairs:
            return None
        sizes = self.draws.sizes
        pairs = len(compared.keys) * len(sizes) * (len(sizes) - 1) // 2
        said = []
        for name, side in zip((names.first, names.second), pair):
            _, cells = skew_sums(self.draws.counts[self.rows(side, compared)], sizes[None, :])
            if undefined := undefined_pairs_reason(pairs - int(cells.sum()), pairs):
                said.append(f"{name}: {undefined}")
        return joined(*said)

    def effect(
        self,
        pair: tuple[str, str],
        compared: Comparison,
        reading: Reading,
        left: LeftOut,
        names: SideNames,
        confidence: float,
    ) -> Effect:
        """Return the difference of one reading, and how sure it is."""
        one, other = (self.rows(side, compared) for side in pair)
        sizes = self.draws.sizes
        first, second = (float(_value(reading, self.draws.counts[rows], sizes)) for rows in (one, other))
        if np.isnan(first - second):
            lacking = names.undefined(first, second)
            return Effect(np.nan, np.nan, np.nan, np.nan, lacking, first, second)
        swapped = [
            _drawn_values(reading, counts, sizes[:, None]) for counts in self.draws.swapped(one, other)
        ]
        resampled = [self.resampled(side, compared, reading) for side in pair]
        without = [_value(reading, counts, left.sizes) for counts in (left.first, left.second)]
        alike = (self.alike(pair[0], compared), self.alike(pair[1], compared)) if reading.disparity else None
        return paired_effect(
            first,
            second,
            resampled=resampled[0] - resampled[1],
            swapped=swapped[0] - swapped[1],
            acceleration=left.acceleration(without[0] - without[1]),
            alike=alike,
            names=names,
            confidence=confidence,
        )

    def alike(self, side: str, compared: Comparison) -> float:
        """Return the p of "groups do not differ" for the answers of a side."""
        draws, rows = self.draws, self.rows(side, compared)
        if self.answers.clusters is not None:
            return alike_p_value_of_sets(
                draws.counts[rows], draws.sizes, draws.resampled[rows], draws.resampled_sizes
            )
        scores = self.scores(side, compared)
        spread = None if scores.dtype == np.bool_ else scores[:, self.groups.codes >= 0].var(axis=1)
        return alike_p_value(draws.counts[rows], draws.sizes, variances=spread)

    def resampled(self, side: str, compared: Comparison, reading: Reading) -> NDArray[np.float64]:
        """Return the (r,) values of a side in the resamples."""
        key = (side, compared.keys, f"{reading.metric} {reading.definition}")
        if key not in self.known:
            counts = self.draws.resampled[self.rows(side, compared)]
            self.known[key] = _drawn_values(reading, counts, self.draws.resampled_sizes)
        return self.known[key]


def _value(reading: Reading, counts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
    """Return a reading of (..., e, g) counts and (..., g) sizes."""
    return reading.value(counts, sizes[..., None, :])


def _drawn_values(reading: Reading, counts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
    """Return a reading of (e, g, r) counts and (g, r) or (g, 1) sizes, in double precision."""
    by_draw = np.moveaxis(counts.astype(np.float64), -1, 0)
    return _value(reading, by_draw, np.moveaxis(sizes.astype(np.float64), -1, 0))
