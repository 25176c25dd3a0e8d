"""Training that is kept on disk after every epoch, under the digest of all that it depends on."""

from __future__ import annotations

from dataclasses import dataclass

from plumbline.mitigation.training import Arrays
from plumbline.storage import ShardCache


@dataclass(frozen=True)
class KeptEpochs:
    """Implements `plumbline.mitigation.training.EpochStore` over a cache of arrays."""

    cache: ShardCache

    def load(self, key: str) -> Arrays | None:
        """Return the state after the last finished epoch, or None where nothing whole was kept."""
        kept = self.cache.load(key)
        return None if kept is None else kept.arrays

    def save(self, key: str, state: Arrays) -> None:
        """Replace what was kept; a reader sees the old state or the new one, never a mix."""
        self.cache.commit(key, state, details={"epochs": int(state["epochs"])})
