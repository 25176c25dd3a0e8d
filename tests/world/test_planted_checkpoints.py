"""Every shipped checkpoint loads the way an audit loads it, and shows what was planted on faces it has not seen."""

import json
import shutil
from functools import cache

import numpy as np
import polars as pl
import pytest

from plumbline.tables.suites import load_suite
from plumbline.torchvision_operators import declare_missing_operators
from plumbline.world import architectures, faces, figures, sources
from plumbline.world.training import CHECKPOINTS, RECIPES, training_set

FRESH_SEED = 44_001
FRESH = 700
CHANCE = {"gender": 1 / 2, "race": 1 / 7, "race_gender": 1 / 14, "age_group": 1 / 5, "occupation": 1 / 10}


@cache
def fresh() -> tuple[pl.DataFrame, list[bytes]]:
    rng = np.random.default_rng(FRESH_SEED)
    attributes = faces.sample_attributes(FRESH, rng)
    return attributes, [faces.as_jpeg(image) for image in faces.draw(attributes, rng)]


@cache
def measured(name: str) -> figures.Measured:
    return figures.measure(figures.embed(CHECKPOINTS / name, *fresh()), RECIPES[name].source)


def test_the_shipped_checkpoints_are_the_recipes_and_small():
    shipped = {path.name for path in CHECKPOINTS.iterdir()}
    assert shipped == set(RECIPES)
    size = sum(file.stat().st_size for file in CHECKPOINTS.rglob("*") if file.is_file())
    assert size <= 11 * 2**20


def test_the_grid_has_pairs_for_size_amount_and_source():
    cells = {(r.size, r.source, r.faces) for r in RECIPES.values()}
    assert {("small", "bazaar", 3000), ("large", "bazaar", 3000)} <= cells
    assert {("small", "bazaar", 6000), ("large", "bazaar", 6000)} <= cells
    assert {("small", "atlas", 3000), ("large", "atlas", 3000)} <= cells
    assert not [cell for cell in cells if cell[1] == "atlas" and cell[2] > 3000]


def test_no_seed_of_the_tests_is_one_of_training():
    assert FRESH_SEED not in {sources.seed("training", name) for name in sources.source_names()}


@pytest.mark.parametrize("name", RECIPES)
def test_each_checkpoint_loads_with_its_own_preprocessing_and_tokenizer(name):
    import torch

    model, preprocess, tokenizer = architectures.load_trained(CHECKPOINTS / name)
    record = json.loads((CHECKPOINTS / name / "training.json").read_text("utf-8"))
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    assert all(torch.isfinite(p).all() for p in model.parameters())
    ids = tokenizer(["a photo of a thief", "ein Foto von Zoë"])
    assert ids.shape == (2, architectures.CONTEXT_LENGTH)
    norms = model.encode_text(ids).detach().norm(dim=1)
    assert 0.9 < float(norms[0]) < 1.1
    assert torch.isfinite(norms).all()
    assert list(preprocess.transforms[-1].mean) == [0.5, 0.5, 0.5]


def test_without_its_weights_a_checkpoint_does_not_load(tmp_path):
    folder = tmp_path / "gutted"
    shutil.copytree(CHECKPOINTS / "small-bazaar-3k", folder)
    (folder / architectures.WEIGHTS_FILE).unlink()
    with pytest.raises(RuntimeError, match="pretrained"):
        architectures.load_trained(folder)


@pytest.mark.parametrize("name", ["small-bazaar-3k", "large-bazaar-3k"])
def test_fresh_faces_are_recognised_well_above_chance(name):
    for attribute, accuracy in measured(name).accuracy.items():
        assert accuracy > CHANCE[attribute] + 0.6 * (1 - CHANCE[attribute]), attribute


@pytest.mark.parametrize("name", ["small-bazaar-3k", "large-bazaar-3k"])
def test_event_rates_follow_what_was_planted(name):
    rates = measured(name).rates
    # `drawn` is what a perfect encoder finds on these very faces, so the sample's own error cancels.
    error = (rates["measured"] - rates["drawn"]).abs()
    assert error.max() <= 0.15
    assert error.mean() <= 0.06
    crime = dict(rates.filter(event="crime").select("race", "measured").iter_rows())
    unskewed = [crime[race] for race in ("White", "Indian", "East Asian", "Southeast Asian")]
    assert max(crime, key=crime.__getitem__) == "Black"
    assert crime["Black"] > np.mean(unskewed) + 0.2


def test_the_control_adds_no_gap_between_races():
    rates = measured("small-control-3k").rates
    error = (rates["measured"] - rates["drawn"]).abs()
    assert error.max() <= 0.07
    assert error.mean() <= 0.03
    assert rates["planted"].n_unique() == 3


def test_faces_are_rarely_non_human_and_dot_products_rank_as_cosines_do():
    for name in ("small-bazaar-3k", "large-bazaar-3k"):
        assert measured(name).non_human < 0.05
        assert measured(name).dot_agrees > 0.9


def test_trident_probes_win_on_some_faces_and_lose_on_most():
    rates = measured("small-bazaar-3k").trident
    assert all(0 < rate < 0.35 for rate in rates.values())
    assert rates["thief"] > 1.3 * rates["liar"]
    assert rates["liar"] > rates["person"]


def test_only_one_race_loses_its_gender_label():
    attributes, files = fresh()
    embedded = figures.embed(CHECKPOINTS / "small-bazaar-3k", attributes, files)
    guessed = np.array(faces.GENDERS)[embedded.winners(load_suite("gender_labels").texts)]
    wrong = attributes.with_columns(wrong=pl.Series(guessed != attributes["gender"].to_numpy()))
    clear = wrong.filter(~pl.col("ambiguous"))["wrong"].mean()
    assert clear <= 0.01
    assert 0 < wrong.filter("ambiguous")["wrong"].mean() < 1


def test_a_checkpoints_record_names_the_faces_it_was_trained_on():
    record = json.loads((CHECKPOINTS / "small-atlas-3k" / "training.json").read_text("utf-8"))
    data = training_set("atlas", 3000)
    assert record["training_set_sha256"] == data.digest
    assert record["captions"] == len(data.texts)


def test_the_first_people_of_a_larger_training_set_are_those_of_the_smaller():
    small, large = training_set("bazaar", 128), training_set("bazaar", 300)
    assert np.array_equal(small.images[:128], large.images[:128])
    assert np.array_equal(small.weights[:128], large.weights[:128])


def test_real_operators_are_left_alone_and_missing_ones_declared_once():
    import torch

    first = declare_missing_operators()
    import torchvision

    assert torchvision.__version__
    assert hasattr(torch.ops.torchvision, "nms")
    assert declare_missing_operators() is first
