"""One undisturbed audit that several tests look at, and copies of it for those that change it."""

import shutil

import pytest
from homes import Home, make_home


@pytest.fixture(scope="session")
def audited(made_once):
    """Return a home after one undisturbed audit, with its exit code and output; nothing may be changed in it."""
    folder, (code, output) = made_once("audited", lambda folder: make_home(folder).run("audit"))
    return Home(folder), code, output


@pytest.fixture
def copied(audited, tmp_path):
    """Return a copy of the audited home that may be changed."""
    home, _, _ = audited
    shutil.copytree(home.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("quality"))
    return Home(tmp_path / "copy")
