"""Resampled and permuted tables against the images that they stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics import count_table, generator, jackknife_tables, p_value, permute_tables, resample_tables
from plumbline.statistics.bootstrap import resample_sums

tables = st.integers(1, 4).flatmap(
    lambda c: st.lists(st.lists(st.integers(0, 6), min_size=c, max_size=c), min_size=1, max_size=4)
)


@settings(max_examples=80)
@given(tables, st.integers(0, 2**32))
def test_draws_keep_the_margins_that_they_must(table, seed):
    table = np.array(table)
    rng = np.random.default_rng(seed)
    resampled = resample_tables(table, resamples=5, rng=rng)
    permuted = permute_tables(table, permutations=5, rng=rng)
    assert resampled.shape == permuted.shape == (5, *table.shape)
    assert (resampled.sum(axis=-1) == table.sum(axis=-1)).all() and (resampled[:, table == 0] == 0).all()
    assert (permuted.sum(axis=-1) == table.sum(axis=-1)).all()
    assert (permuted.sum(axis=-2) == table.sum(axis=-2)).all()
    assert (resampled >= 0).all() and (permuted >= 0).all()


def test_resampling_counts_equals_resampling_images():
    table = np.array([[5, 3, 2], [1, 0, 9]])
    groups = [np.repeat(np.arange(3), row) for row in table]
    rng = np.random.default_rng(5)
    slow = np.array([[np.bincount(rng.choice(g, len(g)), minlength=3) for g in groups] for _ in range(4000)])
    fast = resample_tables(table, resamples=4000, rng=rng)
    for cell in np.ndindex(table.shape):
        one, other = slow[:, *cell], fast[:, *cell]
        assert one.mean() == pytest.approx(other.mean(), abs=0.12)
        assert one.std() == pytest.approx(other.std(), abs=0.08)
    # Within a group the outcomes compete: the covariance is that of a multinomial, -n p q.
    assert np.cov(fast[:, 0, 0], fast[:, 0, 1])[0, 1] == pytest.approx(-10 * 0.5 * 0.3, abs=0.12)
    assert np.cov(fast[:, 0, 0], fast[:, 1, 0])[0, 1] == pytest.approx(0, abs=0.12)


def test_resampled_sums_are_those_of_resampled_images():
    table = np.array([[50, 30, 20, 7], [0, 0, 40, 3], [9, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5]])
    drawn = resample_sums(table, resamples=20_000, rng=np.random.default_rng(3))
    slow = resample_tables(table, resamples=20_000, rng=np.random.default_rng(4)) @ np.arange(4)
    for group in (0, 1):
        assert stats.ks_2samp(drawn[:, group], slow[:, group]).pvalue > 1e-3
        assert drawn[:, group].mean() == pytest.approx(slow[:, group].mean(), abs=4 * slow[:, group].std() / 100)
    # What cannot happen does not: no sum below two an image, none between, nothing of an empty group.
    assert drawn[:, 1].min() >= 2 * 43 and (drawn[:, 2] == 0).all() and (drawn[:, 3] == 0).all()
    assert (drawn[:, 4] == 15).all()


def test_resampled_sums_of_rare_outcomes_among_many_images():
    table = np.array([[99_990, 10]])
    drawn = resample_sums(table, resamples=50_000, rng=np.random.default_rng(5))[:, 0]
    for k in (4, 8, 10, 13, 18):
        assert (drawn <= k).mean() == pytest.approx(stats.binom.cdf(k, 100_000, 1e-4), abs=0.008)


def test_tables_are_resampled_independently_along_leading_axes():
    table = np.tile([[50, 50], [30, 70]], (3, 1, 1))
    drawn = resample_tables(table, resamples=3000, rng=np.random.default_rng(6))
    assert drawn.shape == (3000, 3, 2, 2)
    correlation = np.corrcoef(drawn[:, :, 0, 0].T)
    assert abs(correlation - np.eye(3)).max() < 0.08
    np.testing.assert_allclose(drawn.mean(axis=0), table, atol=0.5)


def test_permutation_p_agrees_with_shuffling_labels():
    rng = np.random.default_rng(7)
    groups = np.repeat([0, 1, 2], [40, 30, 50])
    outcome = (rng.random(120) < np.array([0.5, 0.3, 0.35])[groups]).astype(int)

    def spread(table):
        rates = table[..., 1] / table.sum(axis=-1)
        return rates.max(axis=-1) - rates.min(axis=-1)

    table = count_table(groups, outcome, n_groups=3, n_outcomes=2)
    observed = float(spread(table))
    shuffled = [
        float(spread(count_table(rng.permutation(groups), outcome, n_groups=3, n_outcomes=2))) for _ in range(4000)
    ]
    slow = (1 + sum(value >= observed - 1e-12 for value in shuffled)) / 4001
    fast = p_value(observed, spread(permute_tables(table, permutations=40_000, rng=rng)))
    assert fast == pytest.approx(slow, abs=4 * np.sqrt(slow / 4000))


def test_two_groups_give_fishers_exact_test():
    table = np.array([[9, 11], [3, 17]])
    exact = stats.fisher_exact(table, alternative="greater").pvalue
    permuted = permute_tables(table, permutations=50_000, rng=np.random.default_rng(8))
    assert p_value(9.0, permuted[:, 0, 0]) == pytest.approx(exact, abs=0.005)


def test_joint_outcomes_are_dealt_as_whole_images():
    table = np.array([[4, 1, 0], [2, 3, 5]])
    permuted = permute_tables(table, permutations=30_000, rng=np.random.default_rng(9))
    reference = stats.random_table(table.sum(axis=1), table.sum(axis=0))
    seen, count = np.unique(permuted.reshape(len(permuted), -1), axis=0, return_counts=True)
    for cells, times in zip(seen, count):
        assert times / len(permuted) == pytest.approx(reference.pmf(cells.reshape(table.shape)), abs=0.012)


def test_p_counts_the_data_ties_and_undefined_permutations():
    assert p_value(2.0, [1.0, 1.0, 1.0]) == 1 / 4
    assert p_value(2.0, [2.0 - 1e-15, 1.0, np.nan]) == 3 / 4
    assert p_value(0.5, [0.4, 0.9], alternative="less") == 2 / 3
    assert np.isnan(p_value(float("nan"), [1.0]))


def test_count_table_leaves_out_unlabelled_images_and_refuses_bad_codes():
    np.testing.assert_array_equal(
        count_table([0, -1, 1, 1], [[0, 1, 1, 1], [1, 0, 0, 1]], n_groups=2, n_outcomes=2),
        [[[1, 0], [0, 2]], [[0, 1], [1, 1]]],
    )
    for groups, outcomes in (([0, 2], [0, 0]), ([0, -2], [0, 0]), ([0, 1], [0, 2]), ([0, 1], [0, -1]), ([0], [0, 1])):
        with pytest.raises(MetricError):
            count_table(groups, outcomes, n_groups=2, n_outcomes=2)


def test_bad_tables_are_refused():
    rng = np.random.default_rng(0)
    for call in (
        lambda: resample_tables([1, 2], resamples=5, rng=rng),
        lambda: resample_tables([[1, -2]], resamples=5, rng=rng),
        lambda: resample_tables([[1, 2]], resamples=0, rng=rng),
        lambda: permute_tables([[[1, 2]]], permutations=5, rng=rng),
        lambda: permute_tables([[1, -2]], permutations=5, rng=rng),
    ):
        with pytest.raises(MetricError):
            call()


def test_a_jackknife_without_spread_has_no_acceleration():
    flat = jackknife_tables(np.array([[3, 4]]), lambda t: np.zeros(len(t)))
    assert flat.acceleration == 0


def test_generators_are_named_and_do_not_depend_on_order():
    first = generator(1, "a", "b").random(3)
    generator(1, "other").random(100)
    np.testing.assert_array_equal(generator(1, "a", "b").random(3), first)
    for other in (generator(2, "a", "b"), generator(1, "b", "a"), generator(1, "ab"), generator(1, "a", "b", 0)):
        assert not np.array_equal(other.random(3), first)
