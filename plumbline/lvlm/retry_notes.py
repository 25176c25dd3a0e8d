"""What is said of requests that are tried again: a line a while for each address, not one for each attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable

from plumbline.lvlm.chat_fault import ChatFault

EVERY_S = 30.0
"""Between two lines about the same address, for it has many slots that all fail at once."""

_log = logging.getLogger(__name__)


class RetryNotes:
    """Tells of faults that are tried again.

    Parameters
    ----------
    monotonic : callable
        Seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[str, float] = {}

    def tell(self, url: str, fault: ChatFault, *, attempt: int, attempts: int, wait_s: float) -> None:
        """Say which attempt failed and when the next is, unless this address was told of a moment ago.

        Parameters
        ----------
        attempt, attempts : int
            The attempt that failed, from 1, and how many there are; of the last one, and of what is not tried again,
            the caller's error tells.
        wait_s : float
            Until the next, at least; a pause that the endpoint asked for counts where it is longer.
        """
        now = self._monotonic()
        if fault.kind != "passing" or attempt >= attempts or now < self._due.get(url, now):
            return
        self._due[url] = now + EVERY_S
        wait = max(wait_s, fault.pause_s or 0.0)
        _log.warning(
            "%s: attempt %d of %d failed: %s; the next in about %.0f s", url, attempt, attempts, fault, wait
        )


def silence_stamina() -> None:
    """Let stamina itself report nothing: its lines name neither the address nor the wait."""
    from stamina.instrumentation import set_on_retry_hooks

    set_on_retry_hooks([])
