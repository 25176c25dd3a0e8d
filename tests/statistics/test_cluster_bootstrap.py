"""Numbers that come in sets: each fast way against the slow, obvious one, and how often intervals hold the truth."""

import itertools

import numpy as np
import pytest
from scipy import stats

from plumbline.errors import MetricError
from plumbline.reasons import in_words
from plumbline.statistics import bootstrap, cluster_permutation
from plumbline.statistics.bootstrap import bit_blocks, weight_blocks
from plumbline.statistics.cluster_bootstrap import (
    WeightedQuantile,
    cluster_summaries,
    group_means,
    group_quantiles,
    paired_cluster_changes,
)
from plumbline.statistics.cluster_gaps import group_gap
from plumbline.statistics.intervals import percentile

BOOT = {"resamples": 500, "confidence": 0.95}


def rng(seed=0):
    return np.random.default_rng(seed)


def cluster_mean(values, own, **keywords):
    """Return the mean of one column."""
    return cluster_summaries(values, own, quantile=0.5, **keywords)[0].mean


def cluster_quantile(values, own, *, quantile, **keywords):
    """Return a quantile of one column."""
    return cluster_summaries(values, own, quantile=quantile, **keywords)[0].quantile


def people(sets, seeds, draw, *, common=0.7):
    """Return skewed values of which the seeds of a set share a part, and their sets."""
    own = np.repeat(np.arange(sets), seeds)
    return common * draw.exponential(1, sets)[own] + (1 - common) * draw.exponential(1, len(own)), own


def repeated(values, own, times):
    """Return the values of a draw, one by one."""
    return np.repeat(values, times[own].astype(int))


