"""A canary in the environment: the key must reach the endpoint, and nothing that is written, shown or logged."""

from __future__ import annotations

import logging
import pickle
import traceback

import polars as pl
import pytest
from endpoint_doubles import DECODING, asked, request, settings
from fault_server import Reply, Sent, completion, error, serving
from upath import UPath

from plumbline.errors import ConfigError, GenerationError, ScoringError
from plumbline.generators.endpoint import EndpointBackend, ask_what_it_is
from plumbline.generators.generation import GenerationStore, generate
from plumbline.generators.judge import StereotypeJudge
from plumbline.http.chat import ChatClient, _source
from plumbline.http.settings import HIDDEN, EndpointKey, read_key
from resources.endpoints import keep_report

pytestmark = pytest.mark.usefixtures("no_waiting")
CANARY = "sk-canary-7f3a91c2e5d84b60"
VARIABLE = "PLUMBLINE_TEST_KEY"


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setenv(VARIABLE, CANARY)
    # What libraries for such endpoints read on their own.
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, f"not-for-you-{name}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Not-For-You: 1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")


@pytest.fixture()
def everything_logged(caplog):
    caplog.set_level(logging.DEBUG)
    names = [name for name in logging.Logger.manager.loggerDict if name.startswith(("http", "stamina"))]
    for name in names:
        caplog.set_level(logging.DEBUG, logger=name)
    return caplog


def echo(sent: Sent) -> str:
    return sent.headers["Authorization"]


def hostile(sent: Sent) -> Reply:
    """Send the key back wherever there is a place for words."""
    key = echo(sent)
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in key)
    body = completion(f"it is {key}", system_fingerprint=key, model=f"model {key}").body
    headers = {"X-Echo": key, "X-Request-Id": key, "Set-Cookie": f"a={key}"}
    if sent.number % 4 == 0:
        return Reply(429, error(429, f"slow down {key}").body, {**headers, "Retry-After": "0"})
    if sent.number % 4 == 1:
        return Reply(200, f"{{broken {key}".encode(), headers)
    if sent.number % 4 == 2:
        return Reply(200, body.replace(b"it is", spelled.encode()), headers)
    return Reply(200, body, headers)


def test_a_key_at_the_end_of_what_is_kept_of_a_name_is_cut_out_before_it_is_cut():
    secret = "sk-" + "SECRET" * 6
    for short in range(len(secret)):
        name = "x" * (200 - short) + secret
        assert "SECRET" not in _source({"model": name, "system_fingerprint": name}, EndpointKey(secret))


def shown(error: BaseException) -> str:
    """Return everything that an error could be printed as, with its causes and the values in its frames."""
    chain, seen = [], error
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join([*frames.format(), *(f"{one!r}{one}{one.args}" for one in chain)])


def test_answers_rows_and_logs_are_free_of_it(everything_logged, tmp_path, recwarn):
    with serving(hostile) as server:
        chosen = settings(server.url, key_variable=VARIABLE)
        backend = EndpointBackend(chosen, sees=False)
        rows = [asked(text, identity=backend.identity) for text in "abc"]
        made = generate(backend, rows, DECODING, GenerationStore(UPath(tmp_path)))
        assert {echo(sent) for sent in server.sent} == {f"Bearer {CANARY}"}
    assert made.frame["text"].str.contains(HIDDEN, literal=True).all()
    assert CANARY not in str(made.frame.to_dicts())
    stored = [pl.read_parquet(path) for path in tmp_path.rglob("*.parquet")]
    assert stored and CANARY not in str([frame.to_dicts() for frame in stored])
    assert all(CANARY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert CANARY not in repr(backend) + repr(vars(backend)) + repr(vars(backend._client)) + repr(chosen)
    names = {record.name for record in everything_logged.records}
    assert {"httpcore2.http11", "httpx2", "plumbline.http.retries"} <= names, names
    logged = everything_logged.text + repr([vars(record) for record in everything_logged.records])
    assert CANARY not in logged
    assert HIDDEN in logged  # the debug records did hold a header that sent it back
    assert not [warning for warning in recwarn if CANARY in str(warning.message)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 302, 500])
