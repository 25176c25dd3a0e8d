"""SC-WEAT, WEAT, markedness and valence correlation: known answers, slow ways, other packages, planted truth."""

import json
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.calibration.worlds import planted_embeddings
from plumbline.errors import MetricError
from plumbline.metrics.associations import sc_weat, weat
from plumbline.metrics.markedness import markedness, markedness_gap, mean_markedness
from plumbline.metrics.perception import valence_correlation
from plumbline.reasons import in_words

ANSWERS = Path(__file__).parents[1] / "known_answers"


def cases(name):
    return json.loads((ANSWERS / f"{name}.json").read_text())


def number(text):
    return float("nan") if text == "nan" else float(Fraction(text))


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("case", cases("sc_weat"), ids=lambda case: case["source"][:60])
def test_sc_weat_known_answers(case):
    inputs = dict(case["inputs"])
    similarities = [[number(x) for x in row] for row in inputs.pop("similarities")]
    found = sc_weat(similarities, np.array(inputs.pop("in_a"), bool), seed=rng(), **inputs)
    for name in ("statistic", "effect_size", "p_value"):
        expected = [number(x) for x in case["expected"][name]]
        np.testing.assert_allclose(getattr(found, name), expected, atol=case["tol"])
    category = [found.category.statistic, found.category.effect_size, found.category.p_value]
    np.testing.assert_allclose(category, [number(x) for x in case["expected"]["category"]], atol=case["tol"])
    assert found.exact


@pytest.mark.parametrize("case", cases("weat"), ids=lambda case: case["source"][:60])
def test_weat_known_answers(case):
    found = weat(**case["inputs"], seed=rng())
    for name, expected in case["expected"].items():
        assert getattr(found, name) == pytest.approx(number(expected), abs=case["tol"])
    assert found.exact and not found.reason


def welch(first, second, axis):
    """Return the difference of means over its standard error."""
    error = first.var(axis=axis, ddof=1) / first.shape[axis] + second.var(axis=axis, ddof=1) / second.shape[axis]
    return (first.mean(axis=axis) - second.mean(axis=axis)) / np.sqrt(error)


def mean_difference(a, b, axis):
    return a.mean(axis=axis) - b.mean(axis=axis)


STATISTICS = {"studentised": welch, "raw_means": mean_difference}


def slow_sc_weat(columns, in_a, masks, test):
    """Return (m + 1,) p-values the obvious way: the words, and the mean of their effect sizes, or of s as the paper."""
    of_mean = columns if test == "raw_means" else columns / columns.std(axis=0)
    columns = np.column_stack([columns, of_mean.mean(axis=1)])
    p = []
    for column in columns.T:
        observed = STATISTICS[test](column[in_a], column[~in_a], 0)
        others = [STATISTICS[test](column[mask], column[~mask], 0) for mask in np.array(masks)]
        p.append(np.mean([other >= observed - 1e-10 for other in others]))
    return p


@pytest.mark.parametrize("test", STATISTICS)
def test_the_exact_test_is_the_double_loop(test):
    columns = rng(1).normal(size=(8, 3)).round(1)
    in_a = np.array([1, 0, 0, 1, 1, 0, 0, 0], bool)
    masks = [[i in chosen for i in range(8)] for chosen in combinations(range(8), 3)]
    found = sc_weat(columns, in_a, seed=rng(), test=test)
    np.testing.assert_allclose([*found.p_value, found.category.p_value], slow_sc_weat(columns, in_a, masks, test))


@pytest.mark.parametrize("test", STATISTICS)
@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
@pytest.mark.parametrize("sizes", [(6, 6), (4, 9), (9, 4)])
def test_exact_p_is_identical_to_scipys(sizes, alternative, test):
    columns = rng(sum(sizes)).normal(size=(sum(sizes), 5)) * 0.02 + 0.25
    in_a = rng(2).permutation(np.arange(sum(sizes)) < sizes[0])
    found = sc_weat(columns, in_a, seed=rng(), alternative=alternative, test=test)
    split = columns[in_a], columns[~in_a]
    theirs = stats.permutation_test(
        split, STATISTICS[test], vectorized=True, n_resamples=np.inf, alternative=alternative, axis=0
    )
    expected = theirs.pvalue
    if test == "studentised" and sizes[0] != sizes[1]:
        # Of few images in unequal groups the larger p of both tests counts.
        expected = np.maximum(expected, stats.ttest_ind(*split, equal_var=False, alternative=alternative).pvalue)
        np.testing.assert_allclose(found.p_value, expected, rtol=1e-12)
    else:
        np.testing.assert_array_equal(found.p_value, expected)
    np.testing.assert_allclose(found.statistic, mean_difference(columns[in_a], columns[~in_a], 0), rtol=1e-12)


