"""The judge of stereotypes: a language model says which words about a group are stereotypes of it (appendix D.2)."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from upath import UPath

from plumbline.catalog.prompts import judge_prompts
from plumbline.digests import canonical_json, digest_json
from plumbline.errors import ScoringError
from plumbline.http.chat import ChatClient, ChatReply, ChatRequest
from plumbline.http.retries import on_one_line
from plumbline.http.settings import EndpointSettings
from plumbline.storage.files import commit_bytes

LONGEST_WORD = 40
LONGEST_PHRASE = 3
"""Words of one item; longer ones mean that the reply is prose."""

_ONE_WRITING = str.maketrans({"\u2019": "'", "\u2018": "'", "\u2010": "-", "\u2011": "-"})
_FENCE = re.compile(r"\A```[a-z]*\s*\n(.*?)\n?\s*```\Z", re.DOTALL)
_BULLET = re.compile(r"\A(?:[-*•–]\s+|\d{1,4}[.)]\s+)")
_QUOTES = "\"'`\u201c\u201d\u2018\u2019*_"


def plain_word(word: str) -> str | None:
    """Return a word as it is compared, lower-case and in one writing; None where it is not shaped like a word.

    Shaped like a word are letters with their marks, and single hyphens and apostrophes between them, of at most
    `LONGEST_WORD` characters. What is not never reaches a prompt.
    """
    plain = unicodedata.normalize("NFC", word.lower()).translate(_ONE_WRITING)
    if len(plain) > LONGEST_WORD:
        return None
    return plain if all(_is_letters(part) for part in re.split("[-']", plain)) else None


def read_word_list(reply: str, known: Collection[str]) -> list[str] | None:
    """Read the items of a list; None where the reply is no list.

    Read are a JSON list of strings, also in a fence of three backticks; a list in brackets; and items that are
    separated by commas or stand one to a line, with or without bullets or numbers. An item has at most
    `LONGEST_PHRASE` words. `[]` is a list of nothing. An empty reply is no list, nor is anything else such as a
    sentence; nor, without brackets, items none of which was asked about: `Sorry, no.` has commas too.

    Parameters
    ----------
    known : collection of str
        The words that were asked about, as `plain_word` gives them.

    Returns
    -------
    list of str or None
        In order, lower-case, in one writing; some may be phrases, and some not among `known`.
    """
    text = reply.strip()
    if fenced := _FENCE.match(text):
        text = fenced[1].strip()
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        items = None
    if isinstance(items, list) and all(isinstance(item, str) for item in items):
        return _phrases(items)
    bare = text.strip(_QUOTES).strip()
    if bare.startswith("[") and bare.endswith("]"):
        return _phrases(_separated(bare[1:-1]))
    phrases = _phrases(_separated(text))
    return phrases if phrases and any(phrase in known for phrase in phrases) else None


def _separated(text: str) -> list[str]:
    """Return the items of lines and between commas, without bullets."""
    lines = [_BULLET.sub("", line.strip()) for line in text.splitlines()]
    items = [item.strip() for line in lines for item in line.split(",")]
    return [item for item in items if item]


def _phrases(items: Sequence[str]) -> list[str] | None:
    """Return items in one writing; None where one is neither a word nor a short phrase."""
    phrases = []
    for item in items:
        words = [plain_word(word) for word in item.strip().strip(_QUOTES + ".").split()]
        known_words = [word for word in words if word]
        if len(known_words) != len(words) or not 0 < len(words) <= LONGEST_PHRASE:
            return None
        phrases.append(" ".join(known_words))
    return phrases


def _is_letters(part: str) -> bool:
    return part[:1].isalpha() and all(letter.isalpha() or unicodedata.category(letter)[0] == "M" for letter in part)


# Judgements that are kept, each in a file of its own, so that nothing is asked twice.


@dataclass(frozen=True)
class Judged:
    """What the replies to one list of words came to.

    Attributes
    ----------
    chosen : tuple of str
        Words of the list that any readable reply names, sorted.
    runs, unreadable, invented : int
        As in `plumbline.generators.judge.JudgeCounts`.
    """

    chosen: tuple[str, ...]
    runs: int
    unreadable: int
    invented: int


class Judgements:
    """Judgements of one judge under a folder; with the replies, for whoever wants to see them.

    Parameters
    ----------
    root : UPath or None
        None keeps nothing.
    identity : str
        Of the judge.
    """

    def __init__(self, root: UPath | None, identity: str) -> None:
        self._root, self._identity = root, identity

    def find(self, group: str, words: Sequence[str]) -> Judged | None:
        """Return a judgement; None where there is none, or its file is damaged."""
        if self._root is None:
            return None
        try:
            stored = json.loads(self._path(self._root, group, words).read_bytes())
            content = stored["content"]
            if stored["sha256"] != digest_json(content):
                return None
            judged = {field.name: content["judged"][field.name] for field in fields(Judged)}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return Judged(**{**judged, "chosen": tuple(judged["chosen"])})

    def keep(self, group: str, words: Sequence[str], judged: Judged, replies: Sequence[ChatReply]) -> None:
        """Keep a judgement.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        if self._root is None:
            return
        content = {
            "group": group,
            "words": list(words),
            "judged": {**vars(judged), "chosen": list(judged.chosen)},
            "replies": [vars(reply) for reply in replies],
        }
        data = canonical_json({"sha256": digest_json(content), "content": content}).encode()
        commit_bytes(self._path(self._root, group, words), data)

    def _path(self, root: UPath, group: str, words: Sequence[str]) -> UPath:
        key = digest_json({"judge": self._identity, "group": group, "words": list(words)})
        return root / key[:2] / f"{key}.json"


