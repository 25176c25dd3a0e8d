"""The Dagster instance and tracking store of a home: set up once, locked while an audit runs, healed after a crash."""

import contextlib
import fcntl
import filecmp
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import dagster as dg
from dagster._check import CheckError
from upath import UPath
from yaml import YAMLError

from assets.partitions import SLICES, named_partitions
from orchestration.disk_errors import disk_errors_named
from orchestration.run_processes import is_gone
from plumbline.commands.places import from_here
from plumbline.errors import ConfigError, PlumblineError
from plumbline.storage.files import commit_bytes, require_reachable, sweep
from resources.checkout import PROJECT
from resources.tracking import Tracking, TrackingUnavailable
from resources.workspace import Workspace

OWNER = {"plumbline/owner": "cli"}
SETTINGS = "PLUMBLINE_DAGSTER_CONFIG"
"""Variable with the path of an own `dagster.yaml`, in the home or elsewhere."""
_LOCK = "audit.lock"


class AuditAlreadyRunning(PlumblineError):
    """Another `plumbline audit` holds this home."""


class PoolHeld(PlumblineError):
    """A run that may be alive holds the slot that this audit needs."""


def set_up(workspace: Workspace) -> None:
    """Make the home, link the instance's settings into it, and initialise a local tracking store once.

    Sets `DAGSTER_HOME`: without it Dagster keeps its runs in a folder that it deletes on exit.
    """
    require_reachable(workspace.lake.root, writable=True)
    workspace.dagster_home.mkdir(parents=True, exist_ok=True)
    _link_settings(workspace.dagster_home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(workspace.dagster_home)
    os.environ["PLUMBLINE_HOME"] = str(workspace.home)
    os.environ["PLUMBLINE_AUDIT"] = str(workspace.audit_path)
    # A look at what is stale takes a minute on a machine that is busy, which is all that Dagster gives a sensor.
    os.environ.setdefault("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "300")
    # Several processes that meet a fresh SQLite store at once would fail; a server needs nothing from here.
    if workspace.tracking_uri.startswith("sqlite:") and not (workspace.home / "mlflow.db").exists():
        with contextlib.suppress(TrackingUnavailable):
            Tracking(workspace).experiment()


@contextmanager
def opened(workspace: Workspace) -> Iterator[dg.DagsterInstance]:
    """Set a home up and open its instance; a disk that is full then, or until it is closed, is named.

    Raises
    ------
    StorageError
        As `disk_errors_named`.
    ConfigError
        If Dagster's settings cannot be used, or the home holds some that nobody named.
    """
    with disk_errors_named(workspace):
        set_up(workspace)
        with _instance(workspace) as instance:
            yield instance


def _instance(workspace: Workspace) -> dg.DagsterInstance:
    try:
        return dg.DagsterInstance.get()
    except (dg.DagsterInvalidConfigError, CheckError, YAMLError) as error:
        raise ConfigError(
            "Dagster's settings cannot be used",
            where=workspace.dagster_home / "dagster.yaml",
            found=_settings_error(error),
            hint="mend the file, or set the environment's variable that it names; docs/scale.md shows that of a store",
        ) from error


def _settings_error(error: Exception) -> str:
    """Return what is wrong with `dagster.yaml` in one line, without the trace and the schema that Dagster adds."""
    if isinstance(error, dg.DagsterInvalidConfigError):
        text = error.errors[0].message.partition(" Expected: ")[0]
        return text.rpartition("PostProcessingError: ")[2].partition("\n")[0]
    return " ".join(str(error).removeprefix("Failure condition: ").split())


def _link_settings(link: Path) -> None:
    """Let the home's `dagster.yaml` be the project's, or the file that `SETTINGS` names.

    What Dagster reads there names classes, and thereby programs, that it runs. A home may have come with a dataset, so
    that another file is refused. A link that leads elsewhere, and a copy of the file that is meant, such as one who
    copies a home may make of the link, give way to a link.
    """
    named = os.environ.get(SETTINGS)
    target = from_here(named) if named else PROJECT / "dagster.yaml"
    if not target.is_file():
        raise ConfigError("no such file of Dagster's settings", where=SETTINGS, found=str(target))
    if link.exists() and link.samefile(target):
        return
    if link.exists() and not link.is_symlink() and not filecmp.cmp(link, target, shallow=False):
        raise ConfigError(
            "Dagster's settings in the home are not used unless you name them",
            where=link,
            found="a file that Plumbline did not make; it can name programs to run",
            hint=f"set {SETTINGS} to its path if it is yours; otherwise remove it",
        )
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)  # of a process of this number that was killed
    # `..` leads up from where the folder lies, which is elsewhere if it is a link itself.
    temporary.symlink_to(os.path.relpath(target, os.path.realpath(link.parent)))
    if not temporary.samefile(target):
        temporary.unlink()
        raise ConfigError("the home cannot be given Dagster's settings", where=link, found=f"no link to {target}")
    temporary.replace(link)


@dataclass
class Hold:
    """A home that is held.

    Attributes
    ----------
    unfinished : bool
        Whether one who held it did not end by itself, so that files and runs may be left over. Who has cleaned up says
        so here.
    """

    unfinished: bool


@contextmanager
def audit_lock(workspace: Workspace) -> Iterator[Hold]:
    """Hold the home for one audit; the lock goes with the process, however it ends.

    The file of the lock is empty once a command has ended by itself, and cleaned up after those that did not.

    Raises
    ------
    AuditAlreadyRunning
        If another process holds it.
    StorageError
        If this user cannot write to the home.
    """
    path = workspace.home / _LOCK
    with disk_errors_named(workspace):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not for appending: Linux then writes at the end, wherever it is told to. Not through a link: it is emptied.
        lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "r+")
    with lock as file:
        # One who only asks whether an audit runs holds it for a moment.
        if not any(_locked(file, wait_s) for wait_s in (0.2, 0.2, 0)):
            raise AuditAlreadyRunning(
                "another audit is running in this home", where=path, hint="wait for it, or set PLUMBLINE_HOME"
            )
        file.seek(0)
        hold = Hold(unfinished=bool(file.read(1)))
        _mark(file, "held")
        yield hold
        if not hold.unfinished:
            _mark(file, "")