@pytest.mark.slow
def test_exact_p_is_identical_to_scipys_over_all_184_756_halves_of_twenty():
    columns = rng(5).normal(size=(20, 30)) * 0.02 + 0.25
    in_a = rng(6).permutation(np.arange(20) < 10)
    theirs = stats.permutation_test(
        (columns[in_a], columns[~in_a]),
        mean_difference,
        vectorized=True,
        n_resamples=np.inf,
        alternative="greater",
        axis=0,
        batch=10_000,
    )
    np.testing.assert_array_equal(sc_weat(columns, in_a, seed=rng()).p_value, theirs.pvalue)


@pytest.mark.parametrize("test", STATISTICS)
def test_random_partitions_estimate_what_scipys_do(test):
    columns = rng(3).normal(size=(300, 12)) * 0.02 + 0.25
    in_a = np.arange(300) < 90
    columns[in_a] += np.linspace(-0.004, 0.004, 12)
    found = sc_weat(columns, in_a, permutations=20_000, seed=rng(4), test=test)
    assert not found.exact
    split = columns[in_a], columns[~in_a]
    theirs = stats.permutation_test(
        split,
        STATISTICS[test],
        vectorized=True,
        n_resamples=5_000,
        alternative="greater",
        axis=0,
        batch=500,
        rng=rng(5),
    )
    spread = np.sqrt(theirs.pvalue * (1 - theirs.pvalue) * (1 / 20_000 + 1 / 5_000))
    assert (abs(found.p_value - theirs.pvalue) <= 4.5 * spread + 3e-4).all()
    two_sided, less = (
        sc_weat(columns, in_a, permutations=20_000, seed=rng(4), test=test, alternative=side)
        for side in ("two-sided", "less")
    )
    np.testing.assert_allclose(
        two_sided.p_value, np.minimum(1, 2 * np.minimum(found.p_value, less.p_value)), atol=1e-15
    )
    strict = sc_weat(columns, in_a, permutations=20_000, seed=rng(4), test=test, strict=True)
    # Without ties the two differ by the data themselves only.
    np.testing.assert_allclose(strict.p_value, (found.p_value * 20_001 - 1) / 20_000, atol=1e-12)


def test_random_p_is_never_zero_unless_strict():
    columns = np.repeat([1.0, 0.0], 40)[:, None]
    in_a = np.arange(80) < 40
    assert sc_weat(columns, in_a, permutations=199, seed=rng()).p_value == 1 / 200
    assert sc_weat(columns, in_a, permutations=199, seed=rng(), strict=True).p_value == 0
    assert sc_weat(columns, in_a, permutations=199, seed=rng(), alternative="two-sided").p_value == 2 / 200


def test_the_category_is_the_mean_over_the_words():
    columns = rng(7).normal(size=(500, 4))
    in_a = np.arange(500) % 3 == 0
    found = sc_weat(columns, in_a, permutations=3000, seed=rng(1))
    in_deviations = columns / columns.std(axis=0, ddof=1)
    alone = sc_weat(in_deviations.mean(axis=1, keepdims=True), in_a, permutations=3000, seed=rng(1))
    assert found.category.statistic == pytest.approx(found.statistic.mean(), rel=1e-12)
    assert found.category.effect_size == pytest.approx(found.effect_size.mean(), rel=1e-12)
    assert found.category.effect_size == pytest.approx(alone.statistic[0], rel=1e-12)
    assert found.category.p_value == alone.p_value[0]
    raw = sc_weat(columns, in_a, permutations=3000, seed=rng(1), test="raw_means").category
    of_mean = sc_weat(columns.mean(axis=1)[:, None], in_a, permutations=3000, seed=rng(1), test="raw_means")
    assert raw.p_value == of_mean.p_value[0] != found.category.p_value
    spread = columns.std(axis=0, ddof=1)
    np.testing.assert_allclose(found.effect_size, found.statistic / spread, rtol=1e-12)


