"""Is what is told as detectable found by four of five audits? One group apart by what is told, at the level it is for.

What is told comes from an audit in which nothing differs; then worlds are drawn in which one group is apart by exactly
that, and the test of each says whether it is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.calibration.blocks import Block, Cell, Drawn
from plumbline.metrics.disparities import PARITY, RANGE_STATISTICS, SKEW_STATISTICS, Statistic
from plumbline.metrics.equal_opportunity import ClassStratifiedOutcomes, gap_rows
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.rankings.ndkl import ndkl_estimates
from plumbline.metrics.rankings.ranking import RankedGroups
from plumbline.metrics.rankings.skew_at_k import sample_top, skew_estimates
from plumbline.metrics.robustness.directional_bias import gap_of_codes
from plumbline.statistics.cluster_gaps import group_gap
from plumbline.statistics.cluster_permutation import ClusterPermutation
from plumbline.statistics.groups import Groups
from plumbline.statistics.permutation import permute_tables, upper_p_values
from plumbline.statistics.power import COLUMNS, LEAST_EVENTS, LEVELS, detectable_value

MEAN_SKEW, MAX_SKEW, _ = SKEW_STATISTICS
IMPACT_RATIO = RANGE_STATISTICS[1]
PERMUTATIONS = 10_000
COUNTED: tuple[tuple[tuple[int, ...], float, Statistic], ...] = (
    ((400, 300), 0.1, MEAN_SKEW),
    ((1000,) * 6 + (800,), 0.1, MEAN_SKEW),
    ((1000,) * 6 + (800,), 0.1, MAX_SKEW),
    ((1000,) * 6 + (800,), 0.1, PARITY),
    ((1000,) * 6 + (800,), 0.02, PARITY),
    ((100,) * 6 + (80,), 0.4, MEAN_SKEW),
    ((300,) * 4 + (240,), 0.7, IMPACT_RATIO),
)
"""Group sizes, the pooled rate, and what is told; the last group is apart."""
STATISTICS = {f"{each.metric} {each.definition}": each for _, _, each in COUNTED}


def parity_of(statistic: Statistic) -> float:
    """Return the value of a statistic where groups do not differ."""
    return 1.0 if statistic.scale == "ratio" else 0.0


def rates_with(statistic: Statistic, value: float, sizes: NDArray[np.int64], pooled: float) -> NDArray[np.float64]:
    """Return the rates at which the statistic has a value: the last group apart, and the pooled rate as it is."""
    share = sizes[-1] / sizes.sum()
    sign = 1.0 if pooled <= 0.5 else -1.0
    low, high = 0.0, min((1 - pooled) / (1 - share), pooled / share) if sign > 0 else pooled / (1 - share)
    for _ in range(60):
        apart = (low + high) / 2
        rates = np.full(len(sizes), pooled - sign * apart * share)
        rates[-1] += sign * apart
        short = abs(statistic.value((rates * sizes)[None, None], sizes[None, None])[0] - parity_of(statistic))
        low, high = (apart, high) if short < abs(value - parity_of(statistic)) else (low, apart)
    return rates


def permuted(count: NDArray[np.int64], sizes: NDArray[np.int64], seed: object) -> tuple[NDArray[np.int64], ...]:
    """Return (r, 1, g) counts and sizes as if groups did not differ."""
    table = np.stack([count, sizes - count], axis=1)
    drawn = permute_tables(table, permutations=PERMUTATIONS, rng=np.random.default_rng(seed))
    return drawn[:, None, :, 0], drawn.sum(axis=-1)[:, None]


AUDITS = 20
"""What is told is the mean of so many audits: one alone errs by 4% at p = .0001, which is 4 points of power."""


@cache
def told_of_counts(sizes: tuple[int, ...], pooled: float, name: str, level: int) -> tuple[NDArray[np.float64], bool]:
    """Return the rates that audits on average tell to be found at one of `LEVELS`, and whether most tell any.

    Where most tell none, the group is as far apart as they try: 12 standard errors, or what the pooled rate allows.
    """
    size, statistic = np.array(sizes), STATISTICS[name]
    count = np.round(size * pooled).astype(np.int64)
    rate, share = count.sum() / size.sum(), size[-1] / size.sum()
    of_test = {"parity": parity_of(statistic), "ratio": statistic is not PARITY}
    of_audits = (permuted(count, size, [audit, 1]) for audit in range(AUDITS))
    all_told = [detectable_value(*each, statistic.value, apart=len(size) - 1, **of_test) for each in of_audits]
    found = np.array([each[level] for each in all_told], np.float64)
    if np.isnan(found).mean() <= 0.5:
        return rates_with(statistic, float(np.nanmean(found)), size, rate), True
    is_apart, sign = np.arange(len(size)) == len(size) - 1, 1.0 if rate <= 0.5 else -1.0
    least = (LEAST_EVENTS if statistic is not PARITY else 0.0) / size.min()
    most = min((rate if sign > 0 else 1 - rate) / share, (1 - rate if sign > 0 else rate) / (1 - share)) - least / share
    apart = min(12 * np.sqrt(rate * (1 - rate) / (size[-1] * (1 - share))), most)
    return rate + sign * apart * (is_apart - share), False


def counts(seed: int, *, sizes: tuple[int, ...], pooled: float, name: str, level: int) -> dict[str, Drawn]:
    """Draw counts of groups of which one is apart by what is told."""
    (rates, told), size, statistic = told_of_counts(sizes, pooled, name, level), np.array(sizes), STATISTICS[name]
    sign = 1 if parity_of(statistic) == 0 else -1
    count = np.random.default_rng([seed, 2]).binomial(size, rates)
    value = statistic.value(count[None, None], size[None, None])
    null = statistic.value(*permuted(count, size, [seed, 3]))
    p = float(upper_p_values(sign * value, sign * null[None])[0])
    return {name if told else f"{name}, where none is told": _found(p, level, told=told)}


def _found(p: float, level: int, *, told: bool = True) -> Drawn:
    return Drawn(p=0.0 if p <= LEVELS[level] else 1.0, told=told)


# --- Images in sets: shares of 60 people of three races, ten images a race, that differ between person and race.

PEOPLE, IMAGES, RACES, LIKENESS = 60, 10, 3, 0.2


def _people(
    seed: object, rates: NDArray[np.float64]
) -> tuple[ClusterPermutation, NDArray[np.int64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    spread = (1 - LIKENESS) / LIKENESS
    of_block = rng.beta(rates * spread, (1 - rates) * spread, (PEOPLE, len(rates)))
    outcome = (rng.random((PEOPLE, len(rates), IMAGES)) >= of_block[..., None]).astype(np.int64).ravel()
    groups = np.tile(np.repeat(np.arange(len(rates)), IMAGES), PEOPLE)
    return ClusterPermutation.of(groups, np.repeat(np.arange(PEOPLE), len(rates) * IMAGES)), groups, outcome


def _dealt(permutation: ClusterPermutation, outcome: NDArray[np.int64], seed: object) -> tuple[NDArray[np.int64], ...]:
    rng = np.random.default_rng(seed)
    tables = permutation.tables(outcome, n_groups=RACES, n_outcomes=2, permutations=2_500, rng=rng)
    return tables[:, None, :, 0], tables.sum(axis=-1)[:, None]


@cache
def _told_of_people(level: int) -> NDArray[np.float64]:
    found = []
    for seed in range(AUDITS):
        permutation, _, outcome = _people([seed, 11], np.full(RACES, 0.2))
        dealt = _dealt(permutation, outcome, [seed, 12])
        found.append(detectable_value(*dealt, PARITY.value, apart=RACES - 1, clusters=PEOPLE)[level])
    return rates_with(PARITY, float(np.mean(found)), np.full(RACES, PEOPLE * IMAGES), 0.2)


def people(seed: int, *, level: int) -> dict[str, Drawn]:
    """Draw images in sets, tested by blocks."""
    permutation, groups, outcome = _people([seed, 13], _told_of_people(level))
    null = PARITY.value(*_dealt(permutation, outcome, [seed, 14]))
    count = np.bincount(groups[outcome == 0], minlength=RACES)
    value = PARITY.value(count[None, None], np.full((1, 1, RACES), PEOPLE * IMAGES))
    return {"parity_difference of sets": _found(float(upper_p_values(value, null[None])[0]), level)}


# --- Means of scores.

GROUPS, SETS = 4, 80


def _mean_gap(seed: object, apart: float) -> object:
    rng = np.random.default_rng(seed)
    values, groups = rng.standard_normal(GROUPS * SETS), np.repeat(np.arange(GROUPS), SETS)
    values[groups == GROUPS - 1] += apart
    draws = {"n_groups": GROUPS, "resamples": 20, "permutations": 2_500, "rng": rng}
    return group_gap(values, groups, np.arange(len(values)), **draws)


@cache
def _told_mean(level: int) -> float:
    return float(np.mean([_mean_gap([seed, 21], 0.0).detectable[level] for seed in range(AUDITS)]))


def mean_scores(seed: int, *, level: int) -> dict[str, Drawn]:
    """Draw scores of sets of which one group is higher."""
    return {"gap of mean scores": _found(_mean_gap([seed, 22], _told_mean(level)).p, level)}


# --- The same where images come in sets, and one group is in half of the sets mostly, in which everything is higher.

IN_SETS, HIGHER, OFTEN = 60, 0.15, 5
SETS_OF = {1: "higher", -1: "lower"}


@cache
def _in_sets(images: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return group, set, whether the set is a higher one, and how far the image is moved by a difference of 1.

    The last group is in all of the higher sets, and in every fifth of the others. It is moved up and the others of its
    sets down, so that sets stay what they are.
    """
    has_last = np.array([i < IN_SETS // 2 or i % OFTEN == 0 for i in range(IN_SETS)])
    of_set, group = np.nonzero(has_last[:, None] | (np.arange(RACES) < RACES - 1))
    moved = (group == RACES - 1) - has_last[of_set] / RACES
    group, of_set, moved = (np.repeat(each, images) for each in (group, of_set, moved))
    return group, of_set, (of_set < IN_SETS // 2).astype(np.int64), moved


def _shift_for(told: float, kind: str, level: NDArray[np.float64], way: int) -> float:
    """Return by how much the last group is moved (1 up, -1 down) where the gap between groups is what is told."""
    group, _, higher, moved = _in_sets(1)
    means, by = (np.array([each[group == race].mean() for race in range(RACES)]) for each in (level[higher], moved))
    low, high = 0.0, 6.0
    for _ in range(40):
        apart = (low + high) / 2
        at = means + way * apart * by
        gap = at.max() / at.min() if kind == "ratio" else np.ptp(at)
        low, high = (apart, high) if gap < told else (low, apart)
    return (low + high) / 2


SCORES = np.array([10.0, 12.0])
"""Mean scores of sets: those in which the last group is in few, and in all. With the way -1 they change places."""


def _gap_in_sets(seed: object, apart: float, kind: str, way: int) -> object:
    rng = np.random.default_rng(seed)
    group, of_set, higher, moved = _in_sets(1)
    values = SCORES[::way][higher] + rng.standard_normal(IN_SETS)[of_set] + rng.standard_normal(len(group))
    values += way * apart * moved
    return group_gap(values, group, of_set, n_groups=RACES, resamples=20, permutations=2_500, rng=rng, kind=kind)


@cache
def _apart_in_sets(kind: str, level: int, way: int) -> float:
    told = np.mean([_gap_in_sets([seed, 61], 0.0, kind, way).detectable[level] for seed in range(AUDITS)])
    return _shift_for(float(told), kind, SCORES[::way], way)


def scores_in_sets(seed: int, *, kind: str, level: int, way: int) -> dict[str, Drawn]:
    """Draw scores of images in sets, of which one group's are apart."""
    p = _gap_in_sets([seed, 62], _apart_in_sets(kind, level, way), kind, way).p
    return {f"gap of mean scores in sets, {kind}": _found(p, level)}


OF_SET, OF_CLASS, RIGHT = 8, "by_class a", 0.3
OF_GAPS = MetricSettings(resamples=100, permutations=2_500)


def _recognition(seed: int, use: int, apart: float, way: int) -> dict[str, Mapping[str, Any]]:
    """Draw which images of two classes are recognised; return the rows of the gaps by definition and class."""
    rng, (group, of_set, higher, moved) = np.random.default_rng([seed, use]), _in_sets(OF_SET)
    spread, blocks = (1 - LIKENESS) / LIKENESS, len(group) // OF_SET
    codes, correct = [], []
    for of_class in range(2):
        rates = RIGHT + way * (HIGHER * (2 * higher - 1) + apart * moved)
        rate = np.repeat(rng.beta(*(each[::OF_SET] * spread for each in (rates, 1 - rates)), blocks), OF_SET)
        codes.append(of_class * RACES + group)
        correct.append(rng.random(len(group)) < rate)
    names = tuple(f"{of_class}, {race}" for of_class in "ab" for race in range(RACES))
    groups = Groups("race", names, np.concatenate(codes))
    wrong = 1 - np.concatenate(correct).astype(np.int64)
    outcomes = ClassStratifiedOutcomes(groups, wrong, np.array([[1, 0]]), np.tile(of_set, 2), 2)
    named = {"model": f"{seed} {use * way}", "dataset": "drawn", "suite": "classes", "attribute": "race"}
    rows = gap_rows(named, ("a", "b"), outcomes, OF_GAPS)
    return {f"{row['definition']} {row.get('event', '')}".strip(): row for row in rows}


@cache
def _recognition_apart(name: str, level: int, way: int) -> float:
    told = [_recognition(seed, 71, 0.0, way)[name][COLUMNS[level]] for seed in range(AUDITS)]
    return _shift_for(float(np.mean(told)), "difference", RIGHT + way * HIGHER * np.array([-1.0, 1.0]), way)


def recognition(seed: int, *, name: str, level: int, way: int) -> dict[str, Drawn]:
    """Draw recognition of two classes in which one group is better recognised."""
    row = _recognition(seed, 72, _recognition_apart(name, level, way), way)[name]
    return {f"equal_opportunity_gap in sets, {name}": _found(row["p"], level)}


SIZES = (200, 150, 100, 80, 80, 60, 40)


def _bias_gap(seed: object, apart: float) -> object:
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(SIZES)), SIZES)
    values = rng.standard_normal(len(codes)) + apart * (codes == len(SIZES) - 1)
    return gap_of_codes(values, codes, tuple(map(str, range(len(SIZES)))))


@cache
def _told_bias_gap(level: int) -> float:
    return float(np.mean([_bias_gap([seed, 31], 0.0).detectable[level] for seed in range(AUDITS)]))


def bias_gap(seed: int, *, level: int) -> dict[str, Drawn]:
    """Draw directional biases of which one group's is higher."""
    return {"directional_bias_gap": _found(_bias_gap([seed, 32], _told_bias_gap(level)).p, level)}


# --- Rankings.

RANKED, K = (400, 300, 300), 150
SETTINGS = MetricSettings(resamples=200, permutations=PERMUTATIONS)


def _ranking(seed: object, apart: float, group: int) -> RankedGroups:
    codes = np.repeat(np.arange(len(RANKED)), RANKED)
    scores = np.random.default_rng(seed).standard_normal(len(codes)) + apart * (codes == group)
    return RankedGroups(np.argsort(-scores)[None], codes, len(RANKED))


def _largest_skew(seed: object, apart: float, desired: str, group: int) -> object:
    top = sample_top(_ranking(seed, apart, group), k=K, settings=SETTINGS, labels=["power"], with_totals=True)
    return skew_estimates(top, desired).largest[0]


@cache
def _shift_of_skew(desired: str, group: int, level: int) -> float:
    """Return by how many standard deviations the scores of a group lie higher where MaxSkew@k is what is told."""
    told = _largest_skew(41, 0.0, desired, group).detectable[level]
    n = sum(RANKED)
    share = np.exp(told) * (1 / len(RANKED) if desired == "equal" else RANKED[group] / n)
    above, others = share * K / RANKED[group], (1 - share) * K / (n - RANKED[group])
    return float(stats.norm.isf(others) - stats.norm.isf(above))


def top_of_ranking(seed: int, *, desired: str, group: int, level: int) -> dict[str, Drawn]:
    """Draw rankings that prefer a group, and test their k best."""
    p = _largest_skew([seed, 42], _shift_of_skew(desired, group, level), desired, group).p
    return {f"max_skew_at_k {desired}": _found(p, level)}


def _ndkl(seed: object, apart: float, desired: str, group: int) -> object:
    return ndkl_estimates(_ranking(seed, apart, group), desired, settings=SETTINGS).estimate[0]


@cache
def _shift_of_ndkl(desired: str, group: int, level: int) -> float:
    told, low, high = _ndkl(51, 0.0, desired, group).detectable[level], 0.0, 3.0
    for step in range(9):
        apart = (low + high) / 2
        mean = np.mean([_ndkl([seed, step, 52], apart, desired, group).value for seed in range(60)])
        low, high = (apart, high) if mean < told else (low, apart)
    return (low + high) / 2


def whole_ranking(seed: int, *, desired: str, group: int, level: int) -> dict[str, Drawn]:
    """Draw rankings that prefer a group, and test all of them."""
    return {
        f"ndkl {desired}": _found(_ndkl([seed, 53], _shift_of_ndkl(desired, group, level), desired, group).p, level)
    }


def _cells() -> tuple[Cell, ...]:
    cells = []
    for sizes, pooled, statistic in COUNTED:
        for level, p in enumerate(LEVELS):
            asked = f"{statistic.metric} {statistic.definition}"
            name = f"{len(sizes)} groups, {sizes[0]} images, {pooled:.0%}, {asked}, p {p:g}"
            draw = partial(counts, sizes=sizes, pooled=pooled, name=asked, level=level)
            cells.append(Cell(name, draw))
    for level, p in enumerate(LEVELS[:2]):
        cells.append(Cell(f"{PEOPLE} people, {IMAGES} images a race, p {p:g}", partial(people, level=level)))
        cells.append(Cell(f"mean scores of {SETS} sets a group, p {p:g}", partial(mean_scores, level=level)))
        for kind, way in (("difference", 1), ("difference", -1), ("ratio", 1)):
            draw = partial(scores_in_sets, kind=kind, level=level, way=way)
            cells.append(Cell(f"mean scores, a group in {SETS_OF[way]} sets, {kind}, p {p:g}", draw))
        # The largest gap of the classes is not here: without a difference it is what the drawn sets make of it.
        for name, way in (("mean_over_classes", 1), (OF_CLASS, 1), (OF_CLASS, -1)):
            draw = partial(recognition, name=name, level=level, way=way)
            cells.append(Cell(f"recognition, a group in {SETS_OF[way]} sets, {name}, p {p:g}", draw))
        for desired, group in (("equal", 0), ("ranked", 1)):
            of_ranking = {"desired": desired, "group": group, "level": level}
            name = f"ranking of {sum(RANKED)}, {desired}, p {p:g}"
            cells.append(Cell(f"top of a {name}", partial(top_of_ranking, **of_ranking)))
            cells.append(Cell(f"whole {name}", partial(whole_ranking, **of_ranking)))
    cells += [Cell(f"directional bias, p {p:g}", partial(bias_gap, level=i)) for i, p in enumerate(LEVELS)]
    return tuple(cells)


BLOCK = Block(
    title="Power: is what is told as detectable found by four of five?",
    cells=_cells(),
    worlds=400,
    few=("2 groups, 400 images, 10%, max_skew mean_over_pairs, p 0.05", "directional bias, p 0.0001"),
    power=(0.75, 0.85),
)
