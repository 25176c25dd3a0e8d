"""The Perspective API: what is sent, every way in which it may fail, and a key that is never written."""

import logging
import math
import traceback

import polars as pl
import pytest
import stamina
from perspective_server import KEY, VARIABLE, FakeClock, answered, refused, scores_of, serving
from pydantic import TypeAdapter, ValidationError
from upath import UPath

from plumbline.errors import ConfigError, ScoringError
from plumbline.scorers.kinds import AnyScorer
from plumbline.scorers.perspective import (
    EMPTY,
    MOST_ATTEMPTS,
    MOST_BYTES,
    NAMES,
    PerspectiveScorer,
    PerspectiveSettings,
)
from plumbline.scorers.scoring import score_texts


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(VARIABLE, KEY)


@pytest.fixture(autouse=True)
def no_waiting():
    """Let stamina try again at once, but as often as it would."""
    with stamina.set_testing(True, attempts=50, cap=True):
        yield


def scorer_of(server, *, clock=None, **settings):
    chosen = PerspectiveSettings(**{"kind": "perspective", "queries_per_second": 1, **settings})
    return PerspectiveScorer(chosen, url=server.url, clock=(clock or FakeClock()).clock)


def score(server, *texts, **more):
    return [scored for _, scored in sorted(scorer_of(server, **more).score(texts))]


def then_answered(*answers):
    """Give these answers first."""
    return lambda sent, number: answers[number] if number < len(answers) else answered(sent)


def expected(text):
    return {attribute: scores_of(text, NAMES.values())[name] for attribute, name in NAMES.items()}


def test_a_text_is_asked_about_in_english_and_is_not_stored():
    with serving() as server:
        (scored,) = score(server, "a lazy person")
    assert scored.scores == expected("a lazy person")
    assert not scored.truncated
    assert server.sent == [
        {
            "comment": {"text": "a lazy person", "type": "PLAIN_TEXT"},
            "languages": ["en"],
            "requestedAttributes": {"TOXICITY": {}, "INSULT": {}, "IDENTITY_ATTACK": {}, "FLIRTATION": {}},
            "doNotStore": True,
        }
    ]
    assert server.headers[0]["X-Goog-Api-Key"] == KEY


@pytest.mark.parametrize(
    "fault",
    [
        *[(status, {"error": {"code": status}}) for status in (408, 409, 429, 500, 503)],
        None,
        (200, b"<html>busy</html>"),
        (200, {"attributeScores": {}}),
        (200, {"attributeScores": {n: {"summaryScore": {"value": 1.5}} for n in NAMES.values()}}),
        (200, b"x" * (2 << 20)),
    ],
    ids=str,
)
def test_what_may_pass_is_tried_again(fault):
    with serving(then_answered(fault, fault)) as server:
        (scored,) = score(server, "a text")
    assert scored.scores == expected("a text")
    assert len(server.sent) == 3


def test_tries_end_and_the_error_says_what_was_met():
    with serving(lambda sent, number: (503, {"error": {"message": "overloaded"}})) as server:
        with pytest.raises(ScoringError, match=r"HTTP 503: overloaded(.|\n)*2026"):
            score(server, "a text")
        assert len(server.sent) == MOST_ATTEMPTS


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [("7", 7.0), ("Fri, 15 Jan 2027 08:00:09 GMT", 9.0), ("100000", 300.0), ("soon", 1.0)]
)
def test_retry_after_is_kept(retry_after, seconds):
    """A number, a date (the clock's wall shows 08:00:00), one that is too long, and nonsense."""
    clock = FakeClock()
    busy = (429, {"error": {}}, {"Retry-After": retry_after})
    with serving(then_answered(busy)) as server:
        score(server, "a text", clock=clock)
    assert clock.passed == pytest.approx(seconds)


def test_queries_keep_to_the_rate_tries_again_included():
    clock = FakeClock()
    with serving(then_answered((500, {}))) as server:
        score(server, *"abcde", clock=clock, queries_per_second=0.5)
    assert len(server.sent) == 6
    assert clock.passed == pytest.approx(5 * 2.0)


@pytest.mark.parametrize("kind", ["LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE", "COMMENT_EMPTY", "COMMENT_TOO_LONG"])
def test_what_the_api_says_of_a_text_itself_is_a_reason(kind):
    with serving(then_answered(refused(kind))) as server:
        first, second = score(server, "кошка", "a cat")
        assert len(server.sent) == 2
    assert all(math.isnan(value) for value in first.scores.values())
    assert "Perspective API" in first.reason
    assert second.scores == expected("a cat")


