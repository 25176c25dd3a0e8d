"""The client of chat completions: several endpoints of one model at once, from a plain iterator."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from plumbline.lvlm.chat_call import Call
from plumbline.lvlm.chat_endpoint import ChatEndpoint, ChatRequest, Clock
from plumbline.lvlm.chat_fault import ChatFault
from plumbline.lvlm.chat_reply import ChatReply
from plumbline.lvlm.chat_work import ChatWork, fault_error
from plumbline.lvlm.endpoint_key import EndpointKey, read_key
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.lvlm.retry_notes import RetryNotes, silence_stamina

SET_ASIDE_S = 300.0
"""For how long a later call leaves out an endpoint that was down, while another is left."""

_HandOut = Callable[[tuple[int, ChatReply]], None]
_log = logging.getLogger(__name__)


class ChatClient:
    """Asks one model behind one or several endpoints.

    Each URL has `settings.concurrency` slots; a free slot takes the next request. Tried again, with waits that double
    or as long as Retry-After says: 408, 409, 429, 5xx, time-outs, cut connections, and replies that are no chat
    completion. An endpoint whose attempts at one request are used up, while it answered nothing else meanwhile, is
    down: it is set aside, and others take over its requests. A request that met 429 each time, while others were
    answered, waits its turn again; any other goes to endpoints that have not tried it, or ends the call.

    401, 403, 404 and a redirect end the call at an endpoint that never answered, since they are mistakes of the
    settings; one that answered before is set aside. Another 4xx ends the call. Refusals and content filters are
    answers.

    Parameters
    ----------
    settings : EndpointSettings
        The key is read from the environment by every call, and not kept.
    clock : Clock, optional
        For tests.
    """

    def __init__(self, settings: EndpointSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or Clock()
        self._notes = RetryNotes(self._clock.monotonic)
        self._aside: dict[str, float] = {}
        self._have_answered: set[str] = set()

    def __repr__(self) -> str:
        return f"ChatClient({self.settings.model!r} at {', '.join(self.settings.urls)})"

    def ask_all(self, requests: Sequence[ChatRequest]) -> Iterator[tuple[int, ChatReply]]:
        """Yield (position in `requests`, reply) as replies come, each once.

        An error or an interrupt (Ctrl-C) is raised only after what had been answered until then was yielded; requests
        under way are abandoned.

        Raises
        ------
        GenerationError
            If a request cannot be answered, or no endpoint is left.
        ConfigError
            If the environment holds no key.
        """
        if not requests:
            return
        key = read_key(self.settings.key_variable)
        call: Call[tuple[int, ChatReply]] = Call(partial(self._ask_all, requests, key))
        try:
            yield from call.items()
        except KeyboardInterrupt:
            call.stop()
            yield from call.left()
            raise
        finally:
            call.stop()

    async def _ask_all(self, requests: Sequence[ChatRequest], key: EndpointKey, hand_out: _HandOut) -> None:
        silence_stamina()
        async with contextlib.AsyncExitStack() as stack:
            endpoints = [
                await stack.enter_async_context(
                    ChatEndpoint(url, self.settings, key, self._clock, self._notes)
                )
                for url in self._urls()
            ]
            work = ChatWork([request.where for request in requests], endpoints)
            slots = [
                asyncio.create_task(self._serve(endpoint, work, requests, hand_out))
                for endpoint in endpoints
                for _ in range(min(self.settings.concurrency, len(requests)))
            ]
            try:
                await asyncio.gather(*slots)
            finally:
                for slot in slots:
                    slot.cancel()
                await asyncio.gather(*slots, return_exceptions=True)

    def _urls(self) -> list[str]:
        now = self._clock.monotonic()
        in_use = [url for url in self.settings.urls if self._aside.get(url, now) <= now]
        return in_use or list(self.settings.urls)

    async def _serve(
        self,
        endpoint: ChatEndpoint,
        work: ChatWork,
        requests: Sequence[ChatRequest],
        hand_out: _HandOut,
    ) -> None:
        """Be one slot of an endpoint."""
        while (position := await work.take(endpoint)) is not None:
            before = endpoint.answered
            try:
                reply = await endpoint.ask(requests[position])
            except ChatFault as fault:
                others = endpoint.answered - before
                self._settle(endpoint, fault, where=requests[position].where, answered=others)
                # Too many requests, while others were answered: it had bad luck, and nobody is to blame.
                await work.give_back(position, endpoint, fault, again=fault.busy and others > 0)
                continue
            self._have_answered.add(endpoint.url)
            hand_out((position, reply))
            await work.answered()

    def _settle(self, endpoint: ChatEndpoint, fault: ChatFault, *, where: str, answered: int) -> None:
        """Decide whether a fault is the endpoint's, and end the call where it is a mistake of the settings."""
        known = endpoint.url in self._have_answered
        if fault.kind == "request" or (fault.kind == "endpoint" and not known):
            raise fault_error(fault, f"{endpoint.url}, {where}")
        if fault.kind == "passing" and answered:
            _log.warning("%s could not answer one request and goes on: %s", endpoint.url, fault)
        elif endpoint.fault is None:
            endpoint.fault = fault
            self._aside[endpoint.url] = self._clock.monotonic() + SET_ASIDE_S
            _log.warning("%s is set aside: %s", endpoint.url, fault)
