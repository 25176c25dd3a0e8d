"""What is planned of an audit whose data is in part here, in part read, in part nowhere."""

import json
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from assets.plans import absent_datasets, images_of, plan_encoders, plan_generation, recorded_groups
from plumbline.catalog.studies import published_sizes
from plumbline.catalog.suites import load_suite
from plumbline.datasets.records import RECORD_SCHEMA
from plumbline.errors import CheckpointError, ConfigError
from plumbline.metrics.disparities import planned_power
from resources.workspace import Workspace

MAP = {"index": "people.csv", "path": "photo", "columns": {"gender": "sex", "race": "origin"}}
CELLS = [{"suites": ["crime"], "mitigations": []}]


def workspace(folder, **parts):
    staff = folder / "staff"
    staff.mkdir(exist_ok=True)
    rows = "".join(f"{n}.jpg,man,here\n" for n in range(3))
    (staff / "people.csv").write_text(f"photo,sex,origin\n{rows}../out.jpg,man,here\n")
    audit = {
        "labeller": "b32",
        "datasets": {
            "staff": {"reader": "folder", "root": str(staff), "map": MAP},
            "faces": {"reader": "fairface", "root": str(folder / "absent")},
        },
        "encoders": {"b32": {"address": "ViT-B-32-quickgelu/openai"}},
        "audit": CELLS,
    }
    (folder / "audit.yaml").write_text(json.dumps(audit | parts))
    return Workspace(folder / "audit.yaml", folder / "home")


def record(workspace, dataset, **columns):
    rows = {"path": ["a.jpg", "b.jpg"], "image_id": ["a", "b"], "gender": ["man", "woman"], "race": ["x", "x"]}
    frame = pl.DataFrame(rows | columns)
    whole = frame.with_columns(pl.lit(None, pl.String).alias(c) for c in RECORD_SCHEMA if c not in frame.columns)
    details = {"dataset_digest": "d", "read_as": workspace.dataset_entry(dataset).read_as}
    return workspace.lake.write_table("records", whole.select(list(RECORD_SCHEMA)), partition=dataset, details=details)


def planned(workspace):
    return {(cell.dataset, cell.encoder): cell for cell in plan_encoders(workspace, absent_datasets(workspace)).cells}


def test_images_are_counted_as_read_as_listed_or_as_published(tmp_path):
    home = workspace(tmp_path)
    assert list(absent_datasets(home)) == ["faces"]
    listed = images_of(home, "staff")
    assert listed == 4, "a path that leaves the folder is refused when images are read"
    assert {key[0]: cell.images for key, cell in planned(home).items()} == {"staff": 4, "faces": 97_698}
    record(home, "staff")
    record(home, "faces")
    assert absent_datasets(home) == {}, "what was read once is known without its folder"
    assert {key[0]: cell.images for key, cell in planned(home).items()} == {"staff": 2, "faces": 2}


def test_a_folder_below_the_home_folder_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    staff = {"reader": "folder", "root": "~/staff", "map": MAP}
    assert absent_datasets(workspace(tmp_path, datasets={"staff": staff})) == {}


def test_what_was_read_under_the_same_name_from_another_folder_is_not_counted(tmp_path):
    """The planted world and a study may share a home, and both have a `fairface`."""
    home = workspace(tmp_path)
    record(home, "staff")
    record(home, "faces")
    moved = {
        "staff": {"reader": "folder", "root": str(tmp_path / "staff"), "map": MAP | {"columns": {"gender": "sex"}}},
        "faces": {"reader": "fairface", "root": str(tmp_path / "elsewhere")},
    }
    again = workspace(tmp_path, datasets=moved)
    assert list(absent_datasets(again)) == ["faces"]
    assert {key[0]: cell.images for key, cell in planned(again).items()} == {"staff": 4, "faces": 97_698}


def test_a_dataset_that_is_nowhere_and_of_no_study_has_no_size(tmp_path):
    gone = {"staff": {"reader": "folder", "root": str(tmp_path / "gone"), "map": MAP}}
    with pytest.raises(ConfigError, match="nobody has published how large it is"):
        absent_datasets(workspace(tmp_path, datasets=gone))


def test_images_that_went_through_an_encoder_do_not_go_again(tmp_path):
    home = workspace(tmp_path)
    made = record(home, "staff")
    index = pl.DataFrame({"image_id": ["a", "b"]})
    details = {"records_sha256": "of other records"}
    home.lake.write_table("image_embeddings", index, partition="staff|b32", details=details)
    assert planned(home)["staff", "b32"].images_to_embed == 2
    home.lake.write_table("image_embeddings", index, partition="staff|b32", details={"records_sha256": made.sha256})
    assert planned(home)["staff", "b32"].images_to_embed == 0


def test_what_earlier_runs_wrote_of_a_cell_is_not_counted_as_disk(tmp_path):
    home = workspace(tmp_path)
    made = record(home, "staff")
    before = planned(home)["staff", "b32"]
    assert (before.has_records, before.has_index, before.has_logits) == (True, False, False)
    index = pl.DataFrame({"image_id": ["a", "b"]})
    of_these = {"records_sha256": made.sha256}
    home.lake.write_table("image_embeddings", index, partition="staff|b32", details=of_these)
    raw = {"raw": np.zeros((2, 1), np.float32)}
    home.lake.write_arrays("probe_logits", raw, partition="staff|b32", details={**of_these, "texts": ["one"]})
    other = planned(home)["staff", "b32"]
    assert (other.has_index, other.has_logits) == (True, False), "of fewer prompts than are asked now"
    texts = list(load_suite("crime").texts)
    home.lake.write_arrays("probe_logits", raw, partition="staff|b32", details={**of_these, "texts": texts})
    after = planned(home)["staff", "b32"]
    assert (after.has_records, after.has_index, after.has_logits) == (True, True, True)
    assert after.bytes == 0


