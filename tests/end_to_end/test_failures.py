"""Whole audits that meet a hanging step, a store that is away, a full disk and one another."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import dagster as dg
import pytest
from homes import forward_passes, make_home

from assets.partitions import cell_key
from orchestration.instance import PoolHeld, audit_lock, close_orphans
from orchestration.job_run import run_job
from resources.checkout import PROJECT
from resources.tracking import EXPERIMENT, SHOWS_TAG

MODEL = "small-control-3k"
SMALL = {
    "encoders": {MODEL: {"address": f"local-dir:plumbline/world/checkpoints/{MODEL}"}},
    "mitigations": {},
    "audit": [{"suites": ["crime"]}],
}


def test_a_step_that_hangs_is_ended_and_the_rest_goes_on():
    @dg.asset
    def hangs() -> None:
        time.sleep(600)

    @dg.asset
    def works() -> None: ...

    definitions = dg.Definitions(
        [hangs, works], jobs=[dg.define_asset_job("hang", "hangs"), dg.define_asset_job("work", "works")]
    )
    limits = {"run_monitoring": {"enabled": True, "max_runtime_seconds": 3}}
    with dg.instance_for_test(overrides=limits) as instance:
        result, reason = run_job(definitions, instance, "hang", None)
        assert "longer than 3 s" in reason and "max_runtime_seconds" in reason
        assert instance.get_run_by_id(result.run_id).is_finished
        assert run_job(definitions, instance, "work", None)[1] is None


@pytest.mark.parametrize("tags", [{"plumbline/owner": "cli"}, {}], ids=["an audit's", "the daemon's"])
def test_the_slot_of_a_run_whose_process_is_gone_is_freed_by_the_next_audit(tags):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with _held_by(gone.pid, tags) as (instance, run):
        assert close_orphans(instance) == 1
        assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.FAILURE
        assert instance.event_log_storage.get_concurrency_info("gpu").active_slot_count == 0


def test_a_run_that_was_killed_before_it_started_is_closed():
    graph = dg.Definitions([_in_the_pool]).resolve_asset_graph()
    with dg.instance_for_test() as instance:
        job = dg.define_asset_job("one").resolve(asset_graph=graph)
        run = instance.create_run_for_job(job, tags={"plumbline/owner": "cli"})
        assert run.status == dg.DagsterRunStatus.NOT_STARTED
        assert close_orphans(instance) == 1
        assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.FAILURE


def test_a_slot_of_the_daemon_is_left_to_a_run_that_is_alive():
    with _held_by(os.getpid(), {}) as (instance, run):
        with pytest.raises(PoolHeld, match=run.run_id):
            close_orphans(instance)
        assert instance.event_log_storage.get_concurrency_info("gpu").active_slot_count == 1


@contextmanager
def _held_by(process: int, tags: dict[str, str]):
    """A started run of a process that holds the one slot of the pool."""
    graph = dg.Definitions([_in_the_pool]).resolve_asset_graph()
    with dg.instance_for_test(overrides={"concurrency": {"pools": {"default_limit": 1}}}) as instance:
        run = instance.create_run_for_job(
            dg.define_asset_job("one").resolve(asset_graph=graph), status=dg.DagsterRunStatus.STARTED, tags=tags
        )
        instance.report_engine_event(f"Executing steps in process (pid: {process})", run)
        instance.event_log_storage.initialize_concurrency_limit_to_default("gpu")
        assert instance.event_log_storage.claim_concurrency_slot("gpu", run.run_id, "step").is_claimed
        yield instance, run


@dg.asset(pool="gpu")
def _in_the_pool() -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("command", ["audit", "report"])
def test_what_mlflow_could_not_take_is_delivered_by_the_next(command, tmp_path, monkeypatch):
    home = make_home(tmp_path, **SMALL)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        code, output = home.run("audit")
    assert code == 0, output
    told = f"MLflow could not be written for {cell_key('fairface', MODEL)}, the findings;"
    assert output.count(told) == 1 and "Traceback" not in output, output
    numbers = home.table_sha256()
    assert home.workspace.lake.read_table("provenance")["mlflow_run"].to_list() == [None]

    for _ in range(2):
        code, output = home.run(command)
        assert code == 0 and "MLflow could not" not in output, output
        assert command == "report" or forward_passes(output) == 0
        assert home.table_sha256() == numbers
        [run] = _tracked(home, "checkpoint")
        assert len(_tracked(home, "audit")) == 1
        assert home.workspace.lake.read_table("provenance")["mlflow_run"].to_list() == [run.info.run_id]


@pytest.mark.slow
@pytest.mark.parametrize("full", ["lake", "home"])
def test_a_full_disk_is_named_and_the_next_audit_goes_on(tmp_path, small_disk, full):
    disk, remount = small_disk
    assert remount("size=400k")
    if full == "lake":
        home = make_home(tmp_path, **SMALL, storage={"shard_rows": 256, "root": str(disk)})
    else:
        home = make_home(disk, empty=True, **SMALL)
        assert remount("size=6m")
    code, output = home.run("audit")
    assert code in (1, 2), output
    assert "No space left" in output or "disk is full" in output, output
    assert str(disk) in output and "free some space" in output, output
    assert "Traceback" not in output

    assert remount("size=300m")
    code, output = home.run("audit")
    assert code == 0, output
    lake = home.workspace.lake
    for made in lake.all_committed(without=("embeddings", "training")):
        lake.verify(made)
    assert not list(disk.rglob("*.tmp"))


def test_a_second_audit_of_a_home_is_refused_before_it_touches_anything(tmp_path):
    home = make_home(tmp_path, **SMALL)
    with audit_lock(home.workspace):
        code, output = home.run("audit")
    assert code == 2 and "another audit is running in this home" in output, output
    assert "PLUMBLINE_HOME" in output and "Traceback" not in output
    assert not (home.workspace.home / "lake").exists()


@pytest.mark.slow
def test_writers_of_one_cell_at_the_same_time_leave_one_whole_result(tmp_path):
    home = make_home(tmp_path, **SMALL)
    code, output = home.run("audit")
    assert code == 0, output
    numbers = home.table_sha256()

    # As runs of the daemon do, which know nothing of the lock.
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER], cwd=PROJECT, env=_daemon(home)) for _ in range(2)]
    assert [writer.wait(300) for writer in writers] == [0, 0]
    code, output = home.run("audit")
    assert code == 0 and forward_passes(output) == 0, output
    assert home.table_sha256() == numbers
    assert len(_tracked(home, "checkpoint")) == 1
    for made in home.workspace.lake.all_committed(without=("embeddings", "training")):
        home.workspace.lake.verify(made)


def _tracked(home, what: str) -> list:
    """Return the runs of MLflow that show a `checkpoint`, or an `audit`."""
    from mlflow import MlflowClient

    client = MlflowClient(home.workspace.tracking_uri)
    return client.search_runs(
        [client.get_experiment_by_name(EXPERIMENT).experiment_id], f"tags.`{SHOWS_TAG}` = '{what}'"
    )


def _daemon(home) -> dict[str, str]:
    return {**os.environ, **home.environment, "DAGSTER_HOME": str(home.workspace.dagster_home)}


_WRITER = f"""
import dagster as dg
from orchestration.job_run import run_job
from orchestration.definitions import defs
with dg.DagsterInstance.get() as instance:
    for _ in range(2):
        reason = run_job(defs, instance, "cells", {cell_key("fairface", MODEL)!r})[1]
        assert reason is None, reason
"""
