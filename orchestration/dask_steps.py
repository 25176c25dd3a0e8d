"""Steps on a Dask cluster, which Dagster's own executor runs past the pools of an instance and past failed steps."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.errors import raise_execution_interrupts
from dagster._core.execution.api import create_execution_plan, execute_plan
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.instance.ref import InstanceRef
from dagster._utils import iterate_with_context
from dagster_dask.executor import DaskExecutor
from distributed import Client, LocalCluster, wait

from plumbline.errors import ConfigError
from resources.workspace import Workspace

_ANSWERS_S = "10s"
_LOOK_S, _GONE_S = 10.0, 60.0
"""How often it is looked whether the workers are still there, and how long they may be gone, in seconds."""
Events = Sequence[dg.DagsterEvent] | None
"""Of one step; None where it was not executed because a step before it failed."""


class DaskSteps(DaskExecutor):
    """Dagster's Dask executor for graphs with pools and blocking checks, on a scheduler that runs share.

    A step of a pool goes to a worker that declares a Dask resource of the pool's name, and takes one of it: a worker
    started with `--resources gpu=1` has one step of the pool `gpu` at a time. A step is not executed when one before it
    failed. Tasks are named by run, since Dask takes two of one name for the same work.
    """

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Submit all steps at once, each after those that it needs, and yield their events."""
        steps = [step for level in execution_plan.get_steps_to_execute_by_level() for step in level]
        with self._client() as client:
            _require_workers(client, {step.pool for step in steps if step.pool})
            futures: dict[str, Any] = {}
            for step in steps:
                keys = {key for each in step.step_inputs for key in each.dependency_keys}
                futures[step.key] = client.submit(
                    execute_step,
                    [futures[key] for key in sorted(keys) if key in futures],
                    plan_context.reconstructable_job,
                    plan_context.run_id,
                    step.key,
                    plan_context.instance.get_ref(),
                    execution_plan.known_state,
                    key=f"{plan_context.run_id}.{step.key}",
                    resources={step.pool: 1} if step.pool else {},
                )
            pools = {futures[step.key]: step.pool for step in steps}
            for done in iterate_with_context(raise_execution_interrupts, _as_they_end(client, pools)):
                yield from done.result() or ()

    def _client(self) -> Client:
        if self.cluster_type == "existing":
            return Client(self.cluster_configuration["address"])
        return Client(LocalCluster(**self.build_dict("")))


def _as_they_end(client: Client, pools: Mapping[Any, str | None]) -> Iterator[Any]:
    """Yield the futures of steps as they end, each once.

    Parameters
    ----------
    pools : mapping
        Future -> the pool of its step.

    Raises
    ------
    ConfigError
        If for `_GONE_S` no worker takes steps of a pool that is waited for: they would wait for ever.
    """
    pending, gone_since = dict(pools), None
    while pending:
        try:
            ended = wait(list(pending), timeout=_LOOK_S, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            ended = set()
        for future in ended:
            del pending[future]
            yield future
        try:
            _require_workers(client, {pool for pool in pending.values() if pool})
            gone_since = None
        except ConfigError:
            # A worker that ended may be started again by its nanny.
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > _GONE_S:
                client.cancel(list(pending))
                raise


def execute_step(
    before: Sequence[Events],
    job: ReconstructableJob,
    run_id: str,
    step: str,
    instance: InstanceRef,
    known_state: KnownExecutionState | None,
) -> Events:
    """Execute one step on a worker, unless one before it failed or was not executed."""
    if any(events is None or any(event.is_step_failure for event in events) for events in before):
        return None
    _use_all_threads()
    # The settings of a home's storage name it; a worker was told of the home alone.
    os.environ.setdefault("DAGSTER_HOME", str(Workspace.from_environment().dagster_home))
    with dg.DagsterInstance.from_ref(instance) as opened:
        # Asked for here: Dask looks for futures inside its arguments, and cannot look into a run that has pools.
        run = opened.get_run_by_id(run_id)
        assert run is not None
        plan = create_execution_plan(
            job, run_config=run.run_config, step_keys_to_execute=[step], known_state=known_state
        )
        return execute_plan(plan, job, opened, run, run_config=run.run_config)


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def _use_all_threads() -> None:
    """Lift the limit of one thread that Dask sets for its workers, before torch reads it; any other limit stays.

    The last bits of what a model says on a CPU depend on the number of its threads, and are to be those of an audit
    without a cluster.
    """
    for name in _THREADS:
        if os.environ.get(name) == "1":
            del os.environ[name]


def number_of_workers(cluster: Mapping[str, Any]) -> int:
    """Return how many workers an existing cluster has, as the executor's configuration names it; at least one.

    Raises
    ------
    ConfigError
        If nothing answers at its address, or no worker takes steps of the pool `gpu`, which every audit has.
    """
    ((kind, settings),) = cluster.items()
    if kind == "local":  # each run starts one of its own
        return 1
    try:
        with Client(settings["address"], timeout=_ANSWERS_S) as client:
            _require_workers(client, {"gpu"})
            return max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    except OSError as error:
        raise ConfigError(
            "no Dask scheduler answers", where=settings["address"], found=str(error), hint="docs/scale.md"
        ) from error


def _require_workers(client: Client, pools: set[str]) -> None:
    """Refuse a cluster without a worker for some pool: its steps would wait for ever."""
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    declared = {name for worker in workers.values() for name in worker["resources"]}
    if lacking := sorted(pools - declared):
        raise ConfigError(
            f"no worker of this Dask cluster takes steps of the pool `{lacking[0]}`",
            where=client.scheduler.address,
            found=f"{len(workers)} worker(s) with the resources {', '.join(sorted(declared)) or 'none'}",
            hint=f"start a worker for each device with `--resources {lacking[0]}=1`",
        )


@dg.executor(
    name="dask",
    config_schema={
        "cluster": dg.Field(
            dg.Selector(
                {
                    "existing": dg.Field({"address": dg.StringSource}, description="Address of a scheduler."),
                    "local": dg.Field(dg.Permissive(), description="What `distributed.LocalCluster` takes."),
                }
            )
        )
    },
    requirements=dg.multiple_process_executor_requirements(),
)
def dask_executor(context: dg.InitExecutorContext) -> DaskSteps:
    """Execute each step on a worker of a Dask cluster; see `DaskSteps`."""
    cluster: Any = context.executor_config["cluster"]
    ((kind, settings),) = cluster.items()
    return DaskSteps(kind, settings)