def test_images_of_other_weights_are_counted_again(tmp_path, monkeypatch):
    home = workspace(tmp_path)
    made = record(home, "staff")
    for weights, again in (("now", 0), ("before", 2)):
        details = {"records_sha256": made.sha256, "weights_sha256": weights, "shards": []}
        home.lake.write_table(
            "image_embeddings", pl.DataFrame({"image_id": ["a", "b"]}), partition="staff|b32", details=details
        )
        monkeypatch.setattr(Workspace, "checkpoint", lambda *_, **__: SimpleNamespace(weights_sha256="now"))
        assert planned(home)["staff", "b32"].images_to_embed == again


def test_images_that_were_labelled_are_not_counted_again(tmp_path):
    asked = [{"encoders": ["other"], "suites": ["crime"], "mitigations": []}]
    address = "ViT-B-32-quickgelu/openai"
    home = workspace(tmp_path, audit=asked, encoders={"b32": {"address": address}, "other": {"address": "RN50/openai"}})
    made = record(home, "staff")
    assert planned(home)["staff", "b32"].bytes > 0
    labels = pl.DataFrame({"image_id": ["a", "b"]})
    details = {"records_sha256": made.sha256, "labeller": "b32"}
    home.lake.write_table("extended_records", labels, partition="staff", details=details)
    assert planned(home)["staff", "b32"].bytes == 0
    assert planned(home)["staff", "other"].bytes is None


def test_one_checkpoint_embeds_once_and_another_family_of_it_again(tmp_path):
    address = "hf-hub:google/owlv2-base-patch16-ensemble@fetched"
    encoders = {
        "b32": {"address": "ViT-B-32-quickgelu/openai"},
        "owl": {"address": address},
        "worded": {"address": address, "wording": "algorithm_1"},
        "released": {"address": address, "family": "owlvit"},
    }
    asked = [{"encoders": ["owl", "worded", "released"], "suites": ["crime"], "mitigations": []}]
    found = planned(workspace(tmp_path, encoders=encoders, audit=asked))
    counts = {encoder: cell.images_to_embed for (dataset, encoder), cell in found.items() if dataset == "staff"}
    assert counts == {"owl": 4, "worded": 0, "released": 4, "b32": 4}
    assert found["staff", "b32"].prompts == (), "the labeller labels genders, and is asked nothing else"


def generative(folder):
    datasets = {
        "staff": {"reader": "folder", "root": str(folder / "staff"), "map": MAP},
        "sets": {"reader": "socialcounterfactuals", "root": str(folder / "absent")},
    }
    entry = {"datasets": ["staff", "sets"], "subsets": ["all", "physical_race"], "prompts": ["describe"], "seeds": [0]}
    lvlms = {"llava": {"address": "hf-hub:llava-hf/llava-1.5-7b-hf@fetched"}}
    return workspace(folder, datasets=datasets, audit=[], lvlms=lvlms, generate=[entry])


def test_answers_about_data_that_is_here_and_data_that_is_not_are_planned_together(tmp_path):
    home = generative(tmp_path)
    record(home, "staff")
    plan = plan_generation(home, absent=absent_datasets(home))
    assert {one.slice: one.rows for one in plan.slices} == {"staff.all": 2, "sets.physical_race": 25_080}
    assert plan.hours is None


@pytest.mark.parametrize(
    ("reader", "is_planned"), [("socialcounterfactuals", True), ("idenprof", True), ("pata", False)]
)
def test_prompts_are_planned_where_the_absent_dataset_has_what_they_name(reader, is_planned, tmp_path):
    datasets = {"absent": {"reader": reader, "root": str(tmp_path / "absent")}}
    entry = {"datasets": ["absent"], "prompts": ["hiring"], "seeds": [0]}
    lvlms = {"llava": {"address": "hf-hub:llava-hf/llava-1.5-7b-hf@fetched"}}
    home = workspace(tmp_path, datasets=datasets, audit=[], lvlms=lvlms, generate=[entry])
    if is_planned:
        assert plan_generation(home, absent=absent_datasets(home)).to_do == published_sizes()[reader].images
    else:
        with pytest.raises(ConfigError, match="the dataset has none"):
            plan_generation(home, absent=absent_datasets(home))


def test_a_plan_that_an_audit_holds_to_needs_its_model(tmp_path):
    home = generative(tmp_path)
    record(home, "staff")
    record(home, "sets", race=["Black", "White"], split=["physical_race"] * 2, physical=["old"] * 2)
    assert plan_generation(home, absent={}).to_do == 4
    with pytest.raises(CheckpointError, match="plumbline fetch llava"):
        plan_generation(home)


def test_what_can_be_found_is_of_outcome_suites_whatever_else_is_asked(tmp_path):
    home = workspace(tmp_path, audit=[{"suites": ["crime", "trident", "markedness", "zero_shot"], "mitigations": []}])
    assert list(planned_power(home.audit.cells, recorded_groups(home), rate=0.1)) == [], "nothing has been read"
    record(home, "staff")
    found = list(planned_power(home.audit.cells, recorded_groups(home), rate=0.1))
    assert found and {(one.dataset, one.sizes) for one in found} == {("staff", (1, 1))}
    assert "gender" in {one.attribute for one in found}
