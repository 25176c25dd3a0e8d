"""Draws of paired answers equal the obvious loop over images, or over sets of images."""

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics import bca, resample_tables
from plumbline.statistics.bootstrap import jackknife_tables
from plumbline.statistics.clusters import resample_clusters
from plumbline.statistics.paired import draw_answers, leave_one_out, row_major
from plumbline.statistics.permutation import p_value


@pytest.fixture(scope="module")
def images():
    """Return (2, n) answers, groups of which one is empty, and sets of which some straddle groups."""
    rng = np.random.default_rng(3)
    n = 90
    groups = rng.choice([-1, 0, 2], size=n, p=[0.1, 0.4, 0.5])
    first = rng.random(n) < 0.2 + 0.2 * (groups == 0)
    answers = np.stack([first, np.where(rng.random(n) < 0.6, first, rng.random(n) < 0.4)])
    return answers, groups, np.arange(n) // 4


def drawn(images, resamples=4000, clusters=None, seed=5):
    answers, groups, _ = images
    return draw_answers(
        answers,
        groups,
        n_groups=3,
        resamples=resamples,
        permutations=resamples,
        rng=np.random.default_rng(seed),
        clusters=clusters,
    )


def same_distribution(one, other):
    """Compare the joint distribution of two (k, r) draws: means, covariances and each margin."""
    assert np.abs(one.mean(axis=1) - other.mean(axis=1)).max() < 0.35
    np.testing.assert_allclose(np.cov(one), np.cov(other), atol=1.2, rtol=0.12)
    for a, b in zip(one, other):
        if np.ptp(a) or np.ptp(b):
            assert stats.ks_2samp(a, b).pvalue > 1e-3


def test_counts_are_counts(images):
    answers, groups, sets = images
    for clusters in (None, sets):
        draws = drawn(images, 10, clusters)
        for group in range(3):
            assert draws.sizes[group] == (groups == group).sum()
            assert draws.counts[:, group].tolist() == answers[:, groups == group].sum(axis=1).tolist()


def test_resampling_equals_drawing_images_within_groups(images):
    answers, groups, _ = images
    rng = np.random.default_rng(8)
    slow = np.empty((4, 4000))
    for r in range(4000):
        for k, group in enumerate((0, 2)):
            rows = np.flatnonzero(groups == group)
            slow[2 * k : 2 * k + 2, r] = answers[:, rng.choice(rows, len(rows))].sum(axis=1)
    fast = drawn(images)
    same_distribution(fast.resampled[:, [0, 2]].transpose(1, 0, 2).reshape(4, -1), slow)
    assert (fast.resampled[:, 1] == 0).all() and (fast.resampled_sizes[1] == 0).all()


def test_resampling_equals_one_multinomial_on_the_joint_pattern(images):
    answers, groups, _ = images
    pattern = answers[0] * 2 + answers[1]
    table = np.stack([np.bincount(pattern[groups == group], minlength=4) for group in (0, 2)])
    tables = resample_tables(table, resamples=4000, rng=np.random.default_rng(2))
    counts = np.stack([tables[..., 2] + tables[..., 3], tables[..., 1] + tables[..., 3]], axis=-1)
    fast = drawn(images).resampled[:, [0, 2]].transpose(1, 0, 2).reshape(4, -1)
    same_distribution(fast, counts.reshape(4000, -1).T)


def test_sets_are_drawn_whole(images):
    answers, groups, sets = images
    columns = np.concatenate([answers, np.ones((1, len(groups)), dtype=bool)])
    tables = np.zeros((sets.max() + 1, 3, 3), dtype=np.int64)
    for column, row in enumerate(columns):
        for i in np.flatnonzero(row & (groups >= 0)):
            tables[sets[i], column, groups[i]] += 1
    slow = resample_clusters(tables, resamples=4000, rng=np.random.default_rng(2)).reshape(4000, -1).T
    fast = drawn(images, clusters=sets)
    joined = np.concatenate([fast.resampled, fast.resampled_sizes[None]]).reshape(9, -1)
    # Variances are some tens: the whole set moves.
    np.testing.assert_allclose(np.cov(joined), np.cov(slow), atol=2.5, rtol=0.12)
    np.testing.assert_allclose(joined.mean(axis=1), slow.mean(axis=1), atol=0.5)


@pytest.mark.parametrize("by_set", [False, True])
def test_swapping_equals_a_coin_for_each_image_or_set(images, by_set):
    answers, groups, sets = images
    units = sets if by_set else np.arange(len(groups))
    rng = np.random.default_rng(4)
    slow = np.empty((4, 4000))
    for r in range(4000):
        coin = rng.random(units.max() + 1)[units] < 0.5
        new = np.where(coin, answers[::-1], answers)
        slow[:, r] = np.concatenate([new[:, groups == group].sum(axis=1) for group in (0, 2)])
    first, second = drawn(images, clusters=sets if by_set else None).swapped(np.array([0]), np.array([1]))
    fast = np.stack([first[0, 0], second[0, 0], first[0, 2], second[0, 2]])
    same_distribution(fast, slow)
    # Only who gave an answer changes, never how many there are.
    assert (first + second == answers[:, groups == 0].sum()).all(axis=2)[0, 0]


