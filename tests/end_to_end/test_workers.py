"""Several processes work on an audit: the same bytes, and one of them may be killed."""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest
from homes import edited, make_home


def runs_of(home, monkeypatch):
    """Return (status, process) of each run of cells."""
    monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        found = []
        for run in instance.get_runs(filters=dg.RunsFilter(job_name="cells")):
            events = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
            said = [match[1] for event in events if (match := re.search(r"\(pid: (\d+)\)", event.message))]
            found += [(run.status, said[0])] if said else []
        return found


def test_two_processes_give_the_same_bytes(small, monkeypatch):
    before, first = small.table_sha256(), runs_of(small, monkeypatch)
    edited(small, devices=2)
    code, output = small.run("audit", "--force", "outcome_metrics")
    assert code == 0, output
    new = runs_of(small, monkeypatch)[: -len(first)]
    assert len({process for _, process in new}) == 2, "each cell in a process of its own"
    assert all(status is dg.DagsterRunStatus.SUCCESS for status, _ in new)
    assert small.table_sha256() == before


def children(process):
    """Return the processes that were started by a process, and by those."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == process:
            found += [int(stat.parent.name), *children(int(stat.parent.name))]
    return found


def workers_of(process):
    """Return the workers of an audit: they are in sessions of their own."""
    found = []
    for pid in children(process):
        # One may end meanwhile.
        with suppress(ProcessLookupError):
            found += [pid] if os.getsid(pid) == pid else []
    return found


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Yield a home of two checkpoints, and its audit by two processes, both of which are at a cell."""
    home = make_home(tmp_path, devices=2, mitigations={}, audit=[{"suites": ["crime"]}])
    process = home.start("audit")
    deadline, at_cells = time.monotonic() + 240, 0
    while at_cells < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
        at_cells = len(runs_of(home, monkeypatch))
    assert len(workers_of(process.pid)) == at_cells == 2
    yield home, process
    if process.poll() is None:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_an_item_whose_process_is_killed_is_done_by_another(begun, tmp_path, monkeypatch):
    home, process = begun
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    ended = sorted(status.value for status, _ in runs_of(home, monkeypatch))
    assert ended == ["FAILURE", "SUCCESS", "SUCCESS"]
    alone = make_home(tmp_path / "alone", mitigations={}, audit=[{"suites": ["crime"]}])
    code, output = alone.run("audit")
    assert code == 0, output
    without = ["cell_id", "audit_id"]
    of_both, of_one = (each.workspace.lake.read_table("metric_table").drop(without) for each in (home, alone))
    assert of_both.equals(of_one)


@pytest.mark.slow
def test_an_item_that_ends_its_process_again_and_again_is_given_up(begun):
    _, process = begun
    while process.poll() is None:
        for worker in workers_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(1)
    output, _ = process.communicate()
    assert process.returncode == 1 and "its process was gone before it was done, 2 times (SIGKILL)" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_with_the_audit_its_processes_end(begun, number):
    home, process = begun
    workers = workers_of(process.pid)
    os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), output
    if number == signal.SIGINT:
        assert "Interrupted. What was computed is kept" in output and "Traceback" not in output
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    code, output = home.run("audit")
    assert code == 0, output
