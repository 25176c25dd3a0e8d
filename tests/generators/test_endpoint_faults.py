"""The client of chat completions against one endpoint that fails: what is tried again, and what is not."""

from __future__ import annotations

import asyncio
import threading
import time
from email.utils import formatdate
from itertools import pairwise

import pytest
import stamina
from endpoint_doubles import FakeClock, ask, settings
from fault_server import Reply, Sent, completion, error, serving

from plumbline.errors import GenerationError
from plumbline.http import client
from plumbline.http.client import MOST_REPLY_BYTES
from plumbline.http.retries import LONGEST_PAUSE_S, Clock, RateLimiter

pytestmark = pytest.mark.usefixtures("no_waiting")
_WALL = 1_800_000_000.0


def first_then(first: Reply, then: Reply, times: int = 1):
    """Return an answer that is `first` so many times, then `then`."""
    return lambda sent: first if sent.number < times else then


class TestTriedAgain:
    @pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
    def test_statuses_that_pass(self, status):
        with serving(first_then(error(status), completion("there"), times=2)) as server:
            assert ask(settings(server.url))[0].text == "there"
        assert len(server.sent) == 3

    @pytest.mark.parametrize(
        "broken",
        [
            Reply(body=completion("x").body, cut=True),
            Reply(body=b"{not json"),
            Reply(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
            Reply(body=b"[]"),
            Reply(body=b'{"choices": []}'),
            Reply(body=b'{"choices": [{"message": null}]}'),
            Reply(body=b'{"choices": [{"message": {"content": 5}}]}'),
            Reply(body=b"[" * 100_000),
            Reply(body=b'{"pad": "' + b"x" * MOST_REPLY_BYTES + b'"}'),
            Reply(body=completion("x").body, headers={"Content-Encoding": "gzip"}),
        ],
        ids=["cut", "json", "html", "list", "choices", "message", "content", "deep", "large", "packed"],
    )
    def test_broken_replies(self, broken):
        with serving(first_then(broken, completion("whole"))) as server:
            assert ask(settings(server.url))[0].text == "whole"
        assert len(server.sent) == 2

    def test_a_hang_is_cut_off(self):
        with serving(first_then(Reply(hangs=True), completion("late"))) as server:
            assert ask(settings(server.url, timeout_s=0.2))[0].text == "late"

    def test_an_endpoint_that_drips_is_cut_off(self):
        # Every byte comes in time, so only a limit on the whole request ends it.
        dripping = Reply(body=completion("x" * 2000).body, drips=True)
        with serving(first_then(dripping, completion("whole"))) as server:
            assert ask(settings(server.url, timeout_s=0.3))[0].text == "whole"

    def test_an_error_in_the_place_of_an_answer_is_told(self):
        told = Reply(body=b'{"error": {"message": "all workers are busy"}}')
        with serving(lambda _: told) as server, pytest.raises(GenerationError, match="all workers are busy"):
            ask(settings(server.url, attempts=2))
        assert len(server.sent) == 2

    def test_attempts_are_those_of_the_settings(self):
        with serving(lambda _: error(500, "broken for good")) as server:
            with pytest.raises(GenerationError, match="no endpoint answers any more") as caught:
                ask(settings(server.url, attempts=4))
            assert len(server.sent) == 4
        assert "HTTP 500: broken for good" in str(caught.value.found)
        assert server.url in str(caught.value.where)

    @pytest.mark.parametrize(
        ("header", "expected"),
        [
            ({"Retry-After": "17"}, 17.0),
            ({"Retry-After": formatdate(_WALL + 25, usegmt=True)}, 25.0),
            ({"Retry-After": "17", "retry-after-ms": "1500"}, 1.5),
            ({"Retry-After": "999999"}, LONGEST_PAUSE_S),
            ({"Retry-After": "inf"}, LONGEST_PAUSE_S),
            ({"Retry-After": formatdate(_WALL - 60, usegmt=True)}, None),
            ({"Retry-After": "-5"}, None),
            ({"Retry-After": "nan"}, None),
            ({"Retry-After": "soon"}, None),
            ({}, None),
        ],
    )
    def test_retry_after_is_kept(self, header, expected):
        fake = FakeClock(_WALL)
        with serving(first_then(error(429, headers=header), completion("x"))) as server:
            ask(settings(server.url), clock=fake.clock)
        assert fake.slept == ([] if expected is None else [pytest.approx(expected)])

    @pytest.mark.parametrize("asked", ["0", "-5"])
    def test_a_pause_of_nothing_does_not_use_up_the_attempts_at_once(self, asked, monkeypatch):
        monkeypatch.setattr(client, "FIRST_WAIT_S", 0.1)
        busy = error(429, headers={"Retry-After": asked})
        with stamina.set_testing(False), serving(first_then(busy, completion("x"), times=2)) as server:
            start = time.monotonic()
            ask(settings(server.url))
            assert time.monotonic() - start > 0.1 + 0.2

    def test_a_pause_holds_for_every_slot(self):
        # One slot is told to wait. The other is answered then, and must wait as well before it asks again.
        one_waits, both_wait = threading.Event(), asyncio.Event()
        passed, slept = [0.0], []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            one_waits.set()
            if len(slept) == 2:
                passed[0] += seconds
                both_wait.set()
            async with asyncio.timeout(10):
                await both_wait.wait()

        def answer(sent: Sent) -> Reply:
            if sent.number < 2 and sent.text == "a":
                return error(503, headers={"Retry-After": "30"})
            if sent.text == "b":
                assert one_waits.wait(10)
            return completion("x")

        with serving(answer) as server:
            clock = Clock(lambda: passed[0], lambda: _WALL, sleep)
            ask(settings(server.url, concurrency=2), *"abc", clock=clock)
        assert slept == [30.0, 30.0]


class TestNotTriedAgain:
    @pytest.mark.parametrize(
        ("status", "words"),
        [
            (400, "refuses the request itself"),
            (401, "the key is missing or wrong"),
            (403, "must not use this model"),
            (404, "correct `model` or `urls`"),
            (405, "takes no chat completions"),
            (413, "refuses the request itself"),
            (422, "refuses the request itself"),
            (307, "redirects are not followed"),
        ],
    )
    def test_mistakes_say_what_to_do(self, status, words):
        with serving(lambda _: error(status, "told so", headers={"Location": "http://elsewhere/"})) as server:
            with pytest.raises(GenerationError) as caught:
                ask(settings(server.url, attempts=5))
            assert len(server.sent) == 1
        assert words in caught.value.hint
        assert f"HTTP {status}: told so" in caught.value.found
        assert server.url in caught.value.where and "request hello" in caught.value.where

    def test_no_credit_is_not_waited_for(self):
        with serving(lambda _: error(429, "quota", code="insufficient_quota")) as server:
            with pytest.raises(GenerationError, match="no credit left"):
                ask(settings(server.url))
            assert len(server.sent) == 1

    def test_what_an_endpoint_says_is_shown_without_control_characters(self):
        told = error(400, "\x1b[2Jfaked\nline " + "x" * 5000)
        with serving(lambda _: told) as server, pytest.raises(GenerationError) as caught:
            ask(settings(server.url))
        assert "\x1b" not in str(caught.value) and "faked line" in str(caught.value)
        assert len(str(caught.value)) < 1500


def test_no_cookie_is_sent_back():
    def answer(sent: Sent) -> Reply:
        return Reply(200, completion("x").body, {"Set-Cookie": "a=b; Path=/"})

    with serving(answer) as server:
        ask(settings(server.url), "a", "b")
        assert len(server.sent) == 2 and not any("Cookie" in sent.headers for sent in server.sent)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_an_error_that_is_packed_or_endless_is_still_that_error(status):
    packed = Reply(status, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    for reply in (packed, Reply(status, b"x" * (MOST_REPLY_BYTES + 1))):
        with serving(lambda _, reply=reply: reply) as server:
            with pytest.raises(GenerationError, match=f"HTTP {status}"):
                ask(settings(server.url))
            assert len(server.sent) == 1


def test_after_a_rest_requests_go_evenly():
    now, gone = [0.0], []

    async def sleep(seconds: float) -> None:
        end = now[0] + seconds
        await asyncio.sleep(0)
        while now[0] < end:
            await asyncio.sleep(0)

    async def go() -> None:
        limiter = RateLimiter(Clock(lambda: now[0], lambda: now[0], sleep), per_second=10)

        async def one() -> None:
            await limiter.wait()
            gone.append(now[0])

        tasks = [asyncio.create_task(one()) for _ in range(10)]
        await asyncio.sleep(0)
        limiter.rest(50.0)
        while len(gone) < len(tasks):
            await asyncio.sleep(0)
            now[0] += 0.01
        await asyncio.gather(*tasks)

    asyncio.run(go())
    after = [passed for passed in gone if passed > 1]
    assert len(after) == 9 and after[0] >= 50.0
    assert all(later - earlier >= 0.05 for earlier, later in pairwise(after))
