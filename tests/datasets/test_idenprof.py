"""The IdenProf reader: split and occupation from the folders, at the root or below the archive's own folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Ingested
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

OCCUPATIONS = ["chef", "doctor", "engineer", "farmer", "firefighter", "judge", "mechanic", "pilot", "police", "waiter"]


def written(root: Path, paths: list[str], jpeg: Callable[..., bytes]) -> Path:
    for seed, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(jpeg(seed))
    return root


def read(root: Path) -> Ingested:
    return ingest(reader_for("idenprof"), root, dataset="idenprof")


@pytest.mark.parametrize("above", ["", "idenprof/"])
def test_the_folders_are_the_labels(above: str, tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    paths = [f"{above}{split}/{name}/{name}-1.jpg" for split in ("test", "train") for name in OCCUPATIONS]
    ingested = read(written(tmp_path, paths, jpeg))
    records = ingested.records
    assert ingested.listed == records.height == 20
    assert records["path"].to_list() == paths
    assert records["occupation"].to_list() == OCCUPATIONS * 2
    assert records["split"].to_list() == ["test"] * 10 + ["train"] * 10
    assert all(records[column].is_null().all() for column in ("gender", "race", "age", "scene"))


def test_both_splits_count_by_default() -> None:
    assert reader_for("idenprof").declaration.filter_for("trident") == "all"


@pytest.mark.parametrize(
    ("path", "stage", "code"),
    [
        ("train/astronaut/1.jpg", "labels", "unknown_label"),
        ("train/Chef/1.jpg", "labels", "unknown_label"),
        ("idenprof/train/chefs/1.jpg", "labels", "unknown_label"),
        ("valid/chef/1.jpg", "index", "wrong_split"),
        ("train/1.jpg", "index", "malformed_name"),
        ("train/chef/more/1.jpg", "index", "malformed_name"),
        ("other/train/chef/1.jpg", "index", "malformed_name"),
        ("model_class.json", "index", "malformed_name"),
    ],
)
def test_any_other_place_is_quarantined(
    path: str, stage: str, code: str, tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    ingested = read(written(tmp_path, ["train/chef/chef-1.jpg", path], jpeg))
    assert ingested.records["occupation"].to_list() == ["chef"]
    assert ingested.quarantine.select("path", "stage", "code", "line").rows() == [(path, stage, code, None)]
    assert ingested.quarantine["found"][0]
    assert ingested.quarantine["expected"][0]


def test_the_same_picture_under_two_occupations_is_neither(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    root = written(tmp_path, ["train/chef/1.jpg", "test/chef/2.jpg", "test/pilot/3.jpg"], jpeg)
    (root / "test/pilot/3.jpg").write_bytes((root / "train/chef/1.jpg").read_bytes())
    ingested = read(root)
    assert ingested.records["path"].to_list() == ["test/chef/2.jpg"]
    assert set(ingested.quarantine["code"]) == {"conflicting_duplicate"}


def test_the_same_picture_in_both_splits_is_kept_once(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    root = written(tmp_path, ["train/chef/1.jpg", "test/chef/2.jpg"], jpeg)
    (root / "test/chef/2.jpg").write_bytes((root / "train/chef/1.jpg").read_bytes())
    ingested = read(root)
    assert ingested.records["path"].to_list() == ["test/chef/2.jpg"]
    assert ingested.quarantine["code"].to_list() == ["duplicate"]


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"\{train,test\}/<occupation>"):
        read(tmp_path)
