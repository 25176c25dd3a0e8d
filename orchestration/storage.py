"""Dagster's SQLite storage with connections that are kept; `dagster.yaml` names it.

Dagster opens a database anew for every statement: compiles the statement again, and lets SQLite write its log back and
delete it. In an audit of 19 cells that is a third of the time (docs/decisions, 46). What is written, and where, is the
same: an instance can be opened with Dagster's own class at any time.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._core.storage.sqlite_storage import (
    DagsterSqliteStorage,
    _event_logs_directory,
    _runs_directory,
    _schedule_directory,
)
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine, event

_MOST_DATABASES = 8
"""Databases that are kept open: Dagster has one a run, and one that is over is not asked."""
_BELIEVED_S = 30.0
_BUSY_S = 60


class _Databases:
    """SQLite databases by address, those used last kept open; one thread at a time, which may connect twice."""

    def __init__(self) -> None:
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._lock = threading.RLock()  # Dagster connects while it is connected

    @contextmanager
    def connected(self, address: str) -> Iterator[Connection]:
        """Give a connection in a transaction, which is committed at the end."""
        with self._lock:
            engine = self._engines.pop(address, None) or _opened(address)
            self._engines[address] = engine
            while len(self._engines) > _MOST_DATABASES:
                self._engines.popitem(last=False)[1].dispose()
            with engine.begin() as connection:
                yield connection

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            for engine in self._engines.values():
                engine.dispose()
            self._engines.clear()


def _opened(address: str) -> Engine:
    """Return an engine that does not wait for the disk at each commit.

    A process that is killed loses nothing by it. A power cut may take the events of the last seconds, never the
    database; what the lake committed with them is there.
    """
    engine = create_engine(address, connect_args={"timeout": _BUSY_S})
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = NORMAL"))
    return engine


class EventLogs(SqliteEventLogStorage):
    """The events of runs, in a database a run, and those of assets."""

    def __init__(self, base_dir: str) -> None:
        self._databases, self._ready = _Databases(), set[str]()
        self._empty: bytes | None = None
        self._present: dict[tuple[str, str], float] = {}
        self._tables: set[str] = set()
        super().__init__(base_dir)

    def run_connection(self, run_id: str | None = None) -> Any:
        """Connect to the database of a run."""
        return self._connected(str(run_id))

    def index_connection(self) -> Any:
        """Connect to the database of assets."""
        return self._connected(INDEX_SHARD_NAME)

    @contextmanager
    def _connected(self, name: str) -> Iterator[Connection]:
        if name not in self._ready:
            self._make_tables(name)
            self._ready.add(name)
        with self._databases.connected(self.conn_string_for_shard(name)) as connection:
            yield connection

    def _make_tables(self, name: str) -> None:
        """Make the tables of a database; a new run has the bytes of the first new one, of which Dagster made each."""
        path = Path(self.path_for_shard(name))
        new = name != INDEX_SHARD_NAME and not path.exists()
        if new and self._empty:
            writing = path.with_suffix(f".{os.getpid()}.new")
            writing.write_bytes(self._empty)
            with suppress(FileExistsError):  # another process was first
                os.link(writing, path)
            writing.unlink()
        else:
            with super().run_connection(name):
                pass
            if new and not path.with_name(f"{path.name}-wal").exists():
                self._empty = path.read_bytes()

    def has_table(self, table_name: str) -> bool:
        """Say whether the database of assets has a table; one that was found stays. Dagster asks for each event."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        """Say whether there is a partition; one that was found is believed to stay for some seconds."""
        key, now = (partitions_def_name, partition_key), time.monotonic()
        if now - self._present.get(key, -_BELIEVED_S) < _BELIEVED_S:
            return True
        present = super().has_dynamic_partition(partitions_def_name, partition_key)
        if present:
            self._present[key] = now
        return present

    def delete_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> None:
        """Delete a partition."""
        self._present.pop((partitions_def_name, partition_key), None)
        super().delete_dynamic_partition(partitions_def_name, partition_key)

    def wipe(self) -> None:
        """Delete everything."""
        self._databases.close()
        self._ready.clear()
        self._present.clear()
        self._tables.clear()
        super().wipe()

    def dispose(self) -> None:
        """Close what is open."""
        self._databases.close()
        super().dispose()


class Runs(SqliteRunStorage):
    """The runs, in one database."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._databases = _Databases()
        super().__init__(conn_string, inst_data)

    def connect(self) -> Any:
        """Connect to the database."""
        return self._databases.connected(self._conn_string)

    def dispose(self) -> None:
        """Close what is open."""
        self._databases.close()
        super().dispose()


class KeptSqliteStorage(DagsterSqliteStorage):
    """All that an instance stores, where `DagsterSqliteStorage` has it."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(base_dir, inst_data)
        self._run_storage = Runs.from_local(_runs_directory(base_dir))
        self._event_log_storage = EventLogs(_event_logs_directory(base_dir))
        self._schedule_storage = SqliteScheduleStorage.from_local(_schedule_directory(base_dir))

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Any) -> "KeptSqliteStorage":
        """Build it from `dagster.yaml`."""
        return cls.from_local(inst_data=inst_data, **config_value)
