"""The processes of runs on this machine: which one executes a run, and whether it is gone."""

import os
import re
import time
from pathlib import Path

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

_PID = re.compile(r"\(pid: (\d+)\)")
# Of a process's start as the system tells it, against the clock by which its events are told.
_TOLERANCE_S = 5.0


class LocalRunLauncher(DefaultRunLauncher):
    """Dagster's launcher, which tells run monitoring whether the process of a run is still there.

    Without it a run that went with its machine, or with the server that launched it, stays STARTED until its
    time-out, and holds its slot of the GPU pool.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Return True: this is what the class is for."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Say that a run failed whose process is gone."""
        if is_gone(self._instance, run):
            return CheckRunHealthResult(WorkerStatus.FAILED, "its process is gone")
        return CheckRunHealthResult(WorkerStatus.RUNNING)


def is_gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether the process that executes a run has ended, or is another's by now.

    A run that has not said yet which process executes it may be alive.
    """
    events = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    for event in reversed(events):
        if match := _PID.search(event.message):
            return not _lived(int(match[1]), at=event.timestamp)
    return False


def _lived(pid: int, *, at: float) -> bool:
    """Return whether the process that has this number now is alive, and was at that time."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    stat = Path(f"/proc/{pid}/stat")
    try:
        # The name of the command, in brackets, may hold anything.
        state, *fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return True  # no Linux: whoever has the number now is taken for the run's process
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[18]) / os.sysconf("SC_CLK_TCK")
    return state != "Z" and started < at + _TOLERANCE_S
