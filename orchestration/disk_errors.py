"""A home that fails outside a step, before an audit starts or while it runs: said once, with place and remedy."""

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeGuard

from plumbline.errors import ConfigError, PlumblineError, StorageError
from plumbline.storage.files import require_reachable
from resources.workspace import Workspace

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EACCES, errno.EPERM}
_TOO_MANY = {errno.EMFILE, errno.ENFILE}
_UNREADABLE = {errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ELOOP}
# SQLite says `SQLITE_FULL` of a database that cannot grow, but only that input or output failed of the memory that it
# shares with other processes, which lies in a file too.
_UNWELL = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_HELD = (
    "another process holds Dagster's database; what is finished is kept",
    "end what works in this home, such as a second `plumbline ui`, and run the same command to go on",
)
_DAMAGED = (
    "a database of Dagster is damaged; what is finished is kept",
    "move the folder away and run the same command: results lie elsewhere and are found to be current; only the "
    "history of runs is lost",
)
_FAILED = (
    "Dagster's database could not be read or written; what is finished is kept",
    "the disk has room: see that it is mounted, writable and sound (the system's log says more), or set PLUMBLINE_HOME "
    "to a local disk; then run the same command to go on",
)
_OF_DATABASES = {
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    **dict.fromkeys(_UNWELL, _FAILED),
}
"""Primary code of SQLite -> what is wrong, and the remedy."""
# What SQLite asks for at once is a few pages: with less than this no database can be written.
_ROOM_BYTES = 1 << 20


@contextmanager
def disk_errors_named(workspace: Workspace) -> Iterator[None]:
    """Say what is wrong with the home when something outside a step meets it, Dagster's own database too.

    Raises
    ------
    StorageError
        In the place of what the system said: the disk is full, this user must not write there, a database is held by
        another process, damaged, or could not be read or written for another reason. What was finished is kept.
    """
    try:
        yield
    except PlumblineError:
        raise
    except Exception as error:
        if named := _named(error, workspace.home):
            raise named from error
        _require_store(workspace)
        raise


def _require_store(workspace: Workspace) -> None:
    """Ask the store, where there is an audit file that names one: a library's words about a bucket help nobody."""
    with suppress(ConfigError):
        root = workspace.lake.root
        require_reachable(root)


def _named(error: BaseException, home: Path) -> StorageError | None:
    """Return what a chain of errors says of the home, or None where it speaks of something else."""
    for one in _chain(error):
        if disk_error := _told(one, home):
            what, hint = disk_error
            name = getattr(one, "sqlite_errorname", None)
            where = (getattr(one, "filename", None) or home) if name is None else home / "dagster"
            return StorageError(what, where=where, found=one if name is None else f"{one} ({name})", hint=hint)
    return None


def _told(error: BaseException, home: Path) -> tuple[str, str] | None:
    """Return what is wrong and its remedy."""
    code = _sqlite_code(error)
    if _is_full(error) or (code in _UNWELL and _lacks_room(home)):
        return (
            "the disk is full; what is finished is kept",
            "free some space, or set PLUMBLINE_HOME, and run the same command to go on",
        )
    if _is_below(error, home) and error.errno == errno.EROFS:
        return (
            "the disk of the home is mounted for reading only",
            "mount it for writing, or set PLUMBLINE_HOME to a folder on another",
        )
    if _is_refused(error, home) or code == sqlite3.SQLITE_READONLY:
        return (
            "this user may not read and write all of the home",
            "make it readable and writable (what is written under `umask 077` is its writer's alone), or set "
            "PLUMBLINE_HOME to a folder of your own",
        )
    if isinstance(error, OSError) and error.errno in _TOO_MANY:
        return (
            "no more files may be open at once; what is finished is kept",
            "raise the limit (`ulimit -n`) or end other programs, and run the same command to go on",
        )
    if _is_below(error, home) and error.errno in _UNREADABLE:
        return (
            "a file of the home could not be read or written; what is finished is kept",
            "see that its disk is mounted and sound (the system's log says more), or set PLUMBLINE_HOME to a local "
            "disk; then run the same command to go on",
        )
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename:
        return (
            "this user may not read, or not write, what this needs",
            "make it readable for the user who runs this, and run the same command again",
        )
    if type(error).__module__.startswith(("psycopg2", "sqlalchemy")) and "connect" in str(error):
        return (
            "Dagster's database does not answer, or refuses this user; what is finished is kept",
            "see that the server runs, and that address, user and password in dagster.yaml and the environment are "
            "right; then run the same command to go on",
        )
    return None if code is None else _OF_DATABASES.get(code)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_full(error: BaseException) -> bool:
    return (isinstance(error, OSError) and error.errno in _FULL) or _sqlite_code(error) == sqlite3.SQLITE_FULL


def _is_refused(error: BaseException, home: Path) -> bool:
    """Return whether the system did not let this user write below the home."""
    return _is_below(error, home) and error.errno in _REFUSED


def _is_below(error: BaseException, home: Path) -> TypeGuard[OSError]:
    """Return whether the system said it of a file below the home."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str | Path):
        return False
    return Path(error.filename).absolute().is_relative_to(home.absolute())


def _sqlite_code(error: BaseException) -> int | None:
    """Return the primary code of an error of SQLite; those that Python itself raises have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(error, sqlite3.Error) and code is not None else None


def _lacks_room(home: Path) -> bool:
    there = next(path for path in (home, *home.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free < _ROOM_BYTES
