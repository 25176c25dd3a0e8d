"""One undisturbed audit that several tests look at, and copies of it for those that change it."""

import os
import shutil
import signal
import time

import dagster as dg
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


@pytest.fixture(scope="session")
def resumed(made_once):
    """Return a home whose first audit, of one suite, was killed and gone on with; nothing may be changed in it.

    With it come the forward passes of each shard that was there when it was killed, the output of the audit that went
    on, and the exit code and output of one after it with the metric table's sha256 from before that.
    """
    folder, told = made_once("resumed", _killed_and_gone_on_with)
    return Home(folder), told


def _killed_and_gone_on_with(folder):
    audit = [{"suites": ["crime"], "mitigations": []}]
    home = make_home(folder, mitigations={}, audit=audit, labeller="small-bazaar-3k")
    process = home.start("audit")
    deadline = time.monotonic() + 240
    # Late enough that one encoder is done, early enough that the other is in the middle of its images.
    while len(home.shards()) < 18 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.03)
    os.killpg(process.pid, signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, output
    done = home.shards()
    code, output = home.run("audit")
    assert code == 0, output
    before = home.table_sha256()
    return done, output, (*home.run("audit"), before)


@pytest.fixture
def small(resumed, tmp_path):
    """Return a copy of a home with one suite that may be changed."""
    home = Home(tmp_path / "small")
    shutil.copytree(resumed[0].folder, home.folder, ignore=shutil.ignore_patterns("quality"))
    return home


@pytest.fixture
def home(request):
    """Return the small home, or that of the fixture that a test names."""
    return request.getfixturevalue(getattr(request, "param", "small"))


@pytest.fixture
def instance(home, monkeypatch):
    """Return the Dagster instance of the home."""
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as opened:
        yield opened
