"""The exact test of shares within sets against the binomial one, and against all that could have been dealt."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import MetricError
from plumbline.statistics import permutation as set_shares
from plumbline.statistics.permutation import within_cluster_sum_test


def by_enumeration(table):
    """Return twice the smaller tail over every way to deal each set's amounts to one group."""
    sums = [sum(each) for each in itertools.product(*table.tolist())]
    tails = [
        min(Fraction(sum(s >= t for s in sums), len(sums)), Fraction(sum(s <= t for s in sums), len(sums)))
        for t in table.sum(axis=0).tolist()
    ]
    return [float(min(1, 2 * tail)) for tail in tails]


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_enumeration_of_all_deals(seed):
    table = np.random.default_rng(seed).integers(0, 4, size=(6, 4))
    assert within_cluster_sum_test(table) == pytest.approx(by_enumeration(table), abs=1e-14)
    assert within_cluster_sum_test(table * 6) == pytest.approx(by_enumeration(table), abs=1e-14)


def test_with_one_pick_a_set_it_is_the_binomial_test():
    picks = np.eye(5, dtype=np.int64)[np.random.default_rng(0).choice(5, 300, p=[0.6, 0.1, 0.1, 0.1, 0.1])]
    counts = picks.sum(axis=0)
    expected = [min(1, 2 * min(stats.binom.sf(c - 1, 300, 0.2), stats.binom.cdf(c, 300, 0.2))) for c in counts.tolist()]
    found = within_cluster_sum_test(picks)
    assert found == pytest.approx(expected, rel=1e-9)
    assert found[0] < 1e-30, "tails keep their digits"


def test_seeds_of_a_set_are_one_piece_of_evidence():
    """Three seeds that all pick the same group say no more than one."""
    picks = np.eye(3, dtype=np.int64)[[0, 0, 0, 1, 2]]
    assert within_cluster_sum_test(picks * 3) == pytest.approx(within_cluster_sum_test(picks))


def test_what_would_take_too_long_is_drawn(monkeypatch):
    table = np.random.default_rng(3).integers(0, 9, size=(40, 4))
    exact = within_cluster_sum_test(table)
    monkeypatch.setattr(set_shares, "MAX_ADDITIONS", 1)
    drawn = within_cluster_sum_test(table, draws=20_000, rng=np.random.default_rng(0))
    assert drawn == pytest.approx(exact, abs=0.02) and (drawn != exact).any()


def test_nothing_to_test_and_wrong_input():
    assert np.isnan(within_cluster_sum_test(np.zeros((0, 3), dtype=int))).all()
    assert np.isnan(within_cluster_sum_test(np.ones((4, 1), dtype=int))).all()
    for wrong in (np.array([[0.5, 0.5]]), np.array([[-1, 1]])):
        with pytest.raises(MetricError, match="whole numbers"):
            within_cluster_sum_test(wrong)
