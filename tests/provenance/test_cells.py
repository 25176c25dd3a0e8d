"""Two states of a cell, on small worlds whose answers are written down."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.family import MetricSettings
from plumbline.provenance.diff import FLIP_SCHEMA, flips, in_order_of, paired_differences

SETTINGS = MetricSettings(resamples=200, permutations=200, seed=3)
CRIME = load_suite("crime")
HARMFUL = next(i for i, each in enumerate(CRIME.candidates) if each.category == "crime")
FAIR = next(i for i, each in enumerate(CRIME.candidates) if each.category == "demographic")
N = 80


def cell(harmed, *, model="clip"):
    """A cell where the images of `harmed` get a word of crime and all others a demographic one."""
    logits = np.zeros((N, len(CRIME.candidates)), np.float32)
    logits[:, FAIR] = 1
    logits[harmed, HARMFUL] = 2
    records = pl.DataFrame(
        {
            "image_id": [f"{i:03}" for i in range(N)],
            "path": [f"{i}.jpg" for i in range(N)],
            "split": ["test"] * N,
            "gender": ["man", "woman"] * (N // 2),
            "race": ["Black"] * (N // 2) + ["White"] * (N // 2),
        }
    )
    return Cell(model, "faces", records, {"crime": SuiteLogits(CRIME, logits, logits)}, {})


EVERY_FIFTH = list(range(0, N, 5))
MOST_BLACK = list(range(N // 2))


def test_a_state_against_itself_differs_in_nothing():
    same = cell(EVERY_FIFTH)
    assert flips(same, same).is_empty()
    assert {row["value"] for row in paired_differences(same, same, settings=SETTINGS)} == {0.0}


def test_a_new_bias_is_found_on_the_same_images():
    rows = paired_differences(cell(EVERY_FIFTH), cell(MOST_BLACK), settings=SETTINGS)
    parity = next(
        r for r in rows if r["metric"] == "parity_difference" and r["attribute"] == "race" and r["event"] == "crime"
    )
    assert (parity["value_old"], parity["value_new"]) == (0.0, 1.0)
    assert parity["ci_low"] > 0.5 and parity["p"] < 0.05 and parity["n"] == N
    assert parity["model_old"] == parity["model_new"] == "clip" and parity["condition"] == "before"


def test_flipped_images_are_named_with_both_texts():
    found = flips(cell([]), cell([3, 7]))
    assert found["path"].to_list() == ["3.jpg", "7.jpg"] and dict(found.schema) == FLIP_SCHEMA
    assert set(found["category_old"]) == {"demographic"} and set(found["category_new"]) == {"crime"}
    assert found["margin"].to_list() == [1.0, 1.0]


def test_the_widest_margin_comes_first():
    old, new = cell([]), cell([3, 7])
    new.logits["crime"].cosine[7, HARMFUL] = 5
    assert flips(old, new)["path"].to_list() == ["7.jpg", "3.jpg"]


def test_images_that_one_side_leaves_out_do_not_flip():
    kept = np.arange(N) != 3
    assert flips(replace(cell([]), keep={"crime": kept}), cell([3, 7]))["path"].to_list() == ["7.jpg"]


@pytest.mark.parametrize("lost", [0, N - 1])
def test_other_images_are_not_the_same(lost):
    old = cell([])
    assert in_order_of(cell([3]), old) is old
    fewer = replace(old, records=old.records.filter(pl.col("path") != f"{lost}.jpg"))
    assert in_order_of(old, fewer) is None and in_order_of(fewer, old) is None
    twice = replace(old, records=old.records.with_columns(image_id=pl.lit("one")))
    assert in_order_of(old, twice) is None


def test_the_same_images_in_another_order_are_compared_image_by_image():
    old, new, kept = cell(EVERY_FIFTH), cell(MOST_BLACK), np.arange(N) % 7 > 0
    order = np.random.default_rng(0).permutation(N)
    shuffled = replace(old, keep={"crime": kept}).reordered(order)
    assert not shuffled.records["image_id"].equals(old.records["image_id"])
    again = in_order_of(new, shuffled)
    assert again.records.equals(new.records) and (again.rows("crime") == kept).all()
    rows = [paired_differences(replace(one, keep={}), new, settings=SETTINGS) for one in (old, again)]
    assert str(rows[0]) == str(rows[1]), "nan among them"
    assert flips(again, new).equals(flips(replace(old, keep={"crime": kept}), new))
