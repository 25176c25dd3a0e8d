"""What a generative model on this disk is: found once, and known again without loading its libraries."""

import json
import subprocess
import sys

import pytest
import yaml
from tiny_lvlms import BASE_LLMS

from plumbline.generators import loaded_model
from resources.lvlms import backend_identity
from resources.workspace import Workspace

NAME, WRITE = next(iter(BASE_LLMS.items()))
ASK = """
import json, sys
from pathlib import Path
from resources.lvlms import backend_identity
from resources.workspace import Workspace
print(json.dumps([backend_identity(Workspace(Path(sys.argv[1]), Path(sys.argv[2])), "mine"), sorted(sys.modules)]))
"""


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "model").mkdir()
    WRITE(tmp_path / "model", seed=1)
    entries = {
        "device": "cpu",
        "datasets": {"people": {"reader": "socialcounterfactuals", "root": "nowhere"}},
        "lvlms": {"mine": {"address": f"local-dir:{tmp_path / 'model'}"}},
        "generate": [{"datasets": ["people"], "prompts": ["characteristics"]}],
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(entries))
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")


def test_an_identity_is_known_again_without_torch_and_transformers(workspace):
    found = backend_identity(workspace, "mine")
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(workspace.audit_path), str(workspace.home)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    again, modules = json.loads(done.stdout)
    assert again == found
    assert not {"torch", "transformers"}.intersection(modules)


def test_other_files_code_or_libraries_are_looked_at_again(workspace, monkeypatch):
    found = backend_identity(workspace, "mine")
    template = workspace.lvlm_files("mine").folder / "generation_config.json"
    template.write_text(json.dumps({"eos_token_id": [1, 2, 3]}))
    assert backend_identity(workspace, "mine") != found
    template.unlink()

    looked = []
    monkeypatch.setattr(loaded_model, "identity_from_files", lambda *_: looked.append(1) or "anew")
    monkeypatch.setattr("resources.lvlms.code_version", lambda *_: "another")
    assert backend_identity(workspace, "mine") == "anew"
    monkeypatch.setattr(loaded_model, "library_versions", lambda: {"transformers": "another"})
    assert backend_identity(workspace, "mine") == "anew"
    backend_identity(workspace, "mine")
    assert len(looked) == 2


@pytest.mark.parametrize("place", [2, -3])
def test_an_identity_that_was_damaged_is_found_again(workspace, place):
    found = backend_identity(workspace, "mine")
    (kept,) = workspace.identities.iterdir()
    for change in (b"\xb4", b"Z"):  # no text, and a text that it was not
        data = bytearray(kept.read_bytes())
        data[place] = change[0]
        kept.write_bytes(bytes(data))
        assert backend_identity(workspace, "mine") == found
    kept.write_bytes(b"")
    assert backend_identity(workspace, "mine") == found
