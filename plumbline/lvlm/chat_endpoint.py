"""One endpoint as the client sees it: asks, waits as it is told, tries again, and knows whether it is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plumbline.lvlm.chat_fault import ChatFault, fault_of_status, is_filtered, on_one_line
from plumbline.lvlm.chat_reply import ChatReply, MalformedReply, read_reply
from plumbline.lvlm.chat_transport import open_client
from plumbline.lvlm.endpoint_key import EndpointKey
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.lvlm.retry_notes import RetryNotes

if TYPE_CHECKING:
    import stamina
    from openai import AsyncOpenAI

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Of the waits between two attempts, which double each time, where the endpoint does not say how long."""

_HTTP_CLIENT_WORDS = {"ConnectError": "no connection", "ReadError": "the connection was cut"}


@dataclass(frozen=True)
class Clock:
    """Time and waiting, so that tests need not wait.

    Attributes
    ----------
    monotonic, wall : callable
        Seconds that never go back, and seconds since 1970.
    sleep : callable
        Awaited with seconds.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True)
class ChatRequest:
    """One thing to ask.

    Attributes
    ----------
    messages : callable
        Gives the messages when they are sent, so that only the images under way are in memory. Called in a thread.
    parameters : mapping
        Sent beside model and messages, such as `max_tokens`; `extra_body` for what is not in OpenAI's API.
    where : str
        What this is about, for errors.
    most_new_tokens : int or None
        As in `read_reply`.
    """

    messages: Callable[[], Sequence[Mapping[str, Any]]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    most_new_tokens: int | None = None


class ChatEndpoint:
    """One base URL during one call of the client.

    Attributes
    ----------
    fault : ChatFault or None
        Why it is set aside; None while it is in use.
    answered : int
        Requests that it has answered.
    """

    def __init__(
        self, url: str, settings: EndpointSettings, key: EndpointKey, clock: Clock, notes: RetryNotes
    ) -> None:
        self.url = url
        self.fault: ChatFault | None = None
        self.answered = 0
        self._settings, self._key, self._clock, self._notes = settings, key, clock, notes
        self._resting_until = clock.monotonic()
        self._client: AsyncOpenAI | None = None

    async def __aenter__(self) -> ChatEndpoint:
        self._client = open_client(self.url, self._key, timeout_s=self._settings.timeout_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Ask until there is an answer or the attempts are used up.

        Raises
        ------
        ChatFault
            The last one.
        GenerationError
            If the messages cannot be made, as where an image is gone.
        """
        import stamina

        attempts = stamina.retry_context(
            on=self._again,
            attempts=self._settings.attempts,
            timeout=None,
            wait_initial=FIRST_WAIT_S,
            wait_max=LONGEST_WAIT_S,
            wait_jitter=FIRST_WAIT_S,
        )
        async for attempt in attempts:
            with attempt:
                await self._rest()
                try:
                    reply = await self._once(request)
                except ChatFault as fault:
                    if self.fault is None:
                        self._tell(fault, attempt)
                    raise
        self.answered += 1
        return reply

    def _tell(self, fault: ChatFault, attempt: stamina.Attempt) -> None:
        attempts = self._settings.attempts
        self._notes.tell(
            self.url, fault, attempt=attempt.num, attempts=attempts, wait_s=float(attempt.next_wait)
        )

    def _again(self, error: Exception) -> bool | float:
        """Say whether to try again. A pause that the endpoint asks for is kept by all of its slots, not by this one."""
        if not isinstance(error, ChatFault) or error.kind != "passing" or self.fault is not None:
            return False
        if error.pause_s is None:
            return True
        self._resting_until = max(self._resting_until, self._clock.monotonic() + error.pause_s)
        return 0.0

    async def _rest(self) -> None:
        while (wait := self._resting_until - self._clock.monotonic()) > 0:
            await self._clock.sleep(wait)

    async def _once(self, request: ChatRequest) -> ChatReply:
        # Raised out here and not in the `except` below: what the libraries raise holds the request with its headers.
        outcome = await self._outcome(request, await asyncio.to_thread(request.messages))
        if isinstance(outcome, ChatFault):
            raise outcome
        return outcome

    async def _outcome(
        self, request: ChatRequest, messages: Sequence[Mapping[str, Any]]
    ) -> ChatReply | ChatFault:
        import openai

        assert self._client is not None
        create: Any = self._client.chat.completions.with_raw_response.create
        seconds = self._settings.timeout_s
        try:
            async with asyncio.timeout(seconds):
                raw = await create(model=self._settings.model, messages=messages, **request.parameters)
            return read_reply(
                raw.http_response.content, most_new_tokens=request.most_new_tokens, key=self._key
            )
        except openai.APIStatusError as error:
            return self._of_status(error.response)
        except (openai.APITimeoutError, TimeoutError):
            hint = "raise `timeout_s`, or lower `concurrency`: requests may wait in the endpoint's queue"
            return ChatFault("passing", f"no answer within {seconds:g} s", hint)
        except MalformedReply as error:
            hint = "is this an address of chat completions? It often ends in /v1"
            return ChatFault("passing", f"the reply is no chat completion: {error}", hint)
        except openai.APIConnectionError as error:
            return ChatFault(
                "passing", self._in_words(error.__cause__ or error), "start the endpoint, or correct `urls`"
            )

    def _of_status(self, response: Any) -> ChatReply | ChatFault:
        status, body = response.status_code, response.content
        if is_filtered(status, body):
            return ChatReply(text="", finish_reason="content_filter")
        return fault_of_status(
            status,
            response.headers,
            body,
            key=self._key,
            key_variable=self._settings.key_variable,
            now=self._clock.wall(),
        )

    def _in_words(self, error: BaseException) -> str:
        kind = type(error).__name__
        said = on_one_line(self._key.scrub(str(error)))
        return f"{_HTTP_CLIENT_WORDS.get(kind, kind)}: {said}" if said else _HTTP_CLIENT_WORDS.get(kind, kind)