def test_p_of_a_category_is_of_its_effect_size_and_not_of_its_mean_difference():
    draws, in_a = rng(3), np.arange(400) < 200
    quiet = 0.01 * draws.normal(size=(400, 5)) + 0.006 * in_a[:, None]
    loud = 0.3 * draws.normal(size=(400, 1)) - 0.12 * in_a[:, None]
    found = sc_weat(np.hstack([quiet, loud]), in_a, permutations=2000, seed=rng())
    assert found.category.statistic < 0 < 0.3 < found.category.effect_size
    assert found.category.p_value < 0.01, "five of six words lie closer to A"
    raw = sc_weat(np.hstack([quiet, loud]), in_a, permutations=2000, seed=rng(), test="raw_means")
    assert raw.category.p_value > 0.9, "the paper's test is of the mean difference"


def test_one_image_a_group_and_none():
    pair = sc_weat([[0.3, 0.2], [0.1, 0.4]], np.array([True, False]), seed=rng())
    np.testing.assert_allclose(pair.statistic, [0.2, -0.2])
    np.testing.assert_allclose(pair.effect_size, [2**0.5, -(2**0.5)])
    np.testing.assert_array_equal(pair.p_value, [0.5, 1.0])
    for in_a in ([True, True], [False, False]):
        empty = sc_weat([[0.3, 0.2], [0.1, 0.4]], np.array(in_a), seed=rng())
        assert np.isnan(empty.statistic).all() and np.isnan(empty.effect_size).all()
        assert np.isnan(empty.p_value).all() and np.isnan(empty.category.p_value)
        assert in_words(empty.reason) == "empty group"


def test_a_word_that_does_not_vary_is_told_apart_from_one_that_does():
    columns = np.column_stack([np.full(100, 0.1), rng(1).normal(size=100)])
    found = sc_weat(columns, np.arange(100) < 50, permutations=500, seed=rng())
    assert np.isnan(found.effect_size[0]) and found.p_value[0] == 1
    assert not np.isnan(found.effect_size[1]) and np.isnan(found.category.effect_size)
    assert not np.isnan(found.category.p_value)
    assert in_words(found.reason) == "1 of 2 columns do not vary: no effect size"


@pytest.mark.parametrize(
    ("similarities", "in_a", "options", "words"),
    [
        ([[0.1]], [True, False], {}, "same images"),
        ([[0.1], [0.2]], [1, 0], {}, "must be a mask"),
        ([[0.1], [np.nan]], [True, False], {}, "row 1, column 0"),
        (np.empty((2, 0)), [True, False], {}, "m at least 1"),
        ([[0.1], [0.2]], [True, False], {"permutations": 0}, "at least 1"),
        ([[0.1], [0.2]], [True, False], {"alternative": "both"}, "two-sided"),
        ([[0.1], [0.2]], [True, False], {"test": "means"}, "raw_means"),
    ],
)
def test_sc_weat_refuses(similarities, in_a, options, words):
    with pytest.raises(MetricError, match=words):
        sc_weat(similarities, np.array(in_a), seed=rng(), **options)


def test_weat_is_the_double_loop_and_knows_texts_from_images_by_nothing():
    x, y, a, b = (rng(i).normal(size=(k, 5)) for i, k in enumerate((4, 6, 3, 2)))

    def cosine(v, w):
        return v @ w / np.linalg.norm(v) / np.linalg.norm(w)

    def association(w):
        return np.mean([cosine(w, v) for v in a]) - np.mean([cosine(w, v) for v in b])

    s_x, s_y = [association(w) for w in x], [association(w) for w in y]
    found = weat(x, y, a, b, seed=rng())
    assert found.statistic == pytest.approx(sum(s_x) - sum(s_y))
    both = np.array(s_x + s_y)
    assert found.effect_size == pytest.approx((np.mean(s_x) - np.mean(s_y)) / both.std(ddof=1))
    sums = [sum(both[list(chosen)]) - sum(np.delete(both, chosen)) for chosen in combinations(range(10), 4)]
    assert found.p_value == np.mean([s >= found.statistic - 1e-12 for s in sums]) and found.exact
    swapped = weat(y, x, a, b, seed=rng())
    assert swapped.effect_size == pytest.approx(-found.effect_size)


def test_weat_refuses_and_leaves_undefined():
    two = np.eye(2)
    with pytest.raises(MetricError, match="different dimensions"):
        weat(two, two, two, np.eye(3), seed=rng())
    with pytest.raises(MetricError, match="no direction"):
        weat(two, np.zeros((1, 2)), two, two, seed=rng())
    with pytest.raises(MetricError, match=r"\(., d\)"):
        weat(two, two, two, np.ones(2), seed=rng())
    empty = weat(two, np.empty((0, 2)), two, two, seed=rng())
    assert np.isnan([empty.statistic, empty.effect_size, empty.p_value]).all()
    assert in_words(empty.reason) == "empty set"
    flat = weat(two, two, two, two, seed=rng())
    assert np.isnan(flat.effect_size) and flat.p_value == 1 and "does not vary" in in_words(flat.reason)


