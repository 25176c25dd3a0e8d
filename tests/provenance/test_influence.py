"""Leaving images out: the quick ways against computing the whole family anew."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.registry import FAMILIES
from plumbline.provenance.influence import (
    Moved,
    _without,
    answer_influence,
    encoder_influence,
    ranked,
    same_number,
    value_of,
)
from plumbline.reasons import reason

QUICK = MetricSettings(seed=5, resamples=100, permutations=100, min_group=5)


def small_cell(n=96, seed=3, sets=None):
    """Draw a cell of three races whose answers differ by race; `sets` images make a set, where it is given."""
    rng = np.random.default_rng(seed)
    race = np.arange(n) % 3
    records = pl.DataFrame(
        {
            "image_id": [f"{i:064x}" for i in range(n)],
            "gender": [("man", "woman")[i // 3 % 2] for i in range(n)],
            "race": [("Asian", "Black", "White")[r] for r in race],
        }
    )
    if sets:
        records = records.with_columns(pl.Series("set_id", [f"s{i // sets}" for i in range(n)]))
    images = rng.normal(size=(n, 8)).astype(np.float32)
    images[:, 0] += race
    logits = {}
    for name in ("crime", "communion", "agency"):
        suite = load_suite(name)
        texts = rng.normal(size=(len(suite.candidates), 8)).astype(np.float32)
        logits[name] = SuiteLogits(suite=suite, logits=images @ texts.T)
    return Cell(model="encoder", dataset="faces", records=records, logits=logits, keep={})


def outcome_rows(cell):
    return FAMILIES["outcome_metrics"].compute(cell, settings=QUICK)


def slowly(cell, row, images):
    return value_of(outcome_rows(_without(cell, frozenset(images))), row)


CELL = small_cell()
ROWS = {
    (r["metric"], r["definition"], r["suite"], r["attribute"], r["group"], r["event"]): r
    for r in outcome_rows(CELL).to_dicts()
}
KINDS = [
    ("harm_rate", "top1", "crime", None, None, "crime"),
    ("outcome_proportion", "top1", "communion", "race", "Black", "negative_communion"),
    ("max_skew", "mean_over_pairs", "communion", "race", None, "negative_communion"),
    ("max_skew", "max_over_pairs", "communion", "gender_race", None, "negative_communion"),
    ("max_skew", "smoothed", "agency", "gender", None, "negative_agency"),
    ("parity_difference", "max_minus_min", "agency", "race", None, "negative_agency"),
    ("impact_ratio", "min_over_max", "agency", "race", None, "negative_agency"),
    ("max_skew", "mean_over_pairs", "outcomes", "race", None, "mean_of_tasks"),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_leaving_out_one_image_agrees_with_computing_anew(kind):
    row = ROWS[kind]
    assert math.isfinite(row["value"])
    influence = answer_influence(CELL, row)
    assert influence.moved
    for moved in influence.moved[:3]:
        assert slowly(CELL, row, moved.images[:1]) == pytest.approx(moved.without, abs=1e-12)
        assert moved.change == pytest.approx(moved.without - row["value"], abs=1e-12)
        assert moved.of >= len(moved.images) >= 1


def test_no_image_moves_the_number_more_than_the_first_that_is_named():
    row = ROWS[("max_skew", "mean_over_pairs", "communion", "race", None, "negative_communion")]
    most = abs(answer_influence(CELL, row).moved[0].change)
    some = [abs(slowly(CELL, row, [image]) - row["value"]) for image in CELL.records["image_id"][::16]]
    assert max(some) <= most + 1e-12


def test_images_that_come_in_sets_are_left_out_as_sets():
    cell = small_cell(sets=6)
    row = next(
        r
        for r in outcome_rows(cell).to_dicts()
        if (r["metric"], r["definition"], r["suite"], r["attribute"])
        == ("max_skew", "mean_over_pairs", "communion", "race")
    )
    moved = answer_influence(cell, row).moved[0]
    own = cell.records.filter(pl.lit("set ") + pl.col("set_id") == moved.name)["image_id"].to_list()
    assert moved.of == len(own) == 6
    assert slowly(cell, row, own) == pytest.approx(moved.without, abs=1e-12)


def test_a_number_that_the_stored_answers_do_not_give_is_not_explained_by_them():
    row = ROWS[KINDS[0]] | {"value": ROWS[KINDS[0]]["value"] + 0.01}
    influence = answer_influence(CELL, row)
    assert not influence.moved and "makes another number of them" in influence.method


def test_an_undefined_number_is_said_to_be_undefined():
    row = ROWS[KINDS[2]] | {"value": math.nan, "reason": reason("event_never_happens")}
    assert "undefined (the event never happens)" in encoder_influence(CELL, row, settings=QUICK).method


def test_what_a_mitigation_was_fitted_on_is_not_left_out():
    row = ROWS[KINDS[2]] | {"condition": "saner"}
    influence = encoder_influence(CELL, row, settings=QUICK)
    assert not influence.moved and influence.method.startswith("Not available")


def test_groups_are_left_out_where_answers_are_no_counts():
    suite = load_suite("markedness")
    rng = np.random.default_rng(1)
    cosine = rng.normal(size=(96, len(suite.candidates))).astype(np.float32)
    cell = replace(CELL, logits={"markedness": SuiteLogits(suite=suite, logits=cosine, cosine=cosine)})
    family = FAMILIES["association_metrics"]
    rows = family.compute(cell, settings=QUICK).filter(metric="markedness", attribute="race", group="Black")
    row = next(r for r in rows.to_dicts() if math.isfinite(r["value"]) and 0 < r["value"] < 100)
    influence = encoder_influence(cell, row, settings=QUICK)
    assert "One group of images is left out" in influence.method
    moved = {one.name: one for one in influence.moved}["gender: man"]
    men = cell.records.filter(pl.col("gender") == "man")["image_id"].to_list()
    again = family.compute(_without(cell, frozenset(men)), settings=QUICK)
    assert value_of(again, row) == pytest.approx(moved.without, abs=1e-12) and moved.of == len(men)


def test_images_that_the_filter_of_a_suite_leaves_out_are_not_told():
    suite = load_suite("markedness")
    cosine = np.random.default_rng(1).normal(size=(96, len(suite.candidates))).astype(np.float32)
    kept = np.arange(96) % 4 != 0
    logits = {"markedness": SuiteLogits(suite=suite, logits=cosine, cosine=cosine)}
    cell = replace(CELL, logits=logits, keep={"markedness": kept})
    rows = FAMILIES["association_metrics"].compute(cell, settings=QUICK).filter(metric="markedness", attribute="race")
    row = next(r for r in rows.to_dicts() if math.isfinite(r["value"]) and 0 < r["value"] < 100)
    moved = encoder_influence(cell, row, settings=QUICK).moved
    those = set(cell.records["image_id"].filter(pl.Series(kept)))
    assert moved and all(set(one.images) <= those for one in moved)
    men = {one.name: one.of for one in moved}["gender: man"]
    assert men == cell.records.filter(pl.Series(kept), gender="man").height


def test_what_changes_nothing_is_not_told_and_the_undefined_comes_last():
    found = [Moved("a", 1.0, 0.0, (), 1), Moved("b", math.nan, math.nan, (), 1), Moved("c", 2.0, -1.0, (), 1)]
    assert [one.name for one in ranked("left out", found).moved] == ["c", "b"]
    assert "None of them changes it" in ranked("Left out.", found[:1]).method


@pytest.mark.parametrize(("one", "other", "same"), [(0.1 + 0.2, 0.3, True), (1.0, 1.001, False), (1.0, None, False)])
def test_numbers_agree_up_to_rounding(one, other, same):
    assert same_number(one, other) is same


def test_what_is_left_out_is_told_as_one_or_as_all():
    alike, whole = Moved("Black", 1.0, 0.1, (), 1200, alike=True), Moved("set 3", 1.0, 0.1, (), 12)
    assert alike.label == "one of 1,200 images alike: Black" and whole.label == "set 3: 12 images"
    assert replace(alike, of=1).label == "one image: Black" and replace(whole, of=1).label == "set 3"


def test_a_ranking_is_computed_anew_with_the_k_of_the_images_that_are_left():
    suite = load_suite("perception")
    rng = np.random.default_rng(2)
    cosine = rng.normal(size=(96, len(suite.candidates))).astype(np.float32)
    cell = replace(CELL, logits={"perception": SuiteLogits(suite=suite, logits=cosine, cosine=cosine)})
    family = next(each for each in FAMILIES.values() if "skew_at_k" in each.metrics)
    rows = family.compute(cell, settings=QUICK).filter(metric="skew_at_k", attribute="gender", group="woman")
    row = next(each for each in rows.to_dicts() if each["k"] == 48 and math.isfinite(each["value"]))
    influence = encoder_influence(cell, row, settings=QUICK)
    assert "48 of all images" in influence.method
    moved = {one.name: one for one in influence.moved}["race: Black"]
    black = cell.records.filter(pl.col("race") == "Black")["image_id"].to_list()
    again = family.compute(_without(cell, frozenset(black)), settings=QUICK)
    assert value_of(again, row | {"k": 32}) == pytest.approx(moved.without, abs=1e-12)
    fixed = encoder_influence(cell, row, settings=replace(QUICK, skew_k=48))
    races = [one.without for one in fixed.moved if one.name.startswith("race")]
    assert len(races) == 3 and all(map(math.isfinite, races))
