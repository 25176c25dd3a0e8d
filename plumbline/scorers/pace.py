"""Keeping to a rate, also across threads, and resting when told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Time and waiting, so that tests need not wait.

    Attributes
    ----------
    monotonic, wall : callable
        Seconds that never go back, and seconds since 1970.
    sleep : callable
        Called with seconds.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


class Pace:
    """Lets at most so many callers through a second, evenly, and none while resting.

    Parameters
    ----------
    per_second : float
    clock : Clock
    """

    def __init__(self, per_second: float, clock: Clock) -> None:
        self.clock = clock
        self._apart = 1.0 / per_second
        self._next = clock.monotonic()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when it is this caller's turn."""
        with self._lock:
            turn = max(self._next, self.clock.monotonic())
            self._next = turn + self._apart
        while (left := turn - self.clock.monotonic()) > 0:
            self.clock.sleep(left)

    def rest(self, seconds: float) -> None:
        """Let nobody else through for so long; those who already have their turn are not held."""
        with self._lock:
            self._next = max(self._next, self.clock.monotonic() + seconds)
