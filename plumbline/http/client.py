"""The client of HTTP endpoints: several addresses at once, faults tried again, replies of bounded size, a safe key.

httpx2 keeps the connections, their time limits and the proxies; stamina decides when an attempt is repeated. What is
done here is what neither does: the key reaches the endpoint and nothing else, a reply cannot fill the memory, a pause
that an endpoint asks for holds for all of its slots, requests that one address cannot answer go to others, and
whatever ends a call, all that was answered is handed out first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from plumbline.errors import GenerationError
from plumbline.http.retries import Clock, EndpointFault, RateLimiter, RetryNotes, fault_of_status, on_one_line
from plumbline.http.settings import EndpointKey, EndpointSettings, is_loopback, read_key

if TYPE_CHECKING:
    import httpx2

MOST_REPLY_BYTES = 8 << 20
"""Of one reply, a few thousand times what 512 tokens take: a hostile endpoint cannot fill the memory."""

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Of the waits between two attempts, which double each time, where the endpoint does not say how long."""

SET_ASIDE_S = 300.0
"""For how long a later call leaves out an endpoint that was down, while another is left."""

_LONGEST_CONNECT_S = 15.0
_CONNECTION_WORDS = {"ConnectError": "no connection", "ReadError": "the connection was cut"}

_log = logging.getLogger(__name__)

Item = TypeVar("Item")


class MalformedReply(ValueError):
    """A reply that is not what was asked for, or is not read to its end."""


# One request and its reply.


class Response(NamedTuple):
    """What an endpoint sent back: status, headers and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def open_http(url: str, *, timeout_s: float) -> httpx2.AsyncClient:
    """Return the connections to one endpoint; close them in the event loop that used them.

    Redirects are not followed, since the key would travel along. Proxies and certificates of the environment are used,
    but never for this machine itself.
    """
    import httpx2

    by_environment = not is_loopback(url)
    return httpx2.AsyncClient(
        base_url=url,
        verify=_trusted(by_environment),
        timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, _LONGEST_CONNECT_S)),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        follow_redirects=False,
        trust_env=by_environment,
        # No cookie is kept: one request would say something about another.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        # What comes back packed could be a thousand times as large unpacked.
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    )


@cache
def _trusted(by_environment: bool) -> ssl.SSLContext:
    """Return whose certificates are believed, read once: that takes longer than many a request."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=by_environment)


async def exchange(
    http: httpx2.AsyncClient, path: str, *, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
) -> Response:
    """Send a body as JSON, or nothing, and read the whole reply.

    Of an error whose body is larger than `MOST_REPLY_BYTES`, or packed, the status counts: the body is left empty.

    Raises
    ------
    MalformedReply
        If the reply is no error, and larger than `MOST_REPLY_BYTES` or packed.
    httpx2.TransportError
        If there is no connection, or it ends too early. It holds the request with its headers: do not let it out.
    """
    content = None if body is None else json.dumps(body).encode()
    described = {} if content is None else {"Content-Type": "application/json"}
    method = "GET" if content is None else "POST"
    async with http.stream(method, path, content=content, headers={**described, **headers}) as response:
        try:
            whole = await _whole(response)
        except MalformedReply:
            if HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES:
                raise
            whole = b""
        return Response(response.status_code, response.headers, whole)


async def _whole(response: httpx2.Response) -> bytes:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise MalformedReply("it is packed, though that was not asked for")
    whole = bytearray()
    async for piece in response.aiter_raw():
        whole += piece
        if len(whole) > MOST_REPLY_BYTES:
            raise MalformedReply(f"it is larger than {MOST_REPLY_BYTES >> 20} MiB")
    return bytes(whole)


