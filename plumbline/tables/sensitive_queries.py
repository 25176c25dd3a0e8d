"""Sensitive queries: texts that mitigations are trained on, none of which is ever asked in an audit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from plumbline.tables.data_files import data_yaml
from plumbline.tables.suites import all_texts, with_article


@dataclass(frozen=True)
class SensitiveQueries:
    """Queries about a person that their group should not decide.

    Attributes
    ----------
    source : str
    pairs : tuple of (str, str)
        Opposite queries of which both may be trained on, the favourable one first.
    texts : tuple of str
        Every query that may be trained on, those without their opposite too.
    left_out : tuple of str
        Queries of the source that are prompts of a suite: training text must not be evaluation text.
    """

    source: str
    pairs: tuple[tuple[str, str], ...]
    texts: tuple[str, ...]
    left_out: tuple[str, ...]


@cache
def load_sensitive_queries() -> SensitiveQueries:
    """Read the queries from their data file, and leave out those that are prompts of a suite in any case."""
    content: dict[str, Any] = data_yaml("sensitive_queries.yaml")
    asked = {text.lower() for text in all_texts()}
    pairs = [
        (content["template"].format(with_article(good)), content["template"].format(with_article(bad)))
        for good, bad in content["pairs"]
    ]
    texts = [text for pair in pairs for text in pair]
    return SensitiveQueries(
        source=content["source"],
        pairs=tuple(pair for pair in pairs if not asked.intersection(pair)),
        texts=tuple(text for text in texts if text not in asked),
        left_out=tuple(text for text in texts if text in asked),
    )
