"""Intervals from counts against scipy, which resamples the images themselves."""

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import MetricError
from plumbline.metrics.disparities import log_rates, skew_values
from plumbline.reasons import in_words
from plumbline.statistics import bca, estimate_disparity, jackknife_tables, percentile, resample_tables, wilson
from plumbline.statistics.maxima import Disparity
from plumbline.statistics.permutation import permute_tables


def skew(tables):
    return skew_values(tables[..., 0], tables.sum(axis=-1))


def log_levels(tables):
    return log_rates(tables[..., 0], tables.sum(axis=-1))[..., None, :]


MEAN_SKEW = Disparity(skew, log_levels, over="pairs", scale="relative")
TABLE = np.array([[45, 105], [30, 110], [20, 140]])


def images(table):
    """Return each group's images as 1 for the event, 0 for not."""
    return [np.repeat([1.0, 0.0], row) for row in table]


def skew_of_images(*groups, axis):
    rates = np.stack([group.mean(axis=axis) for group in groups])
    pairs = [(a, b) for a in range(len(rates)) for b in range(a + 1, len(rates))]
    gaps = [np.maximum(rates[a], rates[b]) / np.minimum(rates[a], rates[b]) - 1 for a, b in pairs]
    return np.mean(gaps, axis=0)


@pytest.mark.parametrize("method", ["BCa", "percentile"])
def test_intervals_from_counts_agree_with_scipy_on_the_images(method):
    resamples = 20_000
    slow = stats.bootstrap(
        images(TABLE), skew_of_images, n_resamples=resamples, batch=1000, method=method,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    replicates = skew(resample_tables(TABLE, resamples=resamples, rng=np.random.default_rng(2)))
    if method == "percentile":
        fast = percentile(float(skew(TABLE)), replicates)
    else:
        acceleration = jackknife_tables(TABLE, skew).acceleration
        fast = bca(float(skew(TABLE)), replicates, acceleration=acceleration)
    spread = slow.standard_error
    assert fast.ci_low == pytest.approx(slow.confidence_interval.low, abs=0.05 * spread)
    assert fast.ci_high == pytest.approx(slow.confidence_interval.high, abs=0.05 * spread)
    assert replicates.std(ddof=1) == pytest.approx(spread, rel=0.03)


def test_bca_equals_scipy_on_the_same_replicates():
    slow = stats.bootstrap(images(TABLE), skew_of_images, n_resamples=2000, method="BCa", rng=np.random.default_rng(3))
    acceleration = jackknife_tables(TABLE, skew).acceleration
    fast = bca(float(skew(TABLE)), slow.bootstrap_distribution, acceleration=acceleration)
    assert [fast.ci_low, fast.ci_high] == pytest.approx(list(slow.confidence_interval), rel=1e-6)


def test_jackknife_by_cell_equals_leaving_out_every_image():
    one_by_one = []
    for g, row in enumerate(TABLE):
        for c in (0, 1):
            without = TABLE.copy()
            without[g, c] -= 1
            one_by_one += [skew(without)] * row[c]
    jackknife = jackknife_tables(TABLE, skew)
    np.testing.assert_allclose(np.repeat(jackknife.values.ravel(), jackknife.counts.ravel()), one_by_one)


def test_wilson_is_statsmodels_and_undefined_without_trials():
    low, high = wilson([0, 5, 10, 0], [10, 10, 10, 0])
    np.testing.assert_allclose(low[:3], [0, 0.236593, 0.722467], atol=1e-6)
    np.testing.assert_allclose(high[:3], [0.277533, 0.763407, 1], atol=1e-6)
    assert np.isnan([low[3], high[3]]).all()
    for k in (0, 3, 7):
        exact = stats.binomtest(k, 7).proportion_ci(method="wilson")
        np.testing.assert_allclose(np.ravel(wilson(k, 7)), [exact.low, exact.high], atol=1e-12)
    with pytest.raises(MetricError):
        wilson(3, 2)


def test_undefined_replicates_are_left_out_up_to_a_limit_and_counted():
    rng = np.random.default_rng(4)
    values = rng.normal(size=1000)
    values[:40] = np.nan
    few = bca(0.0, values, acceleration=0.0)
    assert few.ci_low < 0 < few.ci_high and in_words(few.reason) == "undefined in 40 of 1000 resamples"
    values[:60] = np.nan
    many = bca(0.0, values, acceleration=0.0)
    assert np.isnan([many.ci_low, many.ci_high]).all()
    assert in_words(many.reason) == "no interval: undefined in 60 of 1000 resamples"


@pytest.mark.parametrize(
    ("estimate", "replicates", "acceleration", "reason"),
    [
        (np.nan, [1.0, 2.0], 0.0, "estimate undefined"),
        (1.0, [1.0, 1.0], 0.0, "no interval: the resamples do not vary"),
        (1.5, [np.nan, np.nan], 0.0, "no interval: undefined in 2 of 2 resamples"),
    ],
)
def test_an_undefined_interval_says_why(estimate, replicates, acceleration, reason):
    interval = bca(estimate, replicates, acceleration=acceleration, null=0.0)
    assert np.isnan([interval.ci_low, interval.ci_high, interval.p]).all()
    assert in_words(interval.reason) == reason


@pytest.mark.parametrize("value", [-1.0, 9.0])
def test_an_estimate_beside_all_its_replicates_has_the_percentile_interval(value):
    replicates = np.random.default_rng(0).uniform(1, 2, 400)
    found, plain = bca(value, replicates, acceleration=0.1, null=1.1), percentile(value, replicates)
    assert (found.ci_low, found.ci_high) == (plain.ci_low, plain.ci_high)
    words = "percentile interval: every resample lies on one side of the estimate"
    assert in_words(found.reason) == words and plain.reason == ()
    assert found.p == pytest.approx(2 * (replicates < 1.1).mean(), abs=1e-12)
    replicates[:3] = np.nan
    assert in_words(bca(value, replicates, acceleration=0.1).reason) == f"undefined in 3 of 400 resamples; {words}"


def test_without_acceleration_the_interval_is_the_bias_corrected_one():
    replicates = np.random.default_rng(0).gamma(3, size=400)
    found, corrected = (bca(2.5, replicates, acceleration=a, null=1.0) for a in (np.nan, 0.0))
    assert found == corrected and found.reason == ()


def estimate(table, seed, resamples=1000):
    rng = np.random.default_rng(seed)
    return estimate_disparity(
        np.asarray(table),
        MEAN_SKEW,
        resampled=resample_tables(table, resamples=resamples, rng=rng),
        permuted=permute_tables(table, permutations=resamples - 1, rng=rng),
    )


def test_the_interval_of_a_disparity_holds_parity_exactly_when_the_test_does_not_reject():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.binomial(400, [0.2, 0.26])
        result = estimate(np.stack([x, 400 - x], axis=1), seed)
        assert (result.ci_low == 0) == (result.p > 0.05)
        assert result.ci_low <= result.value <= result.ci_high
        assert ("reaches_parity" in [one.code for one in result.reason]) == (result.p > 0.05)


def test_an_undefined_estimate_has_no_interval_and_no_p():
    result = estimate([[0, 10], [3, 7]], 0)
    assert np.isnan([result.value, result.ci_low, result.ci_high, result.p]).all()


def test_replicates_that_tie_with_the_value_count_half_on_either_side():
    """Half of the ties lie below, so there is no bias to correct and the ends are the percentiles."""
    found = bca(1.0, np.repeat([0.0, 1.0, 2.0], [20, 60, 20]), acceleration=0.0)
    assert (found.ci_low, found.ci_high) == (0.0, 2.0)
