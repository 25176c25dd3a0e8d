"""Rankings of planted embeddings: intervals hold what was planted, and the tests reject as often as they should.

Coverage of 95% intervals over 300 to 400 worlds a case with 1,000 resamples; 1,000 (k = 500), 4,000 and 10,954 images
(k = 1,000), 2 and 7 groups, strengths 0 to 0.8, equal desired shares and those of the ranked set:

- Skew@k holds the planted skew in 92-98%;
- MaxSkew@k holds the largest planted skew in 92-98% (BCa alone: 85-94% where several groups lie close together);
- NDKL holds its own expectation in 93-98% where a strength is planted, and in 98-100% at strength 0, where the
  jackknife's standard error is half as large again as it need be.

At strength 0 the tests reject at 5% in 4-7% of the worlds; a thousand worlds are in the slow tests.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from benchmarks.calibration.worlds import planted_embeddings
from plumbline.metrics import MetricSettings
from plumbline.metrics.rankings.ndkl import ndkl_estimates
from plumbline.metrics.rankings.ranking import ImageClusters, RankedGroups
from plumbline.metrics.rankings.skew_at_k import sample_top, skew_estimates
from plumbline.statistics.rankings import rank_order

N, K = 600, 200
SETTINGS = MetricSettings(resamples=400, permutations=399)
BASE_RATE = 0.3
WORLDS = 40


def world(seed, *, beta, groups=3, n=N):
    """Draw n faces whose group is random, and rank them by the planted event's cosine."""
    rng = np.random.default_rng(seed)
    names = [str(i) for i in range(groups)]
    planted = planted_embeddings(3 * n, names, beta=beta, dim=2, rng=rng, base_rate=BASE_RATE)
    # Group sizes vary from world to world, as they do in a random sample.
    sizes = rng.multinomial(n, np.full(groups, 1 / groups))
    rows = np.concatenate([np.flatnonzero(planted.labels == g)[:s] for g, s in zip(names, sizes)])
    scores = (planted.images @ planted.texts[0])[rows]
    codes = np.searchsorted(names, planted.labels[rows])
    return RankedGroups(np.argsort(-scores, kind="stable")[None], codes, groups)


def planted_skews(beta, groups=3, share=K / N):
    """Return ln(share among the best / share in all) of each group, where infinitely many faces are ranked."""
    means = ndtri(BASE_RATE) + beta * np.linspace(1, -1, groups)
    bar = brentq(lambda t: ndtr(means - t).mean() - share, -20, 20)
    # Without a difference exactly 0, whatever the root finder leaves.
    return np.round(np.log(ndtr(means - bar) / share), 9)


@cache
def audit(seed, beta):
    """Return (skew estimates, max estimates, NDKL estimates) of a world, against equal and ranked shares."""
    ranked = world(seed, beta=beta)
    top = sample_top(ranked, k=K, settings=SETTINGS, labels=[str(seed)], with_totals=True)
    return {
        desired: (*skew_estimates(top, desired)[:2], ndkl_estimates(ranked, desired, settings=SETTINGS).estimate)
        for desired in ("equal", "ranked")
    }


def expected_hits(trials, share):
    """Return the counts between which hits fall all but once in a thousand runs."""
    return stats.binom.ppf([5e-4, 1 - 5e-4], trials, share)


def check_coverage(seeds, beta):
    truth = planted_skews(beta)
    held = {(desired, metric): 0 for desired in ("equal", "ranked") for metric in ("skew", "max", "ndkl")}
    ndkls = {"equal": [], "ranked": []}
    for found in (audit(seed, beta) for seed in seeds):
        for desired, (skew, largest, whole) in found.items():
            held[desired, "skew"] += int(skew.ci_low[0, 0] <= truth[0] <= skew.ci_high[0, 0])
            held[desired, "max"] += int(largest.ci_low[0] <= truth.max() <= largest.ci_high[0])
            ndkls[desired].append((whole.value[0], whole.ci_low[0], whole.ci_high[0]))
    for desired, rows in ndkls.items():
        value, low, high = np.array(rows).T
        held[desired, "ndkl"] = int(((low <= value.mean()) & (value.mean() <= high)).sum())
    for (desired, metric), hits in held.items():
        # Bootstrap and jackknife are nominal in the limit only; MaxSkew's and NDKL's may be wider than needed.
        least, most = expected_hits(len(seeds), 0.93)[0], expected_hits(len(seeds), 0.97)[1]
        assert least <= hits, (desired, metric, hits)
        assert hits <= most or metric != "skew", (desired, metric, hits)


def check_uniform_p(seeds):
    p = {"skew": [], "max": [], "ndkl": []}
    for found in (audit(seed, 0.0) for seed in seeds):
        for metric, estimates in zip(p, found["ranked"]):
            p[metric].append(float(estimates.p.ravel()[0]))
    for metric, values in p.items():
        for level in (0.05, 0.1, 0.25, 0.5):
            rejected = np.count_nonzero(np.array(values) <= level)
            # Counts are discrete: p is a little too large at times, never too small.
            least = expected_hits(len(seeds), level - 0.2 * level)[0]
            assert least <= rejected <= expected_hits(len(seeds), level)[1], (metric, level, rejected)


@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_intervals_hold_what_was_planted(beta):
    check_coverage(range(WORLDS), beta)


def test_p_is_uniform_where_nothing_was_planted():
    check_uniform_p(range(WORLDS))


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 0.2, 0.8])
def test_intervals_hold_what_was_planted_in_a_thousand_worlds(beta):
    check_coverage(range(1000, 2000), beta)


