"""The client of chat endpoints: one request, its reply, and a queue that keeps several in flight."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plumbline.errors import GenerationError
from plumbline.http.keys import EndpointKey, read_key
from plumbline.http.retries import (
    ChatFault,
    RetryNotes,
    fault_of_status,
    is_filtered,
    on_one_line,
    silence_stamina,
)
from plumbline.http.settings import EndpointSettings
from plumbline.http.transport import open_client

if TYPE_CHECKING:
    import stamina
    from openai import AsyncOpenAI

UNREPORTED = "unreported"
_NAME_LENGTH = 200
_STOPPED_BY_LENGTH = ("length", "max_tokens")
_STOPPED = ("stop", "eos", "eos_token", "stop_sequence", "end_turn")


class MalformedReply(ValueError):
    """An endpoint answered 200 with what is no chat completion."""


@dataclass(frozen=True)
class ChatReply:
    """One answer.

    Attributes
    ----------
    text : str
        As it came; of a refusal the content, or where there is none the words of the refusal.
    finish_reason : str
        One of `plumbline.catalog.schema.FINISH_REASONS`.
    prompt_tokens, new_tokens : int
        As the endpoint counts them; 0 where it does not say. A prompt has at least one token, so 0 there always means
        that it did not.
    source : str
        What the endpoint reports: model, and fingerprint after a space; `unreported` where it names no model.
    """

    text: str
    finish_reason: str
    prompt_tokens: int = 0
    new_tokens: int = 0
    source: str = UNREPORTED


def read_reply(body: bytes, *, most_new_tokens: int | None, key: EndpointKey) -> ChatReply:
    """Read the body of a chat completion.

    Parameters
    ----------
    most_new_tokens : int or None
        What was asked for: decides between `stop` and `length` where the endpoint gives a reason of its own.

    Raises
    ------
    MalformedReply
        If it is not JSON, has no choice, or its text is not text.
    """
    content = _json(body)
    choice = _first_choice(content, key)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise MalformedReply("its choice has no message")
    text, refusal = _text(message.get("content")), message.get("refusal")
    usage = content.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    new_tokens = _count(usage.get("completion_tokens"))
    refusal = _text(refusal) if isinstance(refusal, str) else ""
    refused = bool(refusal.strip())
    return ChatReply(
        text=key.scrub_data(text or refusal),
        finish_reason=_finish(choice.get("finish_reason"), refused, new_tokens, most_new_tokens),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        new_tokens=new_tokens,
        source=key.scrub_data(_source(content)),
    )


def _json(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"it is not JSON: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise MalformedReply("it is not a JSON object")
    return content


def _first_choice(content: dict[str, Any], key: EndpointKey) -> dict[str, Any]:
    choices = content.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    # Some gateways answer 200 and say there what went wrong.
    said = on_one_line(key.scrub(str(content["error"]))) if "error" in content else ""
    raise MalformedReply("it has no choices" + (f", and says {said}" if said else ""))


def _text(content: Any) -> str:
    """Return the text of a message; some endpoints send it in parts."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        if all(isinstance(part, str) for part in parts):
            content = "".join(parts)  # type: ignore[arg-type]
    if not isinstance(content, str):
        raise MalformedReply("its content is not text")
    # JSON can spell half of a surrogate pair, which no file in UTF-8 can hold.
    return content.encode("utf-8", "replace").decode("utf-8")


def _finish(reason: Any, refused: bool, new_tokens: int, most_new_tokens: int | None) -> str:
    if reason == "content_filter":
        return "content_filter"
    if refused:
        return "refusal"
    if reason in _STOPPED_BY_LENGTH:
        return "length"
    if reason in _STOPPED or most_new_tokens is None:
        return "stop"
    return "length" if new_tokens >= most_new_tokens else "stop"


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0


def _source(content: dict[str, Any]) -> str:
    names = (content.get("model"), content.get("system_fingerprint"))
    said = [_text(name)[:_NAME_LENGTH] for name in names if isinstance(name, str) and name.strip()]
    return " ".join(said) if isinstance(names[0], str) and names[0].strip() else " ".join([UNREPORTED, *said])


# --- One endpoint as the client sees it: asks, waits as it is told, tries again, and knows whether it is
# down.

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


# --- A coroutine that works in a thread of its own while a plain iterator hands out what it finishes.

_Item = TypeVar("_Item")

STOP_S = 10.0
"""How long a stopped call may take to close its connections before its thread is left behind."""

GLANCE_S = 0.5
"""How often who waits looks up: a Ctrl-C that comes just as the wait begins does not end it by itself."""


class _End:
    """Stands last in the queue."""


class Call(Generic[_Item]):
    """One run of a coroutine, whose results are taken from another thread.

    Parameters
    ----------
    work : callable
        Takes a function that hands out one item, and gives the coroutine. Whatever it raises is raised by `items`.
    """

    def __init__(self, work: Callable[[Callable[[_Item], None]], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._finished: SimpleQueue[_Item | _End] = SimpleQueue()
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="plumbline-endpoint-call", daemon=True)

    def items(self) -> Iterator[_Item]:
        """Start, and yield items as they are finished; an error comes after all that was finished before it."""
        self._thread.start()
        while not isinstance(item := self._next(), _End):
            yield item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Abandon what is under way; does nothing where all is done."""
        self._stopped = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._cancel)
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        elif not self._loop.is_closed():
            self._loop.close()

    def left(self) -> Iterator[_Item]:
        """Yield what is finished and was not taken; after `stop`."""
        while True:
            try:
                item = self._finished.get_nowait()
            except Empty:
                return
            if not isinstance(item, _End):
                yield item

    def _next(self) -> _Item | _End:
        while True:
            try:
                return self._finished.get(timeout=GLANCE_S)
            except Empty:
                continue

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._finished.put(_End())

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        if not self._stopped:
            await self._work(self._finished.put)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


# --- What is still to be asked, and by whom: whichever endpoint is free takes the next request.


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


# --- The client of chat completions: several endpoints of one model at once, from a plain iterator.

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
