"""The client of chat completions against an endpoint that fails in every way it can."""

from __future__ import annotations

import asyncio
import signal
import threading
from email.utils import formatdate

import pytest
from endpoint_doubles import FakeClock, ask, no_waiting, request, settings  # noqa: F401
from fault_server import MODEL, Reply, Sent, closed_port, completion, error, serving

from plumbline.errors import GenerationError
from plumbline.lvlm.chat_client import SET_ASIDE_S, ChatClient
from plumbline.lvlm.chat_endpoint import Clock
from plumbline.lvlm.chat_fault import LONGEST_PAUSE_S
from plumbline.lvlm.chat_reply import ChatReply
from plumbline.lvlm.chat_transport import MOST_REPLY_BYTES

pytestmark = pytest.mark.usefixtures("no_waiting")
_WALL = 1_800_000_000.0


def first_then(first: Reply, then: Reply, times: int = 1):
    """Return an answer that is `first` so many times, then `then`."""
    return lambda sent: first if sent.number < times else then


class TestAnswers:
    def test_text_tokens_and_source_are_as_reported(self):
        with serving(lambda _: completion("a nurse", system_fingerprint="fp_1")) as server:
            (reply,) = ask(settings(server.url))
        assert reply == ChatReply("a nurse", "stop", 7, 3, f"{MODEL} fp_1")
        assert server.sent[0].path == "/v1/chat/completions"
        assert server.sent[0].body == {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}

    def test_text_is_not_cleaned(self):
        text = "  <script>\u202e\x1b[31m\r\n\u00e9 e\u0301 "
        with serving(lambda _: completion(text)) as server:
            assert ask(settings(server.url))[0].text == text

    def test_half_of_a_surrogate_pair_becomes_a_question_mark_that_files_can_hold(self):
        with serving(lambda _: completion("a\ud83db")) as server:
            assert ask(settings(server.url))[0].text == "a?b"

    @pytest.mark.parametrize(
        ("reply", "expected"),
        [
            (completion(None, message={"refusal": "I cannot."}), ("I cannot.", "refusal")),
            (completion("No.", message={"refusal": "I cannot."}), ("No.", "refusal")),
            (completion("half of", finish="content_filter"), ("half of", "content_filter")),
            (completion(None, finish="content_filter"), ("", "content_filter")),
            (error(400, "filtered", code="content_filter"), ("", "content_filter")),
            (error(400, "no", code="content_policy_violation"), ("", "content_filter")),
            (completion("cut", finish="length"), ("cut", "length")),
            (completion("odd", finish="eos_token"), ("odd", "stop")),
            (completion("none", finish=None), ("none", "stop")),
            (completion(None), ("", "stop")),
            (completion([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]), ("a b", "stop")),
        ],
    )
    def test_refusals_and_filters_are_answers_at_once(self, reply, expected):
        with serving(lambda _: reply) as server:
            (found,) = ask(settings(server.url))
        assert (found.text, found.finish_reason) == expected
        assert len(server.sent) == 1

    @pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": -1, "completion_tokens": True}])
    def test_without_usage_tokens_are_zero(self, usage):
        with serving(lambda _: completion("x", usage=usage)) as server:
            (reply,) = ask(settings(server.url))
        assert (reply.prompt_tokens, reply.new_tokens) == (0, 0)

    def test_an_endpoint_that_names_no_model_is_told_as_such(self):
        with serving(lambda _: completion("x", model=None, system_fingerprint=None)) as server:
            assert ask(settings(server.url))[0].source == "unreported"

    def test_answers_belong_to_their_requests_in_whatever_order_they_come(self):
        everyone = threading.Barrier(4)
        last_first = [threading.Event() for _ in range(5)]
        last_first[4].set()

        def answer(sent: Sent) -> Reply:
            everyone.wait(10)
            number = int(sent.text)
            assert last_first[number + 1].wait(10)
            last_first[number].set()
            return completion(f"answer {number}")

        with serving(answer) as server:
            replies = ask(settings(server.url, concurrency=4), *"0123")
        assert [reply.text for reply in replies] == [f"answer {i}" for i in range(4)]

    def test_nothing_asked_asks_nothing(self):
        assert list(ChatClient(settings("http://127.0.0.1:9/v1", key_variable="ABSENT")).ask_all([])) == []


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


class TestStopping:
    def test_an_interrupt_gives_what_is_finished_and_abandons_the_rest(self):
        def answer(sent: Sent) -> Reply:
            if sent.text == "slow":
                # As Ctrl-C does; the first two are answered, since one slot asks in order.
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                return Reply(hangs=True)
            return completion(sent.text)

        found = []
        with serving(answer) as server:
            with pytest.raises(KeyboardInterrupt):
                for _, reply in ChatClient(settings(server.url)).ask_all(requests("a", "b", "slow", "c")):
                    found.append(reply.text)
            assert found == ["a", "b"]
            assert [sent.text for sent in server.sent] == ["a", "b", "slow"]
            assert not [thread for thread in threading.enumerate() if "endpoint-call" in thread.name]

    def test_an_iterator_that_is_dropped_asks_no_more(self):
        arrived = threading.Event()

        def answer(sent: Sent) -> Reply:
            if sent.number == 0:
                return completion("first")
            arrived.set()
            return Reply(hangs=True)

        with serving(answer) as server:
            replies = ChatClient(settings(server.url)).ask_all(requests(*"abcdef"))
            assert next(replies)[1].text == "first"
            assert arrived.wait(10)
            replies.close()
            assert len(server.sent) == 2

    def test_a_mistake_after_answers_comes_after_them(self):
        with serving(lambda sent: completion("x") if sent.number < 3 else error(400, "no")) as server:
            replies = ChatClient(settings(server.url)).ask_all(requests(*"abcdef"))
            assert [next(replies)[0] for _ in range(3)] == [0, 1, 2]
            with pytest.raises(GenerationError, match="HTTP 400"):
                next(replies)


def requests(*texts: str):
    return [request(text) for text in texts]
