"""What was asked and what was left out: suites, comparisons, undefined numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from plumbline.catalog.suites import Suite
from plumbline.report.data import short_digest
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import count
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, first, reason_of
from plumbline.report.vocabulary import suite_title

_OF = ("attribute", "group", "event", "probe", "occupation", "prompt", "instruction", "scorer")


def undefined_listing(table: pl.DataFrame) -> Listing:
    """List every undefined value with its reason, the first `LONGEST_LISTING` of them."""
    chosen = table.filter(pl.col("value").is_null() | pl.col("value").is_nan())
    rows = [
        (
            row["model"],
            row["dataset"],
            f"{row['metric']} · {row['definition']}",
            suite_title(row["suite"] or "–"),
            " · ".join(str(row[name]) for name in _OF if row[name]) or "–",
            count(row["n"]) if row["n"] is not None else "–",
            reason_of(row),
        )
        for row in chosen.head(LONGEST_LISTING).to_dicts()
    ]
    more = chosen.height - len(rows)
    note = f"{count(more)} more are in the metric table." if more else ""
    return Listing(("Model", "Dataset", "Metric", "Suite", "Of", "n", "Reason"), rows, frozenset({5}), note)


@dataclass(frozen=True)
class Comparisons:
    """How many comparisons a table makes, as text.

    Attributes
    ----------
    rows, intervals, undefined : str
        Rows; those with an interval; those whose value is undefined.
    tests, below_p, by_chance : str
        Rows with a p-value; those below the level; how many would be if no group were treated differently.
    corrected, below_q : str
        Rows with a q-value; those below the level.
    """

    rows: str
    intervals: str
    undefined: str
    tests: str
    below_p: str
    by_chance: str
    corrected: str
    below_q: str


def comparisons(table: pl.DataFrame, reading: Reading) -> Comparisons:
    """Count the comparisons of a table."""
    tested, corrected = table.filter(pl.col("p").is_finite()), table.filter(pl.col("q").is_finite())
    return Comparisons(
        rows=count(table.height),
        intervals=count(table.filter(pl.col("ci_low").is_finite()).height),
        undefined=count(table.filter(pl.col("value").is_null() | pl.col("value").is_nan()).height),
        tests=count(tested.height),
        below_p=count(tested.filter(pl.col("p") < reading.significance).height),
        by_chance=count(round(reading.significance * tested.height)),
        corrected=count(corrected.height),
        below_q=count(corrected.filter(pl.col("q") < reading.significance).height),
    )


def example_row(table: pl.DataFrame) -> Row | None:
    """Return a Max Skew row with its lineage, to show how a number is traced."""
    return first(table, metric="max_skew", definition="mean_over_pairs") or first(table)


# --- Which words were asked: the prompt suites of an audit, by category.

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
        whole = (suite.id, str(suite.version), suite.source, count(len(suite.texts)), short_digest(suite.hash))
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
    known = suite.scales or {category: tuple(texts) for category, texts in words.items() if category != "blank"}
    if len(known) > MOST_CATEGORIES:
        yield "all", f"{count(len(suite.texts))} texts in {len(known)} categories"
        return
    for category, texts in known.items():
        yield (category.replace("_", " "), _counted(suite, len(texts)) if suite.family in _COUNTED else _listed(texts))


def _counted(suite: Suite, words: int) -> str:
    templates = f" in {len(suite.templates)} templates" if suite.templates else ""
    return f"{words} words{templates}"


def _listed(words: Sequence[str]) -> str:
    shown = [word.replace("_", " ") for word in words]
    text = ", ".join(shown)
    while len(text) > LONGEST:
        shown.pop()
        text = f"{', '.join(shown)} and {len(words) - len(shown)} more"
    return text
