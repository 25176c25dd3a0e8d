"""Chance at the top of a ranking: against every order there is, and against scipy."""

from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest
from scipy import stats

from plumbline.statistics import rankings
from plumbline.statistics.rankings import null_top_counts, random_rankings, top_count_p_values


@pytest.mark.parametrize(("sizes", "k"), [((3, 4), 3), ((2, 2, 3), 4), ((1, 6), 2), ((4, 4), 4), ((5, 1, 1), 1)])
def test_p_is_that_of_all_choices_of_the_top(sizes, k):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    tops = [np.bincount(codes[list(c)], minlength=len(sizes)) for c in combinations(range(len(codes)), k)]
    tops = np.array(tops)
    assert len(tops) == comb(len(codes), k)
    p = top_count_p_values(np.unique(tops, axis=0), np.array(sizes), k=k)
    for counts, found in zip(np.unique(tops, axis=0), p):
        for g, count in enumerate(counts):
            values, times = np.unique(tops[:, g], return_counts=True)
            own = times[values == count][0]
            assert found[g] == pytest.approx(times[times <= own].sum() / len(tops), rel=1e-9)


def test_p_is_fishers():
    sizes = np.array([700, 1500, 1800])
    counts = np.array([[120, 200, 180], [87, 188, 225], [0, 100, 400]])
    p = top_count_p_values(counts, sizes, k=500)
    for row, found in zip(counts, p):
        for g in range(3):
            table = [[row[g], 500 - row[g]], [sizes[g] - row[g], 3500 - sizes[g] + row[g]]]
            assert found[g] == pytest.approx(stats.fisher_exact(table).pvalue, rel=1e-6)


def test_tops_by_chance_are_multivariate_hypergeometric():
    sizes, k = (3, 4, 5), 4
    drawn = null_top_counts(sizes, k, permutations=20_000, seed=0)
    assert (drawn.sum(axis=1) == k).all()
    law = stats.multivariate_hypergeom(list(sizes), k)
    values, times = np.unique(drawn, axis=0, return_counts=True)
    expected = np.array([law.pmf(v) for v in values])
    assert expected.sum() == pytest.approx(1, abs=1e-9)
    assert stats.chisquare(times, expected * 20_000).pvalue > 1e-4
    # Drawn once for all prompts and encoders.
    assert null_top_counts(sizes, k, permutations=20_000, seed=0) is drawn


@pytest.mark.parametrize("sizes", [(2, 1, 3), (1, 1, 1, 1), (4, 2), (5, 0, 1), (3,)])
def test_random_rankings_are_all_orders_equally_often(sizes):
    orders = sorted(set(permutations(np.repeat(np.arange(len(sizes)), sizes).tolist())))
    drawn = np.concatenate([*random_rankings(sizes, rankings=20_000, rng=np.random.default_rng(3))])
    values, times = np.unique(drawn, axis=0, return_counts=True)
    assert [tuple(value) for value in values.tolist()] == orders
    assert len(orders) == 1 or stats.chisquare(times).pvalue > 1e-4


@pytest.mark.parametrize("sizes", [(300, 2, 698), (40,) * 25, (1,) * 300 + (700,)])
def test_random_rankings_have_the_sizes_and_favour_no_rank(sizes, monkeypatch):
    monkeypatch.setattr(rankings, "_TOSSED_AT_ONCE", 150 * sum(sizes))
    blocks = [*random_rankings(sizes, rankings=400, rng=np.random.default_rng(4))]
    assert [len(block) for block in blocks] == [150, 150, 100], "no more are in memory at a time"
    drawn = np.concatenate(blocks)
    assert drawn.dtype == (np.uint8 if len(sizes) <= 256 else np.uint16)
    for row in drawn:
        np.testing.assert_array_equal(np.bincount(row, minlength=len(sizes)), sizes)
    largest = drawn == int(np.argmax(sizes))
    expected, n = 400 * max(sizes) / sum(sizes), sum(sizes)
    distance = ((largest.sum(axis=0) - expected) ** 2 / expected / (1 - max(sizes) / n)).sum()
    assert stats.chi2.sf(distance * (n - 1) / n, n - 1) > 1e-4
