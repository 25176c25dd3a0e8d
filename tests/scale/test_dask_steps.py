"""Steps on a Dask cluster: where those of a pool go, what a failed one stops, what tasks are called."""

import os
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.execution.api import create_execution_plan

from plumbline.errors import ConfigError
from resources.checkout import PROJECT

HERE = Path(__file__).parent


def cluster_of(*resources):
    """Start a scheduler with a worker for each of the resources, all in this process."""
    from distributed import Scheduler, SpecCluster, Worker

    workers = {
        number: {"cls": Worker, "options": {"nthreads": 1, "resources": each, "dashboard": False}}
        for number, each in enumerate(resources)
    }
    return SpecCluster(
        workers=workers,
        scheduler={
            "cls": Scheduler,
            "options": {"dashboard": False, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1", "port": 0},
        },
    )


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that executes the small graph for a partition on a cluster."""
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    file = tmp_path / "executor.yaml"
    file.write_text(yaml.safe_dump({"cluster": {"existing": {"address": {"env": "SCHEDULER"}}}}))
    monkeypatch.setenv("PLUMBLINE_EXECUTOR", "dask")
    monkeypatch.setenv("PLUMBLINE_EXECUTOR_CONFIG", str(file))

    def execute(cluster, partition):
        monkeypatch.setenv("SCHEDULER", cluster.scheduler_address)
        repository = ReconstructableRepository.for_module("small_graph", "defs", working_directory=str(HERE))
        with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
            return dg.execute_job(
                repository.get_reconstructable_job("all_of_it"),
                instance=instance,
                tags={"dagster/partition": partition},
            )

    return execute


def materialized(result):
    return {
        event.asset_key.to_user_string(): {k: v.value for k, v in event.materialization.metadata.items()}
        for event in result.get_asset_materialization_events()
    }


def test_steps_of_a_pool_go_to_workers_that_declare_it(run):
    with cluster_of({"gpu": 1}, {}, {}) as cluster:
        result = run(cluster, "a")
    assert result.success
    found = materialized(result)
    assert set(found) == {"made", "on_a_device", "last"}
    assert found["on_a_device"]["resources"] == ["gpu"]
    assert all(each["partition"] == "a" for each in found.values())
    # Dask takes two tasks of one name for the same work: those of two cells must not be.
    assert {each["task"] for each in found.values()} == {f"{result.run_id}.{name}" for name in found}


def test_nothing_is_made_of_what_a_blocking_check_refused(run):
    with cluster_of({"gpu": 1}, {}) as cluster:
        result = run(cluster, "b")
    assert not result.success
    assert set(materialized(result)) == {"made"}


def test_a_cluster_without_workers_for_a_pool_is_refused_at_once(run):
    with cluster_of({}, {"cpu": 1}) as cluster:
        result = run(cluster, "a")
    assert not result.success
    said = next(event.job_failure_data.error.to_string() for event in result.all_events if event.is_job_failure)
    assert "no worker of this Dask cluster takes steps of the pool `gpu`" in said
    assert "2 worker(s) with the resources cpu" in said
    assert materialized(result) == {}


def test_steps_whose_last_worker_is_gone_are_given_up(monkeypatch):
    from distributed import Client

    from orchestration import dask_steps

    monkeypatch.setattr(dask_steps, "_LOOK_S", 0.2)
    monkeypatch.setattr(dask_steps, "_GONE_S", 1.0)
    with cluster_of({"gpu": 1}, {}) as cluster, Client(cluster) as client:
        done, waits = client.submit(abs, -1, pure=False), client.submit(abs, -2, resources={"gpu": 2}, pure=False)
        ended = dask_steps._as_they_end(client, {done: None, waits: "gpu"})
        assert next(ended) is done
        workers = client.scheduler_info(n_workers=-1)["workers"]
        client.retire_workers([address for address, worker in workers.items() if worker["resources"]])
        with pytest.raises(ConfigError, match="no worker of this Dask cluster takes steps of the pool `gpu`"):
            next(ended)
        assert waits.cancelled()


@pytest.mark.parametrize(("threads", "left"), [("1", None), ("3", "3")])
def test_a_worker_is_told_of_the_home_alone_and_uses_its_cores(monkeypatch, tmp_path, threads, left):
    from orchestration.dask_steps import execute_step

    home = tmp_path / "home" / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("SCHEDULER", "none is needed")
    repository = ReconstructableRepository.for_module("small_graph", "defs", working_directory=str(HERE))
    job = repository.get_reconstructable_job("all_of_it")
    with dg.DagsterInstance.get() as instance:
        run = instance.create_run_for_job(job.get_definition(), tags={"dagster/partition": "good"})
        step = create_execution_plan(job).step_keys_to_execute[0]
        reference = instance.get_ref()
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.setenv("PLUMBLINE_HOME", str(home.parent))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # 1 is what Dask gives its workers
        monkeypatch.setenv(name, threads)
    events = execute_step([], job, run.run_id, step, reference, None)
    # Of a step that asks for its worker, which there is none of here: it was begun.
    assert any(event.is_step_start for event in events)
    assert {os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")} == {left}
