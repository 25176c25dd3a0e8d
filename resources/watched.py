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
    try:
        kept: dict[str, str] = json.loads((home / _NAME).read_text("utf-8"))
        return {name: folder for name, folder in kept.items() if Path(folder).is_dir()}
    except (
        FileNotFoundError,
        ValueError,
        TypeError,
        AttributeError,
    ):  # a damaged note is none: the next look finds them
        return {}


def keep_watched(home: Path, checkpoints: Mapping[str, str]) -> None:
    """Keep what is in the watched folder now."""
    commit_bytes(UPath(home / _NAME), json.dumps(dict(checkpoints), indent=1).encode())
