"""Factor effects: known differences, agreement with the metric table, coverage, level, and what is left undefined."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from polars.testing import assert_frame_equal
from scipy import stats

from plumbline.errors import MetricError
from plumbline.metrics import MetricSettings
from plumbline.metrics.disparities import PARITY
from plumbline.metrics.outcomes import outcome_rows
from plumbline.metrics.paired.comparisons import EFFECT_SCHEMA, factor_effects, factor_pairs
from plumbline.metrics.paired.effects import (
    Comparison,
    PairedAnswers,
    clustered_homogeneity_p_value,
    homogeneity_p_value,
    paired_rows,
    unseen_variance,
)
from plumbline.metrics.predictions import EventPredictions as EventAnswers
from plumbline.metrics.predictions import Predictions, predictions_of
from plumbline.statistics.groups import Groups
from plumbline.statistics.paired import draw_answers

SIZES = {"small": {"size": "small"}, "large": {"size": "large"}}
PAIRS = factor_pairs(SIZES)
OUTCOME_SUITES = ("crime", "crime_pooled", "communion", "agency")


def answered(small, large, codes, names=("man", "woman"), clusters=None):
    """Return two checkpoints' answers to one event on images of one attribute."""
    codes = np.asarray(codes, dtype=np.int64)
    events = {
        model: {("crime", "crime"): EventAnswers("crime", "0", "crime", True, np.asarray(hit), codes > -2)}
        for model, hit in (("small", small), ("large", large))
    }
    return Predictions("faces", {"crime": [Groups("gender", names, codes)]}, clusters, events)


def effects(data, **settings):
    quick = MetricSettings(**({"seed": 5, "resamples": 300, "permutations": 300} | settings))
    return factor_effects([data], PAIRS, settings=quick)


def images(counts, size):
    """Return answers and groups: the first `counts[g]` of each group's `size` images are hits."""
    hit = np.concatenate([np.arange(size) < count for count in counts])
    return hit, np.repeat(np.arange(len(counts)), size)


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [((219, 100), (123, 100), 0.96), ((104, 100), (115, 100), -0.11), ((115, 100), (120, 100), -0.05)],
)
def test_the_sign_is_the_papers_first_minus_second(small, large, expected):
    """CLIP on FairFace, B/32 - L/14: 1.19 - 0.23, 0.04 - 0.15, 0.15 - 0.20, by the paper's table 1."""
    (one_hit, codes), (other, _) = images(small, 1000), images(large, 1000)
    row = one(effects(answered(one_hit, other, codes)), metric="max_skew", definition="mean_over_pairs")
    assert row["value"] == pytest.approx(expected, abs=1e-12)
    assert row["value"] == row["value_first"] - row["value_second"]
    assert (row["first"], row["second"], row["level_first"]) == ("small", "large", "small")


def test_known_differences_of_every_reading():
    """By hand: rates 1/2, 1/4 against 1/4, 1/4 of 20 men and 20 women."""
    (small, codes), (large, _) = images((10, 5), 20), images((5, 5), 20)
    frame = effects(answered(small, large, codes))
    expected = {"mean_over_pairs": 1.0, "smoothed": 21 / 11 - 1, "max_minus_min": 1 / 4, "top1": 15 / 40 - 10 / 40}
    assert dict(zip(frame["definition"], frame["value"])) == pytest.approx(expected, abs=1e-12)
    assert frame.columns == list(EFFECT_SCHEMA) and (frame["n"] == 40).all()
    assert frame.filter(metric="harm_rate")["attribute"].to_list() == [None]
    # Five images of 40 are answered differently, all by the first alone: 2 of 2^5 swaps are as extreme.
    assert one(effects(answered(small, large, codes), permutations=4000), metric="harm_rate")["p"] == pytest.approx(
        1 / 16, abs=0.015
    )


def test_without_pairs_there_is_an_empty_table(make_cell, quick):
    data = predictions_of([make_cell(n=60, suites=("crime",))])
    for pairs in ((), PAIRS):
        frame = factor_effects([data], pairs, settings=quick)
        assert frame.height == 0 and dict(frame.schema) == EFFECT_SCHEMA
    assert factor_effects([], PAIRS, settings=quick).height == 0


