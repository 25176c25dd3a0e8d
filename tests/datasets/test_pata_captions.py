"""The suite of PATA's captions holds the published lists unchanged, and asks age where the named filter does."""

import json
from itertools import product

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.datasets.filters import row_filter
from plumbline.datasets.pata import CAPTIONS, INDEX
from plumbline.datasets.registry import reader_for
from plumbline.metrics import Cell, SuiteLogits
from plumbline.metrics.outcomes import caption_events

SUITE = load_suite("pata_captions")


COLUMNS = {"races": "race", "gender": "gender", "age": "age"}
"""What the published file calls an attribute, to the record column."""


@pytest.fixture
def scenes(real_file):
    """Return what is published, a mapping a scene."""
    return json.loads(real_file(f"pata/{CAPTIONS}").read_text("utf-8"))


def test_the_suite_holds_the_published_lists(scenes):
    published = {
        (scene["short"], COLUMNS[attribute], side): texts
        for scene in scenes
        for side in ("pos", "neg")
        for attribute, texts in scene[side].items()
    }
    held = {key: [SUITE.candidates[i].text for i in SUITE.columns(":".join(key))] for key in published}
    assert held == published
    assert len(SUITE.candidates) == sum(map(len, published.values()))
    assert list(dict.fromkeys(c.category.split(":")[0] for c in SUITE.candidates)) == [
        scene["short"] for scene in scenes
    ]


def test_the_published_scenes_are_those_of_the_list(scenes):
    known = next(rule.values for rule in reader_for("pata").declaration.rules if rule.column == "scene")
    assert {scene["short"] for scene in scenes} == set(known)
    assert len(scenes) == 24
    unique = [{text for scene in scenes for texts in scene[side].values() for text in texts} for side in ("pos", "neg")]
    assert [len(texts) for texts in unique] == [78, 88]


def test_the_suite_has_the_published_counts():
    texts = {side: {c.text for c in SUITE.candidates if c.category.endswith(side)} for side in ("pos", "neg")}
    assert (len(texts["pos"]), len(texts["neg"])) == (78, 88)
    ids = [c.id for c in SUITE.candidates]
    assert len(set(ids)) == len(ids) == 233
    assert len({c.category.split(":")[0] for c in SUITE.candidates}) == 24


def cell_of(records):
    cosine = np.random.default_rng(0).normal(size=(records.height, len(SUITE.candidates))).astype(np.float32)
    return Cell("m", "pata", records, {SUITE.id: SuiteLogits(SUITE, cosine, cosine)}, {})


def test_age_is_asked_in_the_scenes_that_the_named_filter_counts(real_file):
    index = real_file(f"pata/{INDEX}").read_text("utf-8").splitlines()
    parts = [line.partition("|")[0].rsplit("_", 3) for line in index]
    records = pl.DataFrame(
        [(f"{i:05}", *part) for i, part in enumerate(parts)],
        schema=["image_id", "scene", "race", "gender", "age"],
        orient="row",
    )
    asked = {event.predictions.event: event for event in caption_events(cell_of(records))}
    both = records.filter(row_filter("pata-both-ages")(records))["scene"].unique()
    # Kitchen and shopping have no negative captions of age.
    assert set(asked["negative_age_caption"].scenes.names) == set(both) - {"kitchen", "shopping"}
    assert len(asked["negative_race_caption"].scenes.names) == 24
    assert len(asked["negative_gender_caption"].scenes.names) == 23  # drinking_water has no negative ones
    age = asked["negative_age_caption"].predictions.kept
    assert np.array_equal(age, records["scene"].is_in(asked["negative_age_caption"].scenes.names).to_numpy())


@pytest.mark.parametrize("scene", ["hotel", "fashion_show"])
def test_a_scene_of_one_age_does_not_contrast_age(scene):
    rows = [(f"{i}", scene, "indian", gender, "young") for i, gender in enumerate(("man", "woman") * 5)]
    rows += [(f"b{i}", "bench", "indian", gender, age) for i, (gender, age) in
             enumerate(product(("man", "woman"), ("old", "young")))]  # fmt: skip
    records = pl.DataFrame(rows, schema=["image_id", "scene", "race", "gender", "age"], orient="row")
    asked = {event.predictions.event: event.scenes.names for event in caption_events(cell_of(records))}
    assert asked["negative_age_caption"] == ("bench",)
    assert asked["negative_gender_caption"] == tuple(sorted(("bench", scene)))
    assert "negative_race_caption" not in asked  # one race alone
