"""The storage of `dagster.yaml`: the same events in the same files as Dagster's own, with far fewer connections."""

import sqlite3
from contextlib import closing

import dagster as dg
import pytest
import sqlalchemy.dialects.sqlite
import yaml

from orchestration.storage import Runs
from resources.checkout import PROJECT

PARTS = dg.DynamicPartitionsDefinition(name="part")


@dg.asset(partitions_def=PARTS)
def numbers() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3})


@pytest.fixture
def connections(monkeypatch):
    """Count the connections that are opened to SQLite."""
    opened = []
    dialect = sqlalchemy.dialects.sqlite.dialect
    connect = dialect.connect
    monkeypatch.setattr(dialect, "connect", lambda *a, **k: opened.append(a) or connect(*a, **k))
    return opened


def home(folder, *, kept):
    """Write an instance's settings: the storage as `dagster.yaml` of the project has it, or Dagster's own."""
    folder.mkdir(exist_ok=True)
    storage = {"storage": yaml.safe_load((PROJECT / "dagster.yaml").read_text())["storage"]} if kept else {}
    (folder / "dagster.yaml").write_text(yaml.safe_dump({"telemetry": {"enabled": False}, **storage}))
    return folder


def run(folder, monkeypatch, connections):
    """Execute two runs in a home, and count the connections of the second."""
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("part", ["a", "b"])
        defs = dg.Definitions(assets=[numbers], jobs=[dg.define_asset_job("job", "*")])
        for key in ("a", "b"):
            connections.clear()
            assert defs.resolve_job_def("job").execute_in_process(instance=instance, partition_key=key).success
        return read(instance), len(connections)


def read(instance):
    events = instance.fetch_materializations(numbers.key, limit=10).records
    seen = [(event.asset_key.to_user_string(), event.partition_key) for event in events]
    log = [len(instance.all_logs(run.run_id)) for run in instance.get_runs()]
    return sorted(seen), log, instance.has_dynamic_partition("part", "c")


def databases_of_runs(folder):
    return [path for path in folder.glob("history/runs/*.db") if path.stem != "index"]


def tables(path):
    """Return what a database of a run is made of, its version included."""
    with closing(sqlite3.connect(path)) as database:
        made = [row[0] for row in database.execute("SELECT sql FROM sqlite_master ORDER BY name")]
        return [*made, *database.execute("SELECT * FROM alembic_version"), *database.execute("PRAGMA journal_mode")]


def test_the_same_is_stored_in_the_same_place_with_far_fewer_connections(tmp_path, connections, monkeypatch):
    plain, many = run(home(tmp_path / "plain", kept=False), monkeypatch, connections)
    folder = home(tmp_path / "kept", kept=True)
    kept, few = run(folder, monkeypatch, connections)
    assert kept == plain and few < many / 4
    assert plain[0] == [("numbers", "a"), ("numbers", "b")] and not plain[2]
    [made] = {tuple(tables(path)) for each in (tmp_path / "plain", folder) for path in databases_of_runs(each)}
    assert any("TABLE event_logs" in str(each) for each in made)
    assert len(databases_of_runs(folder)) == len(databases_of_runs(tmp_path / "plain"))
    # Dagster's own class opens what was stored.
    home(folder, kept=False)
    with dg.DagsterInstance.get() as instance:
        assert read(instance) == plain


def test_a_partition_that_comes_and_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(home(tmp_path / "kept", kept=True)))
    with dg.DagsterInstance.get() as instance:
        assert not instance.has_dynamic_partition("part", "new")
        instance.add_dynamic_partitions("part", ["new"])
        assert instance.has_dynamic_partition("part", "new") and instance.has_dynamic_partition("part", "new")
        instance.delete_dynamic_partition("part", "new")
        assert not instance.has_dynamic_partition("part", "new")


def test_a_thread_may_connect_while_it_is_connected(tmp_path):
    runs = Runs.from_local(str(tmp_path))
    with runs.connect(), runs.connect() as second:
        assert second.exec_driver_sql("SELECT 1").scalar() == 1
