"""MLflow runs that an audit could not write: sent later from the lake, without computing anything."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg

from assets.partitions import cell_key
from orchestration.job_run import run_job
from resources.workspace import Workspace

_JOBS = {"tracked_run": "deliver_cell", "tracked_answers": "deliver_model"}


@dataclass
class Delivery:
    """What became of the MLflow runs that were sent again.

    Attributes
    ----------
    delivered : list of str
        Cells and generative models whose runs MLflow has now.
    refused : dict of str to str
        Those whose runs it could not take -> what it said.
    failed : dict of str to str
        Those of which there was nothing to send -> why: their step failed before MLflow was asked.
    """

    delivered: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def deliver_what_is_left(definitions: dg.Definitions, instance: dg.DagsterInstance, workspace: Workspace) -> Delivery:
    """Send the runs that MLflow has not got, of the cells and generative models of the audit file."""
    delivery = Delivery()
    for asset, partition in _undelivered(workspace):
        run = run_job(definitions, instance, _JOBS[asset], partition)
        if run.failure is not None:
            delivery.failed[str(partition)] = run.failure
        elif run.refusal is not None:
            delivery.refused[str(partition)] = run.refusal
        else:
            delivery.delivered.append(str(partition))
    return delivery


def _undelivered(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield asset and partition of what was tracked without MLflow."""
    audit, lake = workspace.audit, workspace.lake
    partitions = [("tracked_run", cell_key(*cell)) for cell in audit.cells]
    partitions += [("tracked_answers", model) for model in audit.asked_models]
    for asset, partition in partitions:
        committed = lake.committed(asset, partition=str(partition))
        if committed is not None and lake.read_table(asset, manifest=committed)["mlflow_run"].null_count():
            yield asset, partition
