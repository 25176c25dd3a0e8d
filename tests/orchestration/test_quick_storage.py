"""Dagster's storage with its engines kept: less work, the same events."""

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from sqlalchemy.pool import NullPool

from orchestration.quick_storage import _MOST_ENGINES, _keeping, keep_engines, remember_partitions

PARTS = dg.DynamicPartitionsDefinition(name="part")


@dg.asset(partitions_def=PARTS)
def numbers() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3})


@pytest.fixture
def made(monkeypatch):
    """Count the engines that are made; what this process keeps is forgotten again."""
    count = []
    for storage in (sqlite_event_log, sqlite_run_storage):
        make = storage.create_engine
        monkeypatch.setattr(storage, "create_engine", lambda *a, make=make, **k: count.append(a[0]) or make(*a, **k))
    return count


def run(folder):
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        remember_partitions(instance)
        instance.add_dynamic_partitions("part", ["a", "b"])
        defs = dg.Definitions(assets=[numbers], jobs=[dg.define_asset_job("job", "*")])
        for key in ("a", "b"):
            result = defs.resolve_job_def("job").execute_in_process(instance=instance, partition_key=key)
            assert result.success
        events = instance.fetch_materializations(numbers.key, limit=10).records
        seen = [(e.asset_key.to_user_string(), e.partition_key) for e in events]
        return sorted(seen), len(instance.get_runs()), instance.has_dynamic_partition("part", "c")


def test_the_same_is_stored_with_far_fewer_engines(tmp_path, made):
    (tmp_path / "plain").mkdir()
    plain = run(tmp_path / "plain")
    without = len(made)
    keep_engines()
    keep_engines()
    (tmp_path / "kept").mkdir()
    assert run(tmp_path / "kept") == plain == ([("numbers", "a"), ("numbers", "b")], 2, False)
    assert len(made) - without < without / 4


def test_a_partition_that_comes_later_is_found(tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        remember_partitions(instance)
        assert not instance.has_dynamic_partition("part", "new")
        instance.add_dynamic_partitions("part", ["new"])
        assert instance.has_dynamic_partition("part", "new") and instance.has_dynamic_partition("part", "new")


def test_connections_of_the_databases_used_last_stay_open_and_no_others(tmp_path):
    kept = _keeping(sqlalchemy.create_engine)
    addresses = [f"sqlite:///{tmp_path}/{number}.db" for number in range(_MOST_ENGINES + 2)]
    engines = []
    for address in addresses:
        engines.append(kept(address, poolclass=NullPool))
        with engines[-1].connect() as connection:
            connection.execute(sqlalchemy.text("create table t (x)"))
        engines[-1].dispose()
        assert engines[-1].pool.checkedin() == 1
        assert kept(addresses[0], poolclass=NullPool) is engines[0], "used each time"
    open_now = [engine.pool.checkedin() for engine in engines]
    assert open_now == [1, 0, 0] + [1] * (_MOST_ENGINES - 1)
    kept.cache_clear()
