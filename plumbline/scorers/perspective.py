"""The Perspective API as a scorer of texts, for those who still have access: its end was announced for 2026.

Whoever has none compares with the study by scores that were made while it lasted (`plumbline.scorers.stored`), or
scores anew with a classifier on disk.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.digests import digest_json
from plumbline.errors import GenerationError, ScoringError
from plumbline.http.client import EndpointClient, MalformedReply, Response, read_json
from plumbline.http.retries import Clock
from plumbline.http.settings import EndpointKey, EndpointSettings
from plumbline.scorers.scorer import Scored, ScorerSettings

if TYPE_CHECKING:
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

    kind: Literal["perspective"]
    """what scores"""
    key_variable: Annotated[str, BeforeValidator(_variable)] = "PERSPECTIVE_API_KEY"
    """environment variable with the key"""
    queries_per_second: float = Field(default=1.0, gt=0, le=1000)
    """the quota of the key"""

    @property
    def variables(self) -> tuple[str, ...]:
        """See `ScorerSettings`."""
        return (self.key_variable,)

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        return PerspectiveScorer(self)


URL = "https://commentanalyzer.googleapis.com/v1alpha1/comments:analyze"
NAMES = {"toxicity": "TOXICITY", "insult": "INSULT", "identity_attack": "IDENTITY_ATTACK", "flirtation": "FLIRTATION"}
"""Scored attribute -> its name there."""

MOST_BYTES = 20_480
"""Of a text in UTF-8; the API refuses a longer one."""

MOST_ATTEMPTS = 8
TIMEOUT_S = 60.0

# What the API says of a text itself; anything else is about the query.
_UNSCORABLE = {
    "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE": "the Perspective API does not score the language of this text",
    "COMMENT_EMPTY": "the Perspective API finds this text empty",
    "COMMENT_TOO_LONG": "the Perspective API finds this text too long",
}


def request_body(text: str) -> dict[str, Any]:
    """Return what is asked about a text."""
    return {
        "comment": {"text": text, "type": "PLAIN_TEXT"},
        "languages": ["en"],
        "requestedAttributes": {name: {} for name in NAMES.values()},
        "doNotStore": True,
    }


@dataclass(frozen=True)
class _Comment:
    """One text to score."""

    text: str
    where: str = "a text"

    @property
    def cut(self) -> str:
        """Return as much of it as the API takes."""
        return self.text.encode()[:MOST_BYTES].decode("utf-8", "ignore")


class _PerspectiveClient(EndpointClient[_Comment, Scored]):
    wanted = "answer of the Perspective API"

    def authorization(self, key: EndpointKey) -> Mapping[str, str]:
        # In a header, since addresses end up in logs.
        return {"X-Goog-Api-Key": (key.authorization or "").removeprefix("Bearer ")}

    def body(self, request: _Comment) -> Mapping[str, Any]:
        return request_body(request.cut)

    def read(self, request: _Comment, response: Response, key: EndpointKey) -> Scored | None:
        truncated = request.cut != request.text
        if response.status == HTTPStatus.OK:
            return Scored(_scores(read_json(response.body)), truncated)
        reason = _unscorable(response.body)
        return None if reason is None else Scored(dict.fromkeys(NAMES, float("nan")), truncated, reason)


def _scores(content: Mapping[str, Any]) -> dict[str, float]:
    try:
        scores = {
            attribute: content["attributeScores"][name]["summaryScore"]["value"] for attribute, name in NAMES.items()
        }
        if all(type(score) in (int, float) and 0 <= score <= 1 for score in scores.values()):
            return {attribute: float(score) for attribute, score in scores.items()}
    except (KeyError, TypeError):
        pass
    raise MalformedReply("it holds no scores from 0 to 1 of the attributes that were asked for")


def _unscorable(body: bytes) -> str | None:
    """Return why this text has no score, None where the error is about something else."""
    try:
        kinds = [detail.get("errorType") for detail in read_json(body)["error"]["details"]]
    except (MalformedReply, KeyError, TypeError, AttributeError):
        return None
    return next((_UNSCORABLE[kind] for kind in kinds if isinstance(kind, str) and kind in _UNSCORABLE), None)


_CODE = 1
"""Raised whenever the same answers would give a text another score."""

_MOST_AT_ONCE = 32

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
        about = {"url": url, "asked": request_body(""), "most_bytes": MOST_BYTES}
        self.identity = digest_json({"kind": "perspective", "code": _CODE, **about})

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`; one text a query.

        Raises
        ------
        ScoringError
            If the API does not answer or refuses a query; after the scores that had come.
        ConfigError
            If the environment holds no key.
        """
        full = [i for i, text in enumerate(texts) if text.strip()]
        for i in sorted(set(range(len(texts))) - set(full)):
            yield i, Scored(dict.fromkeys(self.attributes, float("nan")), reason=EMPTY)
        try:
            for i, scored in self._client().ask_all([_Comment(texts[i]) for i in full]):
                yield full[i], scored
        except GenerationError as error:
            variable = self._settings.key_variable
            raise ScoringError(
                "the Perspective API did not score a text",
                where=self._url,
                found=error.found,
                hint=f"run again: what was scored is kept. Where the key is refused, correct the environment variable "
                f"{variable} or ask for access. Is the API still there? Its end was announced for 2026, and scorers of "
                "kind `stored` or `classifier` do without it",
            ) from error

    def _client(self) -> _PerspectiveClient:
        base, slash, path = self._url.rpartition("/")
        per_second = self._settings.queries_per_second
        settings = EndpointSettings(
            urls=(base,),
            model="perspective",
            key_variable=self._settings.key_variable,
            concurrency=min(_MOST_AT_ONCE, math.ceil(per_second)),
            timeout_s=TIMEOUT_S,
            attempts=MOST_ATTEMPTS,
        )
        client = _PerspectiveClient(settings, per_second=per_second, clock=self._clock)
        client.path = slash + path
        return client