def _mark(file: IO[str], text: str) -> None:
    """Write the whole of the lock's file; on a full disk what it says stays."""
    with contextlib.suppress(OSError):
        if text:
            os.pwrite(file.fileno(), text.encode(), 0)
        else:
            os.ftruncate(file.fileno(), 0)


def audit_is_running(workspace: Workspace) -> bool:
    """Return whether a process holds `audit_lock` of this home."""
    try:
        with (workspace.home / _LOCK).open() as file:
            return not _locked(file, 0)
    except FileNotFoundError:
        return False


def _locked(file: IO[str], wait_s: float) -> bool:
    """Take the lock if it is free; else wait a moment and say that it is not."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(wait_s)
        return False
    return True


def close_orphans(instance: dg.DagsterInstance) -> int:
    """Fail the runs whose process is gone and free the pool slots of runs that are over. Needs `audit_lock`.

    After `kill -9` a run stays STARTED, or is never started, and its slot of the GPU pool stays claimed, on which the
    next run would wait for ever.

    Returns
    -------
    int
        How many runs were closed.

    Raises
    ------
    PoolHeld
        If a run that may be alive holds a slot: one of the UI or the daemon.
    """
    # Whoever holds the lock knows that no run of the command line waits to start.
    live = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    orphans = [*instance.get_runs(filters=dg.RunsFilter(statuses=live, tags=OWNER))]
    for run in orphans:
        instance.report_run_failed(run, "its process is gone")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    for pool in instance.event_log_storage.get_concurrency_keys():
        for slot in instance.event_log_storage.get_concurrency_info(pool).claimed_slots:
            run = instance.get_run_by_id(slot.run_id)
            if run is not None and not run.is_finished and is_gone(instance, run):
                instance.report_run_failed(run, "its process is gone")
                orphans.append(run)
            elif run is not None and not run.is_finished:
                raise PoolHeld(
                    f"the pool `{pool}` is held by another run",
                    where=f"run {run.run_id}, {run.status.value.lower()}",
                    hint="wait for it, or cancel it in the UI under Runs (`plumbline ui`)",
                )
            instance.event_log_storage.free_concurrency_slots_for_run(slot.run_id)
    return len(orphans)


def sweep_unfinished(workspace: Workspace) -> int:
    """Remove files that a killed process left half written, in the home and where results lie; return how many."""
    return sum(sweep(root, now=time.time()) for root in (UPath(workspace.home), workspace.lake.root))


def close_lost(instance: dg.DagsterInstance) -> None:
    """Fail the runs of this audit whose process is gone, and free their slots; those of other workers go on."""
    live = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING]
    for run in instance.get_runs(filters=dg.RunsFilter(statuses=live, tags=OWNER)):
        if is_gone(instance, run):
            instance.report_run_failed(run, "its process is gone")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


@contextmanager
def pool_slots(instance: dg.DagsterInstance, pool: str, number: int) -> Iterator[None]:
    """Let so many steps of a pool run at once inside: one a device. Afterwards the pool has the limit that it had.

    What it had is kept in a file meanwhile, so that an audit after one that was killed knows it too.
    """
    storage, kept = instance.event_log_storage, Path(instance.root_directory) / f"limit-of-{pool}.json"
    before = _kept_limit(kept)
    if before is None:
        limits = {each.name: each.limit for each in storage.get_pool_limits() if not each.from_default}
        before = {"limit": limits.get(pool)}
        commit_bytes(UPath(kept), json.dumps(before).encode())
    storage.set_concurrency_slots(pool, number)
    try:
        yield
    finally:
        if before["limit"] is None:
            storage.delete_concurrency_limit(pool)
        else:
            storage.set_concurrency_slots(pool, before["limit"])
        kept.unlink()


def _kept_limit(path: Path) -> dict[str, int | None] | None:
    """Return what an audit that was killed kept of the limit; None without one, the default where it is damaged."""
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        kept = None
    return kept if isinstance(kept, dict) and isinstance(kept.get("limit", ""), int | None) else {"limit": None}


def register_partitions(instance: dg.DagsterInstance, workspace: Workspace) -> None:
    """Add datasets, encoders and generative models of the audit file as partitions; those of other files stay."""
    for name, wanted in named_partitions(workspace.audit).items():
        _register(instance, name, wanted)


def register_slices(instance: dg.DagsterInstance, slices: Iterable[str]) -> None:
    """Add slices as partitions: which there are is known once the records of their dataset are."""
    _register(instance, SLICES.name, slices)


def _register(instance: dg.DagsterInstance, name: str, wanted: Iterable[str]) -> None:
    known = set(instance.get_dynamic_partitions(name))
    instance.add_dynamic_partitions(name, [key for key in wanted if key not in known])
