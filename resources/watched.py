"""Which checkpoints were found in the watched folder, kept in the home: they are in the audit from then on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from upath import UPath

from plumbline.storage.files import commit_bytes

_NAME = "watched.json"


def watched_checkpoints(home: Path) -> dict[str, str]:
    """Return id -> folder of the checkpoints that were found; one whose folder is gone is no longer audited."""
    return {name: folder for name, folder in kept_checkpoints(home).items() if Path(folder).is_dir()}


def kept_checkpoints(home: Path) -> dict[str, str]:
    """Return id -> folder of what was found at the last look, be it still there or not."""
    try:
        kept: dict[str, str] = json.loads((home / _NAME).read_text("utf-8"))
        return {name: str(folder) for name, folder in kept.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):  # a damaged note is none: it is found again
        return {}


def keep_watched(home: Path, checkpoints: Mapping[str, str]) -> None:
    """Keep what is in the watched folder now."""
    commit_bytes(UPath(home / _NAME), json.dumps(dict(checkpoints), indent=1).encode())
