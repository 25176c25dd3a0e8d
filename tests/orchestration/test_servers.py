"""The servers of `plumbline ui` over a tracking store that another program holds."""

import contextlib
import io
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from orchestration import servers
from resources.checkout import PROJECT
from resources.workspace import MLFLOW_PORT, Workspace

_SERVES = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""
# Ends once the other one answers.
_DAGSTER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while socket.socket().connect_ex(("127.0.0.1", int(sys.argv[2]))):
    time.sleep(0.05)
time.sleep(1)
"""
# MLflow over a locked store ends before it serves.
_MLFLOW = f"""
import pathlib, sys
tried = pathlib.Path(sys.argv[2])
if not tried.exists():
    tried.touch()
    sys.exit(1)
{_SERVES}
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("DAGSTER_HOME", "PLUMBLINE_HOME", "PLUMBLINE_AUDIT"):
        monkeypatch.setenv(name, "")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Workspace(audit_path=PROJECT / "audit.yaml", home=tmp_path)
    for number, handler in before.items():
        signal.signal(number, handler)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_both_servers_start_though_the_store_is_locked(workspace, monkeypatch):
    dagster_port, mlflow_port, tried = free_port(), free_port(), workspace.home / "tried"
    commands = {
        "_dagster": [sys.executable, "-c", _DAGSTER, str(dagster_port), str(mlflow_port)],
        "_mlflow": [sys.executable, "-c", _MLFLOW, str(mlflow_port), str(tried)],
    }
    for name, command in commands.items():
        monkeypatch.setattr(servers, name, lambda *_, command=command: command)
    monkeypatch.setattr(servers, "_AGAIN_S", 0.1)
    # As SQLAlchemy opens it; its own is 5 s.
    monkeypatch.setattr(sqlite3.dbapi2, "connect", partial(sqlite3.connect, timeout=0.1))
    said = Console(file=io.StringIO(), width=80)
    with contextlib.closing(sqlite3.connect(workspace.home / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        code = servers.serve(workspace, dagster_port=dagster_port, mlflow_port=mlflow_port, console=said)
    lines = said.file.getvalue().splitlines()
    assert code == 1 and lines[-1].startswith("Dagster ended with code 0")
    [locked] = [line for line in lines if "locked" in line]
    assert "end the program that holds it" in locked and "mlflow.db" in locked
    assert [line.split() for line in lines if line.startswith(("Dagster  ", "MLflow  "))] == [
        ["Dagster", "graph", f"http://127.0.0.1:{dagster_port}/asset-groups"],
        ["Dagster", "runs", f"http://127.0.0.1:{dagster_port}/runs"],
        ["MLflow", "runs", f"http://127.0.0.1:{mlflow_port}"],
    ]
    assert tried.exists()


def test_a_server_that_ends_by_itself_ends_the_other(workspace, monkeypatch):
    ports = {"dagster_port": free_port(), "mlflow_port": free_port()}
    monkeypatch.setattr(servers, "_dagster", lambda _: [sys.executable, "-c", _SERVES, str(ports["dagster_port"])])
    monkeypatch.setattr(servers, "_mlflow", lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    monkeypatch.setattr(servers, "_mlflow_page", lambda *_: ("http://here", None))
    said = Console(file=io.StringIO(), width=80)
    assert servers.serve(workspace, **ports, console=said) == 1
    assert "MLflow ended with code 3" in said.file.getvalue()
    assert servers._answers(ports["dagster_port"]) is False


_STARTS = """
import sys, time
from orchestration import servers
server = servers._start([sys.executable, "-c", "import time; time.sleep(60)"], sys.stderr, 5000)
print(server.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_server_ends_with_a_command_that_was_killed():
    with subprocess.Popen([sys.executable, "-c", _STARTS], stdout=subprocess.PIPE, text=True, cwd=PROJECT) as command:
        server = int(command.stdout.readline())
        command.kill()
    for _ in range(400):
        try:
            stat = Path(f"/proc/{server}/stat").read_text()
        except OSError:
            return
        if stat.rpartition(")")[2].split()[0] == "Z":  # ended, and not yet waited for by whoever took it over
            return
        time.sleep(0.05)
    os.kill(server, signal.SIGKILL)
    pytest.fail("the server is still there")


def test_dagster_is_told_where_mlflow_is_served(workspace, monkeypatch, tmp_path):
    with (tmp_path / "said").open("w") as output:
        asked = f"import os, sys; sys.stdout.write(os.environ[{MLFLOW_PORT!r}])"
        assert servers._start([sys.executable, "-c", asked], output, 5017).wait() == 0
    assert (tmp_path / "said").read_text() == "5017"
    monkeypatch.setenv(MLFLOW_PORT, "5017")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert workspace.tracking_page == "http://127.0.0.1:5017"
