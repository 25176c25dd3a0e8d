"""The command line in processes of its own, forked from one that has made their imports already.

Importing torch, Dagster, MLflow and Great Expectations is three quarters of the time of a small audit. Whatever else a
process of its own is good for holds for a forked one: it is killed and interrupted alone, and shares no state with the
tests or with another command.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

PROJECT = Path(__file__).parents[2]
LIBRARIES = (
    "dagster._core.workspace.context", "great_expectations", "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_workspace_store", "mlflow.tracking", "open_clip", "transformers",
    "typer.main", "watchdog.observers",
)  # fmt: skip


class Command:
    """A command that was started; what the tests use of `subprocess.Popen`."""

    def __init__(self, server: "Server", pid: int, output: int) -> None:
        self._server, self.pid, self.returncode = server, pid, None
        self.stdout = os.fdopen(output, encoding="utf-8")

    def poll(self) -> int | None:
        if self.returncode is None:
            status = self._server.status(self.pid)
            self.returncode = None if status is None else os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[str, None]:
        deadline, read = time.monotonic() + timeout, b""
        while True:
            ready, _, _ = select.select([self.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired("plumbline", timeout, output=read)
            part = os.read(self.stdout.fileno(), 1 << 16)
            if not part:
                break
            read += part
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("plumbline", timeout, output=read)
            time.sleep(0.01)
        self.stdout.close()
        return read.decode(), None


class Server:
    """The process that commands are forked from, one for all workers of a run; it ends with the last of them.

    Parameters
    ----------
    environment : mapping of str to str, optional
        What it is started with besides this process's own; there is one process for each.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
        other = "".join(sorted(environment or ""))
        path = Path(tempfile.gettempdir(), f"plumbline-{run[:20]}{other}.socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = None
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                self._process = _started(path, {**os.environ, **(environment or {})})
            self._socket.connect(str(path))
        self._statuses: dict[int, int] = {}
        atexit.register(self._socket.close)

    def start(self, arguments: tuple[str, ...], environment: dict[str, str]) -> Command:
        """Start `python -m orchestration` with arguments, in a session of its own; after `-c`, code of the test's."""
        output, theirs = os.pipe()
        sent = json.dumps({"arguments": arguments, "environment": environment}).encode()
        socket.send_fds(self._socket, [sent], [theirs])
        os.close(theirs)
        pid = None
        while pid is None:
            pid = self._receive()
        # Of an earlier command: the system gives numbers again.
        self._statuses.pop(pid, None)
        return Command(self, pid, output)

    def status(self, pid: int) -> int | None:
        """Return how a command ended, None while it runs."""
        while pid not in self._statuses and select.select([self._socket], [], [], 0)[0]:
            self._receive()
        return self._statuses.get(pid)

    def _receive(self) -> int | None:
        """Read one message: the process that was started, or how one ended."""
        message = json.loads(self._socket.recv(1 << 16) or '{"gone": true}')
        assert "gone" not in message, "the process that commands are forked from is gone"
        if "status" in message:
            self._statuses[message["pid"]] = message["status"]
            return None
        return message["pid"]


def _started(path: Path, environment: Mapping[str, str]) -> subprocess.Popen:
    """Start the process, listening at a path already: who connects before it is ready waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        return subprocess.Popen(
            [sys.executable, __file__, str(listening.fileno())], cwd=PROJECT, env=environment,
            pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip


server = functools.cache(Server)


def _prepare() -> None:
    """Import what commands import; the only threads that this starts are those of allocators, which know of forks."""
    gc.disable()
    # A power cut is not among what the tests do to a command.
    os.fsync = lambda descriptor: None
    # Whose values are read at import, and set by the program itself before.
    os.environ |= {"HF_HUB_OFFLINE": "1", "GX_ANALYTICS_ENABLED": "false"}
    sys.path[0] = str(PROJECT)
    from plumbline.checkpoints.operators import declare_missing_operators

    declare_missing_operators()
    for library in LIBRARIES:
        __import__(library)
    # Of the program itself, what reads no environment at import.
    for package in ("assets", "resources"):
        for path in sorted((PROJECT / package).glob("*.py")):
            __import__(f"{package}.{path.stem}" if path.stem != "__init__" else package)
    for module in ("conditions", "executors", "instance", "jobs", "observing", "audit_plan"):
        __import__(f"orchestration.{module}")
    assert "plumbline.commands.terminal" not in sys.modules, "it reads how wide the terminal is"
    gc.freeze()
    # As for the tests themselves, see their `conftest.py`.
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def _serve(listening: socket.socket) -> tuple[list[str], dict[str, str], int]:
    """Fork whenever a command is asked for; returns, in the new process, its arguments, environment and output."""
    connections: list[socket.socket] = []
    children: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listening, *connections], [], [], 0.02 if children else None)
        for child, connection in list(children.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                del children[child]
                with contextlib.suppress(OSError):
                    connection.send(json.dumps({"pid": pid, "status": status}).encode())
        for asking in ready:
            if asking is listening:
                connections.append(listening.accept()[0])
                continue
            sent, output, _, _ = socket.recv_fds(asking, 1 << 20, 1)
            if not sent:
                connections.remove(asking)
                asking.close()
                if not connections:
                    for suffix in (".socket", ".lock"):
                        Path(listening.getsockname()).with_suffix(suffix).unlink(missing_ok=True)
                    os._exit(0)
                continue
            if (pid := os.fork()) == 0:
                for connection in (listening, *connections):
                    connection.close()
                command = json.loads(sent)
                return command["arguments"], command["environment"], output[0]
            os.close(output[0])
            children[pid] = asking
            asking.send(json.dumps({"pid": pid}).encode())


def _run(arguments: list[str]) -> NoReturn:
    """Run the program, or code after `-c`, and end as the interpreter does, but for taking down what was imported.

    That touches every page that this process has in common with the one it was forked from: half a second a command.
    """
    code: object = 0
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(arguments[1], {"__name__": "__main__"})
        else:
            sys.argv = ["plumbline", *arguments]
            runpy.run_module("orchestration", run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        code = exit_.code
    except KeyboardInterrupt:
        traceback.print_exc()
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        code = 1
    if not (code is None or isinstance(code, int)):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    listening = socket.socket(fileno=int(sys.argv[1]))
    _prepare()
    arguments, environment, written = _serve(listening)
    with contextlib.suppress(PermissionError):
        os.setsid()
    for number in (1, 2):
        os.dup2(written, number)
    os.close(written)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    _run(arguments)
