"""What the tests of endpoints share: settings, questions, and a clock on which nobody waits."""

from __future__ import annotations

import asyncio

from plumbline.generators.backend import Asked, Decoding, Question, Subject, row_key
from plumbline.http.chat import ChatClient, ChatRequest
from plumbline.http.retries import Clock
from plumbline.http.settings import EndpointSettings

DECODING = Decoding(max_new_tokens=16)


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self, wall: float = 1_800_000_000.0) -> None:
        self.passed, self.slept, self._wall = 0.0, [], wall
        self.slept: list[float]

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed += seconds
        await asyncio.sleep(0)

    @property
    def clock(self) -> Clock:
        """Return what a client takes."""
        return Clock(lambda: self.passed, lambda: self._wall + self.passed, self._sleep)


def settings(*urls: str, **more: object) -> EndpointSettings:
    """Return settings of few slots and attempts."""
    values = {"model": "tiny", "concurrency": 1, "attempts": 3, "timeout_s": 20.0, **more}
    return EndpointSettings(urls=urls, **values)


def request(text: str = "hello") -> ChatRequest:
    """Return a request of text alone."""
    return ChatRequest(messages=lambda: [{"role": "user", "content": text}], where=f"request {text}")


def ask(chosen: EndpointSettings, *texts: str, clock: Clock | None = None):
    """Ask every text; return the replies in the order of the texts."""
    client = ChatClient(chosen, clock=clock)
    found = dict(client.ask_all([request(text) for text in texts or ("hello",)]))
    assert sorted(found) == list(range(len(texts or ("hello",))))
    return [found[i] for i in sorted(found)]


def asked(text: str, *, seed: int = 0, subject: Subject | None = None, identity: str = "model") -> Asked:
    """Return a row to generate, of text alone unless a subject is given."""
    subject = subject or Subject("described", None)
    question = Question("describe", "none", text, seed)
    return Asked(subject, question, row_key(identity, subject, question, DECODING))
