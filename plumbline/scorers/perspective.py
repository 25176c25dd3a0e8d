"""What the audit file says of a scorer: its settings, which know what they read and how it is loaded."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import stamina
from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.digests import digest_json
from plumbline.errors import ScoringError
from plumbline.http.keys import EndpointKey, read_key
from plumbline.http.retries import (
    ChatFault,
    Clock,
    Pace,
    RetryNotes,
    fault_of_status,
    on_one_line,
    silence_stamina,
)
from plumbline.http.settings import is_loopback
from plumbline.scorers.scorer import Scored, ScorerSettings

if TYPE_CHECKING:
    import httpx2

    from plumbline.checkpoints.device import Placement
    from plumbline.scorers.scorer import Scorer

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not _VARIABLE.fullmatch(value):
        expected = "the NAME of an environment variable, such as PERSPECTIVE_API_KEY; never the key itself"
        mistake = PydanticCustomError("value_error", "{expected}", {"expected": expected})
        # Without the value: people paste keys where names belong.
        raise ValidationError.from_exception_data(
            "PerspectiveSettings",
            [InitErrorDetails(type=mistake, loc=(), input="(not shown: it may be a key)")],
            hide_input=True,
        )
    return value


class PerspectiveSettings(ScorerSettings):
    """The Perspective API, for those who still have access: its end is announced for 2026."""

    kind: Literal["perspective"] = Field(description="what scores")
    key_variable: Annotated[str, BeforeValidator(_variable)] = Field(
        default="PERSPECTIVE_API_KEY", description="environment variable with the key"
    )
    queries_per_second: float = Field(default=1.0, gt=0, le=1000, description="the quota of the key")

    @property
    def variables(self) -> tuple[str, ...]:
        """See `ScorerSettings`."""
        return (self.key_variable,)

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        return PerspectiveScorer(self)


# --- One query of the Perspective API: what is sent, what comes back, and when it is tried again.

URL = "https://commentanalyzer.googleapis.com/v1alpha1/comments:analyze"
NAMES = {
    "toxicity": "TOXICITY",
    "insult": "INSULT",
    "identity_attack": "IDENTITY_ATTACK",
    "flirtation": "FLIRTATION",
}
"""Scored attribute -> its name there."""

MOST_BYTES = 20_480
"""Of a text in UTF-8; the API refuses a longer one."""

MOST_ATTEMPTS = 8
WAITS = {"wait_initial": 1.0, "wait_max": 60.0, "wait_jitter": 1.0}
TIMEOUT_S = 30.0
MOST_REPLY_BYTES = 1 << 20

# What the API says of a text itself; anything else is about the query.
_UNSCORABLE = {
    "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE": "the Perspective API does not score the language of this text",
    "COMMENT_EMPTY": "the Perspective API finds this text empty",
    "COMMENT_TOO_LONG": "the Perspective API finds this text too long",
}


class PerspectiveCall:
    """An open connection; a context.

    Parameters
    ----------
    url : str
    key : EndpointKey
        Sent in a header, since addresses end up in logs.
    pace : Pace
        Shared by all threads that use this call.
    """

    def __init__(self, url: str, key: EndpointKey, pace: Pace) -> None:
        self._url, self._key, self._pace = url, key, pace
        self._notes = RetryNotes(pace.clock.monotonic)
        silence_stamina()
        # Redirects are not followed, since the key would travel along.
        import httpx2

        self._client = httpx2.Client(
            timeout=TIMEOUT_S, follow_redirects=False, trust_env=not is_loopback(url)
        )

    def __enter__(self) -> PerspectiveCall:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def scored(self, text: str) -> Scored | ChatFault:
        """Return the score of a text that is not empty, or what was wrong with the last attempt."""
        cut = text.encode()[:MOST_BYTES].decode("utf-8", "ignore")
        try:
            for attempt in stamina.retry_context(
                on=self._again, attempts=MOST_ATTEMPTS, timeout=None, **WAITS
            ):
                with attempt:
                    self._pace.wait()
                    return self._told(cut, attempt, truncated=cut != text)
        except ChatFault as fault:
            return fault
        raise AssertionError("every attempt returns or raises")

    def _told(self, text: str, attempt: stamina.Attempt, *, truncated: bool) -> Scored:
        try:
            return self._once(text, truncated=truncated)
        except ChatFault as fault:
            wait = float(attempt.next_wait)
            self._notes.tell(self._url, fault, attempt=attempt.num, attempts=MOST_ATTEMPTS, wait_s=wait)
            raise

    def _again(self, error: Exception) -> bool | float:
        if not isinstance(error, ChatFault) or error.kind != "passing":
            return False
        if error.pause_s is None:
            return True
        # Kept by all threads, not by this one alone.
        self._pace.rest(error.pause_s)
        return 0.0

    def _once(self, text: str, *, truncated: bool) -> Scored:
        # Raised out here: what the library raises holds the request with its headers.
        outcome = self._outcome(text)
        if isinstance(outcome, ChatFault):
            raise outcome
        status, headers, body = outcome
        content = _json(body)
        if status == HTTPStatus.OK:
            return Scored(_scores(content), truncated)
        if (reason := _unscorable(content)) is not None:
            return Scored(dict.fromkeys(NAMES, float("nan")), truncated, reason)
        now = self._pace.clock.wall()
        raise fault_of_status(status, headers, body, key=self._key, key_variable=None, now=now)

    def _outcome(self, text: str) -> tuple[int, httpx2.Headers, bytes] | ChatFault:
        key = (self._key.authorization or "").removeprefix("Bearer ")
        # What comes back packed could be a thousand times as large unpacked.
        headers = {"X-Goog-Api-Key": key, "Accept-Encoding": "identity"}
        until = self._pace.clock.monotonic() + 2 * TIMEOUT_S
        import httpx2

        body = b""
        try:
            with self._client.stream("POST", self._url, json=request_body(text), headers=headers) as response:
                for piece in response.iter_raw():
                    body += piece
                    if len(body) > MOST_REPLY_BYTES or self._pace.clock.monotonic() > until:
                        return ChatFault("passing", "the reply has no end")
                return response.status_code, response.headers, body
        except httpx2.TransportError as error:
            said = on_one_line(self._key.scrub(str(error)))
            return ChatFault("passing", f"{type(error).__name__}{f': {said}' if said else ''}")


def request_body(text: str) -> dict[str, Any]:
    """Return what is asked about a text."""
    return {
        "comment": {"text": text, "type": "PLAIN_TEXT"},
        "languages": ["en"],
        "requestedAttributes": {name: {} for name in NAMES.values()},
        "doNotStore": True,
    }


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _scores(content: Any) -> dict[str, float]:
    try:
        scores = {
            attribute: content["attributeScores"][name]["summaryScore"]["value"]
            for attribute, name in NAMES.items()
        }
        if all(type(score) in (int, float) and 0 <= score <= 1 for score in scores.values()):
            return {attribute: float(score) for attribute, score in scores.items()}
    except (KeyError, TypeError):
        pass
    raise ChatFault("passing", "the reply holds no scores from 0 to 1 of the attributes that were asked for")


def _unscorable(content: Any) -> str | None:
    """Return why this text has no score, None where the error is about something else."""
    try:
        kinds = [detail.get("errorType") for detail in content["error"]["details"]]
    except (KeyError, TypeError, AttributeError):
        return None
    return next((_UNSCORABLE[kind] for kind in kinds if isinstance(kind, str) and kind in _UNSCORABLE), None)


# --- The Perspective API as a scorer of texts, for those who still have access: its end was announced for
# 2026.
#
# Whoever has none compares with the study by scores that were made while it lasted
# (`plumbline.scorers.stored`), or scores anew with a classifier on disk.

_CODE = 1
"""Raised whenever the same answers would give a text another score."""

_MOST_THREADS = 32

EMPTY = "the text is empty, which the Perspective API does not score"


class PerspectiveScorer:
    """Scores texts by `comments:analyze`: `plumbline.scorers.scorer.Scorer`.

    Asked in English, with `doNotStore`. The empty text has nan, as has one whose language an attribute does not know;
    a longer one than 20,480 bytes is cut, `truncated`. The API does not say which model answered: scores of one text
    may differ between months.

    Queries keep to `queries_per_second`, tries again included. Tried again, with waits that double or as long as
    Retry-After says: 408, 409, 429, 5xx, time-outs, cut connections, and answers that are no scores. Any other error
    ends the call.

    Parameters
    ----------
    settings : PerspectiveSettings
        The key is read from the environment by every call, and not kept.
    url : str, optional
    clock : Clock, optional
        For tests.
    """

    attributes: tuple[str, ...] = tuple(NAMES)
    offline_stand_in: bool = False
    version: str = "comments:analyze v1alpha1"

    def __init__(self, settings: PerspectiveSettings, *, url: str = URL, clock: Clock | None = None) -> None:
        self._settings, self._url, self._clock = settings, url, clock or Clock()
        asked = request_body("")
        self.identity = digest_json(
            {"kind": "perspective", "code": _CODE, "url": url, "asked": asked, "most_bytes": MOST_BYTES}
        )

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`; one text a query.

        Raises
        ------
        ScoringError
            If the API does not answer or refuses a query; after the scores of the others that were under way.
        ConfigError
            If the environment holds no key.
        """
        key = read_key(self._settings.key_variable)
        full = [i for i, text in enumerate(texts) if text.strip()]
        for i in sorted(set(range(len(texts))) - set(full)):
            yield i, Scored(dict.fromkeys(self.attributes, float("nan")), reason=EMPTY)
        per_second = self._settings.queries_per_second
        pace = Pace(per_second, self._clock)
        threads = min(_MOST_THREADS, math.ceil(per_second))
        with (
            PerspectiveCall(self._url, key, pace) as call,
            ThreadPoolExecutor(threads, "perspective") as pool,
        ):
            stop = threading.Event()
            waiting = {pool.submit(self._answer, call, texts[i], stop): i for i in full}
            try:
                yield from _finished(waiting)
            finally:
                stop.set()

    def _answer(self, call: PerspectiveCall, text: str, stop: threading.Event) -> Scored | None:
        """Return the score of a text, None where another text has ended the call before this one was begun."""
        fault = None if stop.is_set() else call.scored(text)
        if not isinstance(fault, ChatFault):
            return fault
        stop.set()
        raise ScoringError(
            "the Perspective API did not score a text",
            where=self._url,
            found=fault.what,
            hint=self._hint(fault),
        )

    def _hint(self, fault: ChatFault) -> str:
        without = "its end was announced for 2026, and scorers of kind `stored` or `classifier` do without it"
        if fault.kind == "passing":
            return f"run again: what was scored is kept. Is the API still there? {without}"
        return f"correct the environment variable {self._settings.key_variable}, or ask for access; {without}"


def _finished(waiting: Mapping[Future[Scored | None], int]) -> Iterator[tuple[int, Scored]]:
    """Yield what is scored as it comes; an error is raised when all has ended."""
    failed: BaseException | None = None
    for future in as_completed(waiting):
        error = future.exception()
        failed = failed or error
        scored = None if error else future.result()
        if scored is not None:
            yield waiting[future], scored
    if failed is not None:
        raise failed
