"""A home as it is opened: a disk that is full by then, and who holds the lock."""

import pytest

from orchestration.instance import opened
from plumbline.errors import StorageError
from resources.places import PROJECT, Places


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("DAGSTER_HOME", "PLUMBLINE_HOME", "PLUMBLINE_AUDIT"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("room", ["nr_inodes=1", "size=4k", "size=200k"], ids=["files", "nothing", "little"])
def test_a_disk_that_is_full_before_anything_starts_is_named(small_disk, room):
    disk, remount = small_disk
    places = Places(audit_path=PROJECT / "audit.yaml", home=disk / "home")
    assert remount(room)
    with pytest.raises(StorageError) as said, opened(places):
        pass
    assert str(said.value).startswith("the disk is full") and str(places.home) in str(said.value)
    assert "free some space" in str(said.value)
    # What was half made there is no hindrance.
    assert remount("size=20m", "nr_inodes=1000")
    with opened(places) as instance:
        instance.add_dynamic_partitions("dataset", ["one"])
        assert instance.get_dynamic_partitions("dataset") == ["one"]
