"""A disk that is full before an audit starts or while it runs: said once, with place and remedy."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from plumbline.errors import PlumblineError, StorageError
from resources.places import Places

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def full_disk_named(places: Places) -> Iterator[None]:
    """Say where the room is lacking when the home's disk fills up outside a step, in Dagster's own database too.

    Raises
    ------
    StorageError
        In the place of what the system said; what was finished is kept.
    """
    try:
        yield
    except PlumblineError:
        raise
    except Exception as error:
        if (full := _full(error)) is None:
            raise
        raise StorageError(
            "the disk is full; what is finished is kept",
            where=places.home,
            found=full,
            hint="free some space, or set PLUMBLINE_HOME, and run the same command to go on",
        ) from error


def _full(error: BaseException | None) -> BaseException | None:
    """Return what says in a chain of errors that a disk is full, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return error
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
        ):
            return error
        error = error.__cause__ or error.__context__
    return None
