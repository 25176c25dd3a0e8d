"""The note beside what was fetched: repository, commit and digests, by which it can be told again."""

import json
from pathlib import Path
from typing import Any

from upath import UPath

from plumbline.digests import digest_file
from plumbline.storage.files import commit_bytes

NOTE = "fetched.json"

# What the hub's client keeps in the folder for going on.
CLIENT_NOTES = ".cache"


def write_note(path: Path, *, repository: str, commit: str, sha256: dict[str, str], **more: Any) -> None:
    """Write the note, whole or not at all.

    Parameters
    ----------
    sha256 : dict
        From `file_digests`.
    """
    note = {"repository": repository, "commit": commit, "sha256": sha256, **more}
    commit_bytes(UPath(path), json.dumps(note, indent=2).encode())


def read_note(path: Path) -> dict[str, Any]:
    """Return the note of an earlier fetch, empty where there is none that can be read."""
    try:
        note = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def is_whole(folder: Path, repository: str, commit: str) -> bool:
    """Tell whether a folder holds what its note says, of this commit of this repository, and nothing else."""
    note = read_note(folder / NOTE)
    same = (note.get("repository"), note.get("commit")) == (repository, commit)
    return same and note.get("sha256") == file_digests(folder)


def file_digests(folder: Path, *, known: dict[str, str] | None = None) -> dict[str, str]:
    """Return the sha256 of every fetched file below a folder, by its path in it, in order.

    Parameters
    ----------
    known : dict, optional
        Digests that need no second reading.
    """
    known = known or {}
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name.as_posix(): known.get(name.as_posix()) or digest_file(path)
        for name, path in sorted(paths.items())
        if name.parts[0] not in (CLIENT_NOTES, NOTE)
    }
