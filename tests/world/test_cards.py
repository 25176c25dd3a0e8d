"""Every shipped checkpoint has its card, which says what the files beside it say, and is no part of the checkpoint."""

import json
import re
import shutil
import struct
from math import prod

import pytest
import yaml

from plumbline.encoders.folders import checkpoint_files
from plumbline.generators.folders import generator_files
from plumbline.world import sources
from plumbline.world.cards import CARD, checkpoint_card
from plumbline.world.generative.training import RECIPES as GENERATIVE
from plumbline.world.training import CHECKPOINTS, RECIPES

NAMES = [*RECIPES, *GENERATIVE]
LIBRARY_TITLES = {"align": "ALIGN", "bridgetower": "BridgeTower", "owlv2": "OWLv2", "llava": "LLaVA", "llama": "Llama"}


def facts(name):
    """Return the card's first table."""
    card = (CHECKPOINTS / name / CARD).read_text("utf-8")
    return dict(re.findall(r"^\| ([\w ]+) \| (.+) \|$", card.split("## ")[0], re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_the_one_that_is_made_of_the_records(name):
    found = (CHECKPOINTS / name / CARD).read_text("utf-8")
    assert found == checkpoint_card(CHECKPOINTS / name), "run `python -m plumbline.world.cards`"
    assert yaml.safe_load(found.split("---")[1])["license"] == "apache-2.0"


@pytest.mark.parametrize("name", NAMES)
def test_the_card_has_the_parameters_of_the_weights(name):
    (weights,) = (CHECKPOINTS / name).glob("*.safetensors")
    data = weights.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    # What a batch normalisation has counted is no parameter.
    counted = ("__metadata__", "running_mean", "running_var", "num_batches_tracked")
    shapes = [tensor["shape"] for key, tensor in header.items() if key.rpartition(".")[2] not in counted]
    assert facts(name)["parameters"] == f"{sum(map(prod, shapes)):,}"


@pytest.mark.parametrize("name", NAMES)
def test_the_card_has_the_architecture_and_width_of_the_configuration(name):
    folder, told = CHECKPOINTS / name, facts(name)
    card = (folder / CARD).read_text("utf-8")
    dimensions = {key: int(value) for key, value in re.findall(r"(\w+) (\d+)", told["dimensions"])}
    if (folder / "config.json").exists():
        config = json.loads((folder / "config.json").read_text("utf-8"))
        assert f"A tiny {LIBRARY_TITLES[config['model_type']]}, " in card
        widths = json.dumps(config)
    else:
        config = json.loads((folder / "open_clip_config.json").read_text("utf-8"))["model_cfg"]
        assert "A tiny CLIP of open_clip, " in card
        assert (dimensions["embedding"], dimensions["vision_layers"]) == (
            config["embed_dim"],
            config["vision_cfg"]["layers"],
        )
        widths = json.dumps(config)
    for key in ("vision_width", "text_width", "width"):
        assert key not in dimensions or re.search(rf"(width|hidden_size)\": {dimensions[key]}\b", widths), key


@pytest.mark.parametrize("name", NAMES)
def test_the_card_has_the_planted_source_and_its_rates(name):
    recipe = (RECIPES | GENERATIVE)[name]
    assert facts(name)["planted source"].startswith(f"`{recipe.source}` ")
    card = (CHECKPOINTS / name / CARD).read_text("utf-8")
    assert ("the control of the planted world" in card) == (recipe.source == "control")
    if name in RECIPES:
        rows = re.findall(r"^\| (\w+) \| ([\w ]+) \| (0\.\d\d) \|", card, re.MULTILINE)
        assert len(rows) == 21
        for event, race, planted in rows:
            assert float(planted) == pytest.approx(sources.planted_rate(recipe.source, event, race), abs=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_no_part_of_a_checkpoints_identity(name, tmp_path):
    read = generator_files if name in GENERATIVE else checkpoint_files
    copy = shutil.copytree(CHECKPOINTS / name, tmp_path / name)
    with_card = read(name, f"local-dir:{copy}", project=copy, fetched=copy)
    (copy / CARD).unlink()
    assert read(name, f"local-dir:{copy}", project=copy, fetched=copy).digest == with_card.digest
