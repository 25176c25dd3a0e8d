"""Bias transfer: planted improvements and harms are told apart, nothing is told where nothing changed."""

import numpy as np
import polars as pl
import pytest
from only_row import one
from polars.testing import assert_frame_equal, assert_series_equal
from scipy import stats

from plumbline.catalog.suites import Candidate, Suite
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.paired.comparisons import HITS
from plumbline.metrics.paired.mitigations import (
    TRANSFER_SCHEMA,
    VERDICTS,
    bias_shifts,
    bias_transfer,
    mitigation_effects,
    verdict_counts,
)


def candidates(**words):
    return tuple(Candidate(word, f"a photo of a {word}", kind) for word, kind in words.items())


CRIME = Suite(
    id="crime", family="outcomes", version=1, source="made", events={"crime": ("crime",)},
    candidates=candidates(person="other", thief="crime"), skewed_events=("crime",),
)  # fmt: skip
TRIDENT = Suite(
    id="trident", family="trident", version=1, source="made", attribute="race",
    candidates=candidates(a="class", b="class", thief="negative", liar="negative", hero="positive"),
)  # fmt: skip


def made_cell(gender, race, hit, winners=None, sets=None):
    """Return a cell whose images are thieves where `hit` says so, and win the Trident tests as given: (n, 5) logits."""
    records = pl.DataFrame(
        {
            "image_id": [f"{i:06x}" for i in range(len(hit))],
            "gender": np.array(["man", "woman"])[gender],
            "race": np.array(["a", "b"])[race],
        }
    )
    if sets is not None:
        records = records.with_columns(set_id=pl.Series(sets).cast(pl.String))
    answers = np.stack([np.full(len(hit), 0.5), hit], axis=1).astype(np.float32)
    logits = {"crime": SuiteLogits(CRIME, answers)}
    if winners is not None:
        logits["trident"] = SuiteLogits(TRIDENT, winners.astype(np.float32))
    return Cell("encoder", "faces", records, logits, keep={})


def effects(before, after, *, draws=200, condition="projection", **given):
    settings = MetricSettings(seed=5, resamples=draws, permutations=draws, min_group=10)
    rows = np.ones(before.records.height, dtype=bool)
    return mitigation_effects(
        before, after, condition=condition, method="bias_prompts", rows=rows, settings=settings, **given
    )


def planted(rates_before, rates_after, n=2400, seed=0):
    """Draw two states of one encoder: rates by gender (rows) and race, most answers the same before and after."""
    rng = np.random.default_rng(seed)
    gender, race = rng.integers(0, 2, n), rng.integers(0, 2, n)
    coin = rng.random(n)
    again = np.where(rng.random(n) < 0.7, coin, rng.random(n))
    before, after = (np.array(rates)[gender, race] for rates in (rates_before, rates_after))
    return made_cell(gender, race, coin < before), made_cell(gender, race, again < after)


GENDER_SKEW, RACE_SKEW, NEITHER = [[0.3, 0.3], [0.1, 0.1]], [[0.3, 0.1], [0.3, 0.1]], [[0.2, 0.2], [0.2, 0.2]]


def test_a_mitigation_that_moves_skew_from_gender_to_race_is_named():
    table = bias_transfer([effects(*planted(GENDER_SKEW, RACE_SKEW, seed=1), draws=400)])
    for definition in ("smoothed", "mean_over_pairs", "max_minus_min"):
        assert one(table, attribute="gender", definition=definition)["verdict"] == "improved"
        assert one(table, attribute="race", definition=definition)["verdict"] == "worsened"
    assert one(table, kind="harm")["verdict"] == "no evidence"
    moved = one(bias_shifts(table), condition="projection")
    assert moved["improved_axes"] == 1 == moved["worsened_axes"] and moved["worsened_harms"] == 0
    assert moved["improved"].startswith("crime crime by gender (") and " -> " in moved["improved"]
    assert "by race" in moved["worsened"] and moved["model"] == "encoder" and moved["method"] == "bias_prompts"


