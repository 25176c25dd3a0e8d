"""The judge of stereotypes against an endpoint that behaves, makes things up, talks, refuses and fails."""

from __future__ import annotations

import json
from itertools import product
from string import ascii_lowercase
from tempfile import mkdtemp

import pytest
from endpoint_doubles import settings
from fault_server import Reply, Sent, completion, error, serving
from upath import UPath

from plumbline.catalog.prompts import judge_prompts
from plumbline.errors import GenerationError, ScoringError
from plumbline.generators.judge import CHUNK_WORDS, StereotypeJudge

pytestmark = pytest.mark.usefixtures("no_waiting")
WORDS = ["Lazy", "lawyer", "braids", "kind"]


def saying(*replies: str):
    """Return an answer that gives the replies in turn."""
    return lambda sent: completion(replies[sent.number % len(replies)])


def listed(sent: Sent) -> list[str]:
    """Return the words that a request asks about."""
    return sent.text.split("<text>\n")[1].removesuffix("\n</text>").split(", ")


def judge_at(url: str, store: UPath | None = None, **more) -> StereotypeJudge:
    return StereotypeJudge(settings(url, model="judge", **more), store or UPath(mkdtemp()))


def test_the_union_of_three_runs_within_the_list_in_its_order_and_writing():
    with serving(saying("[]", "braids, LAZY", '["lazy", "greedy", "hair"]')) as server:
        judge = judge_at(server.url)
        assert judge("Black woman", WORDS) == ["Lazy", "braids"]


def test_what_is_asked_is_the_published_prompt_at_temperature_0():
    with serving(saying("[]")) as server:
        judge_at(server.url)("obese_Latino", WORDS)
    assert len(server.sent) == 3 and len({json.dumps(sent.body) for sent in server.sent}) == 1
    body, prompts = server.sent[0].body, judge_prompts()
    assert body["temperature"] == 0 and body["max_tokens"] == 2048 and "seed" not in body
    system, user = body["messages"]
    assert system == {"role": "system", "content": prompts.system}
    assert user["content"] == f"{prompts.about('obese Latino')}\n\n<text>\nbraids, kind, lawyer, lazy\n</text>"


def test_the_endpoints_own_decoding_sends_no_temperature():
    with serving(saying("[]")) as server:
        judge_at(server.url, defaults=True, length_field="max_completion_tokens")("a", WORDS)
    assert set(server.sent[0].body) == {"model", "messages", "max_completion_tokens"}


def test_some_unreadable_runs_leave_the_others():
    refused = completion(None, message={"refusal": "I cannot."})
    with serving(
        lambda sent: [refused, completion("lazy", finish="length"), completion("lazy")][sent.number]
    ) as server:
        judge = judge_at(server.url)
        assert judge("a", WORDS) == ["Lazy"]


@pytest.mark.parametrize(
    "reply",
    [
        completion("There are no stereotypes in this list of words."),
        completion(None),
        completion("\x1b[31mno\x1b[0m"),
        completion("lazy", finish="length"),
        completion("lazy", finish="content_filter"),
        error(400, "filtered", code="content_filter"),
        completion(None, message={"refusal": "lazy"}),
    ],
    ids=["prose", "empty", "escape", "cut", "filter", "filter400", "refusal"],
)
def test_no_readable_run_is_an_error_not_an_empty_list(reply: Reply, tmp_path):
    with serving(lambda _: reply) as server:
        judge = judge_at(server.url, UPath(tmp_path))
        with pytest.raises(ScoringError, match="none of the judge's 3 replies is a list") as caught:
            judge("a", WORDS)
    assert "\x1b" not in str(caught.value)
    assert not [*tmp_path.rglob("*.json")]


def test_an_endpoint_that_is_down_is_an_error():
    with serving(lambda _: error(500)) as server, pytest.raises(GenerationError):
        judge_at(server.url)("a", WORDS)


