"""A function in a process of its own, so that its time and its peak memory are its own."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any


def peak_mib() -> float:
    """Return the most memory that this process has held, in MiB.

    Linux hands `ru_maxrss` of a process down to what it starts, so that a small child of a large parent would seem
    large: there the kernel's own mark of this program is read.
    """
    status = Path("/proc/self/status")
    if status.exists():
        marks = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(marks["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_a_process(module: str, *arguments: object) -> dict[str, Any]:
    """Run `python -m module arguments`; return the JSON that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
