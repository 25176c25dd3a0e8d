"""The process that workers are forked from: it makes their imports once, beginning with the command itself.

It is started anew, so that no thread, database or device of the audit is copied. Its imports take seconds; meanwhile
the audit looks at what is out of date. Where nothing is, they were made for nothing, on a core that had nothing to do.
"""

import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

from plumbline.concurrency import usable_cores

# Elsewhere libraries of the system do not survive a fork.
PROCESSES: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")


def import_ahead() -> None:
    """Begin to make the imports of workers, before it is known that there is something to do for several.

    Not on a machine that is busy: there is no core then that has nothing to do.
    """
    if os.getloadavg()[0] < usable_cores() > 1:
        import_for_workers()


def import_for_workers() -> None:
    """Begin to start the process that workers are forked from, unless it is there; return at once.

    That process ends with the thread that calls this: it must live as long as its workers are wanted.
    """
    if PROCESSES.get_start_method() != "forkserver":
        return
    from multiprocessing import forkserver

    # Each has as many threads of torch as there are cores; one that has nothing to do must not keep a core busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    PROCESSES.set_forkserver_preload(["orchestration.worker_imports"])
    # Until its imports are made it would meet Ctrl-C; each worker sets what it does itself.
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        forkserver.ensure_running()
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
