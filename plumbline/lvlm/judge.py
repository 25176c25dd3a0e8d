"""The judge of stereotypes: a language model says which words about a group are stereotypes of it (appendix D.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upath import UPath

from plumbline.digests import digest_json
from plumbline.errors import ScoringError
from plumbline.lvlm.chat_client import ChatClient
from plumbline.lvlm.chat_endpoint import ChatRequest
from plumbline.lvlm.chat_fault import on_one_line
from plumbline.lvlm.chat_reply import ChatReply
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.lvlm.judge_reply import plain_word, read_word_list
from plumbline.lvlm.judgements import Judged, Judgements
from plumbline.tables.generation_prompts import judge_prompts

JUDGE_VERSION = 1
"""Part of the identity: raise it with any change of what is asked or of how replies are read."""

RUNS = 3
CHUNK_WORDS = 200
MOST_NEW_TOKENS = 2048
_READABLE = ("stop",)


@dataclass(frozen=True)
class JudgeCounts:
    """What a judge has done so far; what it found from earlier runs counts as if it were done now, but for `asked`.

    Attributes
    ----------
    words, withheld : int
        Words that were judged; words that were not, since they are not shaped like words.
    runs, unreadable : int
        Replies; those of them that were no list, cut, refused or filtered.
    invented : int
        Items of readable replies that are not in the list of words.
    asked : int
        Requests that were really sent.
    """

    words: int = 0
    withheld: int = 0
    runs: int = 0
    unreadable: int = 0
    invented: int = 0
    asked: int = 0

    def plus(self, **more: int) -> JudgeCounts:
        """Return the sums."""
        return replace(self, **{name: getattr(self, name) + count for name, count in more.items()})


class StereotypeJudge:
    """Takes a group and words, gives those of the words that are stereotypes of the group.

    Each list is asked `runs` times at temperature 0, since endpoints vary even then; a word counts that any run names.
    The words come from generated texts, so they are data: only what is shaped like a word is asked about, and only
    words of the list are given back, whatever a reply says. Lists of more than `CHUNK_WORDS` are asked about in parts.
    Words are asked in alphabetical order, so that a list's order has no effect.

    Parameters
    ----------
    settings : EndpointSettings
        With `defaults` the endpoint's own temperature holds, for models that take no other.
    store : UPath, optional
        Folder in which judgements are kept, replies included, so that nothing is asked twice.
    runs : int
    client : ChatClient, optional
        For tests.

    Attributes
    ----------
    identity : str
        Digest of what its judgements depend on: model, prompts, runs, chunks, decoding.
    counts : JudgeCounts
    """

    def __init__(
        self,
        settings: EndpointSettings,
        store: UPath | None = None,
        *,
        runs: int = RUNS,
        client: ChatClient | None = None,
    ) -> None:
        if runs < 1:
            raise ScoringError("a judge is asked at least once", found=runs)
        self.settings, self.runs, self.counts = settings, runs, JudgeCounts()
        self._client = client or ChatClient(settings)
        self._parameters: dict[str, Any] = {settings.length_field: MOST_NEW_TOKENS}
        if not settings.defaults:
            self._parameters["temperature"] = 0
        self.identity = digest_json(
            {
                "kind": "stereotype judge",
                "version": JUDGE_VERSION,
                "model": settings.model,
                "prompts": judge_prompts().hash,
                "runs": runs,
                "chunk_words": CHUNK_WORDS,
                "sent": self._parameters,
            }
        )
        self._judgements = Judgements(store, self.identity)

    def __call__(self, group: str, words: Sequence[str]) -> list[str]:
        """Return the words that are stereotypes of a group.

        Parameters
        ----------
        group : str
            In words, such as `Black female`.
        words : sequence of str
            Compared without regard to case.

        Returns
        -------
        list of str
            Members of `words` as they are written there, in their order.

        Raises
        ------
        ScoringError
            If the group's name is not made of words, or none of the replies to some words is a list.
        GenerationError
            If the endpoint does not answer.
        """
        about = _group_words(group)
        plain = [plain_word(word) for word in words]
        judged = sorted({word for word in plain if word is not None})
        chosen: set[str] = set()
        chunks = [judged[i : i + CHUNK_WORDS] for i in range(0, len(judged), CHUNK_WORDS)]
        for result in self._judged(about, chunks):
            chosen.update(result.chosen)
            self.counts = self.counts.plus(
                runs=result.runs, unreadable=result.unreadable, invented=result.invented
            )
        self.counts = self.counts.plus(words=len(judged), withheld=plain.count(None))
        return [word for word, same in zip(words, plain, strict=True) if same in chosen]

    def _judged(self, group: str, chunks: Sequence[Sequence[str]]) -> Iterator[Judged]:
        """Yield the judgement of each chunk, kept ones first."""
        open_chunks = []
        for chunk in chunks:
            if (kept := self._judgements.find(group, chunk)) is not None:
                yield kept
            else:
                open_chunks.append(chunk)
        yield from self._asked(group, open_chunks)

    def _asked(self, group: str, chunks: Sequence[Sequence[str]]) -> Iterator[Judged]:
        requests = [self._request(group, chunk) for chunk in chunks for _ in range(self.runs)]
        replies: list[list[ChatReply]] = [[] for _ in chunks]
        no_list: list[ChatReply] = []
        for position, reply in self._client.ask_all(requests):
            self.counts = self.counts.plus(asked=1)
            chunk, own = chunks[position // self.runs], replies[position // self.runs]
            own.append(reply)
            if len(own) < self.runs:
                continue
            result = _read(chunk, own)
            if result.unreadable == self.runs:
                no_list.append(reply)
                continue
            self._judgements.keep(group, chunk, result, own)
            yield result
        if no_list:
            raise self._unreadable(group, no_list)

    def _request(self, group: str, chunk: Sequence[str]) -> ChatRequest:
        prompts = judge_prompts()
        messages = [
            {"role": "system", "content": prompts.system},
            # No word holds a space or a bracket, so none can end the text.
            {"role": "user", "content": f"{prompts.about(group)}\n\n<text>\n{', '.join(chunk)}\n</text>"},
        ]
        return ChatRequest(
            messages=lambda: messages,
            parameters=self._parameters,
            where=f"judge of stereotypes, words about {group}",
            most_new_tokens=MOST_NEW_TOKENS,
        )

    def _unreadable(self, group: str, replies: Sequence[ChatReply]) -> ScoringError:
        reply = replies[0]
        return ScoringError(
            f"none of the judge's {self.runs} replies is a list of words, for {len(replies)} list(s)",
            where=f"{self.settings.model}, words about {group}",
            found=f"({reply.finish_reason}) {on_one_line(reply.text)}" if reply.text else reply.finish_reason,
            expected='a list such as ["word", "word"], or []',
            hint="choose another model for the judge, or none; readable judgements are kept",
        )


def _group_words(group: str) -> str:
    """Return a group's name for a prompt: words and single spaces only, since names may come from a dataset."""
    words = group.replace("_", " ").split()
    if not words or len(words) > 8 or any(plain_word(word) is None for word in words):
        raise ScoringError(
            "a group's name cannot be put into the judge's prompt",
            found=on_one_line(repr(group)),
            expected="up to eight words of letters, such as Black female",
        )
    return " ".join(words)


def _read(chunk: Sequence[str], replies: Sequence[ChatReply]) -> Judged:
    known = set(chunk)
    lists = [
        read_word_list(reply.text, known) if reply.finish_reason in _READABLE else None for reply in replies
    ]
    readable = [items for items in lists if items is not None]
    named = {item for items in readable for item in items}
    return Judged(
        chosen=tuple(sorted(named & known)),
        runs=len(replies),
        unreadable=len(lists) - len(readable),
        invented=sum(len(set(items) - known) for items in readable),
    )