@pytest.mark.parametrize("n", [1, 2, 3, 40, 700])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 1.0])
def test_a_weighted_quantile_is_that_of_the_repeated_values(n, quantile):
    draw = rng(n)
    values, own = np.round(draw.normal(size=n), 1), draw.integers(0, max(1, n // 3), n)
    units = int(own.max()) + 1
    times = draw.integers(0, 4, size=(60, units)).astype(float)
    found = WeightedQuantile.from_values(values, own, n_units=units, quantile=quantile).at(times)
    for each, row in zip(found, times):
        sample = repeated(values, own, row)
        assert np.isnan(each) if not sample.size else each == pytest.approx(np.quantile(sample, quantile), abs=1e-12)


def test_draws_are_as_many_sets_as_there_are_in_blocks_of_bounded_size(monkeypatch):
    monkeypatch.setattr(bootstrap, "_BLOCK", 70)
    strata = np.array([0, 0, 0, 1, 1, 2, 0, 1, 2, 2])
    blocks = list(weight_blocks(10, resamples=25, rng=rng(), strata=strata))
    assert [len(block) for block in blocks] == [7, 7, 7, 4]
    for stratum in range(3):
        assert (np.concatenate(blocks)[:, strata == stratum].sum(axis=1) == (strata == stratum).sum()).all()
    coins = np.concatenate(list(bit_blocks(10, draws=200, rng=rng())))
    assert coins.shape == (200, 10) and set(np.unique(coins)) == {0, 1} and 0.4 < coins.mean() < 0.6


def slow_error(values, own, times=None):
    """Return the cluster-robust error of a mean, each set as often as it was drawn, as if each were another set."""
    times = np.ones(own.max() + 1) if times is None else times
    mean = np.average(values, weights=times[own])
    rests = [(values[own == s] - mean).sum() ** 2 for s in range(len(times))]
    held = np.unique(own).size
    return np.sqrt(held / (held - 1) * np.dot(times, rests)) / times[own].sum()


def slow_mean_interval(values, own, drawn):
    """Return the wider ends of bootstrap-t and Student's t, resample by resample."""
    mean, error = values.mean(), slow_error(values, own)
    ts = [(repeated(values, own, row).mean() - mean) / max(slow_error(values, own, row), 0.2 * error) for row in drawn]
    low, high = np.quantile(ts, [0.025, 0.975])
    t = stats.t.ppf(0.975, np.unique(own).size - 1)
    return mean - max(high, t) * error, mean - min(low, -t) * error


def slow_quantile_interval(values, own, quantile):
    """Return Woodruff's interval."""
    at = np.quantile(values, quantile)
    error = max(slow_error(hit.astype(float), own) for hit in (values <= at, values < at))
    away = stats.t.ppf(0.975, np.unique(own).size - 1) * error
    return np.quantile(values, np.clip([quantile - away, quantile + away], 0, 1))


def test_mean_and_quantile_are_those_of_gathered_sets():
    values, own = people(40, 3, rng())
    values, own = values[:-2], own[:-2]  # one set is smaller
    times = np.concatenate(list(weight_blocks(40, resamples=500, rng=rng(1))))
    fast = cluster_mean(values, own, rng=rng(1), **BOOT)
    assert (fast.value, fast.n, fast.p, fast.reason) == (pytest.approx(values.mean()), 40, None, ())
    assert (fast.ci_low, fast.ci_high) == pytest.approx(slow_mean_interval(values, own, times), abs=1e-12)
    fast = cluster_quantile(values, own, quantile=0.9, rng=rng(1), **BOOT)
    assert (fast.value, fast.ci_low, fast.ci_high) == pytest.approx(
        (np.quantile(values, 0.9), *slow_quantile_interval(values, own, 0.9)), abs=1e-12
    )


def test_columns_asked_for_at_once_are_as_asked_for_one_by_one():
    values, own = people(25, 3, rng())
    both = cluster_summaries(np.stack([values, values**2], axis=1), own, quantile=0.9, rng=rng(2), **BOOT)
    for column, found in zip((values, values**2), both):
        mean = cluster_mean(column, own, rng=rng(2), **BOOT)
        assert (found.mean.ci_low, found.mean.ci_high) == pytest.approx((mean.ci_low, mean.ci_high))
        assert found.quantile == cluster_quantile(column, own, quantile=0.9, rng=rng(2), **BOOT)


def test_neither_row_order_nor_names_of_sets_matter():
    values, own = people(25, 3, rng())
    order = rng(3).permutation(len(values))
    first = cluster_summaries(values, own, quantile=0.9, rng=rng(2), **BOOT)[0]
    second = cluster_summaries(values[order], own[order] * 7 + 100, quantile=0.9, rng=rng(2), **BOOT)[0]
    for one, other in zip(first, second):
        assert (other.value, other.ci_low, other.ci_high) == pytest.approx((one.value, one.ci_low, one.ci_high))


def test_what_cannot_be_said_is_nan_with_the_reason():
    none = cluster_mean([], [], rng=rng(), **BOOT)
    assert np.isnan(none.value) and none.n == 0 and in_words(none.reason) == "undefined: no values"
    one = cluster_quantile([1.0, 2.0], [5, 5], quantile=0.5, rng=rng(), **BOOT)
    assert one.value == 1.5 and np.isnan(one.ci_low) and in_words(one.reason) == "no interval: only one set"
    alike = cluster_mean(np.ones(60), np.arange(60), rng=rng(), **BOOT)
    assert alike.value == 1 and np.isnan(alike.ci_high) and "do not vary" in in_words(alike.reason)
    few = cluster_mean(rng().random(9), np.arange(9) // 3, rng=rng(), **BOOT)
    assert in_words(few.reason).startswith("interval from only 3 sets")


def test_resamples_of_nearly_equal_values_leave_an_end_and_a_tied_quantile_an_interval():
    rare = np.zeros(40)
    rare[:2] = 1.0
    found = cluster_mean(rare, np.arange(40), rng=rng(), **BOOT)
    assert 0.1 < found.ci_high < 1 and found.ci_low < 0.05
    scores = np.repeat([1.0, 2.0, 3.0], [30, 4, 6])
    tied = cluster_quantile(scores, np.arange(40), quantile=0.9, rng=rng(), **BOOT)
    assert (tied.value, tied.ci_low, tied.ci_high) == (3, 2, 3)


@pytest.mark.parametrize(("sets", "quantile", "beyond"), [(99, 0.9, 10), (60, 0.9, 6), (80, 0.1, 8)])
def test_a_quantile_with_few_sets_beyond_it_says_so(sets, quantile, beyond):
    said = f"interval of a quantile with only about {beyond} of {sets} sets beyond it"
    values, own = people(sets, 2, rng())
    both = cluster_summaries(values, own, quantile=quantile, rng=rng(), **BOOT)[0]
    assert in_words(both.quantile.reason) == said and both.mean.reason == ()
    groups = group_quantiles(values, np.zeros(len(own), int), own, quantile=quantile, n_groups=1)
    assert in_words(groups[0].reason) == said
    change = paired_cluster_changes(values, values**2, own, quantile=quantile, permutations=20, rng=rng(), **BOOT)
    assert in_words(change.reason).startswith(said)
    values, own = people(100, 2, rng())
    assert cluster_quantile(values, own, quantile=quantile, rng=rng(), **BOOT).reason == ()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cluster_mean([1.0, np.nan], [0, 1], rng=rng(), **BOOT), "nan"),
        (lambda: cluster_mean([1.0], [0, 1], rng=rng(), **BOOT), "same rows"),
        (lambda: cluster_mean([1.0], [0], resamples=0, rng=rng()), "resamples"),
        (lambda: group_means([1.0], [2], [0], n_groups=2, rng=rng(), **BOOT), "group"),
        (lambda: group_gap([1.0], [0], [0], n_groups=2, permutations=0, rng=rng(), **BOOT), "permutation"),
        (
            lambda: paired_cluster_changes([1.0], [1.0, 2], [0], quantile=None, permutations=9, rng=rng(), **BOOT),
            "pairs",
        ),
    ],
)
def test_wrong_input_is_refused(call, words):
    with pytest.raises(MetricError, match=words):
        call()


