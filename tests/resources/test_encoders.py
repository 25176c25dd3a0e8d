"""The encoder pool: a model stays loaded, and is never stale."""

import shutil

import pytest
import yaml

from plumbline.errors import CheckpointError
from resources.checkout import PROJECT
from resources.encoders import EncoderPool
from resources.workspace import Workspace

SHIPPED = PROJECT / "plumbline" / "world" / "checkpoints"
WEIGHTS = "open_clip_model.safetensors"


@pytest.fixture
def workspace(tmp_path):
    """Three ids; two name folders with the same content."""
    for name in ("a", "b"):
        shutil.copytree(SHIPPED / "small-bazaar-3k", tmp_path / name)
    encoders = {
        "a": {"address": f"local-dir:{tmp_path / 'a'}"},
        "b": {"address": f"local-dir:{tmp_path / 'b'}"},
        "c": {"address": "local-dir:plumbline/world/checkpoints/small-atlas-3k"},
    }
    audit = {"labeller": "a", "datasets": {}, "encoders": encoders, "audit": [], "device": "cpu"}
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(audit))
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path)


def test_a_model_is_loaded_once(workspace):
    pool = EncoderPool(workspace)
    assert pool.get("a") is pool.get("a")


def test_names_do_not_make_identity(workspace):
    pool = EncoderPool(workspace)
    assert pool.get("a").identity == pool.get("b").identity != pool.get("c").identity


def test_a_checkpoint_replaced_under_the_same_name_is_noticed(workspace, tmp_path):
    pool = EncoderPool(workspace)
    before = pool.get("a")
    shutil.copyfile(SHIPPED / "small-atlas-3k" / WEIGHTS, tmp_path / "a" / WEIGHTS)
    after = pool.get("a")
    assert after is not before
    assert after.weights_sha256 == pool.get("c").weights_sha256 != before.weights_sha256


def test_a_checkpoint_replaced_while_loading_stops_the_run(workspace, tmp_path, monkeypatch):
    from resources import encoders

    load = encoders.load_encoder

    def load_and_replace(files, *, placement):
        loaded = load(files, placement=placement)
        shutil.copyfile(SHIPPED / "small-atlas-3k" / WEIGHTS, tmp_path / "a" / WEIGHTS)
        return loaded

    monkeypatch.setattr(encoders, "load_encoder", load_and_replace)
    with pytest.raises(CheckpointError, match="replaced while it was loading"):
        EncoderPool(workspace).get("a")


def test_an_edit_of_how_models_run_is_seen(workspace):
    pool = EncoderPool(workspace)
    before = pool.get("a")
    audit = yaml.safe_load(workspace.audit_path.read_text()) | {"engine": {"dtype": "bfloat16"}}
    workspace.audit_path.write_text(yaml.safe_dump(audit))
    assert pool.get("a") is not before
    assert pool.get("a").identity.dtype == "bfloat16"


def test_only_the_most_recent_stay_in_memory(workspace):
    pool = EncoderPool(workspace, keep=1)
    first = pool.get("a")
    pool.get("c")
    assert pool.get("a") is not first
