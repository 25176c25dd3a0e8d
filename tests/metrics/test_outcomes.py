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
from plumbline.errors import MetricError
from plumbline.metrics import harm_rate, impact_ratio, max_skew, outcome_proportions, parity_difference
from plumbline.metrics.disparities import (
    RANGES,
    SKEWS,
    impact_ratios,
    parity_differences,
    skew_sums,
    skew_values,
)

KNOWN = Path(__file__).parents[1] / "known_answers"


def exact(text):
    return float("nan") if text == "nan" else float(Fraction(text))


@pytest.mark.parametrize("case", json.loads((KNOWN / "max_skew.json").read_text()), ids=lambda c: c["source"])
def test_max_skew_by_hand(case):
    result = max_skew(**case["inputs"])
    assert result.value == pytest.approx(exact(case["expected"]["value"]), abs=case["tol"], nan_ok=True)
    assert result.undefined_pairs == case["expected"]["undefined_pairs"]
    assert (result.reason is not None) == (result.undefined_pairs > 0)


@pytest.mark.parametrize("case", json.loads((KNOWN / "outcomes.json").read_text()), ids=lambda c: c["source"])
def test_other_readings_by_hand(case):
    result = getattr(metrics, case["metric"])(**case["inputs"])
    assert result.value == pytest.approx(exact(case["expected"]), abs=case["tol"], nan_ok=True)


counts_and_totals = (
    st.integers(2, 7)
    .flatmap(
        lambda g: st.tuples(
            st.lists(st.integers(0, 12), min_size=g, max_size=g),
            st.lists(st.integers(0, 9), min_size=g, max_size=g),
        )
    )
    .map(lambda pair: (np.minimum(pair[0], np.add(pair[0], pair[1])), np.add(pair[0], pair[1])))
)


@settings(max_examples=150, deadline=None)
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
    slow = float(max(gaps) if over_pairs == "max" else sum(gaps) / len(gaps)) if gaps else float("nan")
    result = max_skew(counts, totals, over_pairs=over_pairs, smoothing=smoothing)
    assert result.value == pytest.approx(slow, rel=1e-12, abs=1e-12, nan_ok=True)
    assert result.undefined_pairs == undefined
    replicated = skew_values(counts, totals, over_pairs=over_pairs, smoothing=smoothing or 0.0)
    assert float(replicated) == pytest.approx(slow, rel=1e-12, abs=1e-12, nan_ok=True)


def test_replicates_at_once_equal_one_by_one():
    rng = np.random.default_rng(1)
    totals = rng.integers(0, 9, (50, 4))
    counts = rng.integers(0, totals + 1)
    for many, one in (
        (skew_values(counts, totals), lambda x, n: max_skew(x, n).value),
        (parity_differences(counts, totals), lambda x, n: parity_difference(x, n).value),
        (impact_ratios(counts, totals), lambda x, n: impact_ratio(x, n).value),
    ):
        np.testing.assert_allclose(many, [one(x, n) for x, n in zip(counts, totals)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reading", [*SKEWS, *RANGES], ids=lambda r: f"{r.metric}-{r.definition}")
def test_the_readings_of_the_rows_equal_the_public_functions(reading):
    """On random tables with zeros, empty groups and ties, of one event and of three at once."""
    public = {
        "mean_over_pairs": max_skew,
        "max_over_pairs": partial(max_skew, over_pairs="max"),
        "smoothed": partial(max_skew, smoothing=0.5),
        "max_minus_min": parity_difference,
        "min_over_max": impact_ratio,
    }[reading.definition]
    rng = np.random.default_rng(6)
    seen = {"empty": 0, "zero": 0, "tied": 0, "undefined": 0}
    for trial in range(300):
        totals = rng.integers(0, 7, rng.integers(2, 6))
        counts = rng.integers(
            0, totals + 1, (3 if reading.metric == "max_skew" and trial % 2 else 1, totals.size)
        )
        value, expected = (
            float(reading.value(counts, totals[None])),
            np.ravel(public(counts, totals).value)[0],
        )
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)
        if reading.pairs:
            _, cells = skew_sums(counts, totals[None])
            pairs = counts.shape[0] * totals.size * (totals.size - 1) // 2
            assert pairs - cells.sum() == max_skew(counts, totals).undefined_pairs
        rates = counts[0][totals > 0] / totals[totals > 0]
        seen["empty"] += (totals == 0).any()
        seen["zero"] += (rates == 0).any()
        seen["tied"] += len(set(rates)) < len(rates)
        seen["undefined"] += np.isnan(expected)
    assert min(seen.values()) > 5


def test_pairs_keep_the_axis_of_events():
    one, several = max_skew([5, 3, 2], [10, 12, 10]), max_skew([[5, 3, 2], [1, 1, 1]], [10, 12, 10])
    assert one.pairs.shape == (3,) and several.pairs.shape == (2, 3)
    np.testing.assert_array_equal(one.pair_index, [[0, 1], [0, 2], [1, 2]])
    np.testing.assert_allclose(several.per_event, [11 / 12, np.nanmean(several.pairs[1])])


def test_unlabelled_images_count_in_harm_rates_and_in_no_group():
    in_event = np.array([True, True, False, True])
    result = outcome_proportions(in_event, ["a", None, "b", float("nan")])
    assert result.groups == ("a", "b") and result.unlabelled == 2
    assert [group.proportion for group in result] == [1.0, 0.0]
    assert harm_rate([int(in_event.sum())], [4]).value == 0.75


def test_proportions_read_polars_and_flag_small_and_empty_groups():
    groups = pl.Series(["a"] * 40 + ["b"] * 5 + [None])
    result = outcome_proportions(np.arange(46) % 2 == 0, groups, levels=["a", "b", "c"])
    assert result["a"].reason is None and (result["a"].count, result["a"].n) == (20, 40)
    assert result["b"].reason == "small group: 5 images, fewer than 30" and result["b"].proportion == 3 / 5
    assert (
        result["c"].reason == "empty group"
        and np.isnan([result["c"].proportion, *result["c"].interval]).all()
    )
    assert result["a"].interval[0] < 0.5 < result["a"].interval[1]
    assert len(result) == 3
    np.testing.assert_array_equal(result.interval[1], result["b"].interval)


def test_harm_rate_of_several_events_has_one_value_an_event():
    result = harm_rate([[12, 8], [0, 0]], [100, 100])
    np.testing.assert_allclose(result.value, [0.1, 0.0])
    assert result.interval[0][1] == 0 and 0 < result.interval[1][1] < 0.03
    assert np.isnan(harm_rate([0], [0]).value) and harm_rate([0], [0]).reason == "no images"


def test_the_four_fifths_flag():
    assert impact_ratio([79, 100], [1000, 1000]).reason == "below four fifths"
    assert impact_ratio([80, 100], [1000, 1000]).reason is None
    assert impact_ratio([0, 0], [10, 10]).reason == "the event never happens"
    assert impact_ratio([1, 1, 0], [10, 10, 0]).reason == "1 of 3 groups empty, left out"


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
