"""A cache of array shards, keyed by content: what was computed once is found again, damaged shards are not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from upath import UPath

from plumbline.digests import canonical_json, digest_bytes
from plumbline.storage.arrays import arrays_bytes, arrays_from_bytes
from plumbline.storage.atomic import commit_bytes


@dataclass(frozen=True)
class Shard:
    """Arrays of one shard with the sha256 of their stored bytes."""

    key: str
    sha256: str
    arrays: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ShardCache:
    """Shards under a root; `key` is the digest of everything that the content depends on."""

    root: UPath

    def _manifest(self, key: str) -> UPath:
        return self.root / key[:2] / f"{key}.json"

    def _data(self, key: str, sha256: str) -> UPath:
        return self.root / key[:2] / f"{sha256}.safetensors"

    def is_listed(self, key: str) -> bool:
        """Say whether a shard was ever committed under this key (its bytes may since be damaged)."""
        return self._manifest(key).exists()

    def load(self, key: str) -> Shard | None:
        """Return the shard, or None where there is none or where its bytes fail their checksum."""
        try:
            sha256 = json.loads(self._manifest(key).read_text("utf-8"))["sha256"]
            data = self._data(key, sha256).read_bytes()
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return Shard(key, sha256, arrays_from_bytes(data)) if digest_bytes(data) == sha256 else None

    def commit(self, key: str, arrays: Mapping[str, NDArray[Any]], *, details: Mapping[str, Any]) -> Shard:
        """Store a shard: its data first, its manifest last."""
        data = arrays_bytes(arrays)
        sha256 = digest_bytes(data)
        commit_bytes(self._data(key, sha256), data)
        manifest = {"sha256": sha256, "bytes": len(data), "details": dict(details)}
        commit_bytes(self._manifest(key), canonical_json(manifest).encode())
        return Shard(key, sha256, dict(arrays))
