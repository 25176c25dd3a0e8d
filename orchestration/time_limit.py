"""How long a run of this process may take: as long as the daemon would let it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class TimeLimit:
    """A limit in seconds, and whether it has passed."""

    seconds: int
    passed: bool = False

    @property
    def told(self) -> str:
        """Say what happened and what to do, for the list of what failed."""
        return (
            f"the run took longer than {self.seconds} s and was ended; what is finished is kept. Run the same command "
            "to go on, or change `run_monitoring.max_runtime_seconds` in dagster.yaml"
        )


@contextmanager
def time_limit(seconds: int) -> Iterator[TimeLimit]:
    """Interrupt what runs inside, as Ctrl-C does, when the time is over; 0 is no limit.

    Like Ctrl-C it waits for code that never comes back to Python. Only the main thread of a process can be
    interrupted: elsewhere there is no limit.
    """
    limit = TimeLimit(seconds)

    def end(*_: object) -> None:
        limit.passed = True
        signal.raise_signal(signal.SIGINT)

    if not seconds or threading.current_thread() is not threading.main_thread():
        yield limit
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield limit
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
