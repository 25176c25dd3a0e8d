"""Faults at system calls of a command on files of one folder: killed before, in the middle of or after it, or refused.

The calls are caught by `faults.c`, which is compiled once with the machine's C compiler and loaded before a command's
other libraries. So the points at which a fault is tried are the calls that a real run makes, those of SQLite, Arrow and
the C library included, and not places that somebody remembered.
"""

import contextlib
import ctypes
import errno
import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")

NOTHING, KILL_BEFORE, KILL_TORN, KILL_AFTER, FAIL_ONCE, FAIL_FROM_THEN, CLOCK = range(7)
"""What happens at a call, as in `faults.c`: a torn write leaves its first half."""


class _Plan(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("armed", "seen", "nth", "action", "error", "fired", "clock")),
        ("call", ctypes.c_char * 64),
        ("path", ctypes.c_char * 1024),
        ("folder", ctypes.c_char * 1024),
        ("trace", ctypes.c_char * 1024),
    ]


def compiler() -> str | None:
    """Return the machine's C compiler; without one there are no faults at system calls."""
    return shutil.which("cc") or shutil.which("gcc")


def preloaded() -> dict[str, str]:
    """Return the environment in which a program's system calls can be met by faults.

    It must be set before the process starts that commands are forked from.
    """
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = Path(tempfile.gettempdir(), f"plumbline-faults-{os.getuid()}-{name}.so")
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        command = [compiler(), "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        made.replace(library)
    return {"LD_PRELOAD": str(library)}


@dataclass(frozen=True)
class Point:
    """One kind of call on one kind of file, and how often a whole audit makes it.

    Attributes
    ----------
    call : str
        `create`, `open` (to write), `readopen`, `write`, `read`, `sync`, `truncate`, `rename`, `link`, `unlink` or
        `mkdir`; a file that is renamed or linked goes by its new name.
    path : str
        A pattern, in which what differs between runs is a star.
    times : int
        At least 1.
    """

    call: str
    path: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.call} {self.path}"


@dataclass(frozen=True)
class Fault:
    """What happens at which call.

    Attributes
    ----------
    point : Point
        The kind of call.
    nth : int
        The how many-th of its kind, from 1.
    action : int
        One of the actions above.
    error : int
        The error number of a call that is refused.
    clock : int
        By how many seconds the clock jumps.
    """

    point: Point
    nth: int
    action: int
    error: int = 0
    clock: int = 0

    def __str__(self) -> str:
        error = errno.errorcode.get(self.error)
        verb = {
            KILL_BEFORE: "killed before", KILL_TORN: "killed in the middle of", KILL_AFTER: "killed after",
            FAIL_ONCE: f"{error} at", FAIL_FROM_THEN: f"{error} from",
            CLOCK: f"clock moved by {self.clock} s at",
        }[self.action]  # fmt: skip
        return f"{verb} {self.point} ({self.nth} of {self.point.times})"


class Armed:
    """A plan that a command meets; used as a context, it is forgotten at the end.

    Attributes
    ----------
    environment : mapping of str to str
        With which the command is started.
    """

    def __init__(self, folder: Path, fault: Fault | None, *, traced: Path | None = None) -> None:
        handle, name = tempfile.mkstemp(prefix="plumbline-fault-")
        os.close(handle)
        self._file = Path(name)
        plan = _Plan(armed=1, folder=os.fsencode(folder), trace=os.fsencode(traced) if traced else b"")
        if fault is not None:
            plan.nth, plan.action, plan.error, plan.clock = fault.nth, fault.action, fault.error, fault.clock
            plan.call, plan.path = fault.point.call.encode(), os.fsencode(fault.point.path)
        self._file.write_bytes(bytes(plan))

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PLUMBLINE_FAULTS": str(self._file)}

    @property
    def fired(self) -> int:
        """How many calls met the fault."""
        return _Plan.from_buffer_copy(self._file.read_bytes()).fired

    def __enter__(self) -> "Armed":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink()


def points(trace: Path, folder: Path) -> list[Point]:
    """Return the kinds of calls in a trace, in the order of their first call, with patterns that match in any home."""
    kinds: Counter[tuple[str, str]] = Counter()
    for line in trace.read_text(errors="replace").splitlines():
        call, path = line.split(" ", 1)
        kinds[call, "*/" + _kind(path.removeprefix(str(folder)).lstrip("/"))] += 1
    return [Point(call, path, times) for (call, path), times in kinds.items()]


def _kind(path: str) -> str:
    """Return a path with stars for digests, identifiers and names of temporary files."""
    path = re.sub(r"[][?*]", "?", path.removesuffix(" (deleted)"))
    path = re.sub(r"[0-9a-f]{8,}(-[0-9a-f]{4,}){0,4}", "*", path)
    path = re.sub(r"(?<![a-z])tmp[a-z0-9_]{6,}", "*", path)
    path = re.sub(r"[^/.]*\.tmp$", "*.tmp", path)
    path = re.sub(r"/[0-9a-f]{2}(?=/)", "/*", path)
    return re.sub(r"\*[*-]*", "*", path)


def matching(every: list[Point], pattern: str) -> list[Point]:
    """Return the points on files whose path matches a pattern."""
    return [point for point in every if fnmatch.fnmatch(point.path, pattern)]


def within(fault: Fault, folder: Path) -> Fault:
    """Return a fault whose pattern is of one folder."""
    return replace(fault, point=replace(fault.point, path=f"{folder}/{fault.point.path.removeprefix('*/')}"))
