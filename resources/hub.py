"""Asking a hub for files and keeping them: whatever fails on the way becomes one clear error."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plumbline.errors import PlumblineError, examples
from resources.fetched_note import CLIENT_NOTES

# What a system says of the place that is written to, and never of the network.
_OF_THE_PLACE = {
    getattr(errno, name)
    for name in ("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EEXIST", "ENOTDIR", "ENAMETOOLONG", "EIO")
}


@contextmanager
def asking_the_hub(kind: type[PlumblineError], wanted: str, where: str) -> Iterator[None]:
    """Turn what the hub's client raises into an error of the given kind.

    Parameters
    ----------
    wanted : str
        Id in the audit file, for the message.
    where : str
        Repository and revision.
    """
    from huggingface_hub import errors

    try:
        yield
    # A failed connection is the HTTP client's own error, one of xet's transfers a RuntimeError.
    except (OSError, ValueError, RuntimeError, errors.HTTPError, errors.RevisionResolutionError) as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_PLACE:
            raise _not_written(kind, wanted, where, error) from error
        raise kind(
            f"the hub did not give `{wanted}`",
            where=where,
            found=_told(error),
            expected="the files of that revision",
            hint="check the network and the address; `plumbline fetch` can be repeated, it resumes",
        ) from error


@contextmanager
def writing(kind: type[PlumblineError], wanted: str, folder: Path) -> Iterator[None]:
    """Turn what the system says of the folder that is written to into an error of the given kind."""
    try:
        yield
    except OSError as error:
        raise _not_written(kind, wanted, folder, error) from error


def require_commit(kind: type[PlumblineError], wanted: str, repository: str, commit: str, folder: Path) -> None:
    """Refuse files that the hub gave as those of another commit than was asked for, and remove what it gave.

    Parameters
    ----------
    folder : Path
        In which the hub's client keeps its notes: beside the size of each file, of which commit the hub said it is.

    Raises
    ------
    PlumblineError
        Of that kind.
    """
    notes = sorted((folder / CLIENT_NOTES).rglob("*.metadata"))
    given = {note: note.read_text("utf-8", errors="replace").partition("\n")[0] for note in notes}
    other = {note.name.removesuffix(".metadata"): text for note, text in given.items() if text != commit}
    if not other:
        return
    shutil.rmtree(folder)
    raise kind(
        f"the hub gave files of another commit of `{wanted}` than was asked for",
        where=repository,
        found=examples(f"{name}: {text}" for name, text in other.items()),
        expected=commit,
        hint="nothing was kept: a hub or mirror that answers so gives other files than were audited",
    )


def _not_written(kind: type[PlumblineError], wanted: str, where: Path | str, error: OSError) -> PlumblineError:
    return kind(
        f"`{wanted}` could not be written to this disk",
        where=error.filename or where,
        found=_told(error),
        expected="a folder, with permission to write in it and room on its disk",
        hint="free some space, or set PLUMBLINE_HOME to another folder; `plumbline fetch` resumes",
    )


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
