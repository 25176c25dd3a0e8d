"""Content-addressed storage with an atomic commit rule."""

from plumbline.storage.lake import Committed, Lake
from plumbline.storage.shards import Shard, ShardCache

__all__ = ["Committed", "Lake", "Shard", "ShardCache"]