def test_markedness_counts_images_closer_to_the_neutral_prompt():
    found = markedness([0.3, 0.2, 0.25], [0.2, 0.2, 0.3])
    assert found.value == pytest.approx(100 / 3) and found.n == 3
    z = stats.norm.ppf(0.975)
    middle, width = 1 / 3 + z**2 / 6, z * np.sqrt(2 / 27 + z**2 / 36)
    assert found.ci_low == pytest.approx(100 * (middle - width) / (1 + z**2 / 3))
    assert found.ci_high == pytest.approx(100 * (middle + width) / (1 + z**2 / 3))
    assert in_words(found.reason) == "small group: 3 images, fewer than 30"
    assert markedness([0.1] * 40, [0.2] * 40).value == 0 and markedness([0.1] * 40, [0.2] * 40).reason == ()
    nothing = markedness([], [])
    assert np.isnan(nothing.value) and nothing.n == 0 and in_words(nothing.reason) == "empty group"


def test_markedness_refuses():
    with pytest.raises(MetricError, match="same images"):
        markedness([0.1, 0.2], [0.1])
    with pytest.raises(MetricError, match="not finite"):
        markedness([0.1], [np.inf])


def test_the_gap_leaves_out_empty_groups():
    assert markedness_gap([20.0, np.nan, 75.0, 30.0]) == 55.0
    assert np.isnan(markedness_gap([20.0, np.nan])) and np.isnan(markedness_gap([]))


def test_copies_of_images_in_sets_tell_nothing_new():
    prefers = rng(2).random((60, 4)) < 0.3
    alone = mean_markedness(prefers)
    copies = mean_markedness(np.repeat(prefers, 5, axis=0), np.repeat(np.arange(60), 5))
    assert copies.value == pytest.approx(alone.value)
    assert (copies.ci_low, copies.ci_high) == pytest.approx((alone.ci_low, alone.ci_high))
    apart = mean_markedness(np.repeat(prefers, 5, axis=0))
    assert apart.ci_high - apart.ci_low < 0.5 * (alone.ci_high - alone.ci_low)
    same = mean_markedness(np.ones((50, 4), bool), np.repeat(np.arange(10), 5))
    assert same.value == 100 and 65 < same.ci_low < 75 and same.ci_high == 100


def test_markedness_intervals_hold_the_truth():
    """Of 1,000: 931 with one template (Wilson's own rate here is 946), 932 with four, 950 with sets of four images."""
    generator, hits = rng(8), np.zeros(3)
    for _ in range(1000):
        leaning = generator.normal(size=(160, 1)) - 0.8
        answers = leaning + generator.normal(size=(160, 4)) > 0
        sets = np.repeat(np.arange(40), 4)
        in_sets = generator.normal(size=40)[sets, None] - 0.8 + generator.normal(size=(160, 1)) > 0
        found = (mean_markedness(answers[:, :1]), mean_markedness(answers), mean_markedness(in_sets, sets))
        truth = 100 * stats.norm.cdf(-0.8 / 2**0.5)
        hits += [f.ci_low <= truth <= f.ci_high for f in found]
    assert (hits >= 925).all() and (hits <= 975).all(), hits


