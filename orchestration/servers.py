"""Dagster and MLflow side by side, on loopback."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from rich.console import Console

from orchestration.instance import register_partitions, set_up
from plumbline.errors import PlumblineError
from resources.places import PROJECT, Places

_LOOPBACK = "127.0.0.1"
_STOP_S = 10.0


class PortTaken(PlumblineError):
    """A port that a server needs is in use."""


def serve(places: Places, *, dagster_port: int, mlflow_port: int, console: Console) -> int:
    """Start both servers and wait; when one ends, or on Ctrl-C, stop the other. Returns an exit code."""
    local = places.tracking_uri.startswith("sqlite:")
    for port in (dagster_port, mlflow_port) if local else (dagster_port,):
        _require_free(port)
    set_up(places)
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        register_partitions(instance, places)
    environment = {
        **os.environ,
        # Without it the server starts seven consumers of about 260 MB each.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    commands = {
        "Dagster": [
            sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", _LOOPBACK, "-p", str(dagster_port),
        ],
        "MLflow": [
            sys.executable, "-m", "mlflow", "server", "--host", _LOOPBACK, "--port", str(mlflow_port),
            "--workers", "1", "--backend-store-uri", places.tracking_uri,
            "--artifacts-destination", places.tracking_artifacts.as_uri(),
        ],
    }  # fmt: skip
    if not local:  # A tracking server of one's own needs none beside it.
        del commands["MLflow"]
    mlflow = f"http://{_LOOPBACK}:{mlflow_port}" if local else places.tracking_uri
    console.print(f"Dagster  http://{_LOOPBACK}:{dagster_port}", f"MLflow   {mlflow}", sep="\n")
    console.print("Ctrl-C stops both.", style="dim")
    # A script's background processes ignore SIGINT unless they ask for it.
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    processes = {
        # Own process groups, so that the children of each server end with it.
        name: subprocess.Popen(command, cwd=PROJECT, env=environment, start_new_session=True)  # noqa: S603
        for name, command in commands.items()
    }
    try:
        while all(process.poll() is None for process in processes.values()):
            time.sleep(0.5)
        ended = next(name for name, process in processes.items() if process.poll() is not None)
        console.print(f"{ended} ended with code {processes[ended].returncode}", style="red")
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(list(processes.values()))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _require_free(port: int) -> None:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError as error:
            raise PortTaken(
                "a port is in use",
                where=f"{_LOOPBACK}:{port}",
                hint="stop the other server, or choose ports with --dagster-port and --mlflow-port",
            ) from error


def _stop(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
    for process in processes:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
