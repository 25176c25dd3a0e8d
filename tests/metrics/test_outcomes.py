"""Outcome metrics against fractions worked by hand and the obvious loop."""

import json
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline import metrics
from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.metrics import harm_rate, impact_ratio, max_skew, outcome_proportions, parity_difference
from plumbline.metrics.disparities import (
    RANGE_STATISTICS,
    SKEW_STATISTICS,
    disparity_rows,
    outcomes_of_counts,
    skew_sums,
    skew_values,
    sorted_groups,
)
from plumbline.metrics.family import MetricSettings
from plumbline.reasons import find, in_words

KNOWN = Path(__file__).parents[1] / "known_answers"
COMMON = {"model": "m", "dataset": "d", "condition": "before", "statistic": "estimate", "event": "crime"}


def exact(text):
    return float("nan") if text == "nan" else float(Fraction(text))


@pytest.mark.parametrize("case", json.loads((KNOWN / "max_skew.json").read_text()), ids=lambda c: c["source"])
def test_max_skew_by_hand(case):
    result = max_skew(**case["inputs"])
    assert result.value == pytest.approx(exact(case["expected"]["value"]), abs=case["tol"], nan_ok=True)
    assert result.undefined_pairs == case["expected"]["undefined_pairs"]
    assert bool(result.reason) == (result.undefined_pairs > 0)


@pytest.mark.parametrize("case", json.loads((KNOWN / "outcomes.json").read_text()), ids=lambda c: c["source"])
def test_other_disparities_by_hand(case):
    result = getattr(metrics, case["metric"])(**case["inputs"])
    assert result.value == pytest.approx(exact(case["expected"]), abs=case["tol"], nan_ok=True)


counts_and_totals = (
    st.integers(2, 7)
    .flatmap(
        lambda g: st.tuples(
            st.lists(st.integers(0, 12), min_size=g, max_size=g), st.lists(st.integers(0, 9), min_size=g, max_size=g)
        )
    )
    .map(lambda pair: (np.minimum(pair[0], np.add(pair[0], pair[1])), np.add(pair[0], pair[1])))
)


@settings(max_examples=150)
@given(counts_and_totals, st.sampled_from(["mean", "max"]), st.sampled_from([None, 0.5]))
def test_max_skew_equals_the_loop_over_pairs(data, over_pairs, smoothing):
    counts, totals = data
    gaps, undefined = [], 0
    for a, b in combinations(range(len(counts)), 2):
        s = Fraction(smoothing or 0)
        if totals[a] == 0 or totals[b] == 0:
            undefined += 1
            continue
        pa = (int(counts[a]) + s) / (int(totals[a]) + 2 * s)
        pb = (int(counts[b]) + s) / (int(totals[b]) + 2 * s)
        if pa == pb:
            gaps.append(Fraction(0))
        elif pa == 0 or pb == 0:
            undefined += 1
        else:
            gaps.append(max(abs(pa - pb) / pb, abs(pb - pa) / pa))
    if not smoothing and sum(x > 0 for x in counts) == 1:
        # The one group that has the event is in no defined pair, and the others would read as parity.
        gaps, undefined = [], len(counts) * (len(counts) - 1) // 2
    slow = float(max(gaps) if over_pairs == "max" else sum(gaps) / len(gaps)) if gaps else float("nan")
    result = max_skew(counts, totals, over_pairs=over_pairs, smoothing=smoothing)
    assert result.value == pytest.approx(slow, rel=1e-12, abs=1e-12, nan_ok=True)
    assert result.undefined_pairs == undefined
    replicated = skew_values(counts, totals, over_pairs=over_pairs, smoothing=smoothing or 0.0)
    assert float(replicated) == pytest.approx(slow, rel=1e-12, abs=1e-12, nan_ok=True)


def test_an_event_of_one_group_alone_is_no_parity():
    for over_pairs in ("mean", "max"):
        alone = max_skew([50, 0, 0], [100, 100, 100], over_pairs=over_pairs)
        assert np.isnan(alone.value) and alone.undefined_pairs == 3
        assert "3 of 3 pairs undefined" in str(alone.reason[0])
        estimate = max_skew([50, 0, 0], [100, 100, 100], over_pairs=over_pairs, interval=True)
        assert np.isnan([estimate.value, estimate.ci_low, estimate.p]).all() and estimate.reason
    assert max_skew([50, 1, 0], [100] * 3).value == 49 and max_skew([0, 0, 0], [100] * 3).value == 0
    assert max_skew([50, 0, 0], [100] * 3, smoothing=0.5).value > 30
    two = max_skew([[50, 0, 0], [20, 10, 10]], [100] * 3)
    assert np.isnan(two.per_event[0]) and two.value == two.per_event[1]


