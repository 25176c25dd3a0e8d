"""The Dagster instance and tracking store of a home: set up once, locked while an audit runs, healed after a crash."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from plumbline.errors import PlumblineError
from resources.places import PROJECT, Places
from resources.tracking import Tracking

OWNER = {"plumbline/owner": "cli"}


class AuditAlreadyRunning(PlumblineError):
    """Another `plumbline audit` holds this home."""


def set_up(places: Places) -> None:
    """Make the home, link the instance's settings into it, and initialise the tracking store once.

    Sets `DAGSTER_HOME`: without it Dagster keeps its runs in a folder that it deletes on exit.
    """
    places.dagster_home.mkdir(parents=True, exist_ok=True)
    link = places.dagster_home / "dagster.yaml"
    target = os.path.relpath(PROJECT / "dagster.yaml", places.dagster_home)
    if not link.is_symlink() or link.readlink().as_posix() != target:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    os.environ["DAGSTER_HOME"] = str(places.dagster_home)
    os.environ["PLUMBLINE_HOME"] = str(places.home)
    os.environ["PLUMBLINE_AUDIT"] = str(places.audit_path)
    if not (places.home / "mlflow.db").exists():
        Tracking(places).experiment()


@contextmanager
def audit_lock(places: Places) -> Iterator[None]:
    """Hold the home for one audit; the lock goes with the process, however it ends.

    Raises
    ------
    AuditAlreadyRunning
        If another process holds it.
    """
    path = places.home / "audit.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AuditAlreadyRunning(
                "another audit is running in this home", where=path, hint="wait for it, or set PLUMBLINE_HOME"
            ) from error
        yield


def close_orphans(instance: dg.DagsterInstance) -> int:
    """Fail the runs whose process is gone and free their pool slots; returns how many. Needs `audit_lock`.

    After `kill -9` a run stays STARTED and its slot of the GPU pool claimed, on which the next run would wait
    for ever.
    """
    live = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING]
    orphans = instance.get_runs(filters=dg.RunsFilter(statuses=live, tags=OWNER))
    for run in orphans:
        instance.report_run_failed(run, "its process is gone")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return len(orphans)


def register_partitions(instance: dg.DagsterInstance, places: Places) -> None:
    """Add the datasets and encoders of the audit file as partitions, and drop those that it no longer names."""
    audit = places.audit
    for name, wanted in (("dataset", list(audit.datasets)), ("encoder", list(audit.encoders))):
        known = set(instance.get_dynamic_partitions(name))
        instance.add_dynamic_partitions(name, [key for key in wanted if key not in known])
        for key in known - set(wanted):
            instance.delete_dynamic_partition(name, key)
