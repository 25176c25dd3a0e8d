"""What a test finds: known answers; benchmarks/calibration/power.py simulates that four of five find it."""

import numpy as np
import pytest
from scipy import stats

from plumbline.metrics.disparities import PARITY, SKEW_STATISTICS, planned_detectable
from plumbline.metrics.equal_opportunity import mean_gap
from plumbline.statistics.cluster_gaps import group_gap
from plumbline.statistics.multiplicity import q_values
from plumbline.statistics.permutation import (
    critical_values,
    critical_values_elsewhere,
    permute_strata,
    permute_tables,
    strata_mixing,
    upper_p_values,
)
from plumbline.statistics.power import (
    LEVELS,
    detectable_by_f,
    detectable_gap,
    detectable_of,
    detectable_value,
    effect_size,
    required_p,
    value_at,
)

MEAN_SKEW = SKEW_STATISTICS[0]
NAN = np.nan


def two_columns(count, size):
    return np.stack([count, size - count], axis=-1)


def of_counts(tables, statistic, **options):
    return detectable_value(tables[..., 0][:, None], tables.sum(axis=-1)[:, None], statistic.value, **options)


def test_two_groups_are_told_what_the_normal_approximation_tells():
    size, pooled = np.array([5000, 5000]), 0.3
    table = two_columns((size * pooled).astype(int), size)
    shuffled = permute_tables(table, permutations=20_000, rng=np.random.default_rng(2))
    told = of_counts(shuffled, PARITY, apart=1)
    error = np.sqrt(pooled * (1 - pooled) * 2 / 5000)
    np.testing.assert_allclose(told[:3], effect_size(LEVELS[:3]) * error, rtol=0.06)
    assert effect_size(0.05) == pytest.approx(1.959964 + 0.841621, abs=1e-5)


