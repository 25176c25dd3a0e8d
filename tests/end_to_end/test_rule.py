"""What the rule of what is up to date looks at: each change here computes anew what it concerns, and nothing else."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from homes import edited
from told_to_dagster import made_since, runs

from assets.gates import checks_not_passed
from assets.up_to_date import NEVER, Present
from orchestration.audit_plan import AuditPlan
from orchestration.definitions import build_definitions
from plumbline.errors import StorageError
from plumbline.storage.builds import read_build, write_build

DATASET, MODEL = "fairface", "small-control-3k"
CELL = f"{DATASET}|{MODEL}"


def changes(home, asset, partition=""):
    return Present(home.workspace).changes(asset, partition)


def plan(home):
    return AuditPlan(build_definitions(home.workspace), home.workspace)


def file_of(home, name, partition):
    lake = home.workspace.lake
    manifest = lake.require(name, partition=partition)
    return Path(str(lake.folder(name, partition))) / f"{manifest.sha256}.parquet"


def test_another_mlflow_store_is_told_of_all_cells(copied, monkeypatch):
    assert changes(copied, "tracked_run", CELL) == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    assert changes(copied, "tracked_run", CELL) == ["the address of the MLflow store"]


def test_pictures_that_were_deleted_are_drawn_again(copied):
    assert changes(copied, "trident_metrics", CELL) == []
    shutil.rmtree(copied.workspace.home / "lake" / "pictures" / DATASET / MODEL / "trident_metrics")
    assert changes(copied, "trident_metrics", CELL) == ["pictures is not there as it was stored"]


def test_the_order_of_entries_counts_where_they_are_read(copied):
    content = yaml.safe_load(copied.workspace.audit_path.read_text())
    balance = content["datasets"][DATASET]["balance"]
    assert changes(copied, "audit_report") == []
    content["datasets"][DATASET]["balance"] = dict(reversed(balance.items()))
    edited(copied, datasets=content["datasets"])
    assert any("datasets.fairface.balance" in change for change in changes(copied, "audit_report"))
    assert changes(copied, "trident_metrics", CELL) == []


def test_what_a_reader_finds_damaged_is_computed_again(copied):
    lake, path = copied.workspace.lake, file_of(copied, "mitigation_effects", CELL)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    assert changes(copied, "mitigated_metrics", CELL) == [], "its size is the same"
    with pytest.raises(StorageError, match="damaged"):
        lake.read_table("mitigation_effects", partition=CELL)
    assert changes(copied, "mitigated_metrics", CELL) == [NEVER]
    assert changes(copied, "trident_metrics", CELL) == []


def test_damage_to_what_has_been_replaced_forgets_nothing(copied):
    lake, file = copied.workspace.lake, file_of(copied, "trident_metrics", CELL)
    before, build = lake.require("trident_metrics", partition=CELL), read_build(lake, "trident_metrics", CELL)
    newer = lake.write_table(
        "trident_metrics", lake.read_table("trident_metrics", manifest=before).head(1), partition=CELL
    )
    outputs = [[*each[:2], newer.version] if each[0] == "trident_metrics" else each for each in build.outputs]
    write_build(lake, replace(build, outputs=outputs), parts=None)
    file.write_bytes(b"x")
    with pytest.raises(StorageError, match="damaged"):
        lake.read_table("trident_metrics", manifest=before)
    assert changes(copied, "trident_metrics", CELL) == []


@pytest.mark.slow
def test_verdicts_of_labels_that_nothing_uses_are_renewed_without_reading_again(home, instance):
    balance = {"race": [0.10, 0.20]}
    datasets = yaml.safe_load(home.workspace.audit_path.read_text())["datasets"]
    datasets[DATASET]["balance"] = balance
    edited(home, audit=[{"suites": ["crime"]}], datasets=datasets, thresholds={"label_error": 0.001})
    before, assets = runs(instance), plan(home).out_of_date("datasets", DATASET)
    assert set(assets) == {"records", "extended_records"}
    assert all("ranges that the audit file declares now" in why for reasons in assets.values() for why in reasons)
    code, output = home.run("audit")
    assert code == 0 and "warning: check label_error" in output, output
    assert not {"records", "extended_records"} & {asset for asset, _ in made_since(instance, before)}
    [failed] = checks_not_passed(home.workspace, DATASET, of=("records", "extended_records"))
    assert failed.failed and plan(home).everything() == {}


def test_a_refused_dataset_is_refused_from_its_verdict(home, instance):
    datasets = yaml.safe_load(home.workspace.audit_path.read_text())["datasets"]
    datasets[DATASET]["balance"] = {"race": [0.3, 0.4]}
    edited(home, datasets=datasets)
    code, first = home.run("audit")
    assert code == 1 and "check label_balance failed: " in first and ".balance.race` asks for " in first
    before, said = runs(instance), [line for line in first.splitlines() if "check label_balance failed" in line]
    code, second = home.run("audit")
    assert code == 1
    # Without another dataset there is nothing to join.
    assert {run.job_name for run in instance.get_runs() if run.run_id not in before} == {"findings"}
    assert [line for line in second.splitlines() if "check label_balance failed" in line] == said
    assert "refused, since these checks have not passed: records.label_balance (failed)" in second
    assert [line for line in second.splitlines() if "step(s) failed" in line] == [
        line for line in first.splitlines() if "step(s) failed" in line
    ]
