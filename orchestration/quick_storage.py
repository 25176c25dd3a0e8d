"""Dagster's SQLite storage without its repeated work, for a process that executes a whole audit.

Dagster makes a new SQLAlchemy engine for every use of its database, so that each statement is compiled anew, and asks
whether a partition exists for every input of every step. In an audit of 30 cells that is 30,000 engines and a twelfth
of the time (docs/decisions, 17). What is written, and where, stays the same.
"""

from typing import Any

import dagster as dg
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage


def keep_engines() -> None:
    """Let this process keep one engine a database; each still opens a connection per use and closes it."""
    for storage in (sqlite_event_log, sqlite_run_storage):
        # A second call finds the engines kept already.
        if not hasattr(storage.create_engine, "cache_clear"):
            storage.create_engine = _keeping(storage.create_engine)


def _keeping(create_engine: Any) -> Any:
    engines: dict[tuple[str, str], Any] = {}

    def kept(address: str, **settings: Any) -> Any:
        key = (address, repr(sorted(settings.items(), key=str)))
        if key not in engines:
            engines[key] = create_engine(address, **settings)
        return engines[key]

    kept.cache_clear = engines.clear
    return kept


def remember_partitions(instance: dg.DagsterInstance) -> None:
    """Let an instance remember the dynamic partitions that it has found; this process deletes none."""
    instance.has_dynamic_partition = _remembering(instance.has_dynamic_partition)


def _remembering(ask: Any) -> Any:
    found: set[tuple[str, str]] = set()

    def remembered(partitions_def_name: str, partition_key: str) -> bool:
        key = (partitions_def_name, partition_key)
        if key not in found and ask(partitions_def_name, partition_key):
            found.add(key)
        return key in found

    return remembered
