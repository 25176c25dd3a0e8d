"""What is said when the disk of a home fails outside a step: only a full one is called full."""

import errno
import sqlite3
from collections import namedtuple

import pytest
from sqlalchemy.exc import OperationalError

from orchestration import command_line, disk_errors
from orchestration.disk_errors import disk_errors_named
from orchestration.instance import audit_lock
from plumbline.errors import ConfigError, StorageError
from resources.workspace import Workspace

ROOM = namedtuple("Room", "free")


@pytest.fixture
def workspace(tmp_path):
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")


def of_sqlite(code: int, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    return error


def raise_(error):
    raise error


def named(workspace, error: BaseException) -> StorageError:
    with pytest.raises(StorageError) as said, disk_errors_named(workspace):
        try:
            raise error
        except type(error) as cause:
            # As an engine of a database does.
            raise RuntimeError("the statement failed") from cause
    return said.value


@pytest.mark.parametrize(
    ("error", "free"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1 << 30),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1 << 30),
        (of_sqlite(sqlite3.SQLITE_FULL, "SQLITE_FULL"), 1 << 30),
        # Memory that SQLite shares with other processes lies in a file, and has an error of its own.
        (of_sqlite(sqlite3.SQLITE_IOERR_SHMSIZE, "SQLITE_IOERR_SHMSIZE"), 4096),
    ],
)
def test_a_disk_that_is_full_is_called_so(workspace, monkeypatch, error, free):
    monkeypatch.setattr(disk_errors.shutil, "disk_usage", lambda _: ROOM(free))
    said = str(named(workspace, error))
    assert "the disk is full" in said and "free some space" in said and str(workspace.home) in said


@pytest.mark.parametrize("name", ["SQLITE_IOERR_READ", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_LOCK"])
def test_another_failure_of_a_database_is_not_called_a_full_disk(workspace, monkeypatch, name):
    monkeypatch.setattr(disk_errors.shutil, "disk_usage", lambda _: ROOM(1 << 30))
    said = str(named(workspace, of_sqlite(getattr(sqlite3, name), name)))
    assert "disk is full" not in said and "free some space" not in said
    assert "could not be read or written" in said and name in said and "what is finished is kept" in said


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("SQLITE_BUSY", "another process holds Dagster's database"),
        ("SQLITE_READONLY", "this user may not read and write all of the home"),
        ("SQLITE_NOTADB", "a database of Dagster is damaged"),
        ("SQLITE_CANTOPEN", "could not be read or written"),
    ],
)
def test_what_is_wrong_with_a_database_is_told_with_a_remedy(workspace, monkeypatch, code, told):
    monkeypatch.setattr(disk_errors.shutil, "disk_usage", lambda _: ROOM(1 << 30))
    said = named(workspace, of_sqlite(getattr(sqlite3, code), code))
    assert told in said.what and said.hint


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errno.EMFILE, "no more files may be open at once"),
        (errno.EIO, "a file of the home could not be read or written"),
        (errno.ESTALE, "a file of the home could not be read or written"),
    ],
)
def test_what_the_system_says_of_a_file_of_the_home_is_told_with_a_remedy(workspace, code, told):
    file = workspace.home / "dagster" / "history"
    said = named(workspace, OSError(code, "no", str(file)))
    assert told in said.what and said.where == str(file) and said.hint and "what is finished is kept" in said.what


def test_what_the_system_says_of_other_files_is_left_as_it_is(workspace):
    with pytest.raises(OSError, match="elsewhere"), disk_errors_named(workspace):
        raise OSError(errno.EIO, "no", "/elsewhere/file")


def test_a_command_tells_it_wherever_it_meets_it(workspace, monkeypatch, capsys):
    unreadable = workspace.home / "lake" / "builds" / "untold.json"
    monkeypatch.setenv("PLUMBLINE_HOME", str(workspace.home))
    monkeypatch.setattr(command_line, "app", lambda: raise_(PermissionError(errno.EACCES, "no", str(unreadable))))
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and str(unreadable) in told and "may not read and write" in told


def test_a_home_that_may_only_be_read_is_told_at_the_lock(workspace, monkeypatch):
    refused = OSError(errno.EROFS, "Read-only file system", str(workspace.home / "audit.lock"))
    monkeypatch.setattr("orchestration.instance.os.open", lambda *_: raise_(refused))
    with pytest.raises(StorageError, match="the disk of the home is mounted for reading only"), audit_lock(workspace):
        raise AssertionError("it has no lock")


@pytest.mark.parametrize(
    "error",
    [
        # Raised by Python's own module, which gives no code.
        sqlite3.OperationalError("too many variables"),
        PermissionError(errno.EACCES, "Permission denied"),
        ConfigError("the audit file asks for nothing"),
    ],
)
def test_what_is_no_matter_of_the_disk_is_left_as_it_is(workspace, error):
    with pytest.raises(type(error)) as said, disk_errors_named(workspace):
        raise error
    assert said.value is error


def test_the_room_of_a_home_that_is_not_there_yet_is_that_of_its_disk(workspace, monkeypatch):
    asked = []
    monkeypatch.setattr(disk_errors.shutil, "disk_usage", lambda path: asked.append(path) or ROOM(0))
    named(workspace, of_sqlite(sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE"))
    assert asked == [workspace.home.parent]


def test_a_file_elsewhere_that_may_not_be_read_is_named(workspace, tmp_path):
    said = named(workspace, PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "data" / "index.csv")))
    assert said.where == str(tmp_path / "data" / "index.csv") and "may not read" in said.what


def test_a_database_server_that_does_not_answer_is_said_with_what_it_said(workspace):
    why = 'connection to server at "127.0.0.1", port 5432 failed: password authentication failed for user "audits"'
    said = str(named(workspace, OperationalError("SELECT 1", {}, Exception(why))))
    assert "does not answer, or refuses this user" in said and why in said and "dagster.yaml" in said
