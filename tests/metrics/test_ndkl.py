"""NDKL without one image, without a set, and by chance: each against the ranking written out again."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from plumbline.metrics import ndkl
from plumbline.metrics.rankings import ndkl as module
from plumbline.metrics.rankings.ndkl import (
    jackknife_errors,
    ndkl_by_chance,
    ndkl_sums,
    ndkl_without_clusters,
    ndkl_without_one,
    rank_weights,
)
from plumbline.statistics.rankings import random_rankings


def drawn(n, g, m, seed):
    """Draw rankings of the same images, every group among them."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(g), rng.integers(0, g, n - g)])
    return np.stack([rng.permutation(codes) for _ in range(m)]).astype(np.uint8)


def of_ranking(codes, desired, g):
    """Return NDKL of one ranking by the public function; None is the shares of what is ranked."""
    names = codes.tolist()
    if desired is None:
        return ndkl(-np.arange(len(names)), names, desired="ranked")[0]
    return ndkl(-np.arange(len(names)), names, desired=dict(enumerate(desired)))[0]


@pytest.mark.parametrize(("n", "g"), [(2, 2), (7, 2), (40, 4), (120, 7), (9, 9), (5, 1)])
@pytest.mark.parametrize("ranked_shares", [False, True])
def test_leaving_one_out_equals_ranking_the_others_again(n, g, ranked_shares):
    ranked = drawn(n, g, 3, seed=n)
    desired = None if ranked_shares else np.random.default_rng(n).dirichlet(np.full(g, 5.0))
    if desired is not None:
        desired[-1] = 1 - desired[:-1].sum()
    fast = ndkl_without_one(ranked, g, desired)
    for codes, values in zip(ranked, fast):
        by_group = np.argsort(codes, kind="stable")
        slow = [of_ranking(np.delete(codes, i), desired, g) for i in by_group]
        np.testing.assert_allclose(values, slow, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ranked_shares", [False, True])
def test_leaving_a_set_out_equals_ranking_the_others_again(ranked_shares):
    g, rng = 3, np.random.default_rng(1)
    ranked = drawn(60, g, 2, seed=3)
    sets = np.stack([rng.permutation(np.arange(60) % 7) for _ in range(2)])
    # One set holds all of a group.
    sets[0][ranked[0] == 2] = 6
    desired = None if ranked_shares else np.full(g, 1 / g)
    fast = ndkl_without_clusters(ranked, sets, g, desired)
    for j in range(2):
        slow = [of_ranking(ranked[j][sets[j] != s], desired, g) for s in range(7)]
        np.testing.assert_allclose(fast[j], slow, rtol=0, atol=1e-12)


def test_chance_is_the_mean_over_all_orders():
    sizes = (2, 1, 3)
    codes = np.repeat(np.arange(3), sizes)
    every = np.array([np.array(order) for order in set(permutations(codes.tolist()))], dtype=np.uint8)
    shares = np.array([0.5, 0.2, 0.3])
    exact = ndkl_sums(every, 3).against(shares)
    found = ndkl_by_chance(sizes, permutations=8000, seed=0).against(shares)
    # All 60 orders occur, each equally often: values and mean agree.
    np.testing.assert_allclose(np.unique(found.round(10)), np.unique(exact.round(10)))
    assert found.mean() == pytest.approx(exact.mean(), abs=4 * exact.std() / np.sqrt(8000))
    assert exact.min() > 0, "chance never gives 0"


def test_chance_is_drawn_once_for_all_desired_shares():
    one = ndkl_by_chance((5, 6), permutations=50, seed=2)
    assert ndkl_by_chance((5, 6), permutations=50, seed=2) is one
    assert not np.array_equal(one.against(np.array([0.5, 0.5])), one.against(np.array([5, 6]) / 11))


def test_weights_sum_to_one_and_the_jackknife_of_a_mean_is_its_standard_error():
    ranked = drawn(50, 4, 3, seed=0)
    np.testing.assert_allclose(ndkl_sums(ranked, 4).weight.sum(axis=1), 1, rtol=1e-12)
    assert rank_weights(50).suffix[0] > rank_weights(50).suffix[1]
    x = np.random.default_rng(0).normal(size=40)
    without = (x.sum() - x) / 39
    assert jackknife_errors(without[None])[0] == pytest.approx(x.std(ddof=1) / np.sqrt(40))


@pytest.mark.parametrize(("desired", "apart"), [("equal", 2), ("ranked", 0)])
def test_images_of_a_preferred_group_stand_where_their_scores_put_them(monkeypatch, desired, apart):
    sizes = (40, 45, 80)
    monkeypatch.setattr(module, "detectable_of", lambda chance, simulated, *_, **__: simulated)
    monkeypatch.setattr(module, "AT_ONCE", 340)  # two rankings at a time
    labels = np.concatenate([*random_rankings(sizes, rankings=5, rng=np.random.default_rng(0))])
    simulated = module._of_rankings(labels, sizes, desired, np.zeros(9), 0.0)
    shares = np.full(3, 1 / 3) if desired == "equal" else np.array(sizes) / 165
    score, error = stats.norm.ppf(np.arange(1, 166) / 166), np.sqrt(1 / sizes[apart] + 1 / (165 - sizes[apart]))
    for preference, values in zip(module._PREFERENCES * error, simulated):
        order = np.argsort(np.where(labels == apart, score - preference, score), axis=1, kind="stable")
        expected = ndkl_sums(np.take_along_axis(labels, order, axis=1), 3).against(shares)
        np.testing.assert_allclose(values, expected, rtol=1e-9)
