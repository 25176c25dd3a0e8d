"""Who says which words about a group are stereotypes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from plumbline.tables.generation_prompts import group_in_words

Judge = Callable[[str, Sequence[str]], Sequence[str]]
"""Takes a group, in words such as `Black female`, and words; gives those of them that are stereotypes of the group."""

NO_JUDGE = "no judge is configured"


def stereotypes(judge: Judge, group: str, words: Collection[str]) -> set[str]:
    """Ask the judge once about the words of a group; what it names besides them is ignored.

    Parameters
    ----------
    group : str
        As labels have it: `Black_woman`.
    words : collection of str
        Asked about in this order.
    """
    return set(judge(group_in_words(group), list(words))) & set(words)
