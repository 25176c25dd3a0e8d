"""What is still to be asked, and by whom: whichever endpoint is free takes the next request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from plumbline.errors import GenerationError
from plumbline.lvlm.chat_endpoint import ChatEndpoint
from plumbline.lvlm.chat_fault import ChatFault


class ChatWork:
    """The requests of one call, by position, in order.

    A request that one endpoint could not answer goes to those that have not tried it.

    Parameters
    ----------
    where : sequence of str
        What each request is about, for errors.
    endpoints : sequence of ChatEndpoint
    """

    def __init__(self, where: Sequence[str], endpoints: Sequence[ChatEndpoint]) -> None:
        self._where, self._endpoints = where, endpoints
        self._waiting = deque(range(len(where)))
        self._unanswered = len(where)
        self._tried: dict[int, dict[ChatEndpoint, ChatFault]] = {}
        self._changed = asyncio.Condition()

    async def take(self, endpoint: ChatEndpoint) -> int | None:
        """Return the next position for an endpoint; None when all are answered or it is set aside."""
        async with self._changed:
            while self._unanswered and endpoint.fault is None:
                untried = (p for p in self._waiting if endpoint not in self._tried.get(p, ()))
                if (position := next(untried, None)) is not None:
                    self._waiting.remove(position)
                    return position
                await self._changed.wait()
            return None

    async def answered(self) -> None:
        """Count one answer."""
        async with self._changed:
            self._unanswered -= 1
            if not self._unanswered:
                self._changed.notify_all()

    async def give_back(
        self, position: int, endpoint: ChatEndpoint, fault: ChatFault, *, again: bool = False
    ) -> None:
        """Put back what an endpoint could not answer.

        Parameters
        ----------
        again : bool
            Whether the same endpoint may take it once more.

        Raises
        ------
        GenerationError
            If no endpoint is left, or none that has not tried it.
        """
        async with self._changed:
            if not again:
                self._tried.setdefault(position, {})[endpoint] = fault
            self._waiting.appendleft(position)
            in_use = [other for other in self._endpoints if other.fault is None]
            if not in_use:
                raise self._all_down()
            for stuck, tried in self._tried.items():
                if stuck in self._waiting and all(other in tried for other in in_use):
                    raise fault_error([*tried.values()][-1], self._where[stuck])
            self._changed.notify_all()

    def _all_down(self) -> GenerationError:
        faults = [(other.url, other.fault) for other in self._endpoints if other.fault is not None]
        hints = dict.fromkeys(fault.hint for _, fault in faults if fault.hint)
        return GenerationError(
            "no endpoint answers any more; finished answers are kept",
            where=", ".join(url for url, _ in faults),
            found="; ".join(f"{url}: {fault}" for url, fault in faults),
            hint="; ".join(hints),
        )


def fault_error(fault: ChatFault, where: str) -> GenerationError:
    """Return the error of a fault that ends a call."""
    return GenerationError(
        "an endpoint could not answer; finished answers are kept",
        where=where,
        found=fault.what,
        hint=fault.hint,
    )
