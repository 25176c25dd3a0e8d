"""Requests that are tried again are told of: which address, which attempt, how long until the next, and rarely."""

import logging
import re

import pytest
import stamina
from endpoint_doubles import FakeClock, request, settings
from fault_server import Reply, completion, error, serving

from plumbline.errors import GenerationError
from plumbline.http.chat import ChatClient
from plumbline.http.retries import EVERY_S, EndpointFault, RetryNotes


@pytest.fixture(autouse=True)
def _at_once():
    with stamina.set_testing(True, attempts=20, cap=True):
        yield


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_many_slots_of_a_dead_endpoint_give_one_line(caplog):
    with serving(lambda _: error(500, "gone")) as server:
        client = ChatClient(settings(server.url, attempts=4, concurrency=8), clock=FakeClock().clock)
        with pytest.raises(GenerationError):
            list(client.ask_all([request(str(i)) for i in range(8)]))
        assert len(server.sent) > 8
    retried, aside = said(caplog)
    assert re.fullmatch(rf"{server.url}: attempt 1 of 4 failed: HTTP 500: gone; the next in about \d+ s", retried)
    assert aside.startswith(f"{server.url} is set aside: ")


def test_a_pause_that_is_asked_for_is_the_wait(caplog):
    def answer(sent) -> Reply:
        return completion("at last") if sent.number else error(429, "busy", headers={"Retry-After": "17"})

    with serving(answer) as server:
        client = ChatClient(settings(server.url), clock=FakeClock().clock)
        assert [reply.text for _, reply in client.ask_all([request()])] == ["at last"]
    [line] = said(caplog)
    assert line.endswith("attempt 1 of 3 failed: HTTP 429: busy; the next in about 17 s")


def test_it_is_told_again_after_a_while_and_of_every_address(caplog):
    now = [0.0]
    notes = RetryNotes(lambda: now[0])
    fault = EndpointFault("passing", "no connection")
    for attempt, url, at in ((1, "a", 0), (2, "a", 1), (1, "b", 2), (3, "a", EVERY_S), (4, "b", EVERY_S + 2)):
        now[0] = at
        notes.tell(url, fault, attempt=attempt, attempts=4, wait_s=2.0)
    notes.tell("c", EndpointFault("request", "HTTP 400"), attempt=1, attempts=4, wait_s=2.0)
    told = [line.partition(" failed")[0] for line in said(caplog)]
    assert told == ["a: attempt 1 of 4", "b: attempt 1 of 4", "a: attempt 3 of 4"]