@pytest.mark.slow
def test_p_is_uniform_in_a_thousand_worlds():
    check_uniform_p(range(1000, 2000))


def test_estimates_follow_the_planted_strength_and_power_rises_with_it():
    strengths, power, ndkls = (0.0, 0.2, 0.4), [], []
    for beta in strengths:
        found = [audit(seed, beta)["equal"] for seed in range(WORLDS)]
        power.append([np.mean([estimates[i].p.ravel()[0] <= 0.05 for estimates in found]) for i in range(3)])
        skews = np.mean([estimates[0].value[0] for estimates in found], axis=0)
        np.testing.assert_allclose(skews, planted_skews(beta), atol=0.06)
        ndkls.append(np.mean([estimates[2].value[0] for estimates in found]))
    power = np.array(power)
    assert (power[0] <= 0.2).all() and (power[-1] >= 0.95).all()
    assert (np.diff(power, axis=0) >= -0.05).all() and (power[1] > power[0]).all()
    assert (np.diff(ndkls) > 0).all()


def test_the_sign_follows_the_planted_direction():
    up, down = (sample_top(world(7, beta=b), k=K, settings=SETTINGS, labels=["x"]) for b in (0.5, -0.5))
    first = [skew_estimates(top, "equal")[0].value[0] for top in (up, down)]
    assert first[0][0] > 0 > first[0][2] and first[1][0] < 0 < first[1][2]


def world_of_sets(seed, *, lean, whole, sets=60, size=4):
    """Draw sets of faces with a score in common; groups are mixed in each set, or whole sets are of one group."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(sets), size)
    groups = (rng.permutation(np.arange(sets) % 2)[own] if whole else np.tile(np.arange(size) % 2, sets)).astype(int)
    scores = rng.normal(size=sets)[own] + 0.5 * rng.normal(size=len(own)) + lean * groups
    order = np.argsort(-scores, kind="stable")[None]
    clusters = ImageClusters.of(own, groups, settings=SETTINGS, labels=[str(seed)])
    return RankedGroups(order, groups, 2, clusters)


@pytest.mark.parametrize("whole", [False, True])
def test_sets_hold_no_difference_at_the_nominal_rate(whole):
    seeds, held, p = range(WORLDS), {"skew": 0, "ndkl": 0}, {"skew": [], "max": [], "ndkl": []}
    ndkls = []
    for seed in seeds:
        ranked = world_of_sets(seed, lean=0.0, whole=whole)
        top = sample_top(ranked, k=ranked.n // 2, settings=SETTINGS, labels=[str(seed)])
        whole = ndkl_estimates(ranked, "ranked", settings=SETTINGS).estimate
        found = (*skew_estimates(top, "ranked")[:2], whole)
        held["skew"] += int(found[0].ci_low[0, 0] <= 0 <= found[0].ci_high[0, 0])
        ndkls.append((found[2].value[0], found[2].ci_low[0], found[2].ci_high[0]))
        for metric, estimates in zip(p, found):
            p[metric].append(float(estimates.p.ravel()[0]))
    value, low, high = np.array(ndkls).T
    held["ndkl"] = int(((low <= value.mean()) & (value.mean() <= high)).sum())
    for metric, hits in held.items():
        assert hits >= expected_hits(len(seeds), 0.92)[0], (metric, hits)
    for metric, values in p.items():
        for level in (0.1, 0.25, 0.5):
            rejected = np.count_nonzero(np.array(values) <= level)
            assert rejected <= expected_hits(len(seeds), level)[1], (metric, level, rejected)
            assert rejected >= expected_hits(len(seeds), 0.6 * level)[0], (metric, level, rejected)


@pytest.mark.parametrize("sizes", [(15, 15, 15), (15, 14, 9)])
def test_several_images_of_a_person_are_no_evidence_of_a_difference(sizes):
    """A person scores otherwise as each group: the test of single images rejects in half of these worlds."""
    p, groups = [], np.tile(np.repeat(np.arange(3), sizes), 12)
    sets = np.repeat(np.arange(12), sum(sizes))
    for seed in range(80):
        rng = np.random.default_rng(seed)
        scores = rng.normal(0, 0.7, (12, 3))[sets, groups] + rng.normal(size=len(sets))
        clusters = ImageClusters.of(sets, groups, settings=SETTINGS, labels=[str(seed)])
        ranked = RankedGroups(rank_order(scores), groups, 3, clusters)
        estimates = skew_estimates(sample_top(ranked, k=len(sets) // 2, settings=SETTINGS, labels=["a"]), "equal")
        ndkl = ndkl_estimates(ranked, "equal", settings=SETTINGS).estimate
        p.append([estimates.by_group[0, 0].p, estimates.largest[0].p, ndkl[0].p])
    for level in (0.05, 0.1, 0.25):
        assert (np.count_nonzero(np.array(p) <= level, axis=0) <= expected_hits(80, level)[1]).all(), level


def test_a_difference_within_sets_is_found_where_images_alone_would_hide_it():
    # The set's own score drowns the difference, unless labels are shuffled within sets.
    together, apart = [], []
    for seed in range(30):
        ranked = world_of_sets(seed, lean=0.25, whole=False)
        alone = replace(ranked, clusters=None)
        for each, ps in ((ranked, together), (alone, apart)):
            top = sample_top(each, k=each.n // 2, settings=SETTINGS, labels=[str(seed)])
            ps.append(skew_estimates(top, "equal")[0].p[0, 0])
    assert np.mean(np.array(together) <= 0.05) > np.mean(np.array(apart) <= 0.05) + 0.3