PAIRED = {**BOOT, "permutations": 999}


@pytest.mark.parametrize("quantile", [None, 0.75])
def test_a_paired_change_is_tested_by_swapping_whole_sets(quantile):
    draw = rng(4)
    before, own = people(8, 2, draw)
    after = before + 0.1 + draw.normal(0, 0.3, len(before))

    def statistic(first, second):
        ends = [side.mean() if quantile is None else np.quantile(side, quantile) for side in (first, second)]
        return ends[1] - ends[0]

    swapped = []
    for coins in itertools.product([False, True], repeat=8):
        swap = np.array(coins)[own]
        swapped.append(statistic(np.where(swap, after, before), np.where(swap, before, after)))
    value = statistic(before, after)
    exact = (np.abs(swapped) >= abs(value) - 1e-12).mean()
    found = paired_cluster_changes(
        before, after, own, quantile=quantile, resamples=500, permutations=20_000, rng=rng(), confidence=0.95
    )
    assert found.value == pytest.approx(value, abs=1e-12) and found.n == 8
    # The other part of p, from the interval, may be the larger one.
    assert found.p >= exact - 0.015
    if found.p > exact + 0.015:
        assert found.ci_low < 0 < found.ci_high or found.p < 0.05


def test_a_paired_change_of_a_quantile_is_drawn_on_both_sides_at_once():
    draw = rng(4)
    before, own = people(40, 3, draw)
    after = before * 0.8
    found = paired_cluster_changes(before, after, own, quantile=0.9, rng=rng(7), **PAIRED)
    times = np.concatenate(list(weight_blocks(40, resamples=500, rng=rng(7))))
    slow = [np.quantile(repeated(after, own, t), 0.9) - np.quantile(repeated(before, own, t), 0.9) for t in times]
    interval = percentile(0.0, slow)
    assert (found.ci_low, found.ci_high) == pytest.approx((interval.ci_low, interval.ci_high), abs=1e-12)
    assert found.ci_high < 0 and found.p < 0.05


