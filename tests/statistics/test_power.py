"""The difference that is told as detectable is found by 76-84% of simulated audits; the p that an audit requires."""

import numpy as np
import pytest
from scipy import stats

from plumbline.metrics.disparities import PARITY, RANGE_STATISTICS, SKEW_STATISTICS, planned_detectable
from plumbline.statistics.multiplicity import q_values
from plumbline.statistics.permutation import permute_strata, permute_tables
from plumbline.statistics.power import LEVELS, detectable_value, effect_size, required_p, value_at

MEAN_SKEW, MAX_SKEW, _ = SKEW_STATISTICS
RATIO = RANGE_STATISTICS[1]
WORLDS = 1000
NAN = np.nan


def parity_of(statistic):
    return 1.0 if statistic.scale == "ratio" else 0.0


def events(tables):
    return np.stack([tables[..., 0], tables.sum(axis=-1)], axis=-2)


def two_columns(count, size):
    return np.stack([count, size - count], axis=-1)


def rates_with(statistic, value, size, pooled):
    """Return the rates at which the statistic has a value: the last group apart, and the pooled rate as it is."""
    share = size[-1] / size.sum()
    low, high = 0.0, min((1 - pooled) / (1 - share), pooled / share) if pooled <= 0.5 else min(1, pooled / share)
    for _ in range(60):
        apart = (low + high) / 2 * (1 if pooled <= 0.5 else -1)
        rates = np.full(len(size), pooled - apart * share)
        rates[-1] += apart
        short = abs(statistic.of_events(np.stack([rates * size, size])[None])[0] - parity_of(statistic))
        low, high = (abs(apart), high) if short < abs(value - parity_of(statistic)) else (low, abs(apart))
    return rates


def power(statistic, draw, permute, level, permutations):
    sign, found = 1 if parity_of(statistic) == 0 else -1, 0
    for _ in range(WORLDS):
        table = draw()
        value = sign * statistic.of_events(events(table)[None])[0]
        null = sign * statistic.of_events(events(permute(table, permutations)))
        found += (1 + (null >= value - 1e-12).sum()) / (1 + permutations) <= level
    return found / WORLDS


@pytest.mark.parametrize(
    ("sizes", "pooled", "statistic"),
    [
        ([400, 300], 0.1, MEAN_SKEW),
        ([900, 300, 300, 240], 0.2, MAX_SKEW),
        ([1000] * 6 + [800], 0.02, PARITY),
        ([100] * 6 + [80], 0.4, MEAN_SKEW),
        ([300] * 4 + [240], 0.7, RATIO),
    ],
)
def test_the_difference_that_is_told_is_found_by_four_in_five(sizes, pooled, statistic):
    rng, size = np.random.default_rng(1), np.array(sizes)
    count = np.round(size * pooled).astype(int)
    pooled = count.sum() / size.sum()
    shuffled = events(permute_tables(two_columns(count, size), permutations=10_000, rng=rng))
    ratio = statistic is not PARITY
    told = detectable_value(
        shuffled, statistic.of_events, apart=len(size) - 1, parity=parity_of(statistic), ratio=ratio
    )
    rates = rates_with(statistic, told.at_05, size, pooled)

    def draw():
        return two_columns(rng.binomial(size, rates), size)

    def permute(table, permutations):
        return permute_tables(table, permutations=permutations, rng=rng)

    assert 0.76 <= power(statistic, draw, permute, LEVELS[0], 1_000) <= 0.84


def test_two_groups_are_told_what_the_normal_approximation_tells():
    size, pooled = np.array([5000, 5000]), 0.3
    table = two_columns((size * pooled).astype(int), size)
    shuffled = events(permute_tables(table, permutations=20_000, rng=np.random.default_rng(2)))
    told = detectable_value(shuffled, PARITY.of_events, apart=1)
    error = np.sqrt(pooled * (1 - pooled) * 2 / 5000)
    np.testing.assert_allclose(told, effect_size(LEVELS) * error, rtol=0.06)
    assert effect_size(0.05) == pytest.approx(1.959964 + 0.841621, abs=1e-5)


