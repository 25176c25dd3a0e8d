"""The auditor audited: embeddings with a planted bias of known size, through the metrics.

What "the interval covers no difference at its nominal rate" means, statement by statement:

- a group's proportion is unbiased, so its Wilson interval holds the true rate at the nominal rate;
- the signed difference of two groups is unbiased too, and the plain BCa interval holds 0 at strength 0;
- Max Skew, the parity difference and the impact ratio cannot fall below parity, so their estimates at strength
  0 always lie above it and a plain bootstrap interval would almost never hold it. Their intervals hold parity
  exactly when the permutation test does not reject, and the permutation p is uniform at strength 0: that makes
  the rate the nominal one.
"""

import numpy as np
import pytest
from scipy import stats

from benchmarks.calibration.worlds import planted_embeddings
from plumbline.metrics.disparities import RANGE_STATISTICS, SKEW_STATISTICS, skew_values
from plumbline.statistics import (
    bca,
    count_table,
    estimate_disparity,
    jackknife_tables,
    permute_tables,
    resample_tables,
    wilson,
)

SEEDS = 240
NOMINAL = 0.95


def planted_table(seed, *, beta, groups="ab", n=700):
    """Draw images, take their top-1 by cosine, and count them: (g, 2) events and others, and the true rates."""
    planted = planted_embeddings(n, list(groups), beta=beta, dim=3, rng=np.random.default_rng(seed))
    cosine = planted.images @ planted.texts.T / np.linalg.norm(planted.images, axis=1, keepdims=True)
    codes = np.searchsorted(list(groups), planted.labels)
    table = count_table(codes, cosine.argmax(axis=1), n_groups=len(groups), n_outcomes=2)
    return table, np.array([planted.rates[group] for group in groups])


def on_rates(value):
    return lambda tables: value(tables[..., 0], tables.sum(axis=-1))


READINGS = {each.metric: each.disparity_of_events() for each in (*SKEW_STATISTICS[:1], *RANGE_STATISTICS)}


def as_events(tables):
    return np.stack([tables[..., 0], tables.sum(axis=-1)], axis=-2)


def nominal_range(trials, share=NOMINAL):
    """Return the counts between which a correct interval's hits fall all but once in a thousand runs."""
    return stats.binom.ppf([5e-4, 1 - 5e-4], trials, share)


def estimate(table, reading, seed, resamples=400):
    rng = np.random.default_rng(seed)
    return estimate_disparity(
        as_events(table),
        READINGS[reading],
        resampled=as_events(resample_tables(table, resamples=resamples, rng=rng)),
        permuted=as_events(permute_tables(table, permutations=resamples - 1, rng=rng)),
        jackknife=lambda of_events: jackknife_tables(table, lambda tables: of_events(as_events(tables))),
    )


@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_wilson_holds_the_true_rate_at_the_nominal_rate(beta):
    hits = 0
    for seed in range(SEEDS):
        table, rates = planted_table(seed, beta=beta)
        low, high = wilson(table[:, 0], table.sum(axis=1))
        hits += int(((low <= rates) & (rates <= high)).sum())
    least, most = nominal_range(2 * SEEDS)
    assert least <= hits <= most


def test_the_signed_difference_holds_zero_at_strength_zero():
    def difference(tables):
        rates = tables[..., 0] / tables.sum(axis=-1)
        return rates[..., 0] - rates[..., 1]

    hits = 0
    for seed in range(SEEDS):
        table, _ = planted_table(seed, beta=0.0)
        replicates = difference(resample_tables(table, resamples=1000, rng=np.random.default_rng(seed)))
        acceleration = jackknife_tables(table, difference).acceleration
        interval = bca(float(difference(table)), replicates, acceleration=acceleration)
        hits += interval.ci_low <= 0 <= interval.ci_high
    least, most = nominal_range(SEEDS)
    assert least <= hits <= most


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("groups", ["ab", "abcdefg"])
def test_disparities_hold_parity_at_the_nominal_rate_at_strength_zero(reading, groups):
    parity, hits, p = READINGS[reading].parity, 0, []
    for seed in range(SEEDS):
        table, _ = planted_table(seed, beta=0.0, groups=groups)
        result = estimate(table, reading, seed)
        hits += result.ci_low <= parity <= result.ci_high
        p.append(result.p)
    least, most = nominal_range(SEEDS)
    assert least <= hits <= most
    # Uniform where it decides; counts are discrete, so p may be a little larger than uniform, never smaller.
    for level in (0.05, 0.1, 0.25):
        assert np.count_nonzero(np.array(p) <= level) <= stats.binom.ppf(1 - 5e-4, SEEDS, level)
        assert np.count_nonzero(np.array(p) <= level + 0.05) >= stats.binom.ppf(5e-4, SEEDS, level)


def test_plain_bca_of_max_skew_would_miss_parity():
    statistic = on_rates(skew_values)
    hits = 0
    for seed in range(60):
        table, _ = planted_table(seed, beta=0.0, groups="abcdefg")
        replicates = statistic(resample_tables(table, resamples=400, rng=np.random.default_rng(seed)))
        acceleration = jackknife_tables(table, statistic).acceleration
        interval = bca(float(statistic(table)), replicates, acceleration=acceleration)
        hits += interval.ci_low <= 0 <= interval.ci_high
    assert hits == 0


@pytest.mark.parametrize("reading", READINGS)
def test_intervals_hold_a_planted_disparity(reading):
    hits = 0
    for seed in range(SEEDS):
        table, rates = planted_table(seed, beta=0.3, n=2000)
        truth = float(READINGS[reading].value(np.stack([rates, np.ones(len(rates))]) * 1e9))
        result = estimate(table, reading, seed)
        hits += result.ci_low <= truth <= result.ci_high
        assert result.p < 0.05
    # Bootstrap intervals are nominal in the limit only: a point and a half of slack at this size.
    least, _ = nominal_range(SEEDS, NOMINAL - 0.015)
    assert hits >= least


def test_estimates_follow_the_planted_strength():
    strengths = np.linspace(0.0, 1.0, 6)
    for reading, direction in (("max_skew", 1), ("parity_difference", 1), ("impact_ratio", -1)):
        measured, true = [], []
        for beta in strengths:
            table, rates = planted_table(11, beta=beta, groups="abc", n=30_000)
            measured.append(float(READINGS[reading].value(as_events(table))))
            true.append(float(READINGS[reading].value(np.stack([rates, np.ones(len(rates))]) * 1e9)))
        assert (np.diff(measured) * direction > 0).all()
        np.testing.assert_allclose(measured, true, rtol=0.12, atol=0.05)
