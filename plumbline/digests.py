"""Content digests: the identity of everything that Plumbline caches, stores or reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return _CANONICAL.encode(value)


def digest_json(value: Any) -> str:
    """Return the sha256 (hex) of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_bytes(data: bytes) -> str:
    """Return the sha256 (hex) of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """Return the sha256 (hex) of a file's bytes, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def digest_sequence(items: Iterable[str]) -> str:
    """Return the sha256 (hex) of an ordered sequence of strings; lengths are part of it, so no two joins collide."""
    digest = hashlib.sha256()
    for item in items:
        data = item.encode()
        digest.update(b"%d:%b" % (len(data), data))
    return digest.hexdigest()
