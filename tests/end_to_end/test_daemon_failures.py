"""A real daemon with the instance's own settings: runs that hang, and runs whose process is gone."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
import yaml
from unwell import RAN

from orchestration.run_processes import is_gone
from resources.checkout import PROJECT

UNWELL = Path(__file__).with_name("unwell.py")
FINISHED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}
# As in the project's file, but within seconds instead of minutes and a day.
QUICK = {"poll_interval_seconds": 1, "free_slots_after_run_end_seconds": 1}


class Daemon:
    """A daemon with its code server and runs, all in one process session."""

    def __init__(self, home: Path, **monitoring) -> None:
        settings = yaml.safe_load((PROJECT / "dagster.yaml").read_text())
        settings["run_monitoring"] |= QUICK | monitoring
        (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
        # Daemon and command line would else both make the fresh stores at once, and one of them fail.
        with dg.DagsterInstance.from_config(str(home)) as instance:
            instance.get_runs(limit=1)
        self._home, self._environment = (home, {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(PROJECT)})

    def start(self) -> None:
        with (self._home / "daemon.log").open("a") as log:
            self._process = subprocess.Popen(
                [*self._dagster("daemon"), "run", "-f", str(UNWELL)],
                env=self._environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def launch(self, job: str) -> None:
        command = [*self._dagster("cli"), "job", "launch", "-f", str(UNWELL), "-j", job]
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=60)

    def kill(self) -> None:
        """End everything at once, as a machine does that goes down."""
        listed = subprocess.run(["ps", "-s", str(self._process.pid), "-o", "pid="], capture_output=True, text=True)
        for pid in listed.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._process.wait(30)

    def ran(self) -> list[tuple[str, int]]:
        """Run ids and processes of the assets that have begun."""
        file = self._home / RAN
        lines = file.read_text().split("\n") if file.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines if line]

    @staticmethod
    def _dagster(module: str) -> list[str]:
        name = {"daemon": "dagster._daemon", "cli": "dagster"}[module]
        return [sys.executable, "-m", name]


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """Return what starts a daemon with settings; everything that it started is ended afterwards."""
    started = []

    def start(**monitoring) -> Daemon:
        started.append(Daemon(tmp_path, **monitoring))
        started[-1].start()
        return started[-1]

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    yield start
    for one in started:
        one.kill()


def wait_for(what, *, seconds: float = 90):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.2)
    return found


def ended(instance: dg.DagsterInstance, runs: int) -> list[dg.DagsterRun]:
    """Return the runs, oldest first, once there are so many and all have ended; else nothing."""
    found = instance.get_runs()[::-1]
    return found if len(found) == runs and {run.status for run in found} <= FINISHED else []


def slots(instance: dg.DagsterInstance) -> int:
    return instance.event_log_storage.get_concurrency_info("gpu").active_slot_count


@pytest.mark.slow
def test_a_run_that_hangs_is_ended_and_tried_once_more(daemon):
    one = daemon(max_runtime_seconds=3)
    one.launch("hang")
    with dg.DagsterInstance.get() as instance:
        runs = wait_for(lambda: ended(instance, 2))
        assert [run.status for run in runs] == [dg.DagsterRunStatus.FAILURE] * 2
        assert runs[1].parent_run_id == runs[0].run_id
        for run in runs:
            said = [event.message for event in instance.all_logs(run.run_id)]
            assert any("exceeding maximum runtime of 3 seconds" in message for message in said)
            wait_for(lambda run=run: is_gone(instance, run))
        wait_for(lambda: slots(instance) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True], ids=["its process", "the machine"])
def test_a_run_that_is_killed_is_tried_once_more_and_frees_its_slot(daemon, everything):
    one = daemon()
    one.launch("crash")
    [(killed, process)] = wait_for(one.ran)
    with dg.DagsterInstance.get() as instance:
        assert slots(instance) == 1
        if everything:
            one.kill()
            one.start()
        else:
            os.kill(process, signal.SIGKILL)
        first, second = wait_for(lambda: ended(instance, 2))
        assert (first.run_id, first.status) == (killed, dg.DagsterRunStatus.FAILURE)
        assert (second.parent_run_id, second.status) == (killed, dg.DagsterRunStatus.SUCCESS)
        wait_for(lambda: slots(instance) == 0)


@pytest.mark.slow
def test_a_run_that_is_cancelled_frees_its_slot_and_is_not_tried_again(daemon):
    one = daemon()
    one.launch("crash")
    [(cancelled, _)] = wait_for(one.ran)
    with dg.DagsterInstance.get() as instance:
        instance.run_launcher.terminate(cancelled)
        [run] = wait_for(lambda: ended(instance, 1))
        assert run.status == dg.DagsterRunStatus.CANCELED
        wait_for(lambda: slots(instance) == 0)
