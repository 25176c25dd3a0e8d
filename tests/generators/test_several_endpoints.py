"""The client of chat completions with several endpoints, of which some fail, and its limits on each."""

from __future__ import annotations

import threading

import pytest
from endpoint_doubles import FakeClock, ask, request, settings
from fault_server import Reply, Sent, closed_port, completion, error, serving

from plumbline.errors import GenerationError
from plumbline.http.chat import ChatClient
from plumbline.http.client import SET_ASIDE_S

pytestmark = pytest.mark.usefixtures("no_waiting")


class TestSeveralEndpoints:
    def test_one_that_is_down_is_set_aside_and_left_out_of_the_next_call(self):
        fake = FakeClock()
        with serving(lambda _: error(500)) as broken, serving(lambda _: completion("up")) as sound:
            client = ChatClient(settings(broken.url, sound.url, attempts=2), clock=fake.clock)
            asked = [request(str(i)) for i in range(6)]
            assert sorted(position for position, _ in client.ask_all(asked)) == list(range(6))
            tried = len(broken.sent)
            assert tried <= 2
            assert len(list(client.ask_all(asked))) == 6
            assert len(broken.sent) == tried
            fake.passed += SET_ASIDE_S + 1
            broken.answer = lambda _: completion("back")
            both = threading.Barrier(2)

            def together(_: Sent) -> Reply:
                both.wait(10)
                return completion("both")

            broken.answer = sound.answer = together
            assert len(list(client.ask_all(asked))) == 6
            assert len(broken.sent) == tried + 3

    def test_an_address_where_nobody_listens(self):
        nobody = f"http://127.0.0.1:{closed_port()}/v1"
        with serving(lambda _: completion("up")) as sound:
            assert len(ask(settings(nobody, sound.url), *"abcdef")) == 6
        with pytest.raises(GenerationError, match="no endpoint answers any more") as caught:
            ask(settings(nobody))
        assert "no connection" in str(caught.value.found)

    def test_all_down_keeps_what_was_answered(self):
        def answer(sent: Sent) -> Reply:
            return completion("early") if sent.number < 2 else error(503)

        found = []
        with serving(answer) as one:
            nobody = f"http://127.0.0.1:{closed_port()}/v1"
            with pytest.raises(GenerationError, match="no endpoint answers any more") as caught:
                for item in ChatClient(settings(one.url, nobody)).ask_all([request(t) for t in "abcdef"]):
                    found.append(item)
        assert len(found) == 2
        assert one.url in caught.value.where and nobody in caught.value.where

    def test_a_request_that_one_endpoint_cannot_answer_goes_to_another(self):
        # The first endpoint fails at `poison` alone. Its other slot has been answered when it asks a second time.
        second, seen = threading.Event(), []

        def picky(sent: Sent) -> Reply:
            if sent.text == "poison":
                assert second.wait(10)
                return error(500)
            seen.append(sent.text)
            if len(seen) == 2:
                second.set()
            return completion("picky")

        def sound(sent: Sent) -> Reply:
            assert second.wait(10)
            return completion("sound")

        with serving(picky) as first, serving(sound) as other:
            chosen = settings(first.url, other.url, attempts=2, concurrency=2)
            replies = ask(chosen, "poison", *"abcdef")
        assert replies[0].text == "sound"
        assert [sent.text for sent in first.sent].count("poison") == 2

    def test_too_many_requests_end_nothing_while_others_are_answered(self):
        others_answered = threading.Event()

        def answer(sent: Sent) -> Reply:
            if sent.text == "unlucky" and sent.number < 2:
                assert others_answered.wait(10)
                return error(429)
            if sent.text == "c":
                others_answered.set()  # by now `a` or `b` is counted
            return completion(sent.text)

        with serving(answer) as server:
            replies = ask(settings(server.url, concurrency=2, attempts=1), "unlucky", *"abc")
        assert [reply.text for reply in replies] == ["unlucky", *"abc"]

    def test_a_request_that_no_endpoint_can_answer_is_named(self):
        release = threading.Event()

        def answer(sent: Sent) -> Reply:
            if sent.text == "poison":
                assert release.wait(10)
                return error(500, "cannot")
            if sent.text == "last":
                release.set()
            return completion("x")

        with serving(answer) as server, pytest.raises(GenerationError) as caught:
            ask(settings(server.url, concurrency=2, attempts=1), "poison", "first", "last")
        assert caught.value.where == "request poison" and "HTTP 500: cannot" in caught.value.found

    def test_a_key_that_is_withdrawn_sets_aside_who_answered_before(self):
        def withdrawn(sent: Sent) -> Reply:
            return completion("before") if sent.number == 0 else error(401)

        with serving(withdrawn) as one, serving(lambda _: completion("x")) as other:
            assert len(ask(settings(one.url, other.url), *"abcdefgh")) == 8
        assert len(one.sent) <= 2

    def test_no_more_requests_are_under_way_than_the_settings_allow(self):
        together = threading.Barrier(3)

        def answer(_: Sent) -> Reply:
            together.wait(10)  # only passes when three are under way at once
            return completion("x")

        with serving(answer) as server:
            assert len(ask(settings(server.url, concurrency=3), *"abcdefghijkl")) == 12
        assert server.peak == 3

    def test_each_endpoint_has_its_own_limit(self):
        everyone = threading.Barrier(4)

        def answer(_: Sent) -> Reply:
            everyone.wait(10)
            return completion("x")

        with serving(answer) as one, serving(answer) as other:
            ask(settings(one.url, other.url, concurrency=2), *"abcdefgh")
        assert (one.peak, other.peak) == (2, 2)
        assert len(one.sent) + len(other.sent) == 8
