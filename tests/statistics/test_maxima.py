"""Intervals of maxima over groups: known answers, a slow oracle, and what each end promises."""

import itertools

import numpy as np
import pytest
from scipy import stats

from plumbline.metrics.disparities import RANGE_STATISTICS, SKEW_STATISTICS
from plumbline.statistics import Disparity, bca, estimate_disparity, jackknife_tables, permute_tables, resample_tables
from plumbline.statistics.maxima import beyond_chance, largest_difference, largest_low, t_quantile
from plumbline.statistics.permutation import p_value

STATISTICS = {f"{each.metric} {each.definition}": each for each in (*SKEW_STATISTICS, *RANGE_STATISTICS)}


def as_events(tables):
    return np.stack([tables[..., 0], tables.sum(axis=-1)], axis=-2)


def draws(events, totals, seed=0, resamples=600):
    """Return a (g, 2) table, its resamples and its permutations."""
    table = np.stack([np.array(events), np.array(totals) - np.array(events)], axis=1)
    rng = np.random.default_rng(seed)
    return (
        table,
        resample_tables(table, resamples=resamples, rng=rng),
        permute_tables(table, permutations=resamples - 1, rng=rng),
    )


def estimate(table, resampled, permuted, disparity, **settings):
    return estimate_disparity(
        as_events(table),
        disparity,
        resampled=as_events(resampled),
        permuted=as_events(permuted),
        jackknife=lambda of_events: jackknife_tables(table, lambda tables: of_events(as_events(tables))),
        **settings,
    )


def test_a_clear_largest_difference_has_its_own_t_interval():
    ends = largest_difference([9.0, 1.0, 0.5], [1.0, 1.0, 1.0], df=7)
    assert ends == pytest.approx((9 - stats.t.ppf(0.975, 7), 9 + stats.t.ppf(0.975, 7)))


def test_differences_that_may_be_the_largest_are_counted():
    # The second may be the largest, the third not; of two that may be none, each sign counts.
    low, high = largest_difference([9.0, 8.5, 0.5], [1.0, 1.5, 1.0])
    assert low == pytest.approx(9 - stats.norm.ppf(1 - 0.025 / 2))
    assert high == pytest.approx(8.5 + 1.5 * stats.norm.ppf(0.975))
    low, high = largest_difference([0.5, 0.2], [1.0, 1.0])
    assert low == pytest.approx(0.5 - stats.norm.ppf(1 - 0.025 / 4)) and high == pytest.approx(0.5 + 1.959964)


def test_t_quantiles_are_normal_at_infinite_degrees_of_freedom():
    assert t_quantile(0.025, [np.inf, 3.0]) == pytest.approx([1.959964, stats.t.ppf(0.975, 3)])


@pytest.mark.parametrize("scale", ["difference", "relative", "ratio"])
def test_what_chance_leaves_is_positive_exactly_where_the_test_rejects(scale):
    rng = np.random.default_rng(0)
    for _ in range(200):
        chance, value = rng.random(99), rng.random()
        side = "less" if scale == "ratio" else "greater"
        left = beyond_chance(value, chance, scale=scale, confidence=0.95)
        assert (left > 0) == (p_value(value, chance, alternative=side) <= 0.05)
        assert left <= (1 - value if scale == "ratio" else value)


def test_what_chance_leaves_by_hand():
    chance = np.arange(1, 20) / 100
    assert beyond_chance(0.5, chance, scale="difference", confidence=0.95) == pytest.approx(0.5 - 0.19)
    assert beyond_chance(0.5, chance, scale="relative", confidence=0.95) == pytest.approx(1.5 / 1.19 - 1)
    # Of ratios the smallest, 0.01, is the most extreme: no smaller ratio than 0.001 is 0.1 of it.
    assert beyond_chance(0.001, chance, scale="ratio", confidence=0.95) == pytest.approx(1 - 0.1)
    assert beyond_chance(0.5, chance[:5], scale="difference", confidence=0.95) == 0