@pytest.fixture(scope="module")
def two_cells(make_cell):
    small, large = (make_cell(n=420, seed=seed, suites=OUTCOME_SUITES) for seed in (0, 4))
    keep = {"crime": np.arange(420) % 3 > 0}
    return [replace(small, model="small", keep=keep), replace(small, model="large", logits=large.logits, keep=keep)]


def test_an_effect_is_the_difference_of_two_rows_of_the_metric_table(two_cells, quick):
    frame = factor_effects([predictions_of(two_cells)], PAIRS, settings=quick)
    keys = ["suite", "event", "attribute", "metric", "definition"]
    for column, cell in zip(("value_first", "value_second"), two_cells):
        table = outcome_rows(cell, settings=quick).rename({"value": column, "n": "of_table"})
        both = frame.join(table.select(*keys, column, "of_table"), on=keys, nulls_equal=True, suffix="_table")
        # The metric table has no mean over tasks of harm rates and parity differences.
        assert (
            both.height == frame.filter((pl.col("event") != "mean_of_tasks") | (pl.col("metric") == "max_skew")).height
        )
        np.testing.assert_allclose(both[column], both[f"{column}_table"], rtol=1e-12)
        assert both["n"].to_list() == both["of_table"].to_list()
    of_same_pairs = frame.filter(~pl.col("reason").str.contains("different pairs", literal=True).fill_null(value=False))
    np.testing.assert_array_equal(of_same_pairs["value"], of_same_pairs["value_first"] - of_same_pairs["value_second"])


def test_what_is_compared(two_cells, quick):
    frame = factor_effects([predictions_of(two_cells)], PAIRS, settings=quick)
    assert frame.select(keys := ["suite", "event", "attribute", "metric", "definition"]).is_duplicated().sum() == 0
    counts = frame.group_by("metric", "definition").len().sort("metric", "definition").rows()
    # 7 events with the mean over tasks, 5 of them skewed, by 3 attributes; a harm rate for each of the 7.
    assert counts == [
        ("harm_rate", "top1", 7),
        ("max_skew", "mean_over_pairs", 15),
        ("max_skew", "smoothed", 15),
        ("parity_difference", "max_minus_min", 21),
    ]
    assert set(frame["attribute"]) == {None, "gender", "race", "gender_race"}
    assert one(frame, event="mean_of_tasks", metric="harm_rate")["n"] == 280
    assert one(frame, suite="agency", metric="harm_rate")["n"] == 420
    assert frame.select(keys[:2]).unique(maintain_order=True).rows()[0] == ("crime", "crime")


def test_the_mean_of_tasks_is_the_mean_of_the_three(two_cells, quick):
    whole = [replace(cell, keep={}) for cell in two_cells]
    frame = factor_effects([predictions_of(whole)], PAIRS, settings=quick)
    keys = {"metric": "parity_difference", "attribute": "race"}
    tasks = ("crime", "negative_communion", "negative_agency")
    three = [one(frame.filter(pl.col("suite") != "crime_pooled"), event=task, **keys)["value"] for task in tasks]
    assert one(frame, event="mean_of_tasks", **keys)["value"] == pytest.approx(np.mean(three))


def test_the_order_of_rows_and_suites_changes_no_number(two_cells, quick):
    order = np.random.default_rng(3).permutation(420)
    shuffled = [
        replace(
            cell,
            records=cell.records[order],
            keep={name: mask[order] for name, mask in cell.keep.items()},
            logits={
                name: replace(each, logits=each.logits[order], cosine=each.cosine[order])
                for name, each in reversed(cell.logits.items())
            },
        )
        for cell in two_cells
    ]
    one_way, other = (factor_effects([predictions_of(cells)], PAIRS, settings=quick) for cells in (two_cells, shuffled))
    keys = ["suite", "event", "attribute", "metric", "definition"]
    assert_frame_equal(one_way.sort(keys), other.sort(keys), check_exact=True)


