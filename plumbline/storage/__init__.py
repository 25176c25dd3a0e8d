"""Content-addressed storage with an atomic commit rule."""

from plumbline.storage.lake import Committed, Lake, Shard, ShardCache

__all__ = ["Committed", "Lake", "Shard", "ShardCache"]