def test_a_mitigation_that_buys_parity_with_harm_is_named():
    everywhere = [[0.5, 0.5], [0.5, 0.5]]
    table = bias_transfer([effects(*planted(GENDER_SKEW, everywhere), draws=400)])
    assert one(table, kind="harm")["verdict"] == "worsened"
    assert one(table, attribute="gender", definition="smoothed")["verdict"] == "improved"
    moved = one(bias_shifts(table), condition="projection")
    assert moved["worsened_harms"] == 1 and moved["worsened_axes"] == 0
    assert moved["worsened"].startswith("crime crime (top1 harm_rate): 0.")


def test_a_mitigation_that_only_helps_moves_nothing():
    table = bias_transfer([effects(*planted(GENDER_SKEW, NEITHER), draws=400)])
    assert one(table, attribute="gender", definition="smoothed")["verdict"] == "improved"
    assert "worsened" not in table["verdict"].to_list()
    assert bias_shifts(table).is_empty() and bias_shifts(table).columns[:4] == [
        "model",
        "dataset",
        "condition",
        "method",
    ]
    counted = one(verdict_counts(table), kind="axis")
    assert counted["improved"] >= 3 and counted["worsened"] == 0
    assert sum(counted[verdict] for verdict in VERDICTS) == table.filter(kind="axis").height


def test_two_readings_of_one_axis_that_disagree_are_no_transfer():
    """Rates 40 and 20 to 8 and 1 in a hundred: the difference falls from 20 to 7, the ratio rises from 2 to 8."""
    table = bias_transfer([effects(*planted([[0.4, 0.4], [0.2, 0.2]], [[0.08, 0.08], [0.01, 0.01]]), draws=400)])
    gender = table.filter(attribute="gender")
    assert set(gender["verdict"]) == {"improved", "worsened"} and one(table, kind="harm")["verdict"] == "improved"
    assert bias_shifts(gender).is_empty()


def test_costs_are_worse_when_they_fall():
    rng = np.random.default_rng(0)
    gender, race = rng.integers(0, 2, 1200), rng.integers(0, 2, 1200)

    def cell(right, became):
        classes = np.where(rng.random(1200) < right, race, 1 - race)
        logits = np.zeros((1200, 5))
        logits[np.arange(1200), classes] = 1.0
        logits[:, 2:] = 2.0 * (rng.random((1200, 3)) < became)
        return made_cell(gender, race, rng.random(1200) < 0.2, logits)

    hits = [dict.fromkeys(HITS, rng.random(1200) < share) for share in (0.6, 0.4)]
    before, after = cell(0.9, [0.3, 0.3, 0.1]), cell(0.7, [0.1, 0.1, 0.3])
    table = bias_transfer([effects(before, after, hits=tuple(hits))])
    costs = table.filter(kind="cost")
    assert costs.height == 6 and set(costs["verdict"]) == {"worsened"} and (costs["value"] < 0).all()
    probes = dict(table.filter(metric="probe_rate").select("event", "verdict").rows())
    assert probes == {"negative": "improved", "positive": "worsened"}
    assert set(table.filter(suite="trident")["event"]) == {"negative", "positive", None}


def test_the_same_cell_before_and_after_has_no_effect(cell):
    hits = dict.fromkeys(HITS, np.arange(cell.records.height) % 3 > 0)
    table = bias_transfer([effects(cell, cell, hits=(hits, hits))])
    defined = table.filter(pl.col("value").is_not_nan())
    assert (defined["value"] == 0).all() and (defined["p"] == 1).all() and defined.height > 50
    assert set(defined["verdict"]) == {"no evidence"}
    assert set(table["verdict"]) <= {"no evidence", "undefined"} and bias_shifts(table).is_empty()


