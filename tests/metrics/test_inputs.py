"""The metrics as functions: whatever holds predictions, groups or counts, an interval where it is asked for, a seed."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import plumbline
from plumbline.errors import MetricError
from plumbline.metrics.associations import association_estimates
from plumbline.metrics.disparities import without_interval
from plumbline.metrics.registry import FAMILIES
from plumbline.reasons import reason
from plumbline.statistics.estimates import Estimate

QUICK = plumbline.MetricSettings(resamples=400, permutations=400)
RACES = ["Black"] * 60 + ["White"] * 80 + [None] * 5
PREDICTED = ["thief"] * 24 + ["nurse"] * 36 + ["thief"] * 8 + ["judge"] * 72 + ["thief"] * 5
COUNTS, TOTALS = [24, 8], [60, 80]
OF_COUNTS = (plumbline.max_skew, plumbline.parity_difference, plumbline.impact_ratio)
CONTAINERS = (list, np.array, pl.Series, pd.Series, lambda labels: pd.Series(labels, dtype="string"))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("metric", OF_COUNTS)
def test_predictions_and_groups_give_what_their_counts_give(metric, container):
    expected = metric(COUNTS, TOTALS, interval=QUICK, seed=1)
    given = metric(container(PREDICTED), groups=container(RACES), event="thief", interval=QUICK, seed=1)
    assert given == expected and given.value == pytest.approx(metric(COUNTS, TOTALS).value)
    hits = [prediction == "thief" for prediction in PREDICTED]
    assert metric(container(hits) if container in (list, np.array) else hits, groups=RACES).value == given.value
    assert given.n == 140 and given.ci_low <= given.value <= given.ci_high and given.p < 0.02


@pytest.mark.parametrize("metric", OF_COUNTS)
def test_a_seed_is_a_number_or_a_generator(metric):
    one, same, other = (metric(COUNTS, TOTALS, interval=QUICK, seed=seed) for seed in (1, 1, 2))
    assert one == same and one.ci_high != other.ci_high
    drawn = [metric(COUNTS, TOTALS, interval=QUICK, seed=np.random.default_rng(3)).ci_high for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_an_interval_is_the_one_of_an_audit(make_cell):
    """To Monte Carlo error: an audit names its draws after the cell."""
    cell = make_cell(suites=("crime",))
    settings = plumbline.MetricSettings(resamples=2000, permutations=2000)
    rows = FAMILIES["outcome_metrics"].compute(cell, settings=settings)
    row = rows.filter(metric="max_skew", definition="smoothed", event="crime", attribute="race").row(0, named=True)
    suite = cell.logits["crime"].suite
    chosen = [suite.candidates[i].category for i in cell.logits["crime"].top()]
    alone = plumbline.max_skew(
        chosen, groups=cell.records["race"], event=suite.events["crime"], smoothing=0.5, interval=settings
    )
    assert alone.value == pytest.approx(row["value"], abs=1e-12) and alone.n == row["n"]
    assert [alone.ci_low, alone.ci_high] == pytest.approx([row["ci_low"], row["ci_high"]], rel=0.1)


def test_rates_take_predictions_too():
    assert plumbline.harm_rate(PREDICTED, event={"thief"}) == plumbline.harm_rate([37], [145])
    by_group = plumbline.outcome_proportions(pd.Series(PREDICTED), pl.Series(RACES), event="thief")
    assert by_group.groups == ("Black", "White") and by_group.count.tolist() == COUNTS and by_group.unlabelled == 5


@pytest.mark.parametrize(
    "rate",
    [
        lambda event: plumbline.max_skew(PREDICTED, groups=RACES, event=event),
        lambda event: plumbline.harm_rate(PREDICTED, event=event),
        lambda event: plumbline.outcome_proportions(PREDICTED, RACES, event=event),
    ],
)
def test_an_event_that_no_image_got_is_said_at_the_callers_line(rate):
    with pytest.warns(UserWarning, match="no image was predicted 'theif'.*did you mean `thief`") as told:
        rate("theif")
    assert told[0].filename == __file__
    rate(["theif", "thief"])  # a part of an event may never occur


def test_equal_opportunity_of_predictions_is_that_of_their_counts():
    true, groups = ["cook"] * 60 + ["nurse"] * 80 + ["cook"], [("a", "b")[i % 2] for i in range(140)] + [None]
    guesses = ["cook" if i % 2 or i % 3 else "nurse" for i in range(60)] + ["nurse"] * 40 + ["cook"] * 41
    counts, totals = np.array([[20, 30], [20, 20]]), np.array([[30, 30], [40, 40]])
    expected = plumbline.equal_opportunity_gap(counts, totals)
    given = plumbline.equal_opportunity_gap(guesses, classes=pl.Series(true), groups=groups)
    np.testing.assert_array_equal(given.rate, expected.rate)
    estimate = plumbline.equal_opportunity_gap(guesses, classes=true, groups=groups, interval=QUICK, seed=1)
    assert estimate == plumbline.equal_opportunity_gap(counts, totals, interval=QUICK, seed=1)
    assert estimate.value == pytest.approx(expected.value) and estimate.ci_low <= estimate.value <= estimate.ci_high


def test_rankings_and_associations_have_intervals():
    rng = np.random.default_rng(0)
    groups = np.array(["man", "woman"] * 100)
    scores = rng.normal(size=200) + (groups == "man")
    for metric, options in ((plumbline.max_skew_at_k, {"k": 50}), (plumbline.ndkl, {})):
        plain = metric(scores, groups, **options)
        for desired in ("equal", "ranked"):
            found = metric(scores, pd.Series(groups), **options, desired=desired, interval=QUICK, seed=1)
            assert found.value == pytest.approx(getattr(plain, "value", plain)) and found.p < 0.02
            assert found.ci_low <= found.value <= found.ci_high
        with pytest.raises(MetricError, match="against equal shares"):
            metric(scores, groups, **options, desired={"man": 0.3, "woman": 0.7}, interval=QUICK)
    by_group = plumbline.skew_at_k(pl.Series(scores), groups.tolist(), k=50, interval=QUICK, seed=1)
    largest = plumbline.max_skew_at_k(scores, groups, k=50, interval=QUICK, seed=1)
    assert max(each.value for each in by_group.values()) == largest.value == by_group["man"].value
    assert all(each.ci_low < each.value < each.ci_high and each.p < 0.02 for each in by_group.values())
    men = groups == "man"
    found = plumbline.sc_weat(scores[:, None], men, permutations=200, interval=True)[0]
    expected = association_estimates(scores[:, None], men, np.ones((1, 1))).effect_size[0]
    assert (found.value, found.ci_low, found.ci_high) == (expected.value, expected.ci_low, expected.ci_high)
    assert found.p == plumbline.sc_weat(scores[:, None], men, permutations=200).p_value[0]
    vectors = rng.normal(size=(20, 4))
    sets = {"x": vectors[:6], "y": vectors[6:12], "a": vectors[12:16], "b": vectors[16:]}
    of_words = plumbline.weat(**sets, interval=0.8)
    assert of_words.value == pytest.approx(plumbline.weat(**sets).effect_size) and of_words.ci_low < of_words.value


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ([[1, 2]], {}, r"predictions the group[\s\S]*neither"),
        ([[1, 2], [3, 4]], {"groups": ["a", "b"]}, "both"),
        ([[True]], {"groups": ["a", "b"]}, "1 predictions, 2 groups"),
        ([["thief", "nurse"]], {"groups": ["a", "b"]}, r"'thief', 'nurse'[\s\S]*with `event`"),
        ([[True, False]], {"groups": np.array([["a"], ["b"]])}, "labels must be one an image"),
        ([[True, False]], {"groups": ["a", "a"]}, "too few groups"),
        ([[[1, 2], [2, 1]], [3, 4]], {"interval": True}, "2 events"),
    ],
)
def test_what_is_neither_counts_nor_predictions_is_refused(arguments, options, said):
    with pytest.raises(MetricError, match=said):
        plumbline.max_skew(*arguments, **options)


def test_what_is_no_input_is_refused_in_words():
    for refused, said in (
        (lambda: plumbline.parity_difference(PREDICTED, RACES, event="thief"), "groups=labels"),
        (lambda: plumbline.parity_difference(COUNTS, TOTALS, interval=0.9), "MetricSettings"),
        (lambda: plumbline.max_skew(COUNTS, TOTALS, interval=True, seed="x"), "whole number or a generator"),
    ):
        with pytest.raises(MetricError, match=said):
            refused()
    ones = [1] * 30 + [0] * 30
    as_number, as_set = (plumbline.harm_rate(ones, event=event) for event in (1, {1}))
    assert as_number == as_set and as_number.value == 0.5


def test_a_skew_that_is_undefined_has_its_reason_with_an_interval_too():
    alone = plumbline.max_skew(["a", "b"] * 50, groups=["x", "y"] * 50, event="a")
    tested = plumbline.max_skew(["a", "b"] * 50, groups=["x", "y"] * 50, event="a", interval=QUICK, seed=1)
    assert np.isnan(tested.value) and alone.reason[0] in tested.reason


def test_a_smoothed_skew_of_a_group_without_events_has_no_interval():
    for counts, known in (([25, 0], False), ([25, 1], True), ([25, 0, 9], False), ([300, 20, 9], True)):
        found = plumbline.max_skew(counts, [300] * len(counts), smoothing=0.5, interval=True, seed=1)
        assert np.isfinite([found.value, found.p]).all()
        assert np.isfinite([found.ci_low, found.ci_high]).tolist() == [known, known]
        assert ("a group never has the event" in " ".join(map(str, found.reason))) is not known


def test_what_is_said_of_p_stays_where_the_interval_goes():
    of_p, of_interval = reason("few_relabellings", least=0.1), reason("biased_upwards", bias=1.0)
    found = without_interval(Estimate(2.0, 1.0, 3.0, p=0.1, reason=(of_interval, of_p)))
    assert [each.code for each in found.reason] == ["few_relabellings", "no_interval_no_event"] and found.p == 0.1


def test_a_number_with_an_interval_has_the_reasons_and_the_sample_of_the_one_without():
    for counts, totals in (([0, 0], [50, 50]), ([10, 30], [50, 50]), ([1, 2, 0], [9, 9, 0])):
        plain, wide = (plumbline.impact_ratio(counts, totals, interval=each) for each in (False, True))
        assert {why.code for why in plain.reason} <= {why.code for why in wide.reason} and plain.reason
    for correct, totals in (([[5, 0], [0, 4]], [[10, 0], [0, 10]]), ([[5, 0], [3, 4]], [[10, 0], [10, 10]])):
        plain, wide = (plumbline.equal_opportunity_gap(correct, totals, interval=each) for each in (False, True))
        assert plain.n == wide.n and {why.code for why in plain.reason} <= {why.code for why in wide.reason}
        assert any(why.code == "classes_left_out" for why in wide.reason)


@pytest.mark.parametrize(("counts", "totals"), [([19, 1], [20, 20]), ([20, 3], [21, 300]), ([50, 4], [50, 100])])
def test_an_interval_of_a_difference_of_rates_ends_at_1(counts, totals):
    found = plumbline.parity_difference(counts, totals, interval=True)
    assert found.value <= found.ci_high == 1
