"""Paths that the audit file and the environment name: relative ones start at the checkout, `~` is the home folder."""

from pathlib import Path

import pytest

from resources.checkout import PROJECT, from_checkout
from resources.workspace import Workspace


@pytest.mark.parametrize(
    ("path", "place"), [("a/b", "{project}/a/b"), ("~/a", "{home}/a"), ("/a/../b", "/b"), ("../a", "{above}/a")]
)
def test_a_path_starts_at_the_checkout_or_at_the_home_folder(path, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = place.format(project=PROJECT, home=tmp_path, above=PROJECT.parent)
    assert from_checkout(path) == Path(found).resolve()


def test_storage_and_the_environment_name_places_in_the_same_way(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLUMBLINE_HOME", "~/home")
    monkeypatch.setenv("PLUMBLINE_AUDIT", "~/audit.yaml")
    (tmp_path / "audit.yaml").write_text("datasets: {}\nstorage: {root: ~/results}\n")
    workspace = Workspace.from_environment()
    assert (workspace.audit_path, workspace.home) == (tmp_path / "audit.yaml", tmp_path / "home")
    assert Path(str(workspace.answers)) == tmp_path / "results" / "answers"
