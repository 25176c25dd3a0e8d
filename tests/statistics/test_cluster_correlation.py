"""Correlations of rows that come in sets, and of few units."""

import numpy as np
import pytest
from scipy import stats

from plumbline.reasons import in_words
from plumbline.statistics.correlations import cluster_correlation, unit_correlation


def pairs(sets, draw, *, slope=0.6):
    """Return two columns with three seeds a set; the sets share a part of both."""
    own = np.repeat(np.arange(sets), 3)
    x = draw.normal(size=sets)[own] + 0.5 * draw.normal(size=len(own))
    y = slope * draw.normal(size=sets)[own] + slope * x + 0.5 * draw.normal(size=len(own))
    return x, y, own


@pytest.mark.parametrize(("kind", "oracle"), [("pearson", stats.pearsonr), ("spearman", stats.spearmanr)])
def test_values_are_those_of_scipy_with_ties_too(kind, oracle):
    x, y, own = pairs(50, np.random.default_rng(0))
    x = np.round(x)
    found = cluster_correlation(x, y, own, kind=kind, rng=np.random.default_rng(1))
    assert found.value == pytest.approx(oracle(x, y).statistic, abs=1e-12) and found.n == 50
    assert -1 < found.ci_low < found.value < found.ci_high < 1 and found.p is None


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
def test_intervals_hold_the_truth_and_rows_taken_for_independent_would_not(kind):
    draw, held, naive = np.random.default_rng(2), 0, 0
    x, y, _ = pairs(100_000, draw)
    truth = (stats.pearsonr if kind == "pearson" else stats.spearmanr)(x, y).statistic
    for _ in range(150):
        x, y, own = pairs(60, draw)
        found = cluster_correlation(x, y, own, kind=kind, rng=draw)
        held += found.ci_low <= truth <= found.ci_high
        alone = cluster_correlation(x, y, np.arange(len(x)), kind=kind, rng=draw)
        naive += alone.ci_low <= truth <= alone.ci_high
    assert held >= 0.9 * 150 and naive < held


def test_the_interval_is_that_of_leaving_out_each_of_a_few_sets():
    x, y, own = pairs(5, np.random.default_rng(4))
    found = cluster_correlation(x, y, own, kind="pearson", rng=np.random.default_rng(1))
    left = np.arctanh([stats.pearsonr(x[own != each], y[own != each]).statistic for each in range(5)])
    away = stats.t.ppf(0.975, 4) * np.sqrt(4 / 5 * ((left - left.mean()) ** 2).sum())
    assert np.arctanh([found.ci_low, found.ci_high]) == pytest.approx(np.arctanh(found.value) + np.array([-away, away]))


def test_what_cannot_be_said():
    rng, x = np.random.default_rng(0), np.arange(30.0)
    constant = cluster_correlation(x, np.ones(30), np.arange(30), kind="pearson", rng=rng)
    assert "does not vary" in in_words(constant.reason)
    same = cluster_correlation(x, 2 * x, np.arange(30), kind="pearson", rng=rng)
    assert same.value == pytest.approx(1) and np.isnan(same.ci_low) and "agree exactly" in in_words(same.reason)
    few = cluster_correlation(rng.random(6), rng.random(6), [0, 0, 0, 1, 1, 1], kind="pearson", rng=rng)
    assert np.isnan(few.ci_low) and "too few sets" in in_words(few.reason)
    none = cluster_correlation([], [], [], kind="spearman", rng=rng)
    assert np.isnan(none.value) and none.n == 0 and none.reason


def test_units():
    draw = np.random.default_rng(3)
    x = draw.normal(size=52)
    y = x + draw.normal(size=52)
    found, oracle = unit_correlation(x, y), stats.pearsonr(x, y)
    ends = oracle.confidence_interval()
    assert (found.value, found.p) == pytest.approx((oracle.statistic, oracle.pvalue))
    assert (found.ci_low, found.ci_high, found.n) == pytest.approx((ends.low, ends.high, 52))
    two = unit_correlation(x[:2], y[:2])
    assert np.isnan(two.value) and np.isnan(two.p) and in_words(two.reason).startswith("undefined: 2 units")
    three = unit_correlation([0.0, 1, 2], [0.0, 2, 1])
    assert three.value == pytest.approx(0.5) and np.isnan(three.ci_low) and three.reason
    assert np.isnan(unit_correlation(np.ones(5), x[:5]).value)
    assert in_words(unit_correlation(x, 3 * x).reason) == "no interval: the sides agree exactly"