def test_errors_are_free_of_it(status, everything_logged):
    def refuse(sent: Sent) -> Reply:
        return error(status, f"wrong key {echo(sent)}", headers={"Location": f"http://x/{echo(sent)}"})

    with serving(refuse) as server, pytest.raises(GenerationError) as caught:
        backend = EndpointBackend(settings(server.url, key_variable=VARIABLE), sees=False)
        list(backend.answers([asked("a")], DECODING))
    assert HIDDEN in str(caught.value)
    assert CANARY not in shown(caught.value) + everything_logged.text


def test_a_connection_that_fails_is_free_of_it():
    with pytest.raises(GenerationError) as caught:
        list(
            EndpointBackend(settings("http://127.0.0.1:9/v1", key_variable=VARIABLE), sees=False).answers(
                [asked("a")], DECODING
            )
        )
    assert CANARY not in shown(caught.value)


def test_judgements_are_free_of_it(tmp_path):
    with serving(lambda sent: completion(f'["lazy", "{echo(sent)}"]')) as server:
        judge = StereotypeJudge(settings(server.url, key_variable=VARIABLE), UPath(tmp_path))
        with pytest.raises(ScoringError) as caught:
            judge("a", ["lazy"])
        server.answer = lambda sent: completion('["lazy"]', system_fingerprint=echo(sent))
        assert judge("a", ["lazy"]) == ["lazy"]
    assert CANARY not in shown(caught.value)
    (path,) = tmp_path.rglob("*.json")
    assert CANARY.encode() not in path.read_bytes() and HIDDEN.encode() in path.read_bytes()


def test_only_the_key_and_what_describes_the_body_is_sent():
    with serving(lambda _: completion("x")) as server:
        list(EndpointBackend(settings(server.url, key_variable=VARIABLE), sees=False).answers([asked("a")], DECODING))
    (sent,) = server.sent
    assert {name.lower() for name in sent.headers} == {
        "host",
        "accept",
        "connection",
        "content-type",
        "content-length",
        "user-agent",
        "accept-encoding",
        "authorization",
    }
    assert sent.headers["Accept-Encoding"] == "identity"


def test_without_a_variable_no_key_is_sent():
    with serving(lambda _: completion("x")) as server:
        list(EndpointBackend(settings(server.url), sees=False).answers([asked("a")], DECODING))
    assert "Authorization" not in server.sent[0].headers
    assert "not-for-you" not in str(server.sent[0].headers).lower()


def test_a_redirect_does_not_take_it_along():
    with serving(lambda _: completion("x")) as elsewhere:
        away = error(307, headers={"Location": f"{elsewhere.url}/chat/completions"})
        with serving(lambda _: away) as server, pytest.raises(GenerationError, match="redirects are not followed"):
            list(ChatClient(settings(server.url, key_variable=VARIABLE)).ask_all([request()]))
        assert not elsewhere.sent


@pytest.mark.parametrize("value", [None, "", "  ", "two words", "new\nline", "schlüssel"])
def test_a_variable_without_a_usable_key(monkeypatch, value):
    monkeypatch.delenv(VARIABLE)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ConfigError, match="there is no key") as caught:
        list(ChatClient(settings("http://127.0.0.1:9/v1", key_variable=VARIABLE)).ask_all([request()]))
    assert VARIABLE in caught.value.where
    assert not value or not value.strip() or value not in str(caught.value)


def test_it_has_no_repr_and_no_pickle():
    key = read_key(VARIABLE)
    assert CANARY not in repr(key) + str(key) + f"{key}" and HIDDEN in repr(key)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)
    assert repr(EndpointKey(None)) == "EndpointKey(None)"


def test_short_stand_ins_are_left_in_texts_and_taken_out_of_messages():
    key = EndpointKey("EMPTY")
    assert key.scrub_data("the EMPTY room") == "the EMPTY room"
    assert key.scrub("wrong key EMPTY") == f"wrong key {HIDDEN}"


def test_what_an_endpoint_says_that_it_is_is_free_of_it(tmp_path):
    def answer(sent: Sent) -> Reply:
        # Cut at 200 characters, a part of the key would be left.
        server.listed = {
            "data": [{"id": "tiny", "owned_by": "x" * 180 + echo(sent), "root": [echo(sent)], "parent": "\ud800"}]
        }
        return completion("Hi")

    with serving(answer) as server:
        report = ask_what_it_is(settings(server.url, key_variable=VARIABLE))
    keep_report(tmp_path, "model", report)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert HIDDEN.encode() in written and CANARY[:8].encode() not in written
    assert report.entry["parent"] == "?"
