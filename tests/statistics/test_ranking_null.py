"""Chance at the top of a ranking: against every order there is, and against scipy."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from plumbline.statistics.rankings import null_top_counts, top_count_p_values


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