def slow_bounds(table, resampled, value, *, mean, logarithms):
    """Return lower and upper bound, pair by pair and draw by draw."""

    def level(events, size):
        return np.log((events + 0.5) / (size + 1)) if logarithms else events / size

    def away(u):
        return np.exp(u) - 1 if logarithms else u

    groups, size = range(len(table)), table.sum(axis=1)
    levels = [level(table[g, 0], size[g]) for g in groups]
    errors = [[level(draw[g, 0], size[g]) - levels[g] for g in groups] for draw in resampled]
    pairs = [(a, b) if levels[a] >= levels[b] else (b, a) for a, b in itertools.combinations(groups, 2)]
    apart = {(a, b): levels[a] - levels[b] for a, b in pairs}
    se = {(a, b): np.std([e[a] - e[b] for e in errors], ddof=1) for a, b in pairs}
    wide = {pair: stats.norm.ppf(1 - 0.025 / len(pairs)) * se[pair] for pair in pairs}
    if not mean:
        least = max(apart[p] - wide[p] for p in pairs)
        own = [p for p in pairs if apart[p] + wide[p] >= least]
        turned = [p for p in pairs if wide[p] - apart[p] >= least]
        several = stats.norm.ppf(1 - 0.025 / (len(own) + len(turned)))
        low = max(apart[p] - several * se[p] for p in own)
        return away(low), max(away(apart[p] + stats.norm.ppf(0.975) * se[p]) for p in own)
    centre = {p: 0.0 if apart[p] <= wide[p] else apart[p] for p in pairs}
    excess, moved = [], []
    for e in errors:
        noise = {(a, b): e[a] - e[b] for a, b in pairs}
        most = {p: abs(noise[p]) if centre[p] == 0 else centre[p] + noise[p] for p in pairs}
        excess.append(np.mean([away(most[p]) - away(centre[p]) for p in pairs]))
        moved.append(np.mean([away(apart[p] + noise[p]) - away(apart[p]) for p in pairs]))
    return value - np.quantile(excess, 0.975), value - np.quantile(moved, 0.025)


@pytest.mark.parametrize("events", [[60, 61, 64, 95], [30, 42, 60, 84], [60, 60, 90, 91]], ids=str)
@pytest.mark.parametrize("name", STATISTICS)
def test_the_ends_are_those_of_the_slow_bounds(events, name):
    table, resampled, permuted = draws(events, [200] * 4)
    statistic = STATISTICS[name]
    disparity = statistic.disparity_of_events()
    found = estimate(table, resampled, permuted, disparity)
    assert found.p <= 0.05
    replicates, left_out = (
        disparity.value(as_events(resampled)),
        jackknife_tables(table, lambda tables: disparity.value(as_events(tables))),
    )
    plain = bca(found.value, replicates, acceleration=float(left_out.acceleration))
    relative = found.value if statistic.scale != "ratio" else 1 / found.value - 1
    low, high = slow_bounds(
        table, resampled, relative, mean=statistic.over == "pairs", logarithms=statistic.scale != "difference"
    )
    least = beyond_chance(found.value, disparity.value(as_events(permuted)), scale=statistic.scale, confidence=0.95)
    if statistic.scale == "ratio":
        low, high = 1 / (1 + high), 1 / (1 + low)
        near = max(plain.ci_high, high)
        expected = min(plain.ci_low, low), near if near < 1 else 1 - least
    else:
        near = min(plain.ci_low, low)
        expected = near if near > 0 else least, max(plain.ci_high, high)
    assert (found.ci_low, found.ci_high) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("groups", [2, 7, 14])
def test_an_interval_holds_parity_exactly_where_the_test_does_not_reject(name, groups):
    disparity = STATISTICS[name].disparity_of_events()
    rng, rejected = np.random.default_rng(groups), 0
    for seed in range(40):
        events = rng.binomial(60, 0.3 * 1.6 ** np.linspace(0, 1, groups))
        found = estimate(*draws(events, [60] * groups, seed, resamples=200), disparity)
        assert (found.ci_low <= disparity.parity <= found.ci_high) == (found.p > 0.05)
        assert found.ci_low <= found.value <= found.ci_high
        rejected += found.p <= 0.05
    assert 0 < rejected < 40


