"""The backend of endpoints: what a question becomes, what its identity is, how its rows are kept."""

from __future__ import annotations

import base64
from itertools import product

import pytest
from endpoint_doubles import DECODING, asked, settings
from fault_server import Reply, Sent, completion, error, serving
from PIL import Image
from upath import UPath

from plumbline.digests import digest_bytes
from plumbline.errors import GenerationError
from plumbline.generators.backend import Answer, Decoding, Subject
from plumbline.generators.endpoint import EndpointBackend
from plumbline.generators.generation import GenerationStore, generate

pytestmark = pytest.mark.usefixtures("no_waiting")
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(scope="module")
def pictured(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "a.png"
    Image.new("RGB", (8, 8), "teal").save(path)
    return Subject(digest_bytes(path.read_bytes()), path, "set 1")


def sent_body(decoding=DECODING, *, subject=None, seed=2, **more):
    with serving(lambda _: completion("x")) as server:
        backend = EndpointBackend(settings(server.url, **more))
        ((position, answer),) = backend.answers([asked("Who is this?", subject=subject, seed=seed)], decoding)
    assert position == 0 and answer == Answer("x", "stop", 7, 3, "tiny-judge-2026")
    return server.sent[0].body


def test_the_image_comes_first_then_the_text(pictured):
    (message,) = sent_body(subject=pictured)["messages"]
    image, text = message["content"]
    assert message["role"] == "user" and text == {"type": "text", "text": "Who is this?"}
    assert image["type"] == "image_url"
    assert image["image_url"] == {
        "url": "data:image/png;base64," + base64.b64encode(pictured.path.read_bytes()).decode()
    }


def test_without_an_image_the_text_goes_alone():
    assert sent_body()["messages"] == [{"role": "user", "content": "Who is this?"}]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"max_tokens": 16, "temperature": 0.75, "top_p": 1.0, "seed": 2}),
        ({"send_seed": False}, {"max_tokens": 16, "temperature": 0.75, "top_p": 1.0}),
        ({"send_top_k": True}, {"max_tokens": 16, "temperature": 0.75, "top_p": 1.0, "seed": 2, "top_k": 50}),
        ({"defaults": True}, {"max_tokens": 16, "seed": 2}),
        ({"defaults": True, "send_seed": False}, {"max_tokens": 16}),
        ({"defaults": True, "send_top_k": True}, {"max_tokens": 16, "seed": 2}),
        ({"length_field": "max_completion_tokens", "defaults": True}, {"max_completion_tokens": 16, "seed": 2}),
    ],
)
def test_decoding_as_it_is_sent(more, expected, pictured):
    body = sent_body(subject=pictured, **more)
    assert {name: value for name, value in body.items() if name not in ("model", "messages")} == expected


def test_people_of_one_description_get_draws_of_their_own():
    seeds = [sent_body(subject=Subject(name, None))["seed"] for name in ("image 1", "image 1", "image 2")]
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(0 <= seed < 1 << 31 for seed in seeds)


def test_no_top_k_is_said_as_servers_take_it():
    assert sent_body(Decoding(16, top_k=0), send_top_k=True)["top_k"] == -1


def test_identity_follows_the_model_and_what_is_sent_but_not_the_address():
    base = EndpointBackend(settings(NOWHERE)).identity
    moved = settings("http://127.0.0.1:10/v1", NOWHERE, concurrency=5, attempts=9, timeout_s=1, key_variable="K")
    assert EndpointBackend(moved).identity == base
    switches = product((True, False), (True, False), (True, False))
    different = {
        EndpointBackend(settings(NOWHERE, send_seed=seed, send_top_k=top_k), sees=sees).identity
        for seed, top_k, sees in switches
    }
    assert base in different and len(different) == 8
    assert EndpointBackend(settings(NOWHERE, defaults=True)).identity not in different
    assert EndpointBackend(settings(NOWHERE, model="other")).identity not in different


def test_a_model_without_eyes_gets_no_image(pictured):
    with pytest.raises(GenerationError, match="was given an image"):
        list(EndpointBackend(settings(NOWHERE), sees=False).answers([asked("a", subject=pictured)], DECODING))


def test_an_image_that_is_gone_ends_the_call_after_what_was_answered(pictured):
    gone = Subject("0" * 64, pictured.path.with_name("gone.png"))
    with serving(lambda _: completion("x")) as server:
        answers = EndpointBackend(settings(server.url)).answers(
            [asked("a", subject=pictured), asked("b", subject=gone)], DECODING
        )
        assert next(answers)[0] == 0
        with pytest.raises(GenerationError, match="cannot be sent"):
            next(answers)


def test_an_image_is_encoded_once_for_its_questions(pictured, monkeypatch):
    from plumbline.generators import endpoint

    encoded = []

    def counted(path, image_id):
        encoded.append(path)
        return "data:image/png;base64,AAAA"

    monkeypatch.setattr(endpoint, "image_url", counted)
    with serving(lambda _: completion("x")) as server:
        rows = [asked(text, subject=pictured) for text in "abcdefgh"]
        assert len(list(EndpointBackend(settings(server.url)).answers(rows, DECODING))) == 8
    assert len(encoded) == 1


def test_a_run_that_was_cut_off_asks_only_the_rest(tmp_path):
    def failing(sent: Sent) -> Reply:
        return completion(f"first {sent.text}") if sent.number < 3 else error(400, "no")

    with serving(failing) as server:
        backend = EndpointBackend(settings(server.url), sees=False)
        rows = [asked(text, identity=backend.identity) for text in "abcdef"]
        store = GenerationStore(UPath(tmp_path))
        with pytest.raises(GenerationError, match="HTTP 400"):
            generate(backend, rows, DECODING, store)
        server.answer = lambda sent: completion(f"second {sent.text}")
        made = generate(backend, rows, DECODING, store)
    assert (made.reused, made.generated) == (3, 3)
    assert made.frame["text"].to_list() == [f"{'first' if t in 'abc' else 'second'} {t}" for t in "abcdef"]
    assert [sent.text for sent in server.sent] == list("abcd") + list("def")