def test_images_that_share_an_answer_find_less():
    rng = np.random.default_rng(3)
    size = np.array([1200, 1200])
    single = events(permute_tables(two_columns(size // 10, size), permutations=5_000, rng=rng))
    # Four images of one person and one group, all with one answer: a quarter of the independent images.
    in_fours = 4 * events(permute_tables(two_columns(size // 40, size // 4), permutations=5_000, rng=rng))
    alone, together = (detectable_value(each, PARITY.of_events, apart=1).at_05 for each in (single, in_fours))
    assert 1.7 < together / alone < 2.4


def test_what_cannot_be_found_is_nan():
    few = events(permute_tables([[2, 48], [2, 48]], permutations=2_000, rng=np.random.default_rng(4)))
    assert np.isnan(detectable_value(few, MEAN_SKEW.of_events, apart=1, ratio=True)).all()
    never = events(permute_tables([[0, 50], [0, 50]], permutations=2_000, rng=np.random.default_rng(4)))
    assert np.isnan(detectable_value(never, PARITY.of_events, apart=1)).all()
    some = events(permute_tables([[20, 80], [20, 80]], permutations=1_000, rng=np.random.default_rng(4)))
    at_05, at_002 = detectable_value(some, PARITY.of_events, apart=1)
    assert at_05 > 0 and np.isnan(at_002), "two of 1,000 permutations tell nothing of p = .002"


def test_strata_and_the_smaller_group_count():
    rng = np.random.default_rng(5)
    strata = np.array([[[5, 95], [45, 55]], [[90, 10], [60, 40]]])
    shuffled = events(permute_strata(strata, permutations=5_000, rng=rng).sum(axis=1))
    whole = events(permute_tables(strata.sum(axis=0), permutations=5_000, rng=rng))
    by_strata, by_all = (detectable_value(each, PARITY.of_events, apart=1).at_05 for each in (shuffled, whole))
    assert by_strata < by_all, "labels shuffled within strata err less"


def test_values_between_and_beyond_the_two_levels():
    np.testing.assert_allclose(value_at(LEVELS, 0.2, 0.3), [0.2, 0.3])
    assert value_at(0.01, 0.2, 0.3) == pytest.approx(np.clip(value_at(0.01, 0.2, 0.3), 0.2, 0.3))
    assert value_at(LEVELS[1], 0.8, 0.7, parity=1.0) == pytest.approx(0.7)
    first = np.log1p(0.2) * effect_size(0.01) / effect_size(0.05)
    assert value_at(0.01, 0.2, NAN) == pytest.approx(np.expm1(first))
    assert np.isnan(value_at(0.01, NAN, NAN)) and np.isnan(value_at(NAN, 0.2, 0.3))


def largest_rejected(p, i, level=0.05):
    """Return the largest p of test i that Benjamini-Hochberg rejects, by trying."""
    grid = level * np.arange(1, len(p) + 1) / len(p)
    tried = [g for g in grid if q_values(np.r_[p[:i], g, p[i + 1 :]])[i] <= level + 1e-12]
    return max(tried)


@pytest.mark.parametrize("seed", range(20))
def test_the_p_that_a_test_would_have_needed(seed):
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(12) < 0.4, rng.random(12) * 0.02, rng.random(12))
    required = required_p(p)
    for i in np.flatnonzero(q_values(p) > 0.05):
        assert required[i] == pytest.approx(largest_rejected(p, i))


def test_required_p_counts_the_tests_that_were_made():
    np.testing.assert_allclose(required_p([0.9, NAN, 0.8]), [0.025, NAN, 0.025])
    np.testing.assert_allclose(required_p([1e-6, 1e-6, 0.9]), [0.05 * 2 / 3, 0.05 * 2 / 3, 0.05])
    assert len(required_p([])) == 0


def test_power_of_the_normal_test():
    """Cohen (1988), table 2.3.5: two groups of 64, d = 0.5, two-sided 5%: power .80."""
    d = float(effect_size(0.05)) * np.sqrt(2 / 64)
    assert d == pytest.approx(0.5, abs=0.01)
    assert stats.norm.sf(stats.norm.isf(0.025) - float(effect_size(0.05))) == pytest.approx(0.8, abs=1e-3)


def test_a_plan_tells_what_the_test_of_two_shares_finds():
    sizes = np.array([4000, 1000])
    _, parity = planned_detectable(sizes, rate=0.3, level=0.001)
    error = np.sqrt(0.3 * 0.7 * (1 / 4000 + 1 / 1000))
    assert parity == pytest.approx(effect_size(0.001) * error, rel=0.06)
    small, large = (planned_detectable(np.array([n, n]), rate=0.1, level=0.05)[0] for n in (200, 800))
    assert 0 < large < small
    assert np.isnan(planned_detectable(np.array([20, 20]), rate=0.1, level=0.001)[0])