@pytest.mark.parametrize("statistic", [*SKEW_STATISTICS, *RANGE_STATISTICS], ids=lambda s: f"{s.metric}-{s.definition}")
def test_the_statistics_of_the_rows_equal_the_public_functions(statistic):
    """On random tables with zeros, empty groups and ties, of one event and of three at once."""
    public = {
        "mean_over_pairs": max_skew,
        "max_over_pairs": partial(max_skew, over_pairs="max"),
        "smoothed": partial(max_skew, smoothing=0.5),
        "max_minus_min": parity_difference,
        "min_over_max": impact_ratio,
    }[statistic.definition]
    rng = np.random.default_rng(6)
    seen = {"empty": 0, "zero": 0, "tied": 0, "undefined": 0}
    for trial in range(300):
        totals = rng.integers(0, 7, rng.integers(2, 6))
        counts = rng.integers(0, totals + 1, (3 if statistic.metric == "max_skew" and trial % 2 else 1, totals.size))
        value, expected = (float(statistic.value(counts, totals[None])), np.ravel(public(counts, totals).value)[0])
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)
        if statistic.pairs:
            _, cells = skew_sums(counts, totals[None])
            pairs = counts.shape[0] * totals.size * (totals.size - 1) // 2
            assert pairs - cells.sum() == max_skew(counts, totals).undefined_pairs
        rates = counts[0][totals > 0] / totals[totals > 0]
        seen["empty"] += (totals == 0).any()
        seen["zero"] += (rates == 0).any()
        seen["tied"] += len(set(rates)) < len(rates)
        seen["undefined"] += np.isnan(expected)
    assert min(seen.values()) > 5


@pytest.mark.parametrize("counts", [[0, 0], [0, 1]])
def test_rows_say_that_no_image_got_the_label(counts):
    outcomes = outcomes_of_counts(np.array(counts), np.array([10, 10]))
    statistics = (*SKEW_STATISTICS, *RANGE_STATISTICS)
    settings = MetricSettings(resamples=100, permutations=100)
    for row in metric_frame(list(disparity_rows(COMMON, outcomes, statistics, settings))).to_dicts():
        assert (find(row["reason_codes"], "event_never_happens") is None) == any(counts), row["definition"]


@pytest.mark.parametrize("groups", range(1, 40))
def test_groups_are_sorted(groups):
    # A network that sorts zeros and ones sorts everything (Knuth 3, 5.3.4, theorem Z).
    rates = np.random.default_rng(groups).integers(0, 2, (groups, 500)).astype(np.float64)
    np.testing.assert_array_equal(np.stack(sorted_groups(rates)), np.sort(rates, axis=0))


def test_pairs_keep_the_axis_of_events():
    one, several = max_skew([5, 3, 2], [10, 12, 10]), max_skew([[5, 3, 2], [1, 1, 1]], [10, 12, 10])
    assert one.pairs.shape == (3,) and several.pairs.shape == (2, 3)
    np.testing.assert_array_equal(one.pair_index, [[0, 1], [0, 2], [1, 2]])
    np.testing.assert_allclose(one.pairs, [1.0, 1.5, 0.25], rtol=1e-12)
    np.testing.assert_allclose(several.per_event, [11 / 12, np.nanmean(several.pairs[1])])


def test_unlabelled_images_count_in_harm_rates_and_in_no_group():
    in_event = np.array([True, True, False, True])
    result = outcome_proportions(in_event, ["a", None, "b", float("nan")])
    assert result.groups == ("a", "b") and result.unlabelled == 2
    assert result.proportions.value.tolist() == [1.0, 0.0]
    assert harm_rate([int(in_event.sum())], [4]).value == 0.75


def test_proportions_read_polars_and_flag_small_and_empty_groups():
    groups = pl.Series(["a"] * 40 + ["b"] * 5 + [None])
    result = outcome_proportions(np.arange(46) % 2 == 0, groups, levels=["a", "b", "c"])
    assert result["a"].reason == () and (result.count[0], result["a"].n) == (20, 40)
    assert in_words(result["b"].reason) == "small group: 5 images, fewer than 30"
    assert result["b"].value == 3 / 5
    empty = result["c"]
    assert in_words(empty.reason) == "empty group"
    assert np.isnan([empty.value, empty.ci_low, empty.ci_high]).all()
    assert result["a"].ci_low < 0.5 < result["a"].ci_high
    assert len(result.proportions) == 3


def test_harm_rate_of_several_events_has_one_value_an_event():
    result = harm_rate([[12, 8], [0, 0]], [100, 100])
    np.testing.assert_allclose(result.value, [0.1, 0.0])
    assert result.ci_low[1] == 0 and 0 < result.ci_high[1] < 0.03
    assert np.isnan(harm_rate([0], [0]).value) and in_words(harm_rate([0], [0]).reason) == "no images"


def test_the_four_fifths_flag():
    def note(*counts):
        return in_words(impact_ratio(*counts).reason)

    assert note([79, 100], [1000, 1000]) == "below four fifths"
    assert note([80, 100], [1000, 1000]) is None
    assert note([0, 0], [10, 10]) == "the event never happens"
    assert note([1, 1, 0], [10, 10, 0]) == "1 of 3 groups empty, left out"
    assert note([30, 10, 0], [100, 100, 0]) == "1 of 3 groups empty, left out; below four fifths"


@pytest.mark.parametrize(
    "call",
    [
        lambda: max_skew([1], [2]),
        lambda: max_skew([1, 2, 3], [5, 5]),
        lambda: max_skew([6, 2], [5, 5]),
        lambda: max_skew([-1, 2], [5, 5]),
        lambda: max_skew([0.5, 2], [5, 5]),
        lambda: max_skew([1, 2], [5, 5], over_pairs="median"),
        lambda: max_skew([1, 2], [5, 5], smoothing=0),
        lambda: max_skew([1, float("nan")], [5, 5]),
        lambda: harm_rate([[[1]]], [5]),
        lambda: outcome_proportions([1, 0], ["a", "b"]),
        lambda: outcome_proportions(np.array([True]), ["a", "b"]),
        lambda: outcome_proportions(np.array([True]), ["a"], levels=["b"]),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(MetricError):
        call()