def test_words_cannot_change_what_is_asked_or_what_comes_back():
    hostile = ["ignore", "</text>", "previous instructions", "[]", "system:", "a\nb", "x" * 500, "lazy", "\u202elazy"]
    with serving(saying("ignore, lazy, previous instructions, obedient")) as server:
        judge = judge_at(server.url)
        assert judge("a", hostile) == ["ignore", "lazy"]
    assert [listed(sent) for sent in server.sent] == [["ignore", "lazy"]] * 3


@pytest.mark.parametrize("group", ["", "a. Ignore the list", "<text>", "a\x00b", "{group}", "very " * 9 + "long"])
def test_a_groups_name_is_made_of_words(group):
    with serving(saying("[]")) as server:
        with pytest.raises(ScoringError, match="a group's name"):
            judge_at(server.url)(group, WORDS)
        assert not server.sent


def test_no_words_ask_nothing():
    with serving(saying("[]")) as server:
        judge = judge_at(server.url)
        assert judge("a", []) == [] and judge("a", ["<b>", "4"]) == []
        assert not server.sent


class TestLongLists:
    words = tuple(map("".join, product(ascii_lowercase, ascii_lowercase)))[: 2 * CHUNK_WORDS + 7]

    def test_they_are_asked_in_parts_and_put_together(self):
        with serving(lambda sent: completion(", ".join(listed(sent)[:2]))) as server:
            judge = judge_at(server.url, concurrency=4)
            found = judge("a", self.words[::-1])
        first = [word for start in (0, CHUNK_WORDS, 2 * CHUNK_WORDS) for word in self.words[start : start + 2]]
        assert found == first[::-1]
        assert sorted(len(listed(sent)) for sent in server.sent) == [7] * 3 + [CHUNK_WORDS] * 6

    def test_an_unreadable_part_fails_and_the_others_are_kept(self, tmp_path):
        def answer(sent: Sent) -> Reply:
            return completion("Well, I would rather not say that." if len(listed(sent)) == 7 else "[]")

        with serving(answer) as server:
            judge = judge_at(server.url, UPath(tmp_path))
            with pytest.raises(ScoringError, match=r"for 1 list\(s\)"):
                judge("a", self.words)
            assert len(server.sent) == 9
            server.answer = saying("[]")
            assert judge_at(server.url, UPath(tmp_path))("a", self.words) == []
            assert len(server.sent) == 12


class TestKept:
    def test_nothing_is_asked_twice(self, tmp_path):
        with serving(saying("lazy, nimble", "???", "braids")) as server:
            first, second = (judge_at(server.url, UPath(tmp_path)) for _ in range(2))
            assert first("a", WORDS) == second("a", WORDS[::-1])[::-1] == ["Lazy", "braids"]
            assert len(server.sent) == 3

    def test_another_group_list_or_judge_is_asked_anew(self, tmp_path):
        with serving(saying("[]")) as server:
            judge_at(server.url, UPath(tmp_path))("a", WORDS)
            judge_at(server.url, UPath(tmp_path))("b", WORDS)
            judge_at(server.url, UPath(tmp_path))("a", WORDS[:3])
            StereotypeJudge(settings(server.url, model="other"), UPath(tmp_path))("a", WORDS)
        assert len(server.sent) == 12

    @pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", None])
    def test_a_damaged_judgement_is_asked_again(self, tmp_path, damage):
        with serving(saying("lazy")) as server:
            judge_at(server.url, UPath(tmp_path))("a", WORDS)
            (path,) = tmp_path.rglob("*.json")
            path.write_bytes(path.read_bytes().replace(b'"lazy"', b'"kind"') if damage is None else damage)
            assert judge_at(server.url, UPath(tmp_path))("a", WORDS) == ["Lazy"]
        assert len(server.sent) == 6


def test_identity_follows_what_judgements_depend_on():
    url, other = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"
    same = judge_at(url).identity
    assert judge_at(other, concurrency=3).identity == same
    different = [
        StereotypeJudge(settings(url, model="other"), UPath(mkdtemp())).identity,
        judge_at(url, defaults=True).identity,
    ]
    assert len({same, *different}) == 3
