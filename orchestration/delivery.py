"""MLflow runs that an audit could not write, or that are not what the lake says: sent from it, nothing is computed."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from assets.partitions import cell_key
from orchestration.job_run import run_job
from plumbline.storage import Committed
from resources.tracking import Tracking
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


def deliver_what_is_left(
    definitions: dg.Definitions, instance: dg.DagsterInstance, workspace: Workspace, *, changed: bool = False
) -> Delivery:
    """Send the runs that MLflow has not got, of the cells and generative models of the audit file.

    Parameters
    ----------
    changed : bool
        Those too that it has otherwise than the lake.

    Raises
    ------
    TrackingUnavailable
        If MLflow is to be compared and cannot be read.
    """
    delivery = Delivery()
    due = dict.fromkeys(_undelivered(workspace))
    if changed:
        due |= dict.fromkeys(changed_in_mlflow(workspace))
    for asset, partition in due:
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
    for committed in _tracked(workspace):
        if workspace.lake.read_table(committed.name, manifest=committed)["mlflow_run"].null_count():
            yield committed.name, committed.partition


def changed_in_mlflow(workspace: Workspace) -> dict[tuple[str, str], str]:
    """Return asset and partition of what MLflow has not, or otherwise than the lake, each with what is wrong.

    Raises
    ------
    TrackingUnavailable
        If MLflow cannot be read.
    """
    tracking, wrong = (
        Tracking(workspace),
        dict.fromkeys(_undelivered(workspace), "was not sent: MLflow did not take it"),
    )
    for committed in _tracked(workspace):
        # Earlier versions kept no digests.
        for run, why in tracking.changed(committed.details.get("runs", {})).items():
            wrong[committed.name, committed.partition] = f"run {run} {why}"
    return wrong


def _tracked(workspace: Workspace) -> Iterator[Committed]:
    """Yield what was tracked of the cells and generative models of the audit file."""
    audit, lake = workspace.audit, workspace.lake
    partitions = [("tracked_run", str(cell_key(*cell))) for cell in audit.cells]
    partitions += [("tracked_answers", model) for model in audit.asked_models]
    for asset, partition in partitions:
        if (committed := lake.committed(asset, partition=partition)) is not None:
            yield committed


def set_damaged_store_aside(workspace: Workspace) -> Path | None:
    """Give MLflow's SQLite file another name where it is damaged, so that a new one is made; returns its new place."""
    store = workspace.tracking_file
    if store is None or not store.is_file() or _is_sound(store):
        return None
    aside = next(p for n in range(1, 1000) if not (p := store.with_name(f"{store.name}.damaged-{n}")).exists())
    for rest in ("-wal", "-shm", "-journal"):  # what was not yet written into it may be saved by hand
        if (beside := store.with_name(store.name + rest)).exists():
            beside.rename(aside.with_name(aside.name + rest))
    return store.rename(aside)


def _is_sound(store: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
            return database.execute("PRAGMA quick_check").fetchone() == ("ok",)
    except sqlite3.OperationalError:  # held by another program, or not to be read by this user
        return True
    except sqlite3.DatabaseError:
        return False
