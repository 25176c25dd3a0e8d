"""Judgements that are kept, each in a file of its own, so that nothing is asked twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from upath import UPath

from plumbline.digests import canonical_json, digest_json
from plumbline.lvlm.chat_reply import ChatReply
from plumbline.storage.atomic import commit_bytes


@dataclass(frozen=True)
class Judged:
    """What the replies to one list of words came to.

    Attributes
    ----------
    chosen : tuple of str
        Words of the list that any readable reply names, sorted.
    runs, unreadable, invented : int
        As in `plumbline.lvlm.judge.JudgeCounts`.
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
