"""Lines through confounds: worked by hand, against statsmodels, and with a planted slope."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from plumbline.errors import MetricError
from plumbline.metrics import compare_changes, confound_fit, level_means, mean_change
from plumbline.reasons import in_words

TRIALS = 400


def nominal_range(trials, share):
    return stats.binom.ppf([5e-4, 1 - 5e-4], trials, share)


def drawn(seed, *, sets=12, levels=(-3.0, -1.5, 0.0, 1.5, 3.0), words=4, slope=0.5, own_slopes=0.4, faces=2):
    """Draw outcomes of sets that each have a level, and a slope, of their own."""
    rng = np.random.default_rng(seed)
    level = np.tile(np.repeat(levels, faces), sets)
    owner = np.repeat(np.arange(sets), len(levels) * faces)
    start, lean = rng.normal(size=sets), slope + own_slopes * rng.normal(size=sets)
    noise = 0.5 * rng.normal(size=(len(level), words)) + 0.3 * rng.normal(size=words)
    return level, (start[owner] + lean[owner] * level)[:, None] + noise, owner


def by_statsmodels(level, outcome, owner=None):
    words = outcome.shape[1]
    fit = sm.OLS(outcome.ravel(), sm.add_constant(np.repeat(level, words)))
    if owner is None:
        return fit.fit()
    return fit.fit(cov_type="cluster", cov_kwds={"groups": np.repeat(owner, words)}, use_t=True)


def test_a_line_worked_by_hand():
    fit = confound_fit([0, 1, 2], [1, 2, 4])
    assert fit.slope.value == pytest.approx(3 / 2, rel=1e-12)
    assert fit.intercept.value == pytest.approx(5 / 6, rel=1e-12)
    assert fit.r_squared.value == pytest.approx(27 / 28, rel=1e-12)
    # Residuals 1/6, -1/3, 1/6: a variance of 1/6 on one degree of freedom.
    assert fit.slope.error == pytest.approx(math.sqrt(1 / 12), rel=1e-12)
    assert fit.intercept.error == pytest.approx(math.sqrt(1 / 6 * (1 / 3 + 1 / 2)), rel=1e-12)
    # t with one degree of freedom is Cauchy: t = 3√3.
    assert fit.slope.p == pytest.approx(1 - 2 / math.pi * math.atan(3 * math.sqrt(3)), rel=1e-10)
    assert (fit.rows, fit.units, fit.reason) == (3, 3, ())
    # Three rows have no Fisher interval.
    assert math.isnan(fit.r_squared.ci_low)


def test_cluster_errors_worked_by_hand():
    # Residuals 1/6, -1/3, 1/6, as above; sets {0, 1} and {2}: scores x·e are 0 - (-1/6) .. by set 1/6·(-1) and 1/6.
    fit = confound_fit([0, 1, 2], [1, 2, 4], clusters=np.array([7, 7, 9]))
    scores = np.array([-1 * (1 / 6) + 0 * (-1 / 3), 1 * (1 / 6)])
    factor = 2 / 1 * 2 / 1
    assert fit.slope.error == pytest.approx(math.sqrt(factor * (scores**2).sum()) / 2, rel=1e-12)
    assert fit.units == 2 and fit.slope.value == pytest.approx(1.5)


@pytest.mark.parametrize("words", [1, 5])
@pytest.mark.parametrize("robust", [False, True])
def test_lines_are_those_of_statsmodels(words, robust):
    level, outcome, owner = drawn(3, words=words)
    level, outcome, owner = level[:-3], outcome[:-3], owner[:-3]  # not balanced
    found = confound_fit(level, outcome, clusters=owner if robust else None, confidence=0.9)
    expected = by_statsmodels(level, outcome, owner if robust else None)
    ends = expected.conf_int(alpha=0.1)
    for i, mine in enumerate((found.intercept, found.slope)):
        assert mine.value == pytest.approx(expected.params[i], rel=1e-10)
        assert mine.error == pytest.approx(expected.bse[i], rel=1e-10)
        assert mine.p == pytest.approx(expected.pvalues[i], rel=1e-8)
        np.testing.assert_allclose([mine.ci_low, mine.ci_high], ends[i], rtol=1e-9)
    assert found.r_squared.value == pytest.approx(expected.rsquared, rel=1e-10)
    assert found.rows == expected.nobs and 0 < found.r_squared.ci_low < found.r_squared.value < found.r_squared.ci_high


def test_several_words_are_rows_of_their_own():
    level, outcome, owner = drawn(4, words=3)
    together = confound_fit(level, outcome, clusters=owner)
    apart = confound_fit(np.repeat(level, 3), outcome.ravel(), clusters=np.repeat(owner, 3))
    for name in ("value", "ci_low", "ci_high"):
        expected = getattr(apart.r_squared, name)
        assert getattr(together.r_squared, name) == pytest.approx(expected, rel=1e-10)
    assert (together.rows, together.units) == (apart.rows, apart.units)
    assert together.slope.error == pytest.approx(apart.slope.error, rel=1e-10)


def coverage(sets, *, robust, slope=0.5):
    hits = 0
    for seed in range(TRIALS):
        level, outcome, owner = drawn([seed, sets], sets=sets, slope=slope)
        found = confound_fit(level, outcome, clusters=owner if robust else None).slope
        hits += found.ci_low <= slope <= found.ci_high
    return hits


@pytest.mark.parametrize("sets", [4, 30])
def test_a_planted_slope_is_held_at_the_nominal_rate(sets):
    """95% over 400 draws, from four sets on, since all sets hold the same levels; classical errors: 34 and 41%."""
    least, most = nominal_range(TRIALS, 0.95)
    assert least <= coverage(sets, robust=True) <= most
    assert coverage(sets, robust=False) < 0.5 * TRIALS


def test_without_sets_of_their_own_slopes_the_classical_errors_hold_too():
    hits = 0
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        level = rng.normal(size=60)
        outcome = 0.3 * level + rng.normal(size=60)
        found = confound_fit(level, outcome)
        hits += found.slope.ci_low <= 0.3 <= found.slope.ci_high
    least, most = nominal_range(TRIALS, 0.95)
    assert least <= hits <= most


def test_the_planted_share_of_variance_is_held():
    """R² 0.2 by construction: held in 93 to 97% of 400 draws, with and without sets."""
    hits = {False: 0, True: 0}
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        level = rng.normal(size=200)
        outcome = 0.5 * level + rng.normal(size=200)
        for robust in hits:
            fit = confound_fit(level, outcome, clusters=np.arange(200) // 5 if robust else None)
            hits[robust] += fit.r_squared.ci_low <= 0.2 <= fit.r_squared.ci_high
    for count in hits.values():
        assert 0.92 * TRIALS <= count <= 0.975 * TRIALS


def test_sets_widen_the_interval_where_they_lean_their_own_way():
    level, outcome, owner = drawn(1, sets=30)
    plain, robust = confound_fit(level, outcome), confound_fit(level, outcome, clusters=owner)
    assert plain.slope.value == robust.slope.value
    assert robust.slope.error > 3 * plain.slope.error


def test_what_is_undefined_has_a_reason():
    one = confound_fit([2.0, 2.0, 2.0], [1.0, 2.0, 3.0])
    assert math.isnan(one.slope.value) and math.isnan(one.r_squared.value) and "there is one" in in_words(one.reason)
    none = confound_fit([], np.zeros((0, 3)))
    assert math.isnan(none.slope.value) and "there are none" in in_words(none.reason)
    flat = confound_fit([0.0, 1.0, 2.0], [0.3, 0.3, 0.3])
    assert flat.slope.value == 0 and math.isnan(flat.slope.p) and math.isnan(flat.r_squared.value)
    assert in_words(flat.reason) == "the outcome does not vary"
    two = confound_fit([0.0, 1.0], [0.0, 3.0])
    assert (
        two.slope.value == 3
        and math.isnan(two.slope.error)
        and math.isnan(two.slope.p)
        and "two rows" in in_words(two.reason)
    )
    single = confound_fit([0.0, 1.0, 2.0], [0.0, 3.0, 1.0], clusters=np.zeros(3, int))
    assert single.slope.value == 0.5 and math.isnan(single.slope.ci_low) and "one set" in in_words(single.reason)


def test_wrong_input_is_refused():
    with pytest.raises(MetricError, match="same images"):
        confound_fit([0.0, 1.0], [1.0, 2.0, 3.0])
    with pytest.raises(MetricError, match="without a level"):
        confound_fit([0.0, math.nan], [1.0, 2.0])
    with pytest.raises(MetricError, match="needs its cluster"):
        confound_fit([0.0, 1.0], [1.0, 2.0], clusters=np.array([1]))
    with pytest.raises(MetricError, match="at least 0"):
        mean_change([0.1, -0.2])
    with pytest.raises(MetricError, match="needs its cluster"):
        mean_change([0.1, 0.2], clusters=np.array([1]))


def test_level_means_worked_by_hand():
    found = level_means([0, 0, 1, 1, 1, -1], [[1, 3], [4, 4], [0, 0], [1, 1], [2, 2], [9, 9]], levels=["a", "b", "c"])
    np.testing.assert_allclose(found.value, [3.0, 1.0, np.nan])
    assert found.n.tolist() == [2, 3, 0] and [in_words(r) for r in found.reason] == [
        None,
        None,
        "no image at this level",
    ]
    # Standard error of 0, 1, 2: 1/√3; t with two degrees of freedom.
    half = stats.t.ppf(0.975, 2) / math.sqrt(3)
    np.testing.assert_allclose([found.ci_low[1], found.ci_high[1]], [1 - half, 1 + half], rtol=1e-12)


def test_level_means_count_sets():
    # Two sets of two images each, of means 1 and 3: as if there were two images.
    found = level_means([0] * 4, [0.5, 1.5, 2.5, 3.5], levels=[0], clusters=np.array([0, 0, 1, 1]))
    half = stats.t.ppf(0.975, 1) * 1.0
    np.testing.assert_allclose([found.value[0], found.ci_low[0], found.ci_high[0]], [2, 2 - half, 2 + half])
    single = level_means([0, 0], [1.0, 2.0], levels=[0], clusters=np.array([4, 4]))
    assert single.value[0] == 1.5 and math.isnan(single.ci_low[0]) and "single set" in in_words(single.reason[0])


def test_mean_change_is_the_one_sample_t_interval():
    changes = np.random.default_rng(0).exponential(size=40)
    found = mean_change(changes, confidence=0.9)
    low, high = stats.ttest_1samp(changes, 0).confidence_interval(0.9)
    np.testing.assert_allclose([found.value, found.ci_low, found.ci_high], [changes.mean(), low, high], rtol=1e-12)
    assert found.n == 40


def test_changes_are_compared_as_scipy_does():
    rng = np.random.default_rng(1)
    first, second = rng.exponential(size=30), 1.3 * rng.exponential(size=50)
    found, expected = compare_changes(first, second), stats.ttest_ind(first, second)
    assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-10)
    ends = expected.confidence_interval(0.95)
    np.testing.assert_allclose([found.ci_low, found.ci_high], [ends.low, ends.high], rtol=1e-10)


def test_equal_sets_are_compared_by_the_paired_t_test_of_their_means():
    rng = np.random.default_rng(2)
    sets = 9
    first, second = rng.exponential(size=(sets, 4)), 1.2 * rng.exponential(size=(sets, 7))
    codes = (np.repeat(np.arange(sets), 4), np.repeat(np.arange(sets), 7))
    found = compare_changes(first.ravel(), second.ravel(), clusters=codes)
    expected = stats.ttest_rel(first.mean(axis=1), second.mean(axis=1))
    assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-10)


def test_the_clustered_comparison_rejects_at_its_level_and_the_plain_one_does_not():
    """No difference, sets that differ: 5% of 400 rejected over sets; the t-test over pairs rejects far more."""
    robust = plain = 0
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        a, b = rng.exponential(size=(2, 12, 1)) * rng.uniform(0.8, 1.2, size=(2, 12, 10))
        codes = np.repeat(np.arange(12), 10)
        robust += compare_changes(a.ravel(), b.ravel(), clusters=(codes, codes)).p < 0.05
        plain += compare_changes(a.ravel(), b.ravel()).p < 0.05
    least, most = nominal_range(TRIALS, 0.05)
    assert least <= robust <= most
    assert plain > 0.3 * TRIALS


def test_changes_that_cannot_be_compared_have_a_reason():
    assert math.isnan(mean_change([]).value) and "no two images" in in_words(mean_change([]).reason)
    one = mean_change([0.5])
    assert one.value == 0.5 and math.isnan(one.ci_low) and "fewer than two" in in_words(one.reason)
    empty = compare_changes([], [1.0])
    assert math.isnan(empty.value) and math.isnan(empty.p) and "no two images" in in_words(empty.reason)
    constant = compare_changes([1.0, 1.0], [1.0, 1.0])
    assert constant.value == 0 and math.isnan(constant.p) and "no test" in in_words(constant.reason)
