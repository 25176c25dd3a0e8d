"""Where the steps of a run are executed: this process by default, other processes or machines by configuration."""

import importlib
import os
import re
from collections.abc import Sequence
from typing import Any

import dagster as dg
import yaml
from dagster._config import process_config
from dagster._core.definitions.reconstruct import ReconstructableRepository

from plumbline.commands.places import from_here
from plumbline.errors import ConfigError
from resources.checkout import PROJECT

VARIABLE, CONFIG_VARIABLE = "PLUMBLINE_EXECUTOR", "PLUMBLINE_EXECUTOR_CONFIG"
IN_PROCESS = "in_process"
Executed = dg.ExecuteInProcessResult | dg.JobExecutionResult
EXECUTORS = {
    IN_PROCESS: ("dagster", "in_process_executor"),
    "multiprocess": ("dagster", "multiprocess_executor"),
    "dask": ("orchestration.dask_steps", "dask_executor"),
    "k8s": ("dagster_k8s", "k8s_job_executor"),
}


def chosen_executor() -> dg.ExecutorDefinition:
    """Return the executor that `PLUMBLINE_EXECUTOR` names, with the YAML file of `PLUMBLINE_EXECUTOR_CONFIG`.

    Raises
    ------
    ConfigError
        If there is no such executor, it is not installed, or its file cannot be read or does not fit it.
    """
    name = os.environ.get(VARIABLE, IN_PROCESS)
    if name not in EXECUTORS:
        raise ConfigError("there is no such executor", where=VARIABLE, found=name, expected=", ".join(EXECUTORS))
    module, attribute = EXECUTORS[name]
    try:
        executor = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "what this executor needs is not installed",
            where=VARIABLE,
            found=f"{name}: {error}",
            hint=".venv/bin/python -m pip install -c constraints.txt -e '.[scale]'",
        ) from error
    settings = _settings()
    # Dagster would say it when the first run starts.
    checked = process_config(executor.config_schema.config_type, settings or {})
    if not checked.success:
        raise ConfigError(
            f"the configuration does not fit the executor `{name}`",
            where=os.environ.get(CONFIG_VARIABLE) or f"{CONFIG_VARIABLE}, which is not set",
            # Behind the first line Dagster puts a stack of its own.
            found="; ".join(_in_short(mistake.message) for mistake in checked.errors or ()),
            hint="docs/scale.md",
        )
    return executor if settings is None else executor.configured(settings)


def _in_short(message: str) -> str:
    """Return the first line of a message of Dagster, and which environment variable it lacks, if it lacks one."""
    lacking = re.search(r'environment variable "([^"]+)"', message)
    return message.partition("\n")[0] + (f" {lacking[1]} is not set" if lacking else "")


def runs_at_once() -> int:
    """Return how many runs the chosen executor has room for: on a Dask cluster one for each of its workers."""
    if os.environ.get(VARIABLE) != "dask":
        return 1
    from orchestration.dask_steps import dask_executor, number_of_workers

    chosen_executor()  # refuses what does not fit
    resolved = process_config(dask_executor.config_schema.config_type, _settings() or {})
    return number_of_workers((resolved.value or {})["cluster"])


def _settings() -> dict[str, Any] | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if not named:
        return None
    path = from_here(named)
    if not path.exists() and (PROJECT / named).exists():  # those of `deploy`, wherever the command runs
        path = PROJECT / named
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            "the configuration of the executor cannot be read",
            where=path,
            found=str(error),
            hint=f"{CONFIG_VARIABLE} names a file, from the folder of the command or of the checkout",
        ) from error


def execute(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    job: str,
    partition: str | None,
    *,
    assets: Sequence[str] | None = None,
    tags: dict[str, str],
    run_config: dict[str, Any],
) -> Executed:
    """Execute one run and wait for it: in this process, or by the chosen executor from the project's definitions.

    Parameters
    ----------
    assets : sequence of str, optional
        Of the job's, those that are computed; by default all.
    """
    selected = None if assets is None else [dg.AssetKey(asset) for asset in assets]
    common: dict[str, Any] = {
        "asset_selection": selected,
        "instance": instance,
        "run_config": run_config,
        "raise_on_error": False,
    }
    resolved = definitions.resolve_job_def(job)
    if partition is not None and not resolved.asset_layer.selected_asset_keys:
        # Of a job of checks alone Dagster does not know that it has partitions: they are those of what is checked.
        [checked] = {key.asset_key for key in resolved.asset_layer.asset_graph.asset_check_keys}
        partitions = definitions.resolve_asset_graph().get(checked).partitions_def
        assert partitions is not None
        tags, partition = {**tags, **partitions.get_tags_for_partition_key(partition)}, None
    if os.environ.get(VARIABLE, IN_PROCESS) == IN_PROCESS:
        return resolved.execute_in_process(partition_key=partition, tags=tags, **common)
    if partition is not None:
        tags = {**tags, **resolved.get_tags_for_partition_key(partition, selected_asset_keys=None)}
    repository = ReconstructableRepository.for_module(
        "orchestration.definitions", "defs", working_directory=str(PROJECT)
    )
    return dg.execute_job(repository.get_reconstructable_job(job), tags=tags, **common)