@pytest.mark.parametrize("quantile", [None, 0.9])
def test_no_change_is_exactly_none(quantile):
    values, own = people(30, 3, rng())
    found = paired_cluster_changes(values, values, own, quantile=quantile, rng=rng(), **PAIRED)
    assert (found.value, found.p) == (0.0, 1.0) and "do not vary" in in_words(found.reason)


def test_group_means_where_sets_are_of_one_group_are_those_of_each_alone():
    draw = rng(5)
    own = np.repeat(np.arange(60), 2)
    groups = np.repeat(np.arange(60) % 2, 2)
    values = draw.exponential(1, 60)[own] + groups
    found = group_means(values, groups, own, n_groups=3, rng=rng(), **BOOT)
    for group in (0, 1):
        inside = groups == group
        alone = cluster_mean(values[inside], own[inside], resamples=4000, rng=rng())
        assert found[group].value == pytest.approx(alone.value) and found[group].n == 30
        width = alone.ci_high - alone.ci_low
        assert found[group].ci_low == pytest.approx(alone.ci_low, abs=0.12 * width)
        assert found[group].ci_high == pytest.approx(alone.ci_high, abs=0.12 * width)
    assert np.isnan(found[2].value) and in_words(found[2].reason) == "undefined: no values"


def test_group_means_and_quantiles_of_mixed_sets_are_drawn_with_their_sets():
    draw = rng(6)
    own = np.repeat(np.arange(25), 6)
    groups = np.tile([0, 0, 1, 1, 2, -1], 25)
    values = draw.normal(size=25)[own] + draw.normal(size=len(own)) / 3
    times = np.concatenate(list(weight_blocks(25, resamples=500, rng=rng(1))))
    quantiles = group_quantiles(values, groups, own, quantile=0.9, n_groups=3)
    means = group_means(values, groups, own, n_groups=3, rng=rng(1), **BOOT)
    for group in range(3):
        inside = groups == group
        slow = slow_quantile_interval(values[inside], own[inside], 0.9)
        assert quantiles[group].value == pytest.approx(np.quantile(values[inside], 0.9))
        assert (quantiles[group].ci_low, quantiles[group].ci_high) == pytest.approx(slow)
        slow = slow_mean_interval(values[inside], own[inside], times)
        assert (means[group].ci_low, means[group].ci_high) == pytest.approx(slow)


def test_a_gap_and_a_ratio_by_hand():
    values, groups = np.array([1.0, 2, 4, 3, 4, 8] * 20), np.tile([0, 1, 2], 40)
    own = np.repeat(np.arange(40), 3)
    values = values + np.repeat(np.arange(40), 3) * 0.01 - 0.195
    keywords = {"n_groups": 4, "rng": rng(), **PAIRED}
    gap = group_gap(values, groups, own, **keywords)
    assert gap.value == pytest.approx(4) and gap.n == 40 and gap.p == pytest.approx(1 / 1000) and gap.ci_low > 0
    ratio = group_gap(values, groups, own, kind="ratio", **keywords)
    assert ratio.value == pytest.approx(3) and 2 < ratio.ci_low < 3 < ratio.ci_high < 4
    zero = group_gap(values * (groups > 0), groups, own, kind="ratio", **keywords)
    assert np.isnan(zero.value) and "not above 0" in in_words(zero.reason)
    alone = group_gap(values, np.zeros(120, int), own, **keywords)
    assert np.isnan(alone.value) and np.isnan(alone.p) and "two groups" in in_words(alone.reason)


