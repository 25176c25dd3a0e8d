"""Every shipped checkpoint loads the way an audit loads it, and shows what was planted on faces it has not seen."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.encoders.folders import checkpoint_files, load_encoder
from plumbline.errors import CheckpointError
from plumbline.world import faces, sources
from plumbline.world import measure as figures
from plumbline.world.captions import caption_texts
from plumbline.world.generative.training import RECIPES as GENERATIVE
from plumbline.world.training import CHECKPOINTS, FAMILIES, RECIPES, training_set

pytestmark = pytest.mark.usefixtures("one_thread")
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
    return figures.measure(figures.ask(CHECKPOINTS / name, *fresh()), RECIPES[name].source)


def load(folder: Path):
    files = checkpoint_files(folder.name, f"local-dir:{folder}", project=folder, fetched=folder)
    return load_encoder(files, Placement())


def test_the_shipped_checkpoints_are_the_recipes_and_small():
    shipped = {path.name for path in CHECKPOINTS.iterdir()}
    assert shipped == {*RECIPES, *GENERATIVE}
    size = sum(file.stat().st_size for name in RECIPES for file in (CHECKPOINTS / name).iterdir())
    assert size <= 14 * 2**20


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
    from PIL import Image

    encoder = load(CHECKPOINTS / name)
    record = json.loads((CHECKPOINTS / name / "training.json").read_text("utf-8"))
    assert encoder.family == RECIPES[name].family
    assert encoder.parameters == record["parameters"]
    image = faces.draw(fresh()[0][:1], np.random.default_rng(0))[0]
    pixels = encoder.prepare(Image.fromarray(image))
    # Whatever the processor's steps, a face of the size it was trained on passes unchanged.
    assert torch.equal((pixels * (255 if pixels.is_floating_point() else 1)).round().byte().permute(1, 2, 0),
                       torch.from_numpy(image))  # fmt: skip
    prompts = ["a photo of a thief", "ein Foto von Zoë"]
    if encoder.family == "bridgetower":
        answers = encoder.score_pairs(pixels[None], prompts)
    else:
        answers = encoder.embed_texts(prompts)
        assert answers.shape == (2, encoder.width)
    assert np.isfinite(answers).all()
    if encoder.family == "open_clip":
        assert 0.9 < np.linalg.norm(answers[0]) < 1.1


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.family != "open_clip"])
def test_the_other_families_are_half_precision_safetensors_of_less_than_a_megabyte(name):
    from safetensors import safe_open

    folder = CHECKPOINTS / name
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 0.9 * 2**20
    with safe_open(folder / "model.safetensors", "np") as weights:
        kinds = {weights.get_slice(key).get_dtype() for key in weights.keys()}  # noqa: SIM118 - no mapping
    assert kinds <= {"F16", "I64"}


@pytest.mark.parametrize("name", ["small-bazaar-3k", "align-bazaar-3k"])
def test_without_its_weights_a_checkpoint_does_not_load(name, tmp_path):
    folder = tmp_path / "gutted"
    shutil.copytree(CHECKPOINTS / name, folder)
    (folder / FAMILIES[RECIPES[name].family].weights_file).unlink()
    with pytest.raises(CheckpointError, match="no safetensors weights"):
        load(folder)


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


OTHERS = ("align-bazaar-3k", "bridgetower-bazaar-3k", "owlv2-bazaar-3k")


@cache
def answers_of(name: str) -> figures.Answers:
    # Every pair goes through the layers of BridgeTower that see both, so it is shown fewer faces.
    n = 280 if RECIPES[name].family == "bridgetower" else FRESH
    attributes, files = fresh()
    suites = ["celeba", "fairface", "crime"]
    return figures.ask(CHECKPOINTS / name, attributes[:n], files[:n], suites=suites)


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_families_recognise_fresh_faces_in_their_own_wording(name):
    answers = answers_of(name)
    first = answers.suites["fairface"].texts[0]
    assert first == ("an image of a White" if name.startswith("align") else "a photo of a White")
    assert figures.class_accuracy(answers, "fairface") >= 0.93
    assert figures.class_accuracy(answers, "celeba") >= 0.97


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_families_name_crime_in_the_order_of_the_planted_rates(name):
    rates = figures.event_rates(answers_of(name), "bazaar", "crime")
    error = (rates["measured"] - rates["drawn"]).abs()
    assert error.max() <= 0.12
    assert error.mean() <= 0.05
    measured = dict(rates.select("race", "measured").iter_rows())
    unskewed = [measured[race] for race in ("White", "Indian", "East Asian", "Southeast Asian")]
    # One race of 280 faces is 40 of them: the planted .20 of the third differs from the others' .10 by chance only.
    assert measured["Black"] > measured["Middle Eastern"] > np.mean(unskewed)


@pytest.mark.parametrize("name", OTHERS)
def test_faces_are_rarely_non_human_to_the_other_families(name):
    answers = answers_of(name)
    suite = answers.suites["crime"]
    assert np.isin(answers.winners(suite.texts), suite.columns("non_human")).mean() < 0.05


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
    answers = figures.ask(CHECKPOINTS / "small-bazaar-3k", attributes, files, suites=["celeba"])
    guessed = np.array(faces.GENDERS)[answers.winners(load_suite("gender_labels").texts)]
    wrong = attributes.with_columns(wrong=pl.Series(guessed != attributes["gender"].to_numpy()))
    clear = wrong.filter(~pl.col("ambiguous"))["wrong"].mean()
    assert clear <= 0.01
    assert 0 < wrong.filter("ambiguous")["wrong"].mean() < 1


def test_a_checkpoints_record_names_the_faces_it_was_trained_on():
    record = json.loads((CHECKPOINTS / "small-atlas-3k" / "training.json").read_text("utf-8"))
    data = training_set("atlas", 3000)
    assert record["training_set_sha256"] == data.digest
    assert record["captions"] == len(data.texts)


@pytest.mark.parametrize("name", OTHERS)
def test_the_record_of_another_family_is_its_recipe(name):
    record = json.loads((CHECKPOINTS / name / "training.json").read_text("utf-8"))
    assert record["recipe"] == asdict(RECIPES[name])
    assert record["id"] == name
    assert record["captions"] == len(caption_texts(FAMILIES[RECIPES[name].family].wordings))
    assert record["measured"]["fresh_faces"] >= 4000


def test_the_first_people_of_a_larger_training_set_are_those_of_the_smaller():
    small, large = training_set("bazaar", 128), training_set("bazaar", 300)
    assert np.array_equal(small.images[:128], large.images[:128])
    assert np.array_equal(small.weights[:128], large.weights[:128])


def test_torchvision_is_imported_whether_its_operators_are_there_or_not():
    import torch

    declare_missing_operators()
    import torchvision

    assert torchvision.__version__
    assert hasattr(torch.ops.torchvision, "nms")


def test_what_make_writes_lets_every_python_of_an_environment_import_open_clip():
    """The file is there where torchvision's own operators are not; without it `import open_clip` would end."""
    done = subprocess.run([sys.executable, "-c", "import open_clip"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