def test_leaving_one_out_equals_the_loop(images):
    answers, groups, sets = images

    def difference(hits, sizes):
        return (hits[0] / np.maximum(sizes, 1)).sum() - (hits[1] / np.maximum(sizes, 1)).sum() ** 2

    def statistic(left):
        pairs = zip(left.first[:, 0], left.second[:, 0], left.sizes)
        return np.array([difference((a, b), n) for a, b, n in pairs])

    left = leave_one_out(answers[:1], answers[1:], groups, n_groups=3)
    pattern = answers[0] + 2 * answers[1]
    table = np.stack([np.bincount(pattern[groups == group], minlength=4) for group in range(3)])

    def on_tables(tables):
        first, second = tables[..., 1] + tables[..., 3], tables[..., 2] + tables[..., 3]
        return np.array([difference((a, b), n) for a, b, n in zip(first, second, tables.sum(axis=-1))])

    slow = jackknife_tables(table, on_tables)
    assert left.acceleration(statistic(left)) == pytest.approx(slow.acceleration, rel=1e-12)

    by_set = leave_one_out(answers[:1], answers[1:], groups, n_groups=3, clusters=sets)
    values = []
    for each in np.unique(sets[groups >= 0]):
        rest = (sets != each) & (groups >= 0)
        hits = [np.bincount(groups[rest & answer], minlength=3) for answer in answers]
        values.append(difference(hits, np.bincount(groups[rest], minlength=3)))
    values = np.array(values)
    influence = values.mean() - values
    expected = (influence**3).sum() / (influence**2).sum() ** 1.5 / 6
    assert by_set.acceleration(statistic(by_set)) == pytest.approx(expected, rel=1e-9)


def test_draws_follow_the_generator_alone(images):
    one, other, third = drawn(images, 50), drawn(images, 50), drawn(images, 50, seed=6)
    np.testing.assert_array_equal(one.resampled, other.resampled)
    np.testing.assert_array_equal(one.halves, other.halves)
    assert (one.resampled != third.resampled).any() and (one.halves != third.halves).any()


def test_more_units_than_fit_in_a_block(monkeypatch, images):
    whole = drawn(images, 64)
    monkeypatch.setattr("plumbline.statistics.paired._THREADLESS", 1)
    np.testing.assert_array_equal(drawn(images, 64).resampled, whole.resampled)
    monkeypatch.setattr("plumbline.statistics.paired._BLOCK", 30)
    assert drawn(images, 64).resampled.shape == whole.resampled.shape
    assert drawn(images, 64).resampled.sum() == pytest.approx(whole.resampled.sum(), rel=0.1)


@pytest.mark.parametrize("acceleration", [0.0, 0.05, -0.12])
def test_p_is_the_level_at_which_the_interval_reaches(acceleration):
    replicates = np.random.default_rng(0).gamma(4.0, size=4000) - 3.5
    for estimate in (-0.3, 0.2, 0.6):
        for null in (-1.5, -0.5, 0.0, 1.0):
            p = bca(estimate, replicates, acceleration=acceleration, null=null).p
            if not 0.002 < p < 0.4:
                continue
            ends = bca(estimate, replicates, acceleration=acceleration, confidence=1 - p)
            assert min(abs(ends.ci_low - null), abs(ends.ci_high - null)) < 0.02


@pytest.mark.parametrize("sign", [1, -1])
def test_p_is_small_where_no_replicate_reaches_the_null_value_however_biased_they_are(sign):
    replicates = 2.0 + np.random.default_rng(0).gamma(2.0, 2.0, size=2000)
    estimate = float(np.quantile(replicates, 0.25))  # z0 = -0.67
    found = bca(sign * estimate, sign * replicates, acceleration=sign * -0.14, null=0.0)
    assert min(sign * found.ci_low, sign * found.ci_high) > 1.9 and found.p == pytest.approx(1 / 2001)


def test_p_is_never_0_and_nan_where_there_is_no_interval():
    replicates = np.random.default_rng(0).normal(5, 1, size=999)
    assert bca(5.0, replicates, acceleration=0.0, null=-9.0).p == pytest.approx(1e-3, rel=0.02)
    unknown = np.where(replicates > 5.5, np.nan, replicates)
    assert np.isnan(bca(5.0, unknown, acceleration=0.0, null=0.0).p)
    assert np.isnan(bca(5.0, np.full(999, 5.0), acceleration=0.0, null=0.0).p)


def test_answers_and_groups_must_fit(images):
    answers, groups, _ = images
    with pytest.raises(MetricError, match="same images"):
        draw_answers(answers, groups[1:], n_groups=3, resamples=5, permutations=5, rng=np.random.default_rng(0))


def test_swapping_gives_a_uniform_p_where_answers_are_exchangeable():
    """Two classifiers of equal rates in every group, one coin in two shared: their gaps differ by chance alone."""
    p = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        groups = np.repeat([0, 1, 2], 60)
        rate, own = np.array([0.2, 0.35, 0.5])[groups], rng.random((2, 180))
        own[1] = np.where(rng.random(180) < 0.5, own[0], own[1])
        draws = draw_answers(own < rate, groups, n_groups=3, resamples=1, permutations=199, rng=rng)
        gaps = [np.ptp(counts[0], axis=0) for counts in draws.swapped(np.array([0]), np.array([1]))]
        p.append(p_value(abs(np.ptp(draws.counts[0]) - np.ptp(draws.counts[1])), np.abs(gaps[0] - gaps[1])))
    for level in (0.05, 0.1, 0.25, 0.5):
        least, most = stats.binom.ppf([5e-4, 1 - 5e-4], 300, level)
        # Gaps are whole numbers of images, so ties make p a little larger than uniform, never smaller.
        assert least * 0.6 <= np.count_nonzero(np.array(p) <= level) <= most


def test_what_is_multiplied_in_threads_stands_row_by_row():
    """OpenBLAS's kernel for two column-major float32 factors is not safe to call from two threads."""
    answers = np.random.default_rng(0).random((4, 50)) < 0.5
    chosen = answers[:, np.arange(50) % 3 == 0]
    assert not chosen.flags.c_contiguous, "this is why it is needed"
    assert row_major(chosen).flags.c_contiguous and row_major(chosen).dtype == np.float32
    np.testing.assert_array_equal(row_major(chosen), chosen)