def test_images_that_share_an_answer_find_less():
    rng = np.random.default_rng(3)
    size = np.array([1200, 1200])
    single = permute_tables(two_columns(size // 10, size), permutations=5_000, rng=rng)
    # Four images of one person and one group, all with one answer: a quarter of the independent images.
    in_fours = 4 * permute_tables(two_columns(size // 40, size // 4), permutations=5_000, rng=rng)
    alone, together = (of_counts(each, PARITY, apart=1).at_05 for each in (single, in_fours))
    assert 1.7 < together / alone < 2.4


def test_what_cannot_be_found_is_nan():
    def told(table, permutations, statistic=PARITY, **options):
        drawn = permute_tables(table, permutations=permutations, rng=np.random.default_rng(4))
        return of_counts(drawn, statistic, apart=1, **options)

    assert np.isnan(told([[2, 48], [2, 48]], 2_000, MEAN_SKEW, ratio=True)).all()
    assert np.isnan(told([[0, 50], [0, 50]], 2_000)).all()
    at_05, at_002, *beyond = told([[20, 80], [20, 80]], 1_000)
    assert 0 < at_05 < at_002 and np.isnan(beyond).all(), "no p of 1,000 permutations of few values is .0001"
    assert np.isnan(told([[20, 80], [20, 80]], 1_000, least_p=0.04).at_002), "nor one below the least p of the sets"


def test_strata_and_the_smaller_group_count():
    rng = np.random.default_rng(5)
    strata = np.array([[[5, 95], [45, 55]], [[90, 10], [60, 40]]])
    shuffled = permute_strata(strata, permutations=5_000, rng=rng).sum(axis=1)
    whole = permute_tables(strata.sum(axis=0), permutations=5_000, rng=rng)
    by_strata, by_all = (of_counts(each, PARITY, apart=1).at_05 for each in (shuffled, whole))
    assert by_strata < by_all, "labels shuffled within strata err less"


def test_groups_of_other_strata_differ_without_any_difference_within_them():
    """Nine in ten of the second group are of scenes in which the event is frequent: a Max Skew of 3 is no effect."""
    rng, sizes, base = np.random.default_rng(13), np.array([[900, 100], [100, 900]]), np.array([0.05, 0.4])

    def rates(apart):
        """Return the rates by scene and group; those of the scenes stay what they are."""
        return base[:, None] + apart * (np.array([0, 1]) - sizes[:, 1:] / 1000)

    def audit(apart):
        table = two_columns(rng.binomial(sizes, rates(apart)), sizes)
        tables = permute_strata(table, permutations=2_500, rng=rng).sum(axis=1)
        whole = table.sum(axis=0)
        value, null = (
            MEAN_SKEW.value(each[..., 0].reshape(-1, 1, 2), each.sum(axis=-1).reshape(-1, 1, 2))
            for each in (whole, tables)
        )
        return tables, value, upper_p_values(value, null[None])[0]

    of_test = {"apart": 1, "ratio": True, "mixing": strata_mixing(sizes)}
    told = np.mean([of_counts(audit(0.0)[0], MEAN_SKEW, **of_test).at_05 for _ in range(200)])
    tried = np.linspace(0, 0.1, 200)
    events = [(rates(each) * sizes).sum(axis=0) for each in tried]
    skew = [second / first - 1 for first, second in events]
    assert skew[0] > 3, "where nothing differs"
    apart = np.interp(told, skew, tried)
    assert apart > 0 and np.mean([audit(apart)[2] <= 0.05 for _ in range(400)]) == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize("way", [1, -1])
def test_means_of_groups_in_other_sets_differ_without_any_difference_within_them(way):
    """The last group is mostly in sets in which every score is 3 higher, or lower: a gap of means of 1 is no effect."""
    sets, rng = 60, np.random.default_rng(15)
    places = [(g, s) for s in range(sets) for g in range(3) if g < 2 or s < sets // 2 or not s % 5]
    group, of_set = np.array(places).T
    base = 3.0 * way * (of_set < sets // 2) + rng.standard_normal(sets)[of_set]

    # The group is moved, and the others of its sets the other way: sets stay what they are.
    by = way * ((group == 2) - np.isin(of_set, of_set[group == 2]) / 3)

    def audit(apart):
        values = base + rng.standard_normal(len(base)) + apart * by
        return group_gap(values, group, of_set, n_groups=3, resamples=20, permutations=500, rng=rng)

    without, further = (np.ptp([each[group == g].mean() for g in range(3)]) for each in (base, by))
    told = np.mean([audit(0.0).detectable.at_05 for _ in range(10)])
    assert without > 0.9 and 0.2 < told - without < 0.8
    assert np.mean([audit((told - without) / further).p <= 0.05 for _ in range(150)]) == pytest.approx(0.8, abs=0.12)


def test_a_class_without_images_of_a_group_leaves_power_to_the_others():
    rng, whole, lacking = np.random.default_rng(16), np.array([100, 100, 100]), np.array([150, 150, 0])
    tables = [
        permute_tables(two_columns(size * 3 // 10, size), permutations=2_500, rng=rng) for size in (whole, lacking)
    ]
    both = np.stack(tables, axis=1)
    counts, sizes = both[..., 0], both.sum(axis=-1)
    alone = detectable_value(counts[:, :1], sizes[:, :1], mean_gap, apart=2).at_05
    beside = detectable_value(counts, sizes, mean_gap, apart=2).at_05
    assert 0.1 < alone < 0.3 and 0.05 < beside < 0.3


def test_a_class_that_all_groups_are_nearly_always_right_in_leaves_power_to_the_others():
    # Right in 99.9% and in 90% of 300 faces a gender: the first class can move by hardly a standard error.
    rng = np.random.default_rng(17)
    classes = np.array([[[300, 0], [299, 1]], [[270, 30], [270, 30]]])
    drawn = permute_strata(classes, permutations=5_000, rng=rng)
    counts, sizes = drawn[..., 0], drawn.sum(axis=-1)
    alone = detectable_value(counts[:, 1:], sizes[:, 1:], mean_gap, apart=1).at_05
    both = detectable_value(counts, sizes, mean_gap, apart=1).at_05
    assert 0.4 * alone < both < 0.7 * alone
    # Nothing that is possible in the first alone would be found.
    assert np.isnan(detectable_value(counts[:, :1], sizes[:, :1], mean_gap, apart=1).at_05)


def test_several_events_at_once_need_less_of_each():
    rng, classes = np.random.default_rng(6), 4
    drawn = permute_strata(np.array([[[60, 140], [60, 140]]] * classes), permutations=5_000, rng=rng)
    counts, sizes = drawn[..., 0], drawn.sum(axis=-1)
    mean = detectable_value(counts, sizes, mean_gap, apart=1).at_05
    single = detectable_value(counts[:, :1], sizes[:, :1], mean_gap, apart=1).at_05
    assert 0.4 < mean / single < 0.8


def test_gaps_of_means_and_joint_tests_tell_what_the_normal_approximation_tells():
    rng, n = np.random.default_rng(7), 400
    means = rng.standard_normal((10_000, 2)) / np.sqrt(n)
    told = detectable_gap(means - means.mean(axis=1, keepdims=True), lambda m: np.ptp(m, axis=1), apart=0, units=n)
    error = np.sqrt(2 / n)
    np.testing.assert_allclose(told[:2], effect_size(LEVELS[:2]) * error, rtol=0.06)
    joint = detectable_by_f(n / 2, groups=2, df=2 * n - 2)
    np.testing.assert_allclose(joint[:2], effect_size(LEVELS[:2]) * error, rtol=0.02)
    assert np.isnan(detectable_by_f(0.0, groups=3, df=20)).all()


def test_a_ratio_of_means_is_told_above_1():
    rng = np.random.default_rng(8)
    means = 20 + rng.standard_normal((5_000, 3))
    told = detectable_gap(means, lambda m: m.max(axis=1) / m.min(axis=1), apart=2, units=100, parity=1.0)
    assert 1.1 < told.at_05 < told.at_002 < 1.5


def critical(draws, levels):
    return critical_values(np.sort(draws), len(draws), levels)


def test_the_critical_value_is_what_p_follows_from():
    rng = np.random.default_rng(9)
    draws = np.abs(rng.standard_normal(10_000))
    for level, value in zip((0.05, 0.002, 1e-5), critical(draws, (0.05, 0.002, 1e-5))):
        below, above = upper_p_values([value - 1e-6, value + 1e-6], np.stack([draws, draws]))
        assert above <= level * (1 + 1e-3) and below >= level * 0.999
    largest = critical(draws, (1e-4,))
    assert largest == [draws.max()], "p of 10,000 draws is at most .0001 above all of them"
    assert np.isnan(critical(draws[:500], (1e-4,))).all()
    assert critical(np.arange(1000) % 3.0, (0.05,)) == [2.0]


def ranges(rng, tests, *, groups, size, pooled=None):
    """Return how far apart the highest and lowest of groups lie by chance: of means, or of counts where pooled."""
    if pooled is None:
        return np.ptp(rng.standard_normal((tests, groups, 10_000)), axis=1)
    return np.ptp(rng.binomial(size, pooled, (tests, groups, 10_000)), axis=1) / size


def test_what_other_tests_require_is_as_spread_as_their_own_draws():
    rng, levels = np.random.default_rng(10), (0.002, 1e-4, 1e-5)
    draws = ranges(rng, 120, groups=2, size=1)
    own = np.stack([critical(each, levels) for each in draws])
    elsewhere = np.stack([critical_values_elsewhere(each, levels) for each in draws[:20]])
    assert (elsewhere[:, 0] == elsewhere[:, 0, :1]).all(), "twenty draws decide: taken for that of every test"
    for i in (1, 2):
        spread = np.quantile(own[:, i], [0.1, 0.5, 0.9])
        told = np.quantile(elsewhere[:, i], [0.1, 0.5, 0.9], axis=-1).mean(axis=1)
        np.testing.assert_allclose(told, spread, rtol=0.05)


def test_a_difference_is_told_only_where_four_in_five_tests_can_have_so_small_a_p():
    """A range of small counts has few values: most tests find no tail, and their p ends at 1 / 10,001."""
    rng, levels = np.random.default_rng(11), (1e-4, 1e-5)
    draws = ranges(rng, 60, groups=3, size=1000, pooled=0.1)
    without = np.mean([np.isnan(critical(each, levels)[1]) for each in draws])
    elsewhere = np.mean([np.isinf(critical_values_elsewhere(each, levels)[1]).mean() for each in draws[:20]])
    assert 0.4 < without < 0.95 and elsewhere == pytest.approx(without, abs=0.15)
    far = np.linspace(0, 0.2, 41)
    for null in draws[:5]:
        *_, at_0001, at_00001 = detectable_of(null, far[:, None] + rng.normal(0, 0.005, (41, 400)), far)
        assert 0 < at_0001 < 0.1 and np.isnan(at_00001)


def test_a_ratio_that_is_0_by_chance_is_found_by_none():
    never = detectable_of(np.zeros(10_000), np.zeros((3, 400)), np.array([1.0, 0.5, 0.1]), parity=1.0)
    assert np.isnan(never).all()


def test_four_in_five_exceed_their_own_draws():
    rng, error = np.random.default_rng(12), 1.0
    null, shifts = np.abs(rng.standard_normal((40, 10_000))), np.linspace(0, 9, 19)
    simulated = shifts[:, None] + error * rng.standard_normal(400)
    told = np.mean([detectable_of(each, simulated, shifts) for each in null[:20]], axis=0)
    for i in (2, 3):
        required = np.array([critical(each, LEVELS)[i] for each in null[20:]])
        assert np.mean(stats.norm.sf(required - told[i])) == pytest.approx(0.81, abs=0.05)


def test_values_between_and_beyond_the_levels():
    found = [0.2, 0.3, 0.38, 0.45]
    np.testing.assert_allclose(value_at(LEVELS, np.tile(found, (4, 1))), found)
    # Of p near .002 something is told where nothing is known of .0001, and of no smaller one.
    near = value_at([0.0021, 0.0019, 0.0012, 0.0009], [0.2, 0.3, NAN, NAN])
    assert (np.diff(near[:3]) > 0).all() and near[2] < 0.32 and np.isnan(near[3])
    assert np.isnan(value_at(0.0019, [0.2, NAN, NAN, NAN]))
    assert 0.2 < value_at(0.01, found) < 0.3 and 0.3 < value_at(5e-4, found) < 0.38 and value_at(1e-6, found) > 0.45
    ratios = [0.8, 0.7, 0.6, 0.5]
    assert value_at(LEVELS[1], ratios, parity=1.0) == pytest.approx(0.7)
    first = np.log1p(0.2) * effect_size(0.01) / effect_size(0.05)
    assert value_at(0.01, [0.2, NAN, NAN, NAN]) == pytest.approx(np.expm1(first))
    assert np.isnan(value_at(0.001, [0.2, NAN, NAN, NAN])) and np.isnan(value_at(1e-5, [0.2, 0.3, 0.4, NAN]))
    assert value_at(1e-4, [0.2, 0.3, 0.4, NAN]) == pytest.approx(0.4)
    assert np.isnan(value_at(9e-5, [0.2, 0.3, 0.4, NAN])), "p of 10,000 draws may end at .0001"
    assert np.isnan(value_at(0.01, [NAN] * 4)) and np.isnan(value_at(NAN, found))


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
    parity = np.mean([planned_detectable(sizes, rate=0.3, level=0.001, seed=seed)[1] for seed in range(10)])
    error = np.sqrt(0.3 * 0.7 * (1 / 4000 + 1 / 1000))
    assert parity == pytest.approx(effect_size(0.001) * error, rel=0.06)
    small, large = (planned_detectable(np.array([n, n]), rate=0.1, level=0.05)[0] for n in (200, 800))
    assert 0 < large < small
    assert np.isnan(planned_detectable(np.array([20, 20]), rate=0.1, level=0.001)[0])


def test_of_few_events_no_ratio_is_told_but_the_difference_is():
    """Of 40 people four are expected to have the label: a ratio of their rates may be large, and is found then."""
    size = np.array([980, 1077, 40])
    shuffled = permute_tables(two_columns(size // 10, size), permutations=4_000, rng=np.random.default_rng(3))
    assert of_counts(shuffled, MEAN_SKEW, apart=2, ratio=True) == (None,) * 4
    assert 0.1 < of_counts(shuffled, PARITY, apart=2).at_05 < 0.3
    # A p that cannot be small finds nothing, however large the ratio.
    assert of_counts(shuffled, MEAN_SKEW, apart=2, ratio=True, least_p=0.01)[1:] == pytest.approx(
        [NAN] * 3, nan_ok=True
    )


def refused(rng: np.random.Generator, rate: float, more: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw whether 40 answers about each of eight groups are refused, in 20 sets: of the first group more often."""
    groups, sets = np.tile(np.repeat(np.arange(8), 2), 20), np.repeat(np.arange(20), 16)
    return (rng.random(320) < np.where(groups == 0, rate + more, rate)).astype(float), groups, sets


def gap_of(answers, seed):
    return group_gap(*answers, n_groups=8, resamples=200, permutations=400, rng=np.random.default_rng(seed))


def test_of_rare_answers_what_is_told_is_found_or_nothing_is_told():
    rng = np.random.default_rng(5)
    few = np.zeros(320)
    few[:2] = 1.0
    assert np.isnan(gap_of((few, *refused(rng, 0.0, 0.0)[1:]), 0).detectable[0])
    # A share of a group that is apart varies more than that of the others: told without that, it was found in half.
    told = np.nanmedian([gap_of(refused(rng, 0.03, 0.0), seed).detectable[0] for seed in range(25)])
    found = np.mean([gap_of(refused(rng, 0.03, told), seed).p <= 0.05 for seed in range(80)])
    assert 0.6 <= found <= 0.95


@pytest.mark.parametrize(("events", "clusters"), [([2, 1], None), ([2, 1], 197), ([40, 30], 9)])
def test_of_events_or_sets_so_few_that_no_test_has_a_small_p_nothing_is_told(events, clusters):
    # Pairs of images: one set with both, one with one; labels are swapped within a set.
    rng, sizes = np.random.default_rng(0), np.array([197, 197])
    both, alone = min(events) if clusters != 9 else 0, abs(events[0] - events[1]) if clusters != 9 else sum(events)
    first = both + rng.binomial(alone, 0.5, size=10_000)
    counts = np.stack([first, sum(events) - first], axis=1)[:, None]
    of = {"apart": 0, "clusters": clusters}
    told = detectable_value(counts, np.broadcast_to(sizes, (10_000, 1, 2)), PARITY.value, **of)
    assert np.isnan(told).all()