def test_what_is_undefined_says_why_and_has_no_verdict():
    """No man is a thief after: a ratio of rates has no value, a difference has."""
    before, after = planted(NEITHER, [[0.0, 0.0], [0.2, 0.2]])
    table = bias_transfer([effects(before, after)])
    row = one(table, attribute="gender", definition="mean_over_pairs")
    assert row["verdict"] == "undefined" and np.isnan(row["value"]) and row["q"] is None
    assert "after: 1 of 1 pairs undefined" in row["reason"]
    assert "undefined for the state after the mitigation" in row["reason"]
    assert row["value_before"] >= 0 and np.isnan(row["value_after"]) and row["n"] == 2400
    assert one(table, attribute="gender", definition="max_minus_min")["verdict"] == "worsened"


def test_q_is_within_a_mitigation_and_a_reading():
    cells = planted(GENDER_SKEW, RACE_SKEW, n=600)
    frames = [effects(*cells, condition=condition) for condition in ("one", "other")]
    table = bias_transfer(frames)
    alone = pl.concat([bias_transfer([frame]) for frame in frames])
    assert_frame_equal(table, alone)
    assert table["condition"].unique(maintain_order=True).to_list() == ["one", "other"]
    again = [frames[0].with_columns(dataset=pl.lit(name)) for name in ("faces", "more", "most")]
    both = bias_transfer(again)
    skew = both.filter(metric="max_skew", definition="smoothed")
    assert skew.height == 9 and (skew["q"] >= skew["p"]).all() and (skew["q"] > skew["p"]).any()
    # What is evidence goes by q, whatever the confidence of the intervals.
    assert_series_equal(bias_transfer(frames, confidence=0.9)["verdict"], table["verdict"])


def test_without_frames_there_is_an_empty_table():
    table = bias_transfer([])
    assert table.is_empty() and dict(table.schema) == TRANSFER_SCHEMA
    assert bias_shifts(table).is_empty() and verdict_counts(table).is_empty()


def test_sets_are_resampled_whole():
    """Every image six times over, as one set: as sure as the images alone, not as their copies."""
    rng = np.random.default_rng(1)
    n = 200
    gender, race, hits = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.random((2, n)) < [[0.3], [0.2]]
    logits = rng.random((2, n, 5))

    def width(copies, sets=None):
        many = [
            made_cell(*(np.repeat(x, copies) for x in (gender, race, hit)), np.repeat(own, copies, axis=0), sets)
            for hit, own in zip(hits, logits)
        ]
        frame = effects(*many, draws=1500)
        rows = [one(frame, kind="harm"), one(frame, metric="macro_accuracy")]
        return np.array([row["ci_high"] - row["ci_low"] for row in rows])

    single, sets, blind = width(1), width(6, np.repeat(np.arange(n), 6)), width(6)
    np.testing.assert_allclose(sets, single, rtol=0.15)
    assert (blind < 0.6 * single).all()


@pytest.mark.parametrize("worlds", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_without_a_change_of_distribution_verdicts_are_as_rare_as_they_may_be(worlds):
    """Worlds that are as biased after as before, each image answered anew half of the time."""
    # A condition each, so that each is judged alone.
    frames = [effects(*world_without_change(seed), draws=100, condition=f"world {seed}") for seed in range(worlds)]
    table = bias_transfer(frames).filter(pl.col("verdict") != "undefined")
    told = pl.col("verdict").is_in(["improved", "worsened"])
    assert table.height > 15 * worlds and table.select(told.mean()).item() <= 0.05
    for (metric, _), family in table.group_by("metric", "definition"):
        most = stats.binom.ppf(1 - 5e-4, family.height, 0.05)
        assert family.select(told.sum()).item() <= most, metric


def world_without_change(seed, n=160):
    rng = np.random.default_rng(seed)
    gender, race = np.arange(n) % 2, np.arange(n) // 2 % 2
    coins = rng.random((2, n))
    coins[1] = np.where(rng.random(n) < 0.5, *coins)
    logits = rng.random((2, n, 5)) * [1, 1, 0.8, 1.2, 1]
    logits[:, np.arange(n), race] += 0.3
    rate = np.array([0.35, 0.15])[gender]
    return [made_cell(gender, race, coin < rate, own) for coin, own in zip(coins, logits)]
