"""Dagster and MLflow side by side, on loopback."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from rich.console import Console

from orchestration.guard import LOOPBACK
from orchestration.instance import opened, register_partitions
from plumbline.errors import PlumblineError
from resources.checkout import PROJECT
from resources.tracking import Tracking, TrackingUnavailable
from resources.workspace import MLFLOW_PORT, Workspace

_STOP_S = 10.0
# Between two tries to start MLflow over a store that another program holds.
_AGAIN_S = 15.0


_PR_SET_PDEATHSIG = 1


class PortTaken(PlumblineError):
    """A port that a server needs is in use."""


def serve(workspace: Workspace, *, dagster_port: int, mlflow_port: int, console: Console) -> int:
    """Start both servers and wait; when one ends, or on Ctrl-C, stop the other. Returns an exit code."""
    local = workspace.tracking_uri.startswith("sqlite:")
    for port in (dagster_port, mlflow_port) if local else (dagster_port,):
        _require_free(port)
    with opened(workspace) as instance:
        register_partitions(instance, workspace)
    commands = {"Dagster": _dagster(dagster_port), "the daemon": _daemon()}
    pages = {"Dagster": _Pages(dagster_port, dagster_pages(dagster_port))}
    held = None
    if local:
        commands["MLflow"] = _mlflow(workspace, mlflow_port)
        page, held = _mlflow_page(workspace, mlflow_port)
        pages["MLflow"] = _Pages(mlflow_port, {"runs": page})
        if held is not None:
            console.print(held, style="yellow", soft_wrap=True, highlight=False, markup=False)
    else:  # A tracking server of one's own needs none beside it.
        console.print(f"MLflow   {workspace.tracking_place}")
    # A script's background processes ignore SIGINT unless they ask for it.
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    log = workspace.home / "ui.log"
    console.print(f"starting; what the servers say goes to {log}", style="dim", soft_wrap=True)
    if log.exists():  # what it said when it last ended
        log.replace(log.with_name("ui.log.1"))
    with log.open("w") as output:
        start = {name: partial(_start, command, output, mlflow_port) for name, command in commands.items()}
        processes = {name: begin() for name, begin in start.items()}
        try:
            return _watch(processes, pages, console, again={"MLflow": start["MLflow"]} if held else {})
        except KeyboardInterrupt:
            return 0
        finally:
            _stop(list(processes.values()))


def _dagster(port: int) -> list[str]:
    return [sys.executable, "-m", "orchestration.guard", "--port", str(port)]


def _daemon() -> list[str]:
    # Beside the interpreter, as pip puts it; `dagster dev` would start a webserver without the guard.
    return [str(Path(sys.executable).with_name("dagster-daemon")), "run", "-w", "workspace.yaml"]


def _mlflow(workspace: Workspace, port: int) -> list[str]:
    return [
        sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1",
        "--app-name", "plumbline",
        "--backend-store-uri", workspace.tracking_uri,
        "--artifacts-destination", workspace.tracking_artifacts.as_uri(),
    ]  # fmt: skip


def dagster_pages(port: int) -> dict[str, str]:
    """Return what is shown -> the page of Dagster; its front page is a timeline, empty after `plumbline audit`."""
    return {"graph": f"http://{LOOPBACK}:{port}/asset-groups", "runs": f"http://{LOOPBACK}:{port}/runs"}


class _Pages(NamedTuple):
    """Where a server answers, and what is shown -> its page."""

    port: int
    addresses: Mapping[str, str]


class _RunsPage(NamedTuple):
    """MLflow's page with the runs, and what to say where the store cannot be used now."""

    address: str
    held: str | None


def _mlflow_page(workspace: Workspace, port: int) -> _RunsPage:
    page = f"http://{LOOPBACK}:{port}"
    try:
        shown = Tracking(workspace).runs_page().removeprefix(workspace.tracking_page)
        return _RunsPage(f"{page}{shown}", None)
    except TrackingUnavailable as error:
        held = (
            f"MLflow's store {workspace.tracking_uri} cannot be used now ({error}): end the program that holds it; "
            f"Dagster works meanwhile, and MLflow is tried again every {_AGAIN_S:.0f} s until it starts."
        )
        return _RunsPage(page, held)


def _start(command: list[str], output: IO[str], mlflow_port: int) -> subprocess.Popen:
    environment = {
        **os.environ,
        MLFLOW_PORT: str(mlflow_port),  # where links of Dagster's pages lead to
        # Without it the server starts seven consumers of about 260 MB each.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    # Own process groups, so that the children of each server end with it.
    return subprocess.Popen(  # noqa: S603
        command, cwd=PROJECT, env=environment, stdout=output, stderr=output, start_new_session=True,
        preexec_fn=_ends_with_its_parent(),
    )  # fmt: skip


def _ends_with_its_parent() -> Callable[[], object] | None:
    """Return what makes Linux end a server when `plumbline ui` is gone without a word; other systems cannot."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return partial(prctl, _PR_SET_PDEATHSIG, signal.SIGTERM)


def _watch(
    processes: dict[str, subprocess.Popen],
    pages: Mapping[str, _Pages],
    console: Console,
    *,
    again: Mapping[str, Callable[[], subprocess.Popen]],
) -> int:
    """Print each page once it answers, then wait until a server ends; those in `again` get there by more tries."""
    waiting, due = dict(pages), time.monotonic() + _AGAIN_S
    while True:
        ended = [name for name, process in processes.items() if process.poll() is not None]
        if lost := [name for name in ended if name not in again or name not in waiting]:
            break
        if ended and time.monotonic() >= due:
            processes.update({name: again[name]() for name in ended})
            due = time.monotonic() + _AGAIN_S
        for name, (port, addresses) in list(waiting.items()):
            if _answers(port):
                del waiting[name]
                for shown, address in addresses.items():
                    console.print(f"{name:<8} {shown:<6} {address}", soft_wrap=True)
                if not waiting:
                    console.print("Ctrl-C stops everything.", style="dim")
        time.sleep(0.5)
    console.print(f"{lost[0]} ended with code {processes[lost[0]].returncode}; see the log", style="red")
    return 1


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise PortTaken(
                "a port is in use",
                where=f"{LOOPBACK}:{port}",
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
            process.wait()
