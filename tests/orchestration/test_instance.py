"""A home as it is opened: a disk that is full by then, and who holds the lock."""

import fcntl
import os
import subprocess
import sys

import pytest

from orchestration.instance import AuditAlreadyRunning, audit_is_running, audit_lock, opened, sweep_unfinished
from plumbline.errors import ConfigError, StorageError
from resources.checkout import PROJECT
from resources.workspace import Workspace


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("DAGSTER_HOME", "PLUMBLINE_HOME", "PLUMBLINE_AUDIT"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("room", ["nr_inodes=1", "size=4k", "size=200k"], ids=["files", "nothing", "little"])
def test_a_disk_that_is_full_before_anything_starts_is_named(small_disk, room):
    disk, remount = small_disk
    workspace = Workspace(audit_path=PROJECT / "audit.yaml", home=disk / "home")
    assert remount(room)
    with pytest.raises(StorageError) as said, opened(workspace):
        pass
    assert str(said.value).startswith("the disk is full") and str(workspace.home) in str(said.value)
    assert "free some space" in str(said.value)
    # What was half made there is no hindrance.
    assert remount("size=20m", "nr_inodes=1000")
    with opened(workspace) as instance:
        instance.add_dynamic_partitions("dataset", ["one"])
        assert instance.get_dynamic_partitions("dataset") == ["one"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    # A server for MLflow needs no set-up, which takes seconds.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    return Workspace(audit_path=PROJECT / "audit.yaml", home=tmp_path)


POSTGRES = """\
storage:
  postgres:
    postgres_db: {username: a, password: {env: NO_SUCH}, hostname: 127.0.0.1, db_name: x}
"""


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (POSTGRES, 'environment variable "NO_SUCH" which is not set'),
        (POSTGRES.replace("username", "usrname"), 'unexpected config entry "usrname" at path root:storage:postgres'),
        ("storage: [", "expected the node content"),
        ("- a", "to parse to dictionary"),
        ("storage: {custom: {module: dagster_k8ss, class: Storage}}", "Couldn't import module dagster_k8ss"),
    ],
)
def test_settings_of_dagster_that_cannot_be_used_are_refused_in_a_line(home, monkeypatch, settings, found):
    home.dagster_home.mkdir(parents=True)
    (home.dagster_home / "dagster.yaml").write_text(settings)
    monkeypatch.setenv("PLUMBLINE_DAGSTER_CONFIG", str(home.dagster_home / "dagster.yaml"))
    with pytest.raises(ConfigError) as said, opened(home):
        pass
    assert str(said.value.where) == str(home.dagster_home / "dagster.yaml") and found in said.value.found
    assert "Stack Trace" not in str(said.value) and len(said.value.found) < 400


PROGRAM = """\
python_logs:
  dagster_handler_config:
    handlers: {h: {class: subprocess.Popen, args: [touch, %s]}}
"""


@pytest.mark.parametrize("linked", [False, True])
def test_settings_that_came_with_a_home_run_no_program(home, tmp_path, linked):
    ran = tmp_path / "ran"
    settings = home.dagster_home / "dagster.yaml"
    settings.parent.mkdir(parents=True)
    written = tmp_path / "elsewhere.yaml" if linked else settings
    written.write_text(PROGRAM % ran)
    if linked:
        settings.symlink_to(written)
        with opened(home) as instance:
            assert settings.samefile(PROJECT / "dagster.yaml") and not instance.get_settings("python_logs")
    else:
        with pytest.raises(ConfigError, match="not used unless you name them") as said, opened(home):
            pass
        assert said.value.where == settings and "PLUMBLINE_DAGSTER_CONFIG" in str(said.value)


@pytest.mark.parametrize("depth", range(1, 6))
def test_settings_beside_a_folder_that_is_a_link_run_no_program_either(home, tmp_path, depth):
    """`..` of a link in that folder leads up from where it lies, not from where it is named."""
    folder = home.home
    for level in range(depth):
        (folder / "dagster.yaml").write_text(PROGRAM % (tmp_path / "ran"))
        folder = folder / f"{level}"
        folder.mkdir()
    home.dagster_home.symlink_to(folder.relative_to(home.home))
    with opened(home) as instance:
        assert (folder / "dagster.yaml").samefile(PROJECT / "dagster.yaml")
        assert not instance.get_settings("python_logs")


def test_a_home_that_was_copied_with_its_links_resolved_is_taken_as_it_is(home):
    home.dagster_home.mkdir(parents=True)
    settings = home.dagster_home / "dagster.yaml"
    settings.write_bytes((PROJECT / "dagster.yaml").read_bytes())
    with opened(home):
        assert settings.is_symlink() and settings.samefile(PROJECT / "dagster.yaml")