def test_a_gap_reaches_parity_exactly_where_the_test_does_not_reject():
    draw = rng(8)
    own, groups = np.repeat(np.arange(40), 3), np.tile([0, 1, 2], 40)
    for effect in (0.0, 2.0):
        values = draw.normal(size=120) + effect * groups
        found = group_gap(values, groups, own, n_groups=3, rng=rng(), **PAIRED)
        assert (found.p > 0.05) == (found.ci_low == 0) == (effect == 0)


@pytest.mark.parametrize("mixed", [True, False])
def test_the_seeds_of_an_image_are_dealt_together(mixed):
    """Shuffling single values would find a difference in about half of these worlds, where there is none."""
    draw, rejected = rng(9), 0
    for _ in range(120):
        image = np.repeat(np.arange(60), 3)
        groups = np.repeat(np.tile([0, 1, 2], 20), 3)
        values = draw.normal(size=60)[image] + draw.normal(size=180) / 10
        own = image // 3 if mixed else image
        found = group_gap(values, groups, own, n_groups=3, resamples=20, permutations=99, rng=draw, confidence=0.95)
        rejected += found.p <= 0.05
    assert rejected <= 13


def test_blocks_do_not_change_what_is_dealt(monkeypatch):
    draw = rng(10)
    own, groups = np.repeat(np.arange(30), 4), np.tile(np.arange(4), 30)
    values = draw.normal(size=120)
    keywords = {"n_groups": 4, "resamples": 300, "permutations": 3000, "confidence": 0.95}
    whole = group_gap(values, groups, own, rng=rng(1), **keywords)
    monkeypatch.setattr(cluster_permutation, "_BLOCK", 1000)
    assert group_gap(values, groups, own, rng=rng(1), **keywords).p == pytest.approx(whole.p, abs=0.04)


def covered(worlds, sets, *, resamples=400):
    """Return how often the intervals of a mean, a 90th percentile and a paired change hold the truth."""
    draw = rng(11)
    population, _ = people(200_000, 3, draw)
    truth = (population.mean(), np.quantile(population, 0.9), -0.2 * population.mean())
    held = np.zeros(3)
    for _ in range(worlds):
        values, own = people(sets, 3, draw)
        mean, quantile = cluster_summaries(values, own, quantile=0.9, resamples=resamples, rng=draw)[0]
        change = paired_cluster_changes(
            values, values * draw.uniform(0.6, 1, sets)[own], own, quantile=None, resamples=resamples,
            permutations=1, rng=draw,
        )  # fmt: skip
        for place, (found, true) in enumerate(zip((mean, quantile, change), truth)):
            held[place] += found.ci_low <= true <= found.ci_high
    return held / worlds


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    assert (covered(100, 60, resamples=200) >= 0.86).all()


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    held = covered(2000, 100, resamples=1000)
    # That of a change reaches 0 where the test does not reject, so that it holds the truth more often.
    assert (held >= 0.92).all() and (held <= [0.97, 0.97, 0.98]).all()


@pytest.mark.slow
def test_a_paired_change_of_a_quantile_keeps_its_level():
    draw, rejected = rng(12), 0
    for _ in range(600):
        before, own = people(60, 3, draw)
        swap = draw.random(60) < 0.5
        other = before * draw.uniform(0.5, 1.5, 60)[own]
        sides = np.where(swap[own], before, other), np.where(swap[own], other, before)
        found = paired_cluster_changes(*sides, own, quantile=0.9, resamples=300, permutations=300, rng=draw)
        rejected += found.p <= 0.05
    assert rejected / 600 < 0.07