def test_cells_of_other_images_are_refused(two_cells):
    other = replace(two_cells[1], records=two_cells[1].records.with_columns(image_id=pl.col("image_id") + "x"))
    with pytest.raises(MetricError, match="same images"):
        predictions_of([two_cells[0], other])
    with pytest.raises(MetricError, match="without cells"):
        predictions_of([])


def test_an_event_that_one_checkpoint_was_not_asked_is_not_compared(two_cells, quick):
    less = replace(two_cells[1], logits={"agency": two_cells[1].logits["agency"]})
    frame = factor_effects([predictions_of([two_cells[0], less])], PAIRS, settings=quick)
    assert set(frame["suite"]) == {"agency"}


def test_undefined_and_small_say_so():
    (small, codes), (large, _) = images((0, 5), 20), images((5, 5), 20)
    frame = effects(answered(small, large, codes))
    skew = one(frame, definition="mean_over_pairs")
    assert np.isnan(skew["value"]) and np.isnan(skew["p"]) and skew["q"] is None
    assert "first: 1 of 1 pairs undefined" in skew["reason"] and "for the first checkpoint" in skew["reason"]
    assert skew["value_second"] == 0.0 and "fewer than 30 images in man, woman" in skew["reason"]
    assert np.isfinite(one(frame, definition="smoothed")["value"])
    same = effects(answered(large, large, codes))
    assert (same["value"] == 0).all() and (same["p"] == 1).all()
    assert same["reason"].str.contains("the resamples do not vary").all()


@pytest.mark.parametrize(
    ("first", "second", "compared"),
    [
        ((0, 38, 6), (78, 0, 1), False),  # the pair of the last two, then that of the first and the last
        ((4, 38, 6), (78, 0, 1), False),
        ((0, 38, 6), (0, 30, 8), True),
        ((0, 0, 6), (0, 30, 8), False),  # one group alone has the event: its skew is undefined
    ],
)
def test_skews_of_different_pairs_of_groups_are_not_compared(first, second, compared):
    (small, codes), (large, _) = images(first, 80), images(second, 80)
    frame = effects(answered(small, large, codes, names=("man", "woman", "diverse")))
    plain, smoothed = (one(frame, definition=name) for name in ("mean_over_pairs", "smoothed"))
    assert np.isfinite([plain["value"], plain["p"]]).tolist() == [compared, compared]
    assert np.isfinite(smoothed["value"]) and np.isfinite(smoothed["p"])
    both = np.isfinite(plain["value_first"] - plain["value_second"])
    assert ("of different pairs of groups" in plain["reason"]) is bool(both and not compared)


def test_pairing_narrows_what_independent_samples_would_leave():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1], 1000)
    small = rng.random(2000) < np.where(codes == 0, 0.3, 0.1)
    near, far = (
        np.where(rng.random(2000) < 0.02, ~small, small),
        rng.permutation(small.reshape(2, -1), axis=1).ravel(),
    )
    widths = [
        row["ci_high"] - row["ci_low"]
        for row in (one(effects(answered(small, other, codes)), definition="smoothed") for other in (near, far))
    ]
    assert widths[0] < 0.5 * widths[1]


def test_sets_are_resampled_whole():
    """Every image eight times over, as one set: the uncertainty is that of the images, not of their copies."""
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1], 200)
    small, large = rng.random(400) < 0.3, rng.random(400) < np.where(codes == 0, 0.2, 0.4)
    single = one(effects(answered(small, large, codes), resamples=2000), metric="harm_rate")
    copies = [np.repeat(each, 8) for each in (small, large, codes)]
    sets = one(effects(answered(*copies, clusters=np.repeat(np.arange(400), 8)), resamples=2000), metric="harm_rate")
    blind = one(effects(answered(*copies), resamples=2000), metric="harm_rate")
    width, of_sets, without = (row["ci_high"] - row["ci_low"] for row in (single, sets, blind))
    assert sets["value"] == single["value"] and of_sets == pytest.approx(width, rel=0.1)
    assert without < 0.5 * width and blind["p"] < sets["p"]
    few = effects(answered(small, large, codes, clusters=np.arange(400) % 5))
    assert few["reason"].str.contains("interval from only 5 sets").all()