def test_a_group_without_the_event_has_the_errors_of_permutations():
    """Its resamples never have the event: taken for certain, it would move the lower end up."""
    table, resampled, permuted = draws([0, 12, 14, 15, 16], [60] * 5)
    disparity = STATISTICS["max_skew smoothed"].disparity_of_events()
    found = estimate(table, resampled, permuted, disparity)
    taken_for_certain, _ = slow_bounds(table, resampled, found.value, mean=True, logarithms=True)
    assert found.p <= 0.05 and 0 < found.ci_low < 0.9 * taken_for_certain


def test_a_mean_over_strata_and_the_largest_of_all_strata():
    """Two strata with the same counts: the mean has the value of one, and both sides of each end have two strata."""
    table, resampled, permuted = draws([20, 60], [100, 100])
    twice = [np.concatenate([each, each], axis=-2) for each in (table, resampled, permuted)]

    def rates(tables):
        events = tables.reshape(*tables.shape[:-2], 2, 2, 2)
        return events[..., 0] / events.sum(axis=-1)

    def gaps(tables):
        return np.ptp(rates(tables), axis=-1)

    one = estimate(table, resampled, permuted, STATISTICS["parity_difference max_minus_min"].disparity_of_events())
    for disparity in (
        Disparity(lambda tables: gaps(tables).mean(axis=-1), rates),
        Disparity(lambda tables: gaps(tables).max(axis=-1), rates, over="all"),
    ):
        found = estimate_disparity(twice[0], disparity, resampled=twice[1], permuted=twice[2])
        assert found.value == pytest.approx(0.4) and found.ci_low <= one.ci_low + 0.02
        assert found.ci_high == pytest.approx(one.ci_high, abs=0.02)


def test_few_clusters_have_the_t_quantile_of_their_number():
    table, resampled, permuted = draws([30, 60], [100, 100], resamples=2000)
    disparity = STATISTICS["parity_difference max_minus_min"].disparity_of_events()
    many, few = (estimate(table, resampled, permuted, disparity, clusters=c) for c in (None, 6))
    error = as_events(resampled)[:, 0].astype(float) @ [-0.01, 0.01]
    high = 0.3 + stats.t.ppf(0.975, 5) * error.std(ddof=1) * np.sqrt(6 / 5)
    assert few.ci_high == pytest.approx(high) and few.ci_high > many.ci_high and few.ci_low < many.ci_low


def test_the_bias_of_an_estimate_is_reported_where_it_matters():
    disparity = STATISTICS["max_skew mean_over_pairs"].disparity_of_events()
    alike = estimate(*draws([40, 44, 38, 41, 45, 39, 42], [200] * 7), disparity)
    bias = next(one for one in alike.reason if one.code == "biased_upwards").params["bias"]
    # Two log rates of 200 images at 20% lie 2 / sqrt(pi) of one's standard error apart on average.
    assert bias == pytest.approx(2 / np.sqrt(np.pi) * np.sqrt(0.8 / 0.2 / 200), rel=0.25)
    clear = estimate(*draws([20, 40, 80, 160], [200] * 4), disparity)
    assert clear.p <= 0.05 and clear.reason == ()


def test_the_lower_end_of_the_largest_of_several_values():
    """Two of three may be the largest: Bonferroni's quantile for two, of the better of them; nothing of the absent."""
    value, error = np.array([[3.0, 2.5, -2.0], [3.0, -np.inf, -2.0]]), np.array([[1.0, 0.4, 1.0], [1.0, 0.0, 1.0]])
    low = largest_low(value, error, confidence=0.95)
    assert low == pytest.approx([2.5 - 0.4 * stats.norm.ppf(1 - 0.0125), 3 - 1.959964])
