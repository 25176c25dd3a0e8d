"""Directional bias, its shift between templates, harm by its size, pairwise cosines, rank agreement: hand and loop."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from plumbline.errors import MetricError
from plumbline.metrics import (
    directional_bias,
    directional_bias_gap,
    harm_by_bias_size,
    intra_set_cosine,
    rank_agreement,
    template_shift,
)
from plumbline.metrics.robustness.rows import EDGES, softmax_margin
from plumbline.reasons import in_words
from plumbline.statistics.jackknife import hotelling_p_value


def nominal_range(trials, share=0.95):
    """Return the counts that a binomial of that share leaves once in a thousand."""
    return stats.binom.ppf(0.0005, trials, share), stats.binom.ppf(0.9995, trials, share)


def ends_of(estimate):
    return estimate.ci_low, estimate.ci_high


# --- directional bias


def test_directional_bias_by_hand():
    # 3/10 and 1/10 against 1/5, 1/10 and 0; then 1/5 and 0 against three times 1/5.
    found = directional_bias([[0.3, 0.1], [0.2, 0.0]], [[0.2, 0.1, 0.0], [0.2, 0.2, 0.2]])
    np.testing.assert_allclose(found.delta, [1 / 10, -1 / 10], atol=1e-12)
    assert found.mean.value == pytest.approx(0, abs=1e-12) and found.mean.n == 2
    assert found.sd.value == pytest.approx(np.sqrt(2) / 10, abs=1e-12)


def test_directional_bias_is_the_loop_under_every_template():
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(size=(50, 3, 4)), rng.normal(size=(50, 3, 6))
    found = directional_bias(positive, negative)
    for t in range(3):
        loop = [sum(p) / 4 - sum(q) / 6 for p, q in zip(positive[:, t].tolist(), negative[:, t].tolist())]
        np.testing.assert_allclose(found.delta[:, t], loop, atol=1e-12)
        one_sample = stats.ttest_1samp(loop, 0).confidence_interval(0.95)
        np.testing.assert_allclose(ends_of(found.mean[t]), [one_sample.low, one_sample.high], rtol=1e-9)
        assert found.sd.value[t] == pytest.approx(np.std(loop, ddof=1))


def test_the_interval_of_the_spread_holds_it_at_the_nominal_rate():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        found = directional_bias(rng.normal(scale=0.3, size=(300, 1)), np.zeros((300, 1)))
        low, high = ends_of(found.sd)
        held += low <= 0.3 <= high
    low, high = nominal_range(400)
    assert low <= held <= high


def test_sets_are_the_units_of_the_interval():
    rng = np.random.default_rng(2)
    sets = np.repeat(np.arange(40), 6)
    values = (rng.normal(size=40)[sets] + 0.1 * rng.normal(size=240))[:, None]
    alone = directional_bias(values, np.zeros_like(values))
    grouped = directional_bias(values, np.zeros_like(values), clusters=sets)
    means = stats.ttest_1samp(values.reshape(40, 6).mean(axis=1), 0).confidence_interval(0.95)
    np.testing.assert_allclose(ends_of(grouped.mean), [means.low, means.high], rtol=1e-9)
    assert np.ptp(ends_of(grouped.mean)) > 2 * np.ptp(ends_of(alone.mean))


def test_directional_bias_of_few_images():
    one = directional_bias([[0.3]], [[0.1]])
    assert one.mean.value == pytest.approx(0.2) and np.isnan(one.sd.value) and np.isnan(ends_of(one.mean)).all()
    assert "fewer than two" in in_words(one.mean.reason[0])
    none = directional_bias(np.empty((0, 3, 2)), np.empty((0, 3, 1)))
    assert np.isnan(none.mean.value).all() and none.mean.value.shape == (3,)
    assert in_words(none.mean[0].reason) == "no images"


@pytest.mark.parametrize(
    ("positive", "negative"),
    [(np.zeros((3, 2)), np.zeros((4, 2))), (np.zeros((3, 0)), np.zeros((3, 2))), (np.zeros(3), np.zeros(3)),
     (np.full((3, 2), np.nan), np.zeros((3, 2)))],
)  # fmt: skip
def test_poles_that_do_not_fit_are_refused(positive, negative):
    with pytest.raises(MetricError):
        directional_bias(positive, negative)


# --- template shift


def test_template_shift_by_hand():
    # Means 1/20, 1/5 and 0: the last two are 1/5 apart.
    found = template_shift([[0.10, 0.15, -0.05], [0.00, 0.25, 0.05]])
    assert found.value == pytest.approx(1 / 5, abs=1e-12) and found.between == (1, 2) and found.n == 2


def test_template_shift_is_the_largest_pair_with_the_paired_t_interval():
    rng = np.random.default_rng(3)
    delta = rng.normal(size=(200, 1)) + rng.normal(scale=0.2, size=(200, 3)) + [0.0, 0.5, 0.1]
    found = template_shift(delta)
    means = delta.mean(axis=0)
    assert found.value == pytest.approx(max(abs(a - b) for a, b in combinations(means, 2)))
    paired = stats.ttest_rel(delta[:, 1], delta[:, 0]).confidence_interval(0.95)
    assert (found.ci_low, found.ci_high) == pytest.approx((paired.low, paired.high))
    assert found.p < 1e-6 and found.reason == ()


def test_with_two_templates_p_is_that_of_the_paired_t_test():
    delta = np.random.default_rng(4).normal([0.0, 0.3], size=(30, 2))
    assert template_shift(delta).p == pytest.approx(stats.ttest_rel(*delta.T).pvalue)


def test_a_planted_shift_is_found_exactly():
    rng = np.random.default_rng(5)
    delta = rng.normal(size=(100, 3))
    delta[:, 1] = delta[:, 0]
    delta[:, 2] = delta[:, 0] + 0.25
    found = template_shift(delta)
    assert found.value == pytest.approx(0.25, abs=1e-12)
    assert np.isnan([found.ci_low, found.p]).all() and "same for every image" in in_words(found.reason)
    same = template_shift(delta[:, [0, 1]])
    assert same.value == 0 and np.isnan(same.p)


@pytest.mark.parametrize("means", [(0, 0, 0), (0, 0.3, 0), (0, 0.3, 0.29), (0, 0.02, 0.01)], ids=str)
@pytest.mark.parametrize("in_sets", [False, True], ids=["images", "sets"])
def test_the_interval_of_the_shift_holds_it_at_the_nominal_rate(means, in_sets):
    rng = np.random.default_rng(6)
    sets = np.repeat(np.arange(50), 4) if in_sets else None
    truth, held, rejected = max(means) - min(means), 0, 0
    for _ in range(400):
        noise = rng.normal(scale=0.2, size=(200, 3))
        noise += rng.normal(scale=0.2, size=(50, 3))[sets] if in_sets else 0
        found = template_shift(rng.normal(size=(200, 1)) + noise + means, clusters=sets)
        held += found.ci_low <= truth <= found.ci_high
        rejected += found.p <= 0.05
    # Its ends are those of the furthest pairs: where pairs vie it may hold the truth more often, never less.
    assert held >= nominal_range(400)[0]
    if truth == 0:
        low, high = nominal_range(400, 0.05)
        assert low <= rejected <= high and held == 400 - rejected


def test_shift_of_few_images():
    assert np.isnan(template_shift(np.empty((0, 3))).value)
    one = template_shift([[0.1, 0.3, 0.2]])
    assert one.value == pytest.approx(0.2) and np.isnan([one.ci_low, one.p]).all() and "fewer" in in_words(one.reason)
    for wrong in (np.zeros((4, 1)), np.zeros(4), [[0.1, np.nan]]):
        with pytest.raises(MetricError):
            template_shift(wrong)


def test_the_gap_between_groups_by_hand():
    # Means 1/10, 3/10 and 0: 3/10 between the last two; the unlabelled image counts nowhere.
    delta, groups = [0.0, 0.2, 0.3, 0.0, 9.0], ["a", "a", "b", "c", None]
    found = directional_bias_gap(delta, groups)
    assert found.value == pytest.approx(3 / 10, abs=1e-12) and found.between == ("c", "b") and found.n == 4
    alone = directional_bias_gap([0.1, 0.2], ["a", None])
    assert np.isnan([alone.value, alone.p]).all() and alone.between == () and "fewer than two" in in_words(alone.reason)
    for wrong in (([0.1], ["a", "b"]), ([np.nan, 1], ["a", "b"])):
        with pytest.raises(MetricError):
            directional_bias_gap(*wrong)


def test_the_gap_of_two_groups_is_nearly_welchs():
    rng = np.random.default_rng(13)
    one, other = rng.normal(0.0, 0.1, 200), rng.normal(0.1, 0.4, 500)
    found = directional_bias_gap([*one, *other], ["a"] * 200 + ["b"] * 500)
    still = directional_bias_gap([0.1, 0.1, 0.3, 0.3], ["a", "a", "b", "b"])
    assert np.isnan([still.ci_low, still.p]).all() and "that differ" in in_words(still.reason)
    welch = stats.ttest_ind(other, one, equal_var=False)
    ends = welch.confidence_interval(0.95)
    assert found.between == ("a", "b") and found.value == pytest.approx(other.mean() - one.mean())
    assert (found.ci_low, found.ci_high) == pytest.approx((ends.low, ends.high), abs=0.001)
    assert found.p == pytest.approx(welch.pvalue, rel=0.05)


@pytest.mark.parametrize("in_sets", [False, True], ids=["images", "sets"])
@pytest.mark.parametrize("means", [(0, 0, 0, 0), (0, 0.3, 0.1, 0.2)], ids=str)
def test_the_interval_of_the_gap_holds_it_and_equal_groups_are_rejected_at_the_level(means, in_sets):
    rng = np.random.default_rng(14)
    groups = np.arange(400) % 4
    # Of unequal spread; where images come in sets, each set holds every group.
    sets = np.arange(400) // 8 if in_sets else None
    held, rejected = 0, 0
    for _ in range(400):
        delta = np.array(means)[groups] + rng.normal(size=400) * (0.1 + 0.1 * groups)
        delta = delta + (rng.normal(scale=0.3, size=50)[sets] if in_sets else 0)
        found = directional_bias_gap(delta, groups.tolist(), clusters=sets)
        held += found.ci_low <= max(means) - min(means) <= found.ci_high
        rejected += found.p <= 0.05
    assert held >= nominal_range(400)[0]
    if max(means) == 0:
        low, high = nominal_range(400, 0.05)
        # Where it rejects, the interval of the furthest pair may still reach 0.
        assert low <= rejected <= high and held >= 400 - rejected


def test_joint_test_is_hotellings():
    rng = np.random.default_rng(7)
    rows = rng.normal([0.1, 0.3, -0.2], size=(25, 3))
    mean = rows.mean(axis=0)
    squared = 25 * mean @ np.linalg.inv(np.cov(rows.T)) @ mean
    expected = stats.f.sf(squared * (25 - 3) / (3 * 24), 3, 22)
    assert hotelling_p_value(mean, (rows - mean) / 25) == pytest.approx(expected)
    doubled, sets = np.repeat(rows, 2, axis=0), np.repeat(np.arange(25), 2)
    assert hotelling_p_value(mean, (doubled - mean) / 50, sets) == pytest.approx(expected)


# --- harm by size of the directional bias


def test_harm_by_bias_size_by_hand():
    delta = [0.05, -0.1, 0.15, -0.15, 0.35, -0.35, 0.35, 0.35, 0.7]
    harmful = np.array([0, 0, 1, 0, 1, 0, 0, 1, 1], dtype=bool)
    found = harm_by_bias_size(delta, harmful)
    assert found.p_harm.n.tolist() == [1, 3, 0, 4, 0, 0, 1] and found.count.tolist() == [0, 1, 0, 2, 0, 0, 1]
    np.testing.assert_allclose(found.p_harm.value, [0, 1 / 3, np.nan, 1 / 2, np.nan, np.nan, 1])
    np.testing.assert_allclose(found.bin_share.value, [1 / 9, 3 / 9, 0, 4 / 9, 0, 0, 1 / 9])
    assert found.elbow == 0.3 and found.maximum == 1 and found.worst_bin == 6
    assert harm_by_bias_size(delta, np.zeros(9, dtype=bool)).worst_bin == 0


def test_harm_by_bias_size_is_the_loop_with_the_intervals_of_statsmodels():
    rng = np.random.default_rng(8)
    delta = rng.normal(scale=0.25, size=500)
    harmful = rng.random(500) < np.abs(delta)
    found = harm_by_bias_size(delta, harmful)
    for b, (low, high) in enumerate(zip(EDGES, (*EDGES[1:], np.inf))):
        own = [h for d, h in zip(delta, harmful) if low <= abs(d) < high]
        assert (found.p_harm.n[b], found.count[b]) == (len(own), sum(own))
        ends = proportion_confint(sum(own), len(own), method="wilson")
        assert ends_of(found.p_harm[b]) == pytest.approx(ends)
        ends = proportion_confint(len(own), 500, method="wilson")
        assert ends_of(found.bin_share[b]) == pytest.approx(ends)


def test_without_an_elbow():
    never = harm_by_bias_size([0.05, 0.15], np.array([False, False]))
    assert np.isnan(never.elbow) and never.maximum == 0
    none = harm_by_bias_size([], np.array([], dtype=bool))
    assert np.isnan([none.elbow, none.maximum]).all() and none.worst_bin is None
    assert np.isnan(none.p_harm.value).all() and np.isnan(none.bin_share.value).all()


def test_clusters_widen_the_intervals_of_harm_by_bias_size():
    rng = np.random.default_rng(9)
    sets = np.repeat(np.arange(60), 5)
    harmful = (rng.random(60) < 0.4)[sets]
    delta = np.full(300, 0.15)
    alone, grouped = harm_by_bias_size(delta, harmful), harm_by_bias_size(delta, harmful, clusters=sets)
    # Every set is of one mind: five images tell as much as one.
    ends = proportion_confint(harmful.sum() / 5, 60, method="wilson")
    assert (grouped.p_harm.ci_low[1], grouped.p_harm.ci_high[1]) == pytest.approx(ends, abs=0.005)
    assert grouped.p_harm.ci_high[1] - grouped.p_harm.ci_low[1] > 1.9 * (
        alone.p_harm.ci_high[1] - alone.p_harm.ci_low[1]
    )
    assert np.isnan(grouped.p_harm.ci_low[0])


@pytest.mark.parametrize(("delta", "harmful"), [
    ([0.1], [1]), ([0.1, 0.2], np.array([True])), ([np.nan], np.array([True])),
])  # fmt: skip
def test_harm_by_bias_size_refuses_what_does_not_fit(delta, harmful):
    with pytest.raises(MetricError):
        harm_by_bias_size(delta, harmful)


def test_mass_differences_by_hand():
    # At scale ln 2 / 0.1, a cosine that is 0.1 larger has twice the mass: 4, 2, 1 and 1 of 8.
    cosine = np.array([[0.3, 0.2, 0.1, 0.1], [0.1, 0.1, 0.3, 0.2]])
    masses = softmax_margin(cosine, positive=2, scale=np.log(2) / 0.1)
    np.testing.assert_allclose(masses, [4 / 8, -4 / 8])
    assert softmax_margin(cosine, positive=2, scale=1e6).tolist() == [1.0, -1.0]


# --- intra-set cosine


def test_intra_set_cosine_by_hand():
    # Cosines 0, 3/5 and 4/5: mean 7/15, variance 13/75. Lengths do not matter.
    found = intra_set_cosine([[2, 0], [0, 5], [3, 4]])
    assert found.mean.value == pytest.approx(7 / 15, abs=1e-12) and found.pairs == 3
    assert found.sd.value == pytest.approx(np.sqrt(13 / 75), abs=1e-12)


def test_intra_set_cosine_is_the_loop_in_any_order():
    images = np.random.default_rng(10).normal(size=(19, 8)) + 0.7
    found = intra_set_cosine(images)
    loop = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in combinations(images, 2)]
    assert found.mean.value == pytest.approx(np.mean(loop)) and found.sd.value == pytest.approx(np.std(loop, ddof=1))
    assert intra_set_cosine(images[::-1]) == found


def test_the_intervals_of_pairwise_cosines_hold_the_truth_at_about_the_nominal_rate():
    rng = np.random.default_rng(11)
    large = intra_set_cosine(rng.normal(size=(3000, 6)) + 0.6)
    held = np.zeros(2)
    for _ in range(400):
        found = intra_set_cosine(rng.normal(size=(60, 6)) + 0.6)
        ends = np.array([ends_of(found.mean), ends_of(found.sd)])
        truth = np.array([large.mean.value, large.sd.value])
        held += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert (held >= 0.9 * 400).all() and (held <= 0.99 * 400).all()


def test_few_portraits():
    one, two = intra_set_cosine([[1, 0]]), intra_set_cosine([[1, 0], [3, 4]])
    assert np.isnan(one.mean.value) and in_words(one.mean.reason) == "fewer than two images"
    assert two.mean.value == pytest.approx(3 / 5) and np.isnan(two.sd.value) and np.isnan(ends_of(two.mean)).all()
    alike = intra_set_cosine([[1, 2]] * 4)
    assert alike.mean.value == pytest.approx(1) and alike.sd.value == pytest.approx(0, abs=1e-12)
    for wrong in ([[0, 0], [1, 1]], [1, 2], [[np.inf, 1], [1, 1]]):
        with pytest.raises(MetricError):
            intra_set_cosine(wrong)


# --- rank agreement


@pytest.mark.parametrize("m", [4, 6, 8])
def test_rank_agreement_is_scipys(m):
    rng = np.random.default_rng(m)
    first = rng.normal(size=m)
    second = first + rng.normal(size=m)
    found = rank_agreement(first, second)
    assert found.value == pytest.approx(stats.spearmanr(first, second).statistic)
    exact = stats.permutation_test(
        (second,), lambda y: stats.spearmanr(first, y).statistic, permutation_type="pairings",
        alternative="greater", n_resamples=np.inf if m < 7 else 2000, random_state=rng,
    )  # fmt: skip
    assert found.p == pytest.approx(exact.pvalue, abs=1e-12 if m < 7 else 0.05)
    assert "no interval" in in_words(found.reason) and np.isnan(found.ci_low)


def test_rank_agreement_by_hand():
    same = rank_agreement([1, 2, 3, 4], [10, 20, 30, 40])
    assert same.value == pytest.approx(1) and same.p == pytest.approx(1 / 24)
    # Squared rank differences 1, 1, 0, 0: 1 - 6 × 2 / (4 × 15) = 4/5; 4 of 24 orders reach it.
    swapped = rank_agreement([1, 2, 3, 4], [20, 10, 30, 40])
    assert swapped.value == pytest.approx(4 / 5) and swapped.p == pytest.approx(4 / 24)
    reached = [stats.spearmanr([1, 2, 3, 4], order).statistic >= 0.8 - 1e-9 for order in permutations(range(4))]
    assert sum(reached) == 4


def test_many_checkpoints_have_an_interval_and_scipys_p():
    rng = np.random.default_rng(12)
    first = rng.normal(size=30)
    second = first + rng.normal(size=30)
    found = rank_agreement(first, second)
    assert found.p == pytest.approx(stats.spearmanr(first, second, alternative="greater").pvalue)
    # Bonett and Wright: tanh(atanh r ± 1.96 sqrt((1 + r²/2) / (n - 3))).
    r = found.value
    half = stats.norm.ppf(0.975) * np.sqrt((1 + r * r / 2) / 27)
    assert (found.ci_low, found.ci_high) == pytest.approx(
        (np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half))
    )
    assert found.reason == ()
    perfect = rank_agreement(first, 2 * first)
    assert (
        perfect.p == pytest.approx(1 / math.factorial(30))
        and np.isnan(perfect.ci_low)
        and "the same" in in_words(perfect.reason)
    )


def test_rank_agreement_of_what_is_lacking_or_tied():
    lacking = rank_agreement([1, 2, np.nan, 4], [1, np.nan, 3, 4])
    assert lacking.n == 2 and np.isnan(lacking.value) and "three checkpoints" in in_words(lacking.reason)
    tied = rank_agreement([1, 1, 1], [1, 2, 3])
    assert np.isnan(tied.value) and "tie" in in_words(tied.reason)
    some = rank_agreement([1, 1, 2, 3], [1, 2, 3, 4])
    assert some.value == pytest.approx(stats.spearmanr([1, 1, 2, 3], [1, 2, 3, 4]).statistic)
    with pytest.raises(MetricError):
        rank_agreement([1, 2], [1, 2, 3])