# The judge.

JUDGE_VERSION = 1
"""Part of the identity: raise it with any change of what is asked or of how replies are read."""

RUNS = 3
CHUNK_WORDS = 200
MOST_NEW_TOKENS = 2048


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
            self.counts = self.counts.plus(runs=result.runs, unreadable=result.unreadable, invented=result.invented)
        self.counts = self.counts.plus(words=len(judged), withheld=plain.count(None))
        return [word for word, same in zip(words, plain, strict=True) if same in chosen]

    def _judged(self, group: str, chunks: Sequence[Sequence[str]]) -> Iterator[Judged]:
        """Yield the judgement of each chunk: first the kept ones, then those that the endpoint gives now."""
        unjudged = []
        for chunk in chunks:
            if (kept := self._judgements.find(group, chunk)) is not None:
                yield kept
            else:
                unjudged.append(chunk)
        requests = [self._request(group, chunk) for chunk in unjudged for _ in range(self.runs)]
        replies: list[list[ChatReply]] = [[] for _ in unjudged]
        no_list: list[ChatReply] = []
        for position, reply in self._client.ask_all(requests):
            self.counts = self.counts.plus(asked=1)
            chunk, of_chunk = unjudged[position // self.runs], replies[position // self.runs]
            of_chunk.append(reply)
            if len(of_chunk) < self.runs:
                continue
            judged = _read(chunk, of_chunk)
            if judged.unreadable == self.runs:
                no_list.append(reply)
                continue
            self._judgements.keep(group, chunk, judged, of_chunk)
            yield judged
        if no_list:
            reply = no_list[0]
            shown = f"({reply.finish_reason}) {on_one_line(reply.text)}" if reply.text else reply.finish_reason
            raise ScoringError(
                f"none of the judge's {self.runs} replies is a list of words, for {len(no_list)} list(s)",
                where=f"{self.settings.model}, words about {group}",
                found=shown,
                expected='a list such as ["word", "word"], or []',
                hint="choose another model for the judge, or none; readable judgements are kept",
            )

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
    lists = [read_word_list(reply.text, known) if reply.finish_reason == "stop" else None for reply in replies]
    readable = [items for items in lists if items is not None]
    named = {item for items in readable for item in items}
    return Judged(
        chosen=tuple(sorted(named & known)),
        runs=len(replies),
        unreadable=len(lists) - len(readable),
        invented=sum(len(set(items) - known) for items in readable),
    )
