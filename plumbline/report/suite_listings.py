"""Which words were asked: the prompt suites of an audit, by category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plumbline.report.data_listings import short_digest
from plumbline.report.listings import Listing
from plumbline.report.numbers import count
from plumbline.tables.suites import Suite

MOST_CATEGORIES = 16
"""More categories than these, such as those of captions by scene, are counted."""
LONGEST = 220
"""Characters of words that are listed; the rest is counted. Shorter than a cell of the page may be."""
_COUNTED = ("perception", "markedness", "templates", "captions")
"""Families whose words are counted: many, and in several templates."""


def suite_listing(suites: Sequence[Suite]) -> Listing:
    """List suites, a row a category: what there is of a suite as a whole stands in its first row."""
    rows = []
    for suite in suites:
        whole = (
            suite.id,
            str(suite.version),
            suite.source,
            count(len(suite.texts)),
            short_digest(suite.hash),
        )
        for category, words in _categories(suite):
            rows.append((*whole[:4], category, words, whole[4]))
            whole = ("", "", "", "", "")
    heads = ("Suite", "Version", "Source", "Texts", "Category", "Words", "sha256 of the prompts")
    note = "plumbline explain shows the prompts of a number in full."
    return Listing(heads, rows, frozenset({1, 3}), note)


def _categories(suite: Suite) -> Iterator[tuple[str, str]]:
    """Give each category with its words, each once, whichever templates they are in."""
    words: dict[str, dict[str, None]] = {}
    for candidate in suite.candidates:
        words.setdefault(candidate.category, {})[candidate.word or candidate.id] = None
    known = suite.scales or {category: tuple(own) for category, own in words.items() if category != "blank"}
    if len(known) > MOST_CATEGORIES:
        yield "all", f"{count(len(suite.texts))} texts in {len(known)} categories"
        return
    for category, own in known.items():
        yield (
            category.replace("_", " "),
            _counted(suite, len(own)) if suite.family in _COUNTED else _listed(own),
        )


def _counted(suite: Suite, words: int) -> str:
    templates = f" in {len(suite.templates)} templates" if suite.templates else ""
    return f"{words} words{templates}"


def _listed(words: Sequence[str]) -> str:
    shown = [word.replace("_", " ") for word in words]
    told = ", ".join(shown)
    while len(told) > LONGEST:
        shown.pop()
        told = f"{', '.join(shown)} and {len(words) - len(shown)} more"
    return told
