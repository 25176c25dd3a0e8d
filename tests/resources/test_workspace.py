"""Paths that the audit file and the environment name: relative ones start where the command is run, `~` at home."""

from pathlib import Path

import pytest

from plumbline.commands.places import from_here
from resources.workspace import Workspace


@pytest.mark.parametrize(
    ("path", "place"), [("a/b", "{here}/a/b"), ("~/a", "{home}/a"), ("/a/../b", "/b"), ("../a", "{above}/a")]
)
def test_a_path_starts_where_the_command_is_run_or_at_the_home_folder(path, place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    run_in = tmp_path / "any"
    run_in.mkdir()
    monkeypatch.chdir(run_in)
    monkeypatch.delenv("PLUMBLINE_FOLDER", raising=False)
    found = place.format(here=run_in, home=tmp_path, above=tmp_path)
    assert from_here(path) == Path(found).resolve()


def test_storage_and_the_environment_name_places_in_the_same_way(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PLUMBLINE_HOME", "~/home")
    monkeypatch.setenv("PLUMBLINE_AUDIT", "~/audit.yaml")
    (tmp_path / "audit.yaml").write_text("datasets: {}\nstorage: {root: ~/results}\n")
    workspace = Workspace.from_environment()
    assert (workspace.audit_path, workspace.home) == (tmp_path / "audit.yaml", tmp_path / "home")
    assert Path(str(workspace.answers)) == tmp_path / "results" / "answers"