def test_valence_correlation_is_pearsons_with_fishers_interval():
    x = rng(1).normal(size=80)
    y = 0.4 * x + rng(2).normal(size=80)
    found, theirs = valence_correlation(x, y), stats.pearsonr(x, y)
    assert found.value == pytest.approx(theirs.statistic, rel=1e-12) and found.n == 80
    interval = theirs.confidence_interval(0.95)
    assert (found.ci_low, found.ci_high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.reason == ()
    other = valence_correlation(3 * x + 7, -2 * y)
    assert other.value == pytest.approx(-found.value, rel=1e-12)


def test_valence_correlation_where_it_is_not_defined():
    flat = valence_correlation([0.1] * 40, np.arange(40.0))
    assert np.isnan([flat.value, flat.ci_low]).all() and in_words(flat.reason) == "one valence does not vary"
    one = valence_correlation([0.1], [0.2])
    assert np.isnan(one.value) and one.n == 1 and "small group" in in_words(one.reason)
    assert in_words(valence_correlation([], []).reason) == "empty group"
    few = valence_correlation([0.1, 0.3, 0.2], [0.2, 0.3, 0.5])
    assert np.isfinite(few.value) and np.isnan(few.ci_low) and "no interval" in in_words(few.reason)
    line = valence_correlation(np.arange(50.0), 3 * np.arange(50.0))
    assert line.value == pytest.approx(1) and np.isnan(line.ci_high)
    with pytest.raises(MetricError, match="same images"):
        valence_correlation([0.1, 0.2], [0.1])
    with pytest.raises(MetricError, match="not finite"):
        valence_correlation([0.1, np.nan], [0.1, 0.2])


def test_correlation_intervals_hold_the_truth():
    """Of 1,000: 946 for single images, 948 for 50 sets of four images."""
    generator, hits = rng(9), np.zeros(2)
    for _ in range(1000):
        shared = generator.normal(size=(2, 200))
        x, y = shared[0], 0.6 * shared[0] + 0.8 * shared[1]
        found = valence_correlation(x, y)
        hits[0] += found.ci_low <= 0.6 <= found.ci_high
        sets = np.repeat(np.arange(50), 4)
        own, common = generator.normal(size=(2, 200)), generator.normal(size=(2, 50))[:, sets]
        mixed = 0.6 * own + 0.8 * common
        x, y = mixed[0], 0.6 * mixed[0] + 0.8 * mixed[1]
        found = valence_correlation(x, y, clusters=sets)
        hits[1] += found.ci_low <= 0.6 <= found.ci_high
    assert (hits >= 930).all() and (hits <= 970).all(), hits


def planted_similarities(seed, *, beta, n=120, words=3):
    """Draw a small world: cosines of its images with texts near the event, and who is of the first group."""
    generator = rng(seed)
    planted = planted_embeddings(n, ["a", "b"], beta=beta, dim=8, rng=generator)
    texts = planted.texts[0] + 0.5 * generator.normal(size=(words, 8))
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    images = planted.images / np.linalg.norm(planted.images, axis=1, keepdims=True)
    return images @ texts.T, planted.labels == "a"


def p_values(worlds, *, beta, alternative="greater"):
    p = []
    for seed in range(10_000, 10_000 + worlds):
        similarities, in_a = planted_similarities(seed, beta=beta)
        found = sc_weat(similarities, in_a, permutations=499, seed=rng([seed, 1]), alternative=alternative)
        p.append([found.p_value[0], found.category.p_value])
    return np.array(p)


@pytest.mark.parametrize("worlds", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_p_is_uniform_where_nothing_is_planted(worlds):
    """Over 200 worlds the three Kolmogorov-Smirnov p-values are 0.63, 0.59 and 0.19."""
    for alternative in ("greater", "less", "two-sided"):
        p = p_values(worlds, beta=0.0, alternative=alternative)
        assert stats.kstest(p[:, 1], "uniform").pvalue > 0.01


@pytest.mark.slow
def test_p_is_uniform_over_a_thousand_worlds():
    """At most 0.05: 4.6% of words and 4.2% of categories; Kolmogorov-Smirnov p 0.71 and 0.45."""
    p = p_values(1000, beta=0.0)
    for column in p.T:
        assert stats.kstest(column, "uniform").pvalue > 0.01
        assert 33 <= np.count_nonzero(column <= 0.05) <= 71


def test_power_rises_with_what_is_planted():
    """At strengths -0.3, 0, 0.2, 0.4 and 0.7: 0, 3, 40, 95 and 100%."""
    power = [np.mean(p_values(60, beta=beta)[:, 1] <= 0.05) for beta in (-0.3, 0.0, 0.2, 0.4, 0.7)]
    assert power[0] < 0.02 and power[1] < 0.15
    assert power == sorted(power) and power[-1] > 0.9


def test_an_empty_side_with_an_interval_is_an_estimate_that_is_undefined():
    columns = sc_weat([[0.1, 0.2], [0.3, 0.1]], [True, True], interval=True)
    assert np.isnan(columns.value).all() and len(columns) == 2 and columns[1].reason
    found = weat(np.empty((0, 2)), [[0, 1]], a=[[1, 0]], b=[[0, 1]], interval=True)
    assert np.isnan(found.value) and found.n == 1 and found.reason


def test_no_permutations_are_refused_by_their_name():
    with pytest.raises(MetricError, match="permutations=0"):
        sc_weat([[0.1], [0.3]], [True, False], permutations=0)
