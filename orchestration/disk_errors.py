"""A home that fails outside a step, before an audit starts or while it runs: said once, with place and remedy."""

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plumbline.errors import PlumblineError, StorageError
from resources.workspace import Workspace

_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
# SQLite says `SQLITE_FULL` of a database that cannot grow, but only that input or output failed of the memory that it
# shares with other processes, which lies in a file too.
_UNWELL = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
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
        raise


def _named(error: BaseException, home: Path) -> StorageError | None:
    """Return what a chain of errors says of the home, or None where it speaks of something else."""
    for one in _chain(error):
        code = _sqlite_code(one)
        unwell = code in _UNWELL
        if _is_full(one) or (unwell and _lacks_room(home)):
            return StorageError(
                "the disk is full; what is finished is kept",
                where=home,
                found=one,
                hint="free some space, or set PLUMBLINE_HOME, and run the same command to go on",
            )
        if _is_refused(one, home) or code == sqlite3.SQLITE_READONLY:
            return StorageError(
                "this user cannot write to the home",
                where=getattr(one, "filename", None) or home,
                found=one,
                hint="make it writable, or set PLUMBLINE_HOME to a folder of your own",
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StorageError(
                "another process holds Dagster's database; what is finished is kept",
                where=home / "dagster",
                found=one,
                hint="end what works in this home, such as a second `plumbline ui`, and run the same command to go on",
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StorageError(
                "a database of Dagster is damaged; what is finished is kept",
                where=home / "dagster",
                found=f"{one} ({getattr(one, 'sqlite_errorname', 'no code')})",
                hint="move the folder away and run the same command: results are kept beside it and only found to be "
                "current again; the history of runs is lost",
            )
        if unwell:
            return StorageError(
                "Dagster's database could not be read or written; what is finished is kept",
                where=home,
                found=f"{one} ({getattr(one, 'sqlite_errorname', 'no code')})",
                hint="the disk has room: see that it is mounted, writable and sound (the system's log says more), or "
                "set PLUMBLINE_HOME to a local disk; then run the same command to go on",
            )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_full(error: BaseException) -> bool:
    return (isinstance(error, OSError) and error.errno in _FULL) or _sqlite_code(error) == sqlite3.SQLITE_FULL


def _is_refused(error: BaseException, home: Path) -> bool:
    """Return whether the system did not let this user write below the home."""
    if not isinstance(error, OSError) or error.errno not in _REFUSED or not isinstance(error.filename, str | Path):
        return False
    return Path(error.filename).absolute().is_relative_to(home.absolute())


def _sqlite_code(error: BaseException) -> int | None:
    """Return the primary code of an error of SQLite; those that Python itself raises have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(error, sqlite3.Error) and code is not None else None


def _lacks_room(home: Path) -> bool:
    there = next(path for path in (home, *home.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free < _ROOM_BYTES