def test_the_empty_text_is_not_asked_about():
    with serving() as server:
        found = score(server, "", " \n")
        assert server.sent == []
    assert [one.reason for one in found] == [EMPTY, EMPTY]


def test_a_long_text_is_cut_between_letters():
    text = "a" + "é" * MOST_BYTES
    with serving() as server:
        cut, whole = score(server, text, "é" * (MOST_BYTES // 2))
    (asked,) = [s["comment"]["text"] for s in server.sent if s["comment"]["text"].startswith("a")]
    assert text.startswith(asked)
    assert len(asked.encode()) == MOST_BYTES - 1
    assert cut.truncated
    assert not whole.truncated


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refused("API_KEY_INVALID", message="API key not valid"), VARIABLE),
        (refused("PERMISSION_DENIED", status=403), VARIABLE),
        ((404, b"gone"), "2026"),
        ((302, b"", {"Location": "http://127.0.0.1:1/elsewhere"}), "redirect"),
    ],
)
def test_other_errors_end_the_call_at_once(answer, words):
    with serving(lambda sent, number: answer) as server:
        with pytest.raises(ScoringError, match=words):
            score(server, "a text")
        assert len(server.sent) == 1


def test_scores_before_an_error_are_kept_and_the_rest_is_asked_later(tmp_path):
    texts = pl.DataFrame({"text": list("abcdef")})
    with serving(lambda sent, n: answered(sent) if n < 3 else (400, {"error": {"message": "no"}})) as server:
        with pytest.raises(ScoringError, match="HTTP 400"):
            score_texts(scorer_of(server), [texts], UPath(tmp_path))
        server.answer = lambda sent, number: answered(sent)
        scored = score_texts(scorer_of(server), [texts], UPath(tmp_path))
        assert scored.computed == 3
    assert len(server.sent) == 3 + 1 + 3


def test_threads_share_the_rate():
    clock = FakeClock()
    with serving() as server:
        found = score(server, *(f"text {i}" for i in range(30)), clock=clock, queries_per_second=10)
    assert [one.scores for one in found] == [expected(f"text {i}") for i in range(30)]
    assert clock.passed >= 2.9 - 1e-9


def test_without_a_key_nothing_is_sent_and_the_variable_is_named(monkeypatch):
    monkeypatch.delenv(VARIABLE)
    with serving() as server:
        with pytest.raises(ConfigError, match=VARIABLE):
            score(server, "a text")
        assert server.sent == []


@pytest.mark.parametrize(
    "answer", [answered, lambda _: (400, {"error": {"message": f"bad key {KEY}"}}), lambda _: None]
)
def test_the_key_is_written_nowhere(answer, caplog, tmp_path, capsys):
    """A canary: it may stand in the header of the request alone."""
    caplog.set_level(logging.DEBUG)
    said = ""
    with serving(lambda sent, number: answer(sent)) as server:
        scorer = scorer_of(server)
        try:
            score_texts(scorer, [pl.DataFrame({"text": ["a text"]})], UPath(tmp_path))
        except ScoringError as error:
            said = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        assert server.headers[0]["X-Goog-Api-Key"] == KEY
        assert KEY not in server.url + str(server.sent)
    said += caplog.text + "".join(capsys.readouterr()) + scorer.identity + repr(vars(scorer)) + repr(scorer)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in said
    assert KEY.encode() not in kept


def test_a_key_in_the_audit_file_is_refused_and_not_repeated():
    settings = {"kind": "perspective", "key_variable": KEY}
    with pytest.raises(ValidationError, match="never the key itself") as caught:
        TypeAdapter(AnyScorer).validate_python(settings)
    assert KEY not in str(caught.value) + str(caught.value.errors())


def test_the_identity_is_of_what_is_asked_not_of_key_or_rate(monkeypatch):
    with serving() as server:
        first = scorer_of(server).identity
        monkeypatch.setenv(VARIABLE, "another")
        assert scorer_of(server, queries_per_second=10).identity == first
        assert scorer_of(server, clock=FakeClock()).identity == first
    assert PerspectiveScorer(PerspectiveSettings(kind="perspective")).identity != first
