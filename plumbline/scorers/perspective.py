"""The Perspective API as a scorer of texts, for those who still have access: its end was announced for 2026.

Whoever has none compares with the study by scores that were made while it lasted (`plumbline.scorers.stored`), or
scores anew with a classifier on disk.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from plumbline.digests import digest_json
from plumbline.errors import ScoringError
from plumbline.lvlm.chat_fault import ChatFault
from plumbline.lvlm.endpoint_key import read_key
from plumbline.scorers.pace import Clock, Pace
from plumbline.scorers.perspective_call import (
    MOST_BYTES,
    NAMES,
    URL,
    PerspectiveCall,
    request_body,
)
from plumbline.scorers.scorer import Scored
from plumbline.scorers.settings import PerspectiveSettings

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
