"""One query of the Perspective API: what is sent, what comes back, and when it is tried again."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import httpx2
import stamina

from plumbline.lvlm.chat_fault import ChatFault, fault_of_status, on_one_line
from plumbline.lvlm.endpoint_key import EndpointKey
from plumbline.lvlm.endpoint_settings import is_loopback
from plumbline.lvlm.retry_notes import RetryNotes, silence_stamina
from plumbline.scorers.pace import Pace
from plumbline.scorers.scorer import Scored

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
