"""Dagster's SQLite storage without its repeated work, for a process that executes a whole audit.

Dagster makes a new SQLAlchemy engine for every use of its database, so that each statement is compiled anew, opens and
closes a connection for it, which makes SQLite write its log back and delete it each time, and asks whether a partition
exists for every input of every step. In an audit of 30 cells that is 30,000 engines and connections, and half of what
a step costs beside its own work (docs/decisions, 17). What is written, and where, stays the same.
"""

from typing import Any

import dagster as dg
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from sqlalchemy.pool import QueuePool

_MOST_ENGINES = 8
"""Engines that are kept, each with its open files: Dagster has a database a run, and one that is over is not asked."""


def keep_engines() -> None:
    """Let this process keep engines and connections of the databases that it used last."""
    for storage in (sqlite_event_log, sqlite_run_storage):
        # A second call finds the engines kept already.
        if not hasattr(storage.create_engine, "cache_clear"):
            storage.create_engine = _keeping(storage.create_engine)  # type: ignore[attr-defined]


def _keeping(create_engine: Any) -> Any:
    engines: dict[tuple[str, str], Any] = {}

    def kept(address: str, **settings: Any) -> Any:
        key = (address, repr(sorted(settings.items(), key=str)))
        if key not in engines:
            # Dagster asks for no pool.
            engines[key] = create_engine(address, **settings | {"poolclass": QueuePool})
        # The last used last: a dict keeps the order of insertion.
        engines[key] = engine = engines.pop(key)
        while len(engines) > _MOST_ENGINES:
            engines.pop(next(iter(engines))).pool.dispose()
        # Dagster disposes of the engine after each use, which would close its connections.
        engine.dispose = _keep_open
        return engine

    def clear() -> None:
        for engine in engines.values():
            engine.pool.dispose()
        engines.clear()

    kept.cache_clear = clear  # type: ignore[attr-defined]
    return kept


def _keep_open(close: bool = True) -> None:
    """Stand for `Engine.dispose`."""


def remember_partitions(instance: dg.DagsterInstance) -> None:
    """Let an instance remember the dynamic partitions that it has found; this process deletes none."""
    instance.has_dynamic_partition = _remembering(instance.has_dynamic_partition)


def _remembering(ask: Any) -> Any:
    present: set[tuple[str, str]] = set()

    def remembered(partitions_def_name: str, partition_key: str) -> bool:
        key = (partitions_def_name, partition_key)
        if key not in present and ask(partitions_def_name, partition_key):
            present.add(key)
        return key in present

    return remembered
