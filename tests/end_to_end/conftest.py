"""One undisturbed audit that several tests look at, and copies of it for those that change it."""

import shutil

import pytest
from homes import SHARED, Home, make_home, set_up_stores


@pytest.fixture(scope="session", autouse=True)
def shared(made_once, planted_base):
    """Let homes begin with stores and planted folders that are made once a run."""
    SHARED["stores"] = lambda: made_once("stores", set_up_stores)[0] / "home"
    SHARED["planted"] = lambda: planted_base
    yield
    SHARED.clear()


@pytest.fixture(scope="session")
def audited(made_once):
    """Return a home after one undisturbed audit, with its exit code and output; nothing may be changed in it."""
    folder, (code, output) = made_once("audited", lambda folder: make_home(folder, empty=True).run("audit"))
    return Home(folder), code, output


@pytest.fixture
def copied(audited, tmp_path):
    """Return a copy of the audited home that may be changed."""
    home, _, _ = audited
    shutil.copytree(home.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("quality"))
    return Home(tmp_path / "copy")