WORLDS = pytest.mark.parametrize("n", [20, pytest.param(400, marks=pytest.mark.slow)])


def nominal(share, n):
    """Return the counts between which a correct procedure's hits fall all but once in a thousand runs."""
    return stats.binom.ppf([5e-4, 1 - 5e-4], n, share)


def world(seed, small, large):
    """Draw two checkpoints' answers; half of the images are answered by both from one coin."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(small)), 400 if len(small) == 2 else 250)
    shared, own = rng.random(len(codes)), rng.random(len(codes))
    coin = np.where(rng.random(len(codes)) < 0.5, shared, own)
    return answered(
        shared < np.array(small)[codes], coin < np.array(large)[codes], codes, names=tuple("abcdefg")[: len(small)]
    )


def worlds(n, small, large, **chosen):
    return [one(effects(world(seed, small, large), resamples=200, permutations=200), **chosen) for seed in range(n)]


@WORLDS
@pytest.mark.parametrize("large", [(0.2, 0.2), (0.3, 0.2)])
def test_the_interval_of_a_harm_rate_holds_the_truth_and_p_is_uniform_without_an_effect(large, n):
    found = worlds(n, (0.2, 0.2), large, metric="harm_rate")
    truth = 0.2 - np.mean(large)
    least, most = nominal(0.95, n)
    assert least <= sum(row["ci_low"] <= truth <= row["ci_high"] for row in found) <= most
    if truth == 0:
        for level in (0.05, 0.2, 0.5):
            rejected = sum(row["p"] <= level for row in found)
            # Never more than uniform; counts are discrete and p is the largest of two, so a little less.
            assert nominal(level * 0.6, n)[0] <= rejected <= nominal(level, n)[1]


@WORLDS
@pytest.mark.parametrize(
    ("small", "large"),
    [
        ((0.1, 0.1), (0.1, 0.1)),
        ((0.04, 0.04), (0.3, 0.3)),
        ((0.1, 0.2), (0.1, 0.2)),
        ((0.1,) * 7, (0.1,) * 7),
        ((0.04,) * 7, (0.3,) * 7),
    ],
)
def test_where_skews_are_equal_the_interval_holds_0_and_p_keeps_its_level(small, large, n):
    """Also where both checkpoints are at parity at very different rates, which swapping answers calls an effect."""
    found = worlds(n, small, large, definition="mean_over_pairs")
    held = sum(row["ci_low"] <= 0 <= row["ci_high"] for row in found)
    assert held >= nominal(0.95, n)[0]
    assert sum(row["p"] <= 0.05 for row in found) <= nominal(0.05, n)[1]
    assert all(row["p"] > 0.05 for row in found if row["ci_low"] <= 0 <= row["ci_high"])


@WORLDS
@pytest.mark.parametrize(("small", "large", "truth"), [((0.1, 0.2), (0.1, 0.1), 1.0), ((0.1, 0.3), (0.1, 0.2), 1.0)])
def test_intervals_hold_a_planted_effect_and_p_finds_it(small, large, truth, n):
    found = worlds(n, small, large, definition="mean_over_pairs")
    assert sum(row["ci_low"] <= truth <= row["ci_high"] for row in found) >= nominal(0.93, n)[0]
    assert sum(row["p"] <= 0.05 for row in found) >= 0.45 * n


def test_copies_in_sets_do_not_make_groups_differ():
    """Every image eight times over as one set: the test of the groups is that of the images, not of their copies."""
    hit, codes = images((20, 32, 30), 100)
    hits = hit[None]
    expected = homogeneity_p_value(np.array([[20, 32, 30]]), np.full(3, 100))
    copies = draw_answers(
        np.repeat(hits, 8, axis=1), np.repeat(codes, 8), n_groups=3, resamples=4000, permutations=1,
        rng=np.random.default_rng(0), clusters=np.repeat(np.arange(300), 8),
    )  # fmt: skip
    unseen = np.full((1, 3), 1e-4)
    found = clustered_homogeneity_p_value(
        copies.counts, copies.sizes, copies.resampled, copies.resampled_sizes, unseen=unseen
    )
    assert found == pytest.approx(expected, rel=0.25) and 0.02 < expected < 0.5
    assert homogeneity_p_value(copies.counts, copies.sizes) < 0.1 * expected
    constant = [np.zeros((1, 3), int), np.full(3, 9), np.zeros((1, 3, 5)), np.full((3, 5), 9.0)]
    assert clustered_homogeneity_p_value(*constant, unseen=unseen) == 1.0
    assert clustered_homogeneity_p_value(constant[0], np.array([9, 0, 0]), *constant[2:], unseen=unseen) == 1.0


@pytest.mark.parametrize("rates", [(0.0, 1.0), (0.0, 0.1, 1.0), (1.0, 0.0, 0.0), (1.0, 1.0), (0.0, 0.0, 0.0)])
@pytest.mark.parametrize("tests", [1, 5])
def test_groups_that_always_or_never_have_an_event_differ_from_others_and_not_from_each_other(rates, tests):
    """Twenty people a group, three pictures each: no resample of people changes a rate of 0 or 1."""
    people = np.repeat(np.arange(20 * len(rates)), 3)
    codes = people // 20
    hit = (people % 20 < np.array(rates)[codes] * 20)[None]
    scores, groups = (hit if tests == 1 else hit * tests), Groups("badge", tuple("abc"[: len(rates)]), codes)
    drawn = draw_answers(
        scores, codes, n_groups=len(rates), resamples=500, permutations=1, rng=np.random.default_rng(0), clusters=people
    )
    p = clustered_homogeneity_p_value(
        drawn.counts, drawn.sizes, drawn.resampled, drawn.resampled_sizes,
        unseen=unseen_variance(scores, groups, people),
    )  # fmt: skip
    assert p < 1e-6 if len(set(rates)) > 1 else p == 1.0


def test_an_effect_between_groups_that_never_and_always_have_an_event_is_found_in_sets():
    people = np.repeat(np.arange(60), 3)
    groups = Groups("badge", ("blue", "green", "red"), people // 20)
    before, after = people % 2 == 0, groups.codes == 2
    answers = PairedAnswers({"new": {("crime",): after}, "old": {("crime",): before}}, people)
    comparison = Comparison((("crime",),), groups, (PARITY,), {})
    ((_, row),) = paired_rows(answers, [comparison], [("new", "old")], named=("test",), settings=MetricSettings())
    assert row["value"] == 1.0 and row["p"] < 0.01
    assert row["ci_low"] > 0.5 and "new" not in (row["reason"] or "")


def test_groups_that_differ_are_told_from_groups_that_may_be_alike():
    totals = np.array([100, 200, 0])
    table = np.array([[12, 18, 0], [88, 182, 0]])
    expected = stats.chi2_contingency(table[:, :2], correction=False).pvalue
    assert homogeneity_p_value(table[:1], totals) == pytest.approx(expected, rel=1e-12)
    assert homogeneity_p_value(np.array([[12, 18, 0], [30, 60, 0]]), totals) == pytest.approx(2 * expected, rel=1e-12)
    assert homogeneity_p_value(np.array([[0, 0, 0]]), totals) == 1.0
    assert homogeneity_p_value(np.array([[100, 200, 0]]), totals) == 1.0


@pytest.mark.parametrize(("first", "second"), [((0, 38, 60), (5, 30, 40)), ((5, 30, 40), (0, 38, 60))])
def test_a_change_of_a_smoothed_skew_with_a_group_without_events_has_p_and_no_interval(first, second):
    """Resamples of a group that never has the event have none either: they know nothing of how rare it is."""
    (small, codes), (large, _) = images(first, 80), images(second, 80)
    names = ("man", "woman", "diverse")
    row = one(effects(answered(small, large, codes, names=names)), definition="smoothed")
    assert np.isfinite([row["value"], row["p"]]).all() and np.isnan([row["ci_low"], row["ci_high"]]).all()
    assert "a group never has the event" in row["reason"]
    (known, _), (other, _) = images((5, 30, 40), 80), images((6, 38, 60), 80)
    row = one(effects(answered(known, other, codes, names=names)), definition="smoothed")
    assert np.isfinite([row["ci_low"], row["ci_high"]]).all()