def gaps_covered(groups, worlds, *, kind="difference", sets=40, spread=0.2, resamples=200, permutations=99):
    """Return how often the interval of a gap holds the truth where the test rejects, and in all."""
    draw = rng(13)
    means = 2 + np.linspace(0, spread, groups)
    true = {"difference": spread, "ratio": 1 + spread / 2, "deviation": means.std()}[kind]
    own, group = np.repeat(np.arange(sets), groups), np.tile(np.arange(groups), sets)
    held, rejected = [], []
    for _ in range(worlds):
        values = means[group] + 0.5 * draw.normal(size=sets)[own] + 0.5 * draw.normal(size=len(own))
        found = group_gap(
            values, group, own, n_groups=groups, resamples=resamples, permutations=permutations, rng=draw,
            kind=kind,
        )  # fmt: skip
        assert found.ci_low <= found.value <= found.ci_high
        held.append(found.ci_low <= true <= found.ci_high)
        rejected.append(found.p <= 0.05)
    return np.mean(np.array(held)[rejected]), np.mean(held)


@pytest.mark.parametrize("groups", [12, 30])
def test_the_interval_of_a_gap_of_many_groups_holds_the_truth(groups):
    """BCa of the gap itself holds it in 73% and 66% of these worlds, and in almost none where the test rejects."""
    assert min(gaps_covered(groups, 60)) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["difference", "ratio", "deviation"])
@pytest.mark.parametrize("groups", [2, 12, 30])
def test_the_interval_of_a_gap_holds_the_truth_as_often_as_it_says(groups, kind):
    for spread in (0.0, 0.1, 0.3, 1.0):
        held = gaps_covered(groups, 400, kind=kind, spread=spread, resamples=500, permutations=199)[1]
        assert held >= 0.92, spread


@pytest.mark.parametrize(("means", "contenders"), [(range(6), 1), ([0, 0, 0, 5, 5, 5], 9)])
def test_the_bounds_of_a_gap_count_the_pairs_that_may_be_the_outermost(means, contenders):
    """Bonferroni's below, over the pairs that may lie furthest apart, and Student's above."""
    draw, groups = rng(14), 6
    own, group = np.repeat(np.arange(400), groups), np.tile(np.arange(groups), 400)
    values = np.array(means)[group] + draw.normal(size=len(own))
    found = group_gap(values, group, own, n_groups=groups, resamples=4000, permutations=50, rng=draw)
    error = np.sqrt(2 / 400)
    assert (found.value - found.ci_low) / error == pytest.approx(stats.norm.ppf(1 - 0.025 / contenders), rel=0.1)
    assert (found.ci_high - found.value) / error == pytest.approx(1.96, rel=0.1)


def test_a_gap_says_what_chance_alone_would_make_of_it():
    draw = rng(15)
    own, group = np.repeat(np.arange(40), 12), np.tile(np.arange(12), 40)
    values = draw.normal(size=len(own))
    found = group_gap(values, group, own, n_groups=12, rng=draw, **PAIRED)
    chance = next(one for one in found.reason if one.code == "biased_upwards").params["bias"]
    # The mean range of twelve standard normal numbers is 3.258 (Tippett 1925).
    assert chance == pytest.approx(3.258 / np.sqrt(40), rel=0.1)
    assert in_words(found.reason).endswith("; interval reaches parity: no significant difference")
    large = group_gap(values + 5 * group, group, own, n_groups=12, rng=draw, **PAIRED)
    assert large.reason == ()


def test_a_gap_with_a_group_in_one_set_has_no_interval():
    values, group, own = [1.0, 2, 3, 4, 5], [0, 1, 0, 1, 2], [0, 0, 1, 1, 1]
    found = group_gap(values, group, own, n_groups=3, rng=rng(), **PAIRED)
    assert found.value == 3 and np.isnan(found.ci_low) and "a group is in one set only" in in_words(found.reason)


def test_a_gap_of_one_resample_has_no_interval_and_says_why():
    """A single bootstrap replicate has no spread."""
    gap = group_gap([1.0, 2, 3, 4], [0, 0, 1, 1], range(4), n_groups=2, resamples=1, permutations=9, rng=rng())
    assert np.isnan(gap.ci_low) and "no interval: fewer than two resamples" in in_words(gap.reason)