def read_json(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a reply; raises MalformedReply if it is something else."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedReply(f"it is not JSON: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise MalformedReply("it is not a JSON object")
    return content


class Request(Protocol):
    """One thing to ask."""

    @property
    def where(self) -> str:
        """Return what it is about, for errors."""


RequestT = TypeVar("RequestT", bound=Request)
ReplyT = TypeVar("ReplyT")


# The endpoints of one call.


class Endpoint(Generic[RequestT, ReplyT]):
    """One base URL during one call of the client.

    Attributes
    ----------
    fault : EndpointFault or None
        Why it is set aside; None while it is in use.
    answered : int
        Requests that it has answered.
    """

    def __init__(self, url: str, client: EndpointClient[RequestT, ReplyT], key: EndpointKey) -> None:
        self.url = url
        self.fault: EndpointFault | None = None
        self.answered = 0
        self.http = open_http(url, timeout_s=client.settings.timeout_s)
        self._client, self._key = client, key
        self._limiter = RateLimiter(client.clock, client.per_second)

    async def ask(self, request: RequestT) -> ReplyT:
        """Ask until there is an answer or the attempts are used up.

        Raises
        ------
        EndpointFault
            The last one.
        GenerationError
            If the body cannot be made, as where an image is gone.
        """
        import stamina

        attempts = stamina.retry_context(
            on=self._again,
            attempts=self._client.settings.attempts,
            timeout=None,
            wait_initial=FIRST_WAIT_S,
            wait_max=LONGEST_WAIT_S,
            wait_jitter=FIRST_WAIT_S,
        )
        async for attempt in attempts:
            with attempt:
                await self._limiter.wait()
                body = await asyncio.to_thread(self._client.body, request)
                # Raised out here: what the libraries raise holds the request with its headers.
                outcome = await self._outcome(request, body)
                if not isinstance(outcome, EndpointFault):
                    self.answered += 1
                    return outcome
                if self.fault is None:
                    most, wait_s = self._client.settings.attempts, float(attempt.next_wait)
                    self._client.notes.tell(self.url, outcome, attempt=attempt.num, attempts=most, wait_s=wait_s)
                raise outcome
        raise AssertionError("every attempt returns or raises")

    def _again(self, error: Exception) -> bool:
        """Say whether to try again: after the longer of its own wait and of the pause that the endpoint asks for.

        The pause is kept by all of its slots. One of zero, or less, does not use up the attempts within a second.
        """
        if not isinstance(error, EndpointFault) or error.kind != "passing" or self.fault is not None:
            return False
        if error.pause_s is not None:
            self._limiter.rest(error.pause_s)
        return True

    async def _outcome(self, request: RequestT, body: Mapping[str, Any]) -> ReplyT | EndpointFault:
        import httpx2

        client, seconds = self._client, self._client.settings.timeout_s
        try:
            async with asyncio.timeout(seconds):
                response = await exchange(self.http, client.path, headers=client.authorization(self._key), body=body)
            reply = client.read(request, response, self._key)
        except (httpx2.TimeoutException, TimeoutError):
            hint = "raise `timeout_s`, or lower `concurrency`: requests may wait in the endpoint's queue"
            return EndpointFault("passing", f"no answer within {seconds:g} s", hint)
        except MalformedReply as error:
            return EndpointFault("passing", f"the reply is no {client.wanted}: {error}", client.malformed_hint)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            kind, message = type(error).__name__, on_one_line(self._key.scrub(str(error)))
            what = _CONNECTION_WORDS.get(kind, kind) + (f": {message}" if message else "")
            return EndpointFault("passing", what, "start the endpoint, or correct `urls`")
        if reply is not None:
            return reply
        return fault_of_status(
            response.status,
            response.headers,
            response.body,
            key=self._key,
            key_variable=client.settings.key_variable,
            now=client.clock.wall(),
        )


class RequestQueue:
    """The requests of one call, by position, in order: whichever endpoint is free takes the next.

    A request that one endpoint could not answer goes to those that have not tried it.

    Parameters
    ----------
    where : sequence of str
        What each request is about, for errors.
    endpoints : sequence of Endpoint
    """

    def __init__(self, where: Sequence[str], endpoints: Sequence[Endpoint[Any, Any]]) -> None:
        self._where, self._endpoints = where, endpoints
        self._waiting = deque(range(len(where)))
        self._unanswered = len(where)
        self._tried: dict[int, dict[Endpoint[Any, Any], EndpointFault]] = {}
        self._changed = asyncio.Condition()

    async def take(self, endpoint: Endpoint[Any, Any]) -> int | None:
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
        self, position: int, endpoint: Endpoint[Any, Any], fault: EndpointFault, *, again: bool = False
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
                    raise _fault_error([*tried.values()][-1], self._where[stuck])
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


def _fault_error(fault: EndpointFault, where: str) -> GenerationError:
    return GenerationError(
        "an endpoint could not answer; finished answers are kept", where=where, found=fault.what, hint=fault.hint
    )


# The client.


class EndpointClient(Generic[RequestT, ReplyT]):
    """Asks one service at one or several addresses; a subclass says what is sent and how replies are read.

    Each URL has `settings.concurrency` slots; a free slot takes the next request. Tried again, with waits that double
    or as long as Retry-After says: 408, 409, 429, 5xx, time-outs, cut connections, and malformed replies. An endpoint
    whose attempts at one request are used up, while it answered nothing else meanwhile, is down: it is set aside, and
    others take over its requests. A request that met 429 each time, while others were answered, waits its turn again;
    any other goes to endpoints that have not tried it, or ends the call.

    401, 403, 404 and a redirect end the call at an endpoint that never answered, since they are mistakes of the
    settings; one that answered before is set aside. Another 4xx ends the call.

    Parameters
    ----------
    settings : EndpointSettings
        The key is read from the environment by every call, and not kept.
    per_second : float, optional
        Most requests a second at each URL, attempts included.
    clock : Clock, optional
        For tests.
    """

    path: str
    """Of the service, after the base URL."""

    wanted: str
    """What a reply should be, for messages."""

    malformed_hint: str | None = None
    """What to do where it is not."""

    def __init__(self, settings: EndpointSettings, *, per_second: float = math.inf, clock: Clock | None = None) -> None:
        self.settings, self.per_second, self.clock = settings, per_second, clock or Clock()
        self.notes = RetryNotes(self.clock.monotonic)
        self._aside: dict[str, float] = {}
        self._have_answered: set[str] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings.model!r} at {', '.join(self.settings.urls)})"

    def body(self, request: RequestT) -> Mapping[str, Any]:
        """Return what is sent, when it is sent: only the images under way are in memory. Called in a thread."""
        raise NotImplementedError

    def read(self, request: RequestT, response: Response, key: EndpointKey) -> ReplyT | None:
        """Return the reply, None for an error that its status explains; raises MalformedReply if it is neither."""
        raise NotImplementedError

    def authorization(self, key: EndpointKey) -> Mapping[str, str]:
        """Return the headers that hold the key."""
        return {"Authorization": key.authorization} if key.authorization else {}

    def ask_all(self, requests: Sequence[RequestT]) -> Iterator[tuple[int, ReplyT]]:
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
        yield from in_background(partial(self._ask_all, requests, key))

    async def _ask_all(
        self, requests: Sequence[RequestT], key: EndpointKey, hand_out: Callable[[tuple[int, ReplyT]], None]
    ) -> None:
        from stamina.instrumentation import set_on_retry_hooks

        # stamina's own lines name neither the address nor the wait.
        set_on_retry_hooks([])
        async with contextlib.AsyncExitStack() as stack:
            endpoints = [Endpoint(url, self, key) for url in self._urls()]
            for endpoint in endpoints:
                await stack.enter_async_context(endpoint.http)
            queue = RequestQueue([request.where for request in requests], endpoints)
            slots = [
                asyncio.create_task(self._serve(endpoint, queue, requests, hand_out))
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
        now = self.clock.monotonic()
        in_use = [url for url in self.settings.urls if self._aside.get(url, now) <= now]
        return in_use or list(self.settings.urls)

    async def _serve(
        self,
        endpoint: Endpoint[RequestT, ReplyT],
        queue: RequestQueue,
        requests: Sequence[RequestT],
        hand_out: Callable[[tuple[int, ReplyT]], None],
    ) -> None:
        """Worker loop for one concurrency slot."""
        while (position := await queue.take(endpoint)) is not None:
            before = endpoint.answered
            try:
                reply = await endpoint.ask(requests[position])
            except EndpointFault as fault:
                others = endpoint.answered - before
                self._settle(endpoint, fault, where=requests[position].where, answered=others)
                # Too many requests, while others were answered: it had bad luck, and nobody is to blame.
                await queue.give_back(position, endpoint, fault, again=fault.busy and others > 0)
                continue
            self._have_answered.add(endpoint.url)
            hand_out((position, reply))
            await queue.answered()

    def _settle(self, endpoint: Endpoint[RequestT, ReplyT], fault: EndpointFault, *, where: str, answered: int) -> None:
        """Decide whether a fault is the endpoint's, and end the call where it is a mistake of the settings."""
        known = endpoint.url in self._have_answered
        if fault.kind == "request" or (fault.kind == "endpoint" and not known):
            raise _fault_error(fault, f"{endpoint.url}, {where}")
        if fault.kind == "passing" and answered:
            _log.warning("%s could not answer one request and goes on: %s", endpoint.url, fault)
        elif endpoint.fault is None:
            endpoint.fault = fault
            self._aside[endpoint.url] = self.clock.monotonic() + SET_ASIDE_S
            _log.warning("%s is set aside: %s", endpoint.url, fault)


# From the event loop of a thread to a plain iterator.

STOP_S = 10.0
"""How long a stopped call may take to close its connections before its thread is left behind."""

# How often who waits looks up: a Ctrl-C that comes just as the wait begins does not end it by itself.
_GLANCE_S = 0.5


def in_background(work: Callable[[Callable[[Item], None]], Coroutine[Any, Any, None]]) -> Iterator[Item]:
    """Run a coroutine in a thread of its own, and yield what it hands out.

    Parameters
    ----------
    work : callable
        Takes a function that hands out one item, and gives the coroutine. Whatever it raises is raised here: an error
        or an interrupt comes after all items that were finished before it.
    """
    finished: SimpleQueue[tuple[Item] | None] = SimpleQueue()
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()
    task = loop.create_task(work(lambda item: finished.put((item,))))

    def run() -> None:
        try:
            with runner:
                runner.run(_ended(task))
        finally:
            finished.put(None)  # stands last

    thread = threading.Thread(target=run, name="plumbline-endpoint-call", daemon=True)
    thread.start()
    try:
        while (item := _next(finished)) is not None:
            yield item[0]
    except KeyboardInterrupt:
        _stop(loop, task, thread)
        while not finished.empty():
            if (item := finished.get()) is not None:
                yield item[0]
        raise
    finally:
        _stop(loop, task, thread)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _next(finished: SimpleQueue[tuple[Item] | None]) -> tuple[Item] | None:
    while True:
        with contextlib.suppress(Empty):
            return finished.get(timeout=_GLANCE_S)


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _stop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], thread: threading.Thread) -> None:
    """Abandon what is under way; does nothing where all is done."""
    with contextlib.suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(task.cancel)
    thread.join(STOP_S)
