"""Faults of an endpoint: what each means, how long to wait after one, at which rate to ask, and what the log says."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Literal

from plumbline.http.settings import EndpointKey

LONGEST_PAUSE_S = 300.0
"""A longer Retry-After is cut to this: the endpoint may then say again that it wants more time."""

FILTER_CODES = ("content_filter", "content_policy_violation", "moderation_blocked")
"""Codes of an HTTP 400 that mean: a filter took offence. Azure gives the first."""

_PASSING = (408, 409, 429)
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
_SAID_LENGTH = 500


@dataclass(eq=False)
class EndpointFault(Exception):
    """A request without an answer.

    Attributes
    ----------
    kind : {"passing", "endpoint", "request"}
        `passing` may go away, so it is tried again; `endpoint` is a mistake in how the endpoint is used, whatever is
        asked; `request` is about this one request.
    what : str
        Free of keys.
    hint : str or None
    pause_s : float or None
        What the endpoint asked for with Retry-After, at most `LONGEST_PAUSE_S`.
    busy : bool
        Whether it only says that it gets too many requests (429).
    """

    kind: Literal["passing", "endpoint", "request"]
    what: str
    hint: str | None = None
    pause_s: float | None = None
    busy: bool = False

    def __str__(self) -> str:
        return self.what


def is_filtered(status: int, body: bytes) -> bool:
    """Return whether an error means that a content filter stepped in: that is an answer, not a fault."""
    return status == HTTPStatus.BAD_REQUEST and _error_code(body) in FILTER_CODES


def fault_of_status(
    status: int, headers: Mapping[str, str], body: bytes, *, key: EndpointKey, key_variable: str | None, now: float
) -> EndpointFault:
    """Return what an HTTP status other than 200 means.

    Parameters
    ----------
    key : EndpointKey
        Taken out of what the endpoint says.
    key_variable : str or None
        Where it comes from.
    now : float
        Seconds since 1970, against which a date in Retry-After is taken.
    """
    what = f"HTTP {int(status)}{_said(body, key)}"
    if status == HTTPStatus.TOO_MANY_REQUESTS and _error_code(body) in _NO_CREDIT:
        return EndpointFault("endpoint", what, "the account behind the key has no credit left: add some, and run again")
    if status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return EndpointFault(
            "passing",
            what,
            "wait until the endpoint works, and run again; a lower `concurrency` may be needed",
            pause_s=_pause(headers, now),
            busy=status == HTTPStatus.TOO_MANY_REQUESTS,
        )
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        target = on_one_line(key.scrub(headers.get("location", "")))
        hint = "redirects are not followed, since the key would travel along: write the final address into `urls`"
        return EndpointFault("endpoint", f"{what}, a redirect to {target}", hint)
    named = f"the environment variable {key_variable}" if key_variable else "`key_variable`, which names none"
    hints = {
        HTTPStatus.UNAUTHORIZED: f"the key is missing or wrong: correct {named}",
        HTTPStatus.FORBIDDEN: f"the key must not use this model: ask for access, or correct {named}",
        HTTPStatus.NOT_FOUND: "no such model or path: correct `model` or `urls`, which often end in /v1",
        HTTPStatus.METHOD_NOT_ALLOWED: "this path takes no chat completions: correct `urls`, which often end in /v1",
    }
    if status in hints:
        return EndpointFault("endpoint", what, hints[HTTPStatus(status)])
    hint = (
        "the endpoint refuses the request itself: read what it says; it may not take images, a seed "
        "(`send_seed: false`), or call the length otherwise (`length_field`)"
    )
    return EndpointFault("request", what, hint)


def _pause(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that Retry-After asks for: a number or a date; of two headers the finer."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            return _bounded(float(headers[name]) * scale)
        except (KeyError, ValueError):
            continue
    try:
        return _bounded(parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float) -> float | None:
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), LONGEST_PAUSE_S)


def _error(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    error = content.get("error", content) if isinstance(content, dict) else None
    return error if isinstance(error, dict) else {"message": error}


def _error_code(body: bytes) -> str | None:
    code = _error(body).get("code")
    return code if isinstance(code, str) else None


def _said(body: bytes, key: EndpointKey) -> str:
    error = _error(body)
    message = error.get("message") or error.get("detail") or body.decode("utf-8", "replace")
    # Before it is cut: half a key is too much as well.
    shown = on_one_line(key.scrub(str(message)))
    return f": {shown}" if shown else ""


def on_one_line(text: str) -> str:
    """Return what an endpoint says so that it can be shown: cut, on one line, without control characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _SAID_LENGTH])
    return " ".join(shown.split())[:_SAID_LENGTH]


# Waiting.


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


class RateLimiter:
    """Lets at most so many requests through a second, evenly, and none while resting.

    Parameters
    ----------
    clock : Clock
    per_second : float
        By default no limit.
    """

    def __init__(self, clock: Clock, per_second: float = math.inf) -> None:
        self._clock = clock
        self._interval = 1.0 / per_second
        self._next = self._resting_until = clock.monotonic()

    async def wait(self) -> None:
        """Return when it is this request's turn."""
        turn = -math.inf
        # Who had a turn before the rest ends takes a new one, else all of these would go at once when it does.
        while turn < self._resting_until:
            turn = max(self._next, self._clock.monotonic())
            self._next = turn + self._interval
            while (left := turn - self._clock.monotonic()) > 0:
                await self._clock.sleep(left)

    def rest(self, seconds: float) -> None:
        """Let no request through for so long, those that wait for their turn included."""
        self._resting_until = max(self._resting_until, self._clock.monotonic() + seconds)
        self._next = max(self._next, self._resting_until)


# What the log says.

EVERY_S = 30.0
"""Between two lines about the same address: its many slots all fail at once."""

_log = logging.getLogger(__name__)


class RetryNotes:
    """Logs faults that are tried again.

    Parameters
    ----------
    monotonic : callable
        Seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[str, float] = {}

    def tell(self, url: str, fault: EndpointFault, *, attempt: int, attempts: int, wait_s: float) -> None:
        """Log which attempt failed and when the next is, at most every `EVERY_S` for each address.

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
        _log.warning("%s: attempt %d of %d failed: %s; the next in about %.0f s", url, attempt, attempts, fault, wait)
