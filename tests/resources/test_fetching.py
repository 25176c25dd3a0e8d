"""Fetching a checkpoint, with a hub that is a folder: pinned, safetensors only, loadable by the one way there is."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from plumbline.digests import digest_bytes
from plumbline.errors import CheckpointError
from resources.fetching import fetch_checkpoint
from resources.places import PROJECT, Places

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """A hub with one repository of the given files."""

    def __init__(self, files: dict[str, bytes], *, error: Exception | None = None):
        self.files, self.error, self.asked = files, error, []

    def model_info(self, repository, revision=None):
        self.asked.append((repository, revision))
        if self.error:
            raise self.error
        return SimpleNamespace(sha=COMMIT)

    def snapshot_download(self, repository, revision, local_dir, allow_patterns):
        Path(local_dir).mkdir(parents=True)
        for name, content in self.files.items():
            if any(Path(name).match(pattern) for pattern in allow_patterns):
                (Path(local_dir) / name).write_bytes(content)


def places(tmp_path, address):
    (tmp_path / "audit.yaml").write_text(
        json.dumps({"labeller": "e", "datasets": {}, "encoders": {"e": {"address": address}}, "audit": []})
    )
    return Places(audit_path=tmp_path / "audit.yaml", home=tmp_path)


def test_a_hub_checkpoint_comes_at_its_revision_with_digests_and_without_pickles(tmp_path):
    files = {
        "open_clip_model.safetensors": b"w",
        "open_clip_config.json": b"{}",
        "pytorch_model.bin": b"pickle",
        "evil.py": b"import os",
    }
    hub, home = Hub(files), places(tmp_path, f"hf-hub:org/name@{COMMIT}")
    folder = fetch_checkpoint(home, "e", hub=hub)
    assert hub.asked == [("org/name", COMMIT)]
    assert sorted(p.name for p in folder.iterdir()) == [
        "fetched.json", "open_clip_config.json", "open_clip_model.safetensors",
    ]  # fmt: skip
    note = json.loads((folder / "fetched.json").read_text())
    assert note["commit"] == COMMIT
    assert note["sha256"] == {"open_clip_model.safetensors": digest_bytes(b"w")}
    assert home.checkpoint("e").weights_sha256 == digest_bytes(b"w")


def test_a_tag_of_open_clip_becomes_a_local_folder_with_its_own_preprocessing(tmp_path):
    hub = Hub({"open_clip_model.safetensors": b"w"})
    folder = fetch_checkpoint(places(tmp_path, "ViT-B-32-quickgelu/openai"), "e", hub=hub)
    config = json.loads((folder / "open_clip_config.json").read_text())
    assert hub.asked[0][0] == "timm/vit_base_patch32_clip_224.openai"
    assert config["model_cfg"]["quick_gelu"] is True
    assert config["preprocess_cfg"]["mean"][0] == pytest.approx(0.48145466)


def test_weights_of_another_activation_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="ViT-B-32-quickgelu/openai"):
        fetch_checkpoint(places(tmp_path, "ViT-B-32/openai"), "e", hub=Hub({}))


def test_a_repository_without_safetensors_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no safetensors"):
        fetch_checkpoint(
            places(tmp_path, f"hf-hub:o/n@{COMMIT}"), "e", hub=Hub({"open_clip_config.json": b"{}"})
        )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"open_clip_model.safetensors": b"w"}, "no open_clip checkpoint"),
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
    home = places(tmp_path, f"hf-hub:o/n@{COMMIT}")
    with pytest.raises(CheckpointError, match=said):
        fetch_checkpoint(home, "e", hub=Hub(files))
    assert not list(home.fetched.glob("*/fetched.json"))


def test_an_unreachable_hub_is_a_clear_error_of_the_command_line(tmp_path):
    """With the real client, which the command line lets go online, and a port at which nobody listens."""
    home = places(tmp_path, f"hf-hub:o/n@{COMMIT}")
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
    assert "the hub did not give the checkpoint of `e`" in done.stderr
    assert "ConnectError" in done.stderr and "check the network" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("xet: no route to host")])
def test_a_hub_that_breaks_off_is_a_clear_error(tmp_path, error):
    with pytest.raises(CheckpointError, match=r"did not give[\s\S]*no route to host"):
        fetch_checkpoint(places(tmp_path, f"hf-hub:o/n@{COMMIT}"), "e", hub=Hub({}, error=error))


@pytest.mark.parametrize(
    ("address", "said"), [("local-dir:x", "needs no fetching"), ("ViT-B-32/none", "no such")]
)
def test_what_cannot_be_fetched_says_so(tmp_path, address, said):
    with pytest.raises(CheckpointError, match=said):
        fetch_checkpoint(places(tmp_path, address), "e", hub=Hub({}))
