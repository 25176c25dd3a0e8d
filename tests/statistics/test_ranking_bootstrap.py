"""The top of a ranking under resampling: the shortcut against resampled rankings, many intervals against one."""

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import MetricError
from plumbline.reasons import in_words
from plumbline.statistics.intervals import bca, bca_array, percentile, percentile_array
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.rankings import (
    cluster_resampled_top_counts,
    leave_one_out_top_counts,
    resample_group_totals,
    resample_top_counts,
    top_counts,
    top_draws,
)

G = 3


def rankings(n, m=2, seed=0):
    """Draw rankings whose first group comes early."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % G
    return np.stack([codes[np.argsort(codes * 0.5 + rng.normal(size=n))] for _ in range(m)]).astype(np.uint8)


def resampled_rankings(codes, k, resamples, rng):
    """Draw n images, sort them, and count the k best and all: the obvious bootstrap."""
    n = len(codes)
    drawn = np.sort(rng.integers(0, n, (resamples, n)), axis=1)
    top, every = (np.stack([(codes[part] == g).sum(axis=1) for g in range(G)]) for part in (drawn[:, :k], drawn))
    return top, every


def same_distribution(one, other):
    """Return p of a chi-squared test that two samples of whole numbers have one distribution."""
    values = np.unique(np.concatenate([one, other]))
    table = np.array([[(sample == v).sum() for v in values] for sample in (one, other)])
    # Rare values are joined, as the test wants five expected.
    edges = np.cumsum(table.sum(axis=0)) // 40
    joined = np.array([[row[edges == e].sum() for e in np.unique(edges)] for row in table])
    return stats.chi2_contingency(joined).pvalue if joined.shape[1] > 1 else 1.0


@pytest.mark.parametrize(("n", "k"), [(40, 10), (40, 1), (40, 39), (9, 9), (1, 1), (300, 150)])
def test_the_shortcut_draws_what_resampled_rankings_give(n, k):
    ranked, rng = rankings(n), np.random.default_rng(n + k)
    draws = top_draws(n, k, resamples=6000, seed=k)
    fast = resample_top_counts(ranked, draws, n_groups=G)
    totals = resample_group_totals(ranked, fast, draws, n_groups=G, rng=rng)
    assert fast.shape == totals.shape == (2, G, 6000)
    assert (fast.sum(axis=1) == k).all() and (totals.sum(axis=1) == n).all() and (totals >= fast).all()
    for j in range(2):
        top, every = resampled_rankings(ranked[j], k, 6000, rng)
        for g in range(G):
            assert same_distribution(fast[j, g], top[g]) > 1e-4
            assert same_distribution(totals[j, g], every[g]) > 1e-4
            # Jointly too: images of the group that are not among the k best.
            assert same_distribution(totals[j, g] - fast[j, g], every[g] - top[g]) > 1e-4
        assert same_distribution(fast[j].max(axis=0), top.max(axis=0)) > 1e-4


def test_a_wrong_shortcut_is_told_apart():
    # Without the boundary, the k best would be a binomial sample of the first k: the test above must see that.
    rng = np.random.default_rng(0)
    codes = rankings(40, m=1)[0]
    top, _ = resampled_rankings(codes, 10, 6000, rng)
    wrong = rng.binomial(10, (codes[:10] == 0).mean(), 6000)
    assert same_distribution(wrong, top[0]) < 1e-6


def test_draws_are_of_ranks_alone_and_seeded():
    one, again = (top_draws.__wrapped__(500, 20, resamples=50, seed=3) for _ in range(2))
    other = top_draws(500, 20, resamples=50, seed=4)
    np.testing.assert_array_equal(one.before, again.before)
    assert not np.array_equal(one.rank, other.rank)
    assert (one.at_rank >= 1).all() and (one.rank < 500).all()


@pytest.mark.parametrize(("k", "resamples"), [(0, 10), (6, 10), (2, 0)])
def test_draws_that_cannot_be_made_are_refused(k, resamples):
    with pytest.raises(MetricError, match="cannot be resampled"):
        top_draws(5, k, resamples=resamples, seed=0)


@pytest.mark.parametrize(("sizes", "k"), [([4] * 10, 8), ([1, 2, 3, 30], 9), ([5, 5], 5)])
def test_drawing_sets_equals_gathering_their_images(sizes, k):
    rng = np.random.default_rng(len(sizes))
    own = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    ranked, sets = rankings(len(own)), np.stack([own, rng.permutation(own)])
    weights = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=150)
    weights = weights[weights @ np.array(sizes) >= k]
    counts = cluster_resampled_top_counts(ranked, sets, weights, k=k, n_groups=G)
    for j, (codes, own) in enumerate(zip(ranked, sets)):
        for r, drawn in enumerate(weights):
            gathered = np.repeat(codes, drawn[own])[:k]
            np.testing.assert_array_equal(counts[j, :, r], np.bincount(gathered, minlength=G))


def test_a_replicate_with_too_few_images_is_refused():
    with pytest.raises(MetricError, match="fewer than k"):
        cluster_resampled_top_counts(rankings(6, m=1), np.zeros((1, 6), int), np.array([[0]]), k=2, n_groups=G)


def test_leaving_one_out_equals_leaving_each_out():
    ranked, k = rankings(30, m=3), 7
    counts, totals, images = leave_one_out_top_counts(ranked, k=k, n_groups=G)
    assert (images.sum(axis=(1, 2)) == 30).all()
    for j, codes in enumerate(ranked):
        for i, group in enumerate(codes):
            left = np.delete(codes, i)
            kind = (j, 0 if i < k else 1, group)
            np.testing.assert_array_equal(counts[kind], np.bincount(left[:k], minlength=G))
            np.testing.assert_array_equal(totals[kind], np.bincount(left, minlength=G))
    with pytest.raises(MetricError, match="left out"):
        leave_one_out_top_counts(ranked, k=30, n_groups=G)


def test_top_counts():
    np.testing.assert_array_equal(top_counts(np.array([[0, 2, 2, 1]]), k=3, n_groups=3), [[1, 0, 2]])


def test_acceleration_is_that_of_every_image_written_out():
    rng = np.random.default_rng(5)
    values, images = rng.normal(size=(4, 6)), rng.integers(0, 9, (4, 6))
    accelerations = Jackknife(values[:, None], images[:, None]).acceleration
    for row, weight, found in zip(values, images, accelerations):
        lean = np.repeat(row, weight)
        lean = lean.mean() - lean
        assert found == pytest.approx((lean**3).sum() / (6 * (lean**2).sum() ** 1.5), rel=1e-10)
    assert Jackknife(np.ones((1, 3)), np.array([[1, 2, 3]])).acceleration == 0


@pytest.mark.parametrize("whole", [False, True])
def test_many_intervals_are_those_of_one_at_a_time(whole):
    rng = np.random.default_rng(6)
    replicates = rng.gamma(3, 2, (5, 400))
    replicates = np.round(replicates).astype(np.int32) if whole else replicates
    estimate, acceleration = replicates.mean(axis=1).round(), rng.normal(0, 0.03, 5)
    estimate[3] = replicates[3].min() - 1.0  # every replicate lies above: no BCa
    replicates[4] = replicates[4, 0]  # nothing varies: no interval
    found = bca_array(estimate, replicates, acceleration, confidence=0.9, null=5.0)
    plain = percentile_array(estimate, replicates, confidence=0.9)
    for i, (one, other) in enumerate(zip(found, plain)):
        alone = bca(estimate[i], replicates[i], acceleration=acceleration[i], confidence=0.9, null=5.0)
        np.testing.assert_array_equal(*([e.value, e.ci_low, e.ci_high, e.p] for e in (one, alone)))
        assert one.reason == alone.reason
        alone = percentile(estimate[i], replicates[i], confidence=0.9)
        np.testing.assert_array_equal((other.ci_low, other.ci_high), (alone.ci_low, alone.ci_high))
        ends = np.quantile(replicates[i], [0.05, 0.95]) if i < 4 else [np.nan, np.nan]
        np.testing.assert_allclose((other.ci_low, other.ci_high), ends)
    # Whole numbers are counted, others are not: bit for bit the same.
    as_floats = bca_array(estimate, replicates.astype(np.float64), acceleration, confidence=0.9, null=5.0)
    for name in ("ci_low", "ci_high", "p"):
        np.testing.assert_array_equal(getattr(found, name), getattr(as_floats, name))
    assert [[each.code for each in one.reason] for one in found] == [
        [], [], [], ["percentile_interval"], ["constant_resamples"]
    ]  # fmt: skip


def test_undefined_replicates_are_left_out_of_each_interval_by_itself():
    replicates = np.random.default_rng(7).gamma(3, size=(3, 400))
    replicates[1, 5:15], replicates[2, :100] = np.nan, np.nan
    found = bca_array([2.5] * 3, replicates, [0.02] * 3, null=1.0)
    kept = bca(2.5, np.delete(replicates[1], np.s_[5:15]), acceleration=0.02, null=1.0)
    assert (found[1].ci_low, found[1].ci_high, found[1].p) == (kept.ci_low, kept.ci_high, kept.p)
    assert np.isnan([found[2].ci_low, found[2].p]).all()
    assert [in_words(one.reason) for one in found] == [
        None, "undefined in 10 of 400 resamples", "no interval: undefined in 100 of 400 resamples"
    ]  # fmt: skip
