"""Fetching a checkpoint, with a hub that is a folder: pinned, safetensors only, loadable by the one way there is."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from hub_of_files import (
    CLIP,
    COMMIT,
    HUB_ADDRESS,
    KEPT,
    LATER,
    LLAVA,
    ROBERTA,
    Hub,
    contents,
    generative,
    pickled,
    workspace,
)

from plumbline.digests import digest_bytes
from plumbline.errors import CheckpointError
from resources.checkout import PROJECT
from resources.fetching_checkpoints import fetch_checkpoint

pytestmark = pytest.mark.usefixtures("converted_here")


def test_a_hub_checkpoint_comes_at_its_revision_with_digests_and_without_pickles(tmp_path):
    files = {
        "open_clip_model.safetensors": b"w",
        "open_clip_config.json": b"{}",
        "pytorch_model.bin": b"pickle",
        "evil.py": b"import os",
    }
    hub, home = Hub(files), workspace(tmp_path, f"hf-hub:org/name@{COMMIT}")
    folder = fetch_checkpoint(home, "e", hub=hub)
    assert hub.asked == [("org/name", COMMIT), ("org/name", COMMIT, None)]
    assert sorted(p.name for p in folder.iterdir()) == [
        "fetched.json", "open_clip_config.json", "open_clip_model.safetensors",
    ]  # fmt: skip
    note = json.loads((folder / "fetched.json").read_text())
    assert note["commit"] == COMMIT
    assert note["sha256"] == {
        "open_clip_config.json": digest_bytes(b"{}"),
        "open_clip_model.safetensors": digest_bytes(b"w"),
    }
    assert home.checkpoint("e").weights_sha256 == digest_bytes(b"w")


@pytest.mark.parametrize("address", [f"hf-hub:org/name@{COMMIT}", "hf-hub:org/name@fetched"])
def test_a_hub_that_answers_with_another_commit_is_refused(tmp_path, address):
    files = {"open_clip_model.safetensors": b"w", "open_clip_config.json": b"{}"}
    hub, home = Hub(files), workspace(tmp_path, address)
    if address.endswith("fetched"):
        fetch_checkpoint(home, "e", hub=hub)
        hub.given.clear()
    hub.answers = "b" * 40
    with pytest.raises(CheckpointError, match=rf"another commit[\s\S]*{'b' * 40}[\s\S]*{COMMIT}"):
        fetch_checkpoint(home, "e", hub=hub)
    assert hub.given == []


def test_files_of_another_commit_are_refused_and_the_earlier_ones_stay(tmp_path):
    hub = Hub({"open_clip_model.safetensors": b"w", "open_clip_config.json": b"{}"})
    home = workspace(tmp_path, "hf-hub:org/name@fetched")
    folder = fetch_checkpoint(home, "e", hub=hub)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    hub.newest, hub.gives, hub.files = LATER, "b" * 40, hub.files | {"open_clip_model.safetensors": b"other"}
    with pytest.raises(CheckpointError, match=rf"files of another commit[\s\S]*{'b' * 40}[\s\S]*{LATER}"):
        fetch_checkpoint(home, "e", hub=hub, newest=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("sha", ["main", "../../../x", None])
def test_a_hub_that_names_no_commit_is_refused(tmp_path, sha):
    hub = Hub({"open_clip_model.safetensors": b"w", "open_clip_config.json": b"{}"}, newest=sha)
    with pytest.raises(CheckpointError, match=r"does not say which commit[\s\S]*40 hexadecimal digits"):
        fetch_checkpoint(workspace(tmp_path, "hf-hub:org/name@fetched"), "e", hub=hub)
    assert hub.given == []


def test_a_note_of_fetching_in_a_repository_is_not_taken(tmp_path):
    forged = {"repository": "org/name", "commit": COMMIT, "converted": {"to": {"name": "/dev/zero", "sha256": "1"}}}
    files = {"open_clip_model.safetensors": b"w", "open_clip_config.json": b"{}"}
    files["fetched.json"] = json.dumps(forged).encode()
    hub, home = Hub(files), workspace(tmp_path, f"hf-hub:org/name@{COMMIT}")
    folder = fetch_checkpoint(home, "e", hub=hub)
    assert "fetched.json" not in hub.given
    note = json.loads((folder / "fetched.json").read_text())
    assert "converted" not in note and set(note["sha256"]) == {"open_clip_model.safetensors", "open_clip_config.json"}


def test_a_tag_of_open_clip_becomes_a_local_folder_with_its_own_preprocessing(tmp_path):
    hub = Hub({"open_clip_model.safetensors": b"w"})
    folder = fetch_checkpoint(workspace(tmp_path, "ViT-B-32-quickgelu/openai"), "e", hub=hub)
    config = json.loads((folder / "open_clip_config.json").read_text())
    assert hub.asked[0][0] == "timm/vit_base_patch32_clip_224.openai"
    assert config["model_cfg"]["quick_gelu"] is True
    assert config["preprocess_cfg"]["mean"][0] == pytest.approx(0.48145466)


def test_weights_of_another_activation_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="ViT-B-32-quickgelu/openai"):
        fetch_checkpoint(workspace(tmp_path, "ViT-B-32/openai"), "e", hub=Hub({}))


def test_a_repository_without_safetensors_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no safetensors weights, and none that can be converted"):
        fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS), "e", hub=Hub({"open_clip_config.json": b"{}"}))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"open_clip_model.safetensors": b"w"}, "no checkpoint of open_clip or transformers"),
        ({"config.json": b'{"model_type": "bert"}', "model.safetensors": b"w"}, "no family that can be audited"),
        (
            {
                "config.json": b'{"auto_map": {"AutoModel": "modeling.Model"}, "model_type": "clip"}',
                "model.safetensors": b"w",
            },
            "code of its own",
        ),
        ({"config.json": b"{}", "pytorch_model-00001-of-00002.bin": b"w"}, "none that can be converted"),
        (
            {
                "open_clip_model.safetensors": b"w",
                "open_clip_config.json": b'{"model_cfg": {"text_cfg": {"hf_model_name": "roberta-base"}}}',
            },
            "hf_model_name: roberta-base",
        ),
    ],
)
def test_what_could_not_be_loaded_from_disk_is_said_when_it_is_fetched(tmp_path, files, said):
    home = workspace(tmp_path, HUB_ADDRESS)
    with pytest.raises(CheckpointError, match=said):
        fetch_checkpoint(home, "e", hub=Hub(files))
    assert not list(home.fetched.glob("*/fetched.json"))


def test_an_unreachable_hub_is_a_clear_error_of_the_command_line(tmp_path):
    """With the real client, which the command line lets go online, and a port at which nobody listens."""
    home = workspace(tmp_path, HUB_ADDRESS)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        environment = {
            **os.environ,
            "PLUMBLINE_AUDIT": str(home.audit_path),
            "PLUMBLINE_HOME": str(home.home),
            "HF_ENDPOINT": f"http://127.0.0.1:{closed.getsockname()[1]}",
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "orchestration", "fetch", "e"],
            cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "the hub did not give `e`" in done.stderr
    assert "ConnectError" in done.stderr and "check the network" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("xet: no route to host")])
def test_a_hub_that_breaks_off_is_a_clear_error(tmp_path, error):
    with pytest.raises(CheckpointError, match=r"did not give[\s\S]*no route to host"):
        fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS), "e", hub=Hub({}, error=error))


def test_a_full_disk_is_not_the_hubs_fault(tmp_path):
    error = OSError(28, "No space left on device", str(tmp_path / "checkpoints"))
    with pytest.raises(
        CheckpointError, match=r"could not be written[\s\S]*where: +/[\s\S]*checkpoints[\s\S]*free some"
    ):
        fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS), "e", hub=Hub({}, error=error))


@pytest.mark.parametrize(("address", "said"), [("local-dir:x", "needs no fetching"), ("ViT-B-32/none", "no such")])
def test_what_cannot_be_fetched_says_so(tmp_path, address, said):
    with pytest.raises(CheckpointError, match=said):
        fetch_checkpoint(workspace(tmp_path, address), "e", hub=Hub({}))


def test_a_transformers_repository_gives_settings_and_safetensors_only(tmp_path):
    home = workspace(tmp_path, HUB_ADDRESS)
    hub = Hub(CLIP | {"model.safetensors": b"w", "pytorch_model.bin": b"pickle"})
    assert contents(fetch_checkpoint(home, "e", hub=hub)) == KEPT
    assert "pytorch_model.bin" not in hub.given
    assert home.checkpoint("e").weights_sha256 == digest_bytes(b"w")


def test_a_family_named_in_the_audit_file_decides_where_both_libraries_are_there(tmp_path):
    both = CLIP | {"model.safetensors": b"w", "open_clip_config.json": b"{}", "open_clip_model.safetensors": b"o"}
    assert "open_clip_model.safetensors" in contents(
        fetch_checkpoint(workspace(tmp_path / "a", HUB_ADDRESS), "e", hub=Hub(both))
    )
    named = workspace(tmp_path / "b", HUB_ADDRESS, family="clip")
    assert contents(fetch_checkpoint(named, "e", hub=Hub(both))) == KEPT


def test_encoders_of_both_libraries_share_a_folder_of_one_address(tmp_path):
    both = CLIP | {
        "pytorch_model.bin": pickled({"a": torch.ones(2)}),
        "open_clip_config.json": b"{}",
        "open_clip_model.safetensors": b"o",
    }
    folder = fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS, family="clip"), "e", hub=Hub(both))
    assert fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS), "e", hub=Hub(both)) == folder
    assert workspace(tmp_path, HUB_ADDRESS).checkpoint("e").family == "open_clip"
    assert workspace(tmp_path, HUB_ADDRESS, family="clip").checkpoint("e").family == "clip"
    again = Hub(both)
    fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS, family="clip"), "e", hub=again)
    assert again.given == []
    assert json.loads((folder / "fetched.json").read_text())["converted"]["to"]["name"] == "model.safetensors"


@pytest.mark.parametrize(
    ("kind", "files", "part"),
    [
        ("lvlm", LLAVA, {"lvlms": {"m": {"address": HUB_ADDRESS}}}),
        ("scorer", ROBERTA, {"scorers": {"m": {"kind": "classifier", "address": HUB_ADDRESS}}}),
    ],
)
def test_generative_models_and_scorers_come_whole_and_without_what_is_not_read(kind, files, part, tmp_path):
    hub, home = (Hub(files | {"pytorch_model.bin": b"pickle", "model.py": b"import os"}), generative(tmp_path, **part))
    folder = fetch_checkpoint(home, "m", kind=kind, hub=hub)
    assert contents(folder) == sorted([*files, "fetched.json"])
    again = Hub(files)
    assert fetch_checkpoint(home, "m", kind=kind, hub=again) == folder and again.given == []


def test_a_generative_model_without_a_part_of_its_weights_is_refused_when_it_is_fetched(tmp_path):
    cut = {name: data for name, data in LLAVA.items() if not name.endswith("00002-of-00002.safetensors")}
    with pytest.raises(CheckpointError, match="1 of 2 parts of the weights"):
        fetch_checkpoint(generative(tmp_path, lvlms={"m": {"address": HUB_ADDRESS}}), "m", kind="lvlm", hub=Hub(cut))


def test_an_endpoint_has_nothing_to_fetch(tmp_path):
    endpoint = {"urls": ["http://127.0.0.1:1/v1"], "model": "m"}
    home = generative(tmp_path, lvlms={"m": {"endpoint": endpoint}})
    with pytest.raises(CheckpointError, match="no checkpoint to fetch"):
        fetch_checkpoint(home, "m", kind="lvlm", hub=Hub({}))
