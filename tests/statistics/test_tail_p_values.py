"""p below the smallest that draws can give: generalised Pareto tails, against known laws, scipy, and all partitions."""

import numpy as np
import pytest
from scipy import stats

from plumbline.statistics.partitions import random_partition_test, random_subsets, subset_sums
from plumbline.statistics.permutation import p_value, tail_p_values, upper_p_values

TAILS = {
    "normal": (lambda rng, shape: rng.normal(size=shape), stats.norm),
    "largest of 7 normal": (lambda rng, shape: rng.normal(size=(*shape, 7)).max(axis=-1), None),
    "chi-squared": (lambda rng, shape: rng.chisquare(6, shape), stats.chi2(6)),
    "skewed": (lambda rng, shape: np.exp(0.3 * rng.normal(size=shape)), stats.lognorm(0.3)),
}


@pytest.mark.parametrize("name", TAILS)
def test_a_tail_tells_p_below_that_of_the_draws(name):
    """Of p = 1e-5 by 10,000 draws: within 1 to 8 in the middle of 100 tails, and never below 1 / 8."""
    draw, law = TAILS[name]
    isf = law.isf if law else lambda p: stats.norm.isf(1 - (1 - p) ** (1 / 7))
    draws = draw(np.random.default_rng(4), (100, 10_000))
    for p in (1e-5, 1e-6):
        found = tail_p_values(np.full(100, isf(p)), draws)
        known = found[~np.isnan(found)]
        # The draws themselves reach it in one of ten; one tail in twenty is taken for none.
        assert len(known) >= 75 and known.max() <= 1 / 10_001
        assert p <= np.median(known) <= 30 * p and np.quantile(known, 0.02) >= p / 8
    assert (tail_p_values(np.full(100, 1e6), draws) >= 1 / 10_001 / 100 * (1 - 1e-12))[~np.isnan(found)].all()


def slow_tail(observed, draws):
    """Fit scipy's generalised Pareto by the same L-moments, one number at a time."""
    k = int(0.025 * len(draws))
    ordered = np.sort(draws)
    threshold = (ordered[-k - 1] + ordered[-k]) / 2
    excess = ordered[-k:] - threshold
    l1 = excess.mean()
    l2 = sum(abs(a - b) for a in excess for b in excess) / (2 * k * (k - 1))
    shape = 2 - l1 / l2
    scale = l1 * (1 - shape) if shape > 0 else l1
    return k / len(draws) * stats.genpareto(max(shape, 0), scale=scale).sf(observed - threshold)


@pytest.mark.parametrize("draw", [lambda rng: rng.normal(size=4000), lambda rng: rng.standard_t(5, size=4000)])
def test_the_tail_is_the_generalised_pareto_by_l_moments(draw):
    draws = draw(np.random.default_rng(11))
    observed = draws.max() * 1.1
    (found,) = tail_p_values([observed], draws[None])
    assert found == pytest.approx(slow_tail(observed, draws), rel=1e-9)
    assert p_value(observed, draws) == pytest.approx(found, rel=1e-9)
    assert p_value(-observed, -draws, alternative="less") == pytest.approx(found, rel=1e-9)


def test_where_no_tail_is_fitted_p_is_that_of_the_draws():
    rng = np.random.default_rng(5)
    counts = rng.poisson(3, (1, 10_000)).astype(float)
    assert np.isnan(tail_p_values([60.0], counts)).all(), "few kinds of values"
    assert p_value(60.0, counts[0]) == 1 / 10_001
    assert np.isnan(tail_p_values([9.0], rng.normal(size=(1, 1999)))).all(), "49 draws in the tail"
    assert np.isnan(tail_p_values([0.0], rng.normal(size=(1, 9999)))).all(), "reached by draws"
    with_nan = np.append(rng.normal(size=9999), np.nan)
    assert p_value(9.0, with_nan) == 2 / 10_001, "an undefined draw counts as extreme"
    assert p_value(1.0, np.zeros(10_000)) == 1 / 10_001, "draws that do not vary"
    assert np.isnan(p_value(np.nan, with_nan))
    np.testing.assert_array_equal(upper_p_values([0.5, 9.0], np.arange(4.0)[None]), [0.8, 0.2])


def test_the_tail_of_a_permutation_test_against_all_partitions():
    """Partitions of exact p from 3e-6 to 5e-5, by 10,000 random ones: p of each within 1 to 10 times the exact one."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(24, 1))
    sums = subset_sums((x - x.mean()) / x.std(), 10)[:, 0]
    squares = np.sort(sums * np.abs(sums))[::-1]
    ranks = np.array([6, 12, 25, 50, 100])
    observed = squares[ranks - 1] - 1e-9
    p = np.array([tail_p_values(observed, np.tile(rng.choice(squares, 10_000), (5, 1))) for _ in range(20)]).T
    ratio = np.nanmedian(p, axis=1) / (ranks / len(sums))
    assert (ratio > 0.9).all() and (ratio < 10).all(), ratio
    assert np.isfinite(p).mean() > 0.6


def test_random_partitions_tell_the_tail_of_both_sides_and_tests():
    """A clear difference of unequal groups: p from the tail of t over all partitions drawn, and of raw means."""
    rng = np.random.default_rng(8)
    n, size = 120, 40
    columns = rng.normal(size=(n, 3))
    members = np.arange(n) < size
    columns[members, 0] += 1.1
    columns[members, 1] -= 1.1
    blocks = list(random_subsets(n, [size], count=5000, rng=rng))
    z = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    masks = np.unpackbits(np.concatenate([block.bits for block in blocks]), axis=1, count=n).astype(float)
    for in_a, swap in ((members, 1), (~members, -1)):
        (tests,) = random_partition_test(columns, [in_a], [size], blocks, raw=slice(None))
        drawn, observed = masks @ z, z[members].sum(axis=0)
        drawn, observed = drawn * np.abs(drawn), observed * np.abs(observed)
        raw = [upper_p_values(side * observed, side * drawn.T) for side in (swap, -swap)]
        np.testing.assert_allclose(tests.raw.p_values("greater"), raw[0], rtol=1e-3)
        np.testing.assert_allclose(tests.raw.p_values("less"), raw[1], rtol=1e-3)
        slow = [_welch(columns, mask.astype(bool)) for mask in masks[:400]]
        welch = tests.studentised.p_values("two-sided")
        assert (welch[:2] < 2 / 5001).all() and (welch[:2] >= 2 / 5001 / 100).all() and welch[2] > 0.01
        assert np.max(slow, axis=0)[0] < _welch(columns, members)[0]


def _welch(columns, mask):
    return stats.ttest_ind(columns[mask], columns[~mask], equal_var=False).statistic