@pytest.mark.parametrize("inside", [False, True])
def test_settings_that_the_environment_names_are_used(home, tmp_path, monkeypatch, inside):
    home.dagster_home.mkdir(parents=True)
    settings = (home.dagster_home if inside else tmp_path) / "dagster.yaml"
    settings.write_text("telemetry: {enabled: false}\nconcurrency: {pools: {default_limit: 7}}\n")
    monkeypatch.setenv("PLUMBLINE_DAGSTER_CONFIG", str(settings))
    for _ in range(2):
        with opened(home) as instance:
            assert instance.get_concurrency_config().pool_config.default_pool_limit == 7
    monkeypatch.setenv("PLUMBLINE_DAGSTER_CONFIG", "no-such.yaml")
    with pytest.raises(ConfigError, match="no such file"), opened(home):
        pass


def test_one_who_only_asks_whether_an_audit_runs_stops_none(home, monkeypatch):
    asker, waits = (home.home / "audit.lock").open("w"), []
    fcntl.flock(asker, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def wait(seconds):
        waits.append(seconds)
        asker.close()

    monkeypatch.setattr("orchestration.instance.time.sleep", wait)
    with audit_lock(home):
        assert len(waits) == 1 and waits[0] > 0, "it waited once, and then had it"
        assert audit_is_running(home)
    assert not audit_is_running(home)


def test_a_lock_that_is_a_link_empties_no_file_elsewhere(home, tmp_path):
    home.home.mkdir(parents=True, exist_ok=True)
    other = tmp_path / "precious"
    other.write_text("words")
    (home.home / "audit.lock").symlink_to(other)
    with pytest.raises(StorageError, match=r"audit\.lock"), audit_lock(home):
        pass
    assert other.read_text() == "words"


def test_another_audit_is_given_up_on_after_moments(home, monkeypatch):
    waits = []
    monkeypatch.setattr("orchestration.instance.time.sleep", waits.append)
    with audit_lock(home):
        with pytest.raises(AuditAlreadyRunning, match="another audit is running"), audit_lock(home):
            pass
        assert 0 < sum(waits) < 1 and audit_is_running(home), "the first one still has it"
    with audit_lock(home):
        pass


def test_the_lock_remembers_a_command_that_was_killed_until_one_has_cleaned_up(home):
    with audit_lock(home) as hold:
        assert not hold.unfinished
    held = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(home.audit_path), str(home.home)], stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert held.stdout.readline() == b"held\n"
    held.kill()
    held.communicate()
    with audit_lock(home) as hold:
        assert hold.unfinished
        assert (home.home / "audit.lock").read_text() == "held", "once, however many were killed"
    with audit_lock(home) as hold:
        assert hold.unfinished, "who does not clean up leaves it to the next"
        hold.unfinished = False
    with audit_lock(home) as hold:
        assert not hold.unfinished
    with pytest.raises(ZeroDivisionError), audit_lock(home):
        raise ZeroDivisionError
    with audit_lock(home) as hold:
        assert hold.unfinished, "an error that nobody foresaw is no good end either"


def test_on_a_full_disk_the_lock_keeps_what_it_says_and_the_command_goes_on(home, monkeypatch):
    with pytest.raises(ZeroDivisionError), audit_lock(home):
        raise ZeroDivisionError

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("orchestration.instance.os.pwrite", full)
    with audit_lock(home) as hold:
        assert hold.unfinished
    with audit_lock(home) as hold:
        assert hold.unfinished


_HOLD = """
import sys, time
from pathlib import Path
from orchestration.instance import audit_lock
from resources.workspace import Workspace
with audit_lock(Workspace(audit_path=Path(sys.argv[1]), home=Path(sys.argv[2]))):
    print("held", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_swept_in_the_home_and_where_results_lie(tmp_path):
    (tmp_path / "audit.yaml").write_text(
        f"storage: {{root: {tmp_path / 'results'}}}\n"
        "datasets: {one: {reader: fairface, root: nowhere}}\n"
        "encoders: {mine: {address: 'local-dir:mine'}}\n"
        "audit: [{suites: [crime]}]\n"
    )
    workspace = Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")
    left = [tmp_path / place / ".x.0123456789ab.tmp" for place in ("home/quality/pages", "home", "results/records")]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        os.utime(path, (1000, 1000))
    assert sweep_unfinished(workspace) == len(left) and not any(path.exists() for path in left)
