"""The client of chat completions: what it takes from an answer, and how it stops."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from endpoint_doubles import ask, request, settings
from fault_server import MODEL, Reply, Sent, completion, error, serving

from plumbline.errors import GenerationError
from plumbline.http.chat import ChatClient, ChatReply

pytestmark = pytest.mark.usefixtures("no_waiting")


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


class TestStopping:
    def test_an_interrupt_gives_what_is_finished_and_abandons_the_rest(self):
        def answer(sent: Sent) -> Reply:
            if sent.text == "slow":
                # As Ctrl-C does; the first two are answered, since one slot asks in order. Where the signal arrives
                # while one of them is handed over, it is the caller that is interrupted.
                while len(found) < 2:
                    time.sleep(0.01)
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
