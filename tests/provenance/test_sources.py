"""Sources of a number, compared with what is on disk: checkpoints, shards, prompts, a dataset's folder."""

import shutil

import numpy as np
import pytest
import yaml
from PIL import Image

from assets.lineage import _shards, checkpoint_links, dataset_link, prompt_links
from plumbline.catalog.suites import load_suite
from plumbline.datasets.ingestion import ingest
from plumbline.storage import Committed
from resources.checkout import PROJECT
from resources.workspace import Workspace

CHECKPOINT = PROJECT / "plumbline/world/checkpoints/small-control-3k"


@pytest.fixture
def workspace(tmp_path):
    """Return a workspace with a checkpoint and a dataset of three images, all of them in a folder of the test."""
    shutil.copytree(CHECKPOINT, tmp_path / "clip")
    (tmp_path / "faces").mkdir()
    for number in range(3):
        Image.new("RGB", (8, 8), (number * 80, 0, 0)).save(tmp_path / "faces" / f"{number}.png")
    (tmp_path / "faces" / "index.csv").write_text("file,sex\n0.png,M\n1.png,F\n2.png,M\n")
    column_map = {"index": "index.csv", "path": "file", "columns": {"gender": "sex"}}
    column_map["values"] = {"gender": {"M": "man", "F": "woman"}}
    audit = {
        "title": "Sources",
        "labeller": "clip",
        "encoders": {"clip": {"address": f"local-dir:{tmp_path / 'clip'}"}},
        "datasets": {"faces": {"reader": "folder", "root": str(tmp_path / "faces"), "map": column_map}},
        "audit": [{"suites": ["crime"]}],
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(audit))
    return Workspace(tmp_path / "audit.yaml", tmp_path / "home")


def states(links):
    return [link.state for link in links]


def test_a_checkpoint_is_compared_file_by_file(workspace, tmp_path):
    files = workspace.checkpoint("clip")
    recorded = (files.weights_sha256, files.version)
    links = list(checkpoint_links(workspace, 4, "clip", *recorded))
    assert states(links) == ["unchanged", "unchanged"] and len(links[1].texts) >= 3
    assert any(files.weights_sha256 in text for text in links[1].texts)
    tokenizer = tmp_path / "clip" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert states(checkpoint_links(workspace, 4, "clip", *recorded)) == ["unchanged", "changed"]
    with files.weights[0].open("ab") as weights:
        weights.write(b"\0")
    links = list(checkpoint_links(workspace, 4, "clip", *recorded))
    assert states(links) == ["changed", "changed"] and links[0].digest == recorded[0]
    assert links[0].note == f"now sha256 {workspace.checkpoint('clip').weights_sha256[:12]}"
    shutil.rmtree(tmp_path / "clip")
    links = list(checkpoint_links(workspace, 4, "clip", *recorded))
    assert states(links) == ["gone"] and "not on this disk" in links[0].note


def test_a_dataset_folder_names_what_is_gone_or_changed(workspace, tmp_path):
    faces = tmp_path / "faces"
    found = ingest(workspace.dataset_entry("faces").open_reader(), faces, dataset="faces")
    details = {"folder_digest": found.folder_digest, "dataset_digest": "d" * 64}
    records = workspace.lake.write_table("records", found.records, partition="faces", details=details)

    def link():
        return dataset_link(workspace, 4, "faces", records)

    assert link().state == "unchanged" and "index.csv" in link().note
    (faces / "1.png").unlink()
    assert link().state == "gone" and link().note.startswith("1 gone: 1.png;")
    (faces / "1.png").write_bytes((faces / "0.png").read_bytes())
    assert link().state == "changed" and link().note.startswith("1 changed: 1.png;")
    (faces / "1.png").unlink()
    (faces / "index.csv").unlink()
    assert link().state == "gone"


def test_a_changed_index_is_told_from_changed_images(workspace, tmp_path):
    faces = tmp_path / "faces"
    found = ingest(workspace.dataset_entry("faces").open_reader(), faces, dataset="faces")
    details = {"folder_digest": found.folder_digest, "dataset_digest": "d" * 64}
    records = workspace.lake.write_table("records", found.records, partition="faces", details=details)
    (faces / "index.csv").write_text("file,sex\n0.png,F\n1.png,F\n2.png,M\n")
    link = dataset_link(workspace, 4, "faces", records)
    assert link.state == "changed" and link.note.startswith("every recorded image is as it was; the index")


def test_a_shard_that_is_gone_or_damaged_is_named(workspace):
    kept = [workspace.shards.commit(key * 64, {"x": np.arange(3.0) + i}, details={}) for i, key in enumerate("ab")]
    listed = {"shards": [{"key": shard.key, "sha256": shard.sha256} for shard in kept]}
    images = Committed("image_embeddings", "faces|clip", "table", "c" * 64, 6, 1, listed)
    assert states(_shards(workspace, images)) == ["unchanged"]
    next(workspace.home.glob(f"lake/embeddings/*/{kept[1].sha256}.safetensors")).write_bytes(b"torn")
    (link,) = _shards(workspace, images)
    assert link.state == "gone" and link.note.startswith("1 gone or damaged: bbbbbbbbbbbb")


def test_prompts_are_shown_while_they_are_the_same():
    suite = load_suite("crime")
    (link,) = prompt_links({"suite": "crime", "suite_hash": suite.hash}, (suite,))
    assert link.state == "unchanged" and link.texts == suite.texts
    (link,) = prompt_links({"suite": "crime", "suite_hash": "0" * 64}, (suite,))
    assert link.state == "changed" and not link.texts
