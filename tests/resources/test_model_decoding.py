"""How a generative model draws tokens: its entry, then what holds for all, then its checkpoint's own file."""

import json

import pytest
import yaml

from plumbline.errors import CheckpointError, ConfigError
from plumbline.generators.backend import Decoding
from resources.workspace import Workspace

VICUNA = {"_from_model_config": True, "do_sample": True, "temperature": 0.9, "top_p": 0.6, "eos_token_id": 2}


@pytest.fixture
def workspace_of(tmp_path):
    def made(own=VICUNA, entry=(), general=(), config=()):
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "generation_config.json").write_text(json.dumps(own))
        (folder / "config.json").write_text(json.dumps(dict(config)))
        content = {
            "datasets": {"faces": {"reader": "socialcounterfactuals", "root": "/nowhere"}},
            "lvlms": {"m": {"address": f"local-dir:{folder}", **dict(entry)}},
            "generation": {"decoding": dict(general)},
            "generate": [{"datasets": ["faces"]}],
        }
        (tmp_path / "audit.yaml").write_text(yaml.safe_dump(content))
        return Workspace(tmp_path / "audit.yaml", tmp_path / "home")

    return made


@pytest.mark.parametrize(
    ("own", "entry", "general", "held"),
    [
        ({}, {}, {}, Decoding(512, 0.75, 50, 1.0)),
        (VICUNA, {}, {}, Decoding(512, 0.9, 50, 0.6)),
        # As the study says it: a temperature for all, and of the rest the defaults.
        (VICUNA, {}, {"temperature": 0.75}, Decoding(512, 0.75, 50, 0.6)),
        (VICUNA, {"decoding": {"top_p": 0.8}}, {"temperature": 0.75, "top_p": 0.7}, Decoding(512, 0.75, 50, 0.8)),
        ({"temperature": 1, "top_k": None}, {}, {"max_new_tokens": 9}, Decoding(9, 1.0, 50, 1.0)),
    ],
)
def test_each_setting_is_of_whoever_says_it_first(workspace_of, own, entry, general, held):
    workspace = workspace_of(own, entry, general)
    assert workspace.decoding("m") == held
    # What rows are found by: a whole number and its float are two.
    assert [type(value) for value in vars(workspace.decoding("m")).values()] == [int, float, int, float]


@pytest.mark.parametrize("wrong", [{"top_p": 0}, {"temperature": -1}, {"top_k": "fifty"}])
def test_a_checkpoints_own_decoding_that_is_none_is_refused_with_its_file(workspace_of, wrong):
    with pytest.raises(CheckpointError, match=r"own decoding is out of range[\s\S]*generation_config\.json"):
        workspace_of(wrong).decoding("m")


def test_stored_answers_have_no_decoding(workspace_of):
    with pytest.raises(ConfigError, match="they were given elsewhere"):
        workspace_of(entry={"address": None, "answers": {"files": ["x.csv"]}, "decoding": {"top_k": 3}}).audit  # noqa: B018


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"model_type": "llava", "vision_config": {"image_size": 336, "patch_size": 14}}, 576),
        (
            {
                "model_type": "llava",
                "vision_feature_select_strategy": "full",
                "vision_config": {"image_size": 64, "patch_size": 16},
            },
            17,
        ),
        ({"model_type": "instructblip", "num_query_tokens": 32}, 32),
        ({"model_type": "other"}, None),
    ],
)
def test_what_an_image_is_in_tokens_is_in_the_configuration(workspace_of, config, tokens):
    assert workspace_of(config=config).image_tokens("m") == tokens


def test_of_a_published_model_it_is_known_without_its_files_and_an_entry_may_say_it(workspace_of):
    endpoint = {"urls": ["https://x.org/v1"], "model": "gpt-4o-2024-05-13"}
    assert workspace_of(entry={"address": None, "endpoint": endpoint}).image_tokens("m") == 255
    said = {**endpoint, "image_tokens": 7}
    assert workspace_of(entry={"address": None, "endpoint": said}).image_tokens("m") == 7
    assert workspace_of(entry={"address": "hf-hub:llava-hf/llava-1.5-7b-hf@fetched"}).image_tokens("m") == 576
