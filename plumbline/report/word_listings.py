"""Tables of the words that are said more of one group than of the others; every word is hostile text."""

from __future__ import annotations

import polars as pl

from plumbline.report.figures.canvas import label
from plumbline.report.language_words import left_out
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import bare_p, count, interval, number, with_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, first, in_order
from plumbline.report.vocabulary import group_title

STRONGEST = 5
"""Words of a group that are shown at first."""
STEREOTYPE = "★"
_LONGEST_WORD = 20
_FEWEST = 3


def strongest_listing(words: pl.DataFrame, counts: pl.DataFrame, reading: Reading) -> Listing:
    """List the most associated words of every group with how often they were said, a row a group.

    Parameters
    ----------
    words : DataFrame
        Rows of `word_associations` of one model, dataset and attribute, strongest first.
    counts : DataFrame
        Metric rows `associated_words` and `stereotype_words` of the same.
    """
    shown = []
    for group in in_order(words["group"], ()):
        own = words.filter(pl.col("group") == group)
        said = own.filter(pl.col("word").is_not_null()).to_dicts()
        associated, stereotypes = (
            first(counts, group=group, metric=metric) for metric in ("associated_words", "stereotype_words")
        )
        reason = own["reason"].drop_nulls().to_list() if not said else []
        strongest = [_word(row, reading) for row in said[:STRONGEST]]
        strongest += [""] * (STRONGEST - len(strongest))
        if not said:
            strongest[0] = reason[0] if reason else "none"
        shown.append((group_title(group), _count(associated), _count(stereotypes), *strongest))
    heads = ("Group", "Words of its own", f"Stereotypes {STEREOTYPE}", "1st", "2nd", "3rd", "4th", "5th")
    note = (
        "In brackets how often the word was said of the group, and against it, after a slash, of all others together. "
        "~ marks a word that chance alone may explain."
    )
    return Listing(heads, shown, frozenset({1, 2}), note)


def _word(row: Row, reading: Reading) -> str:
    sure = defined(row["q"]) and row["q"] < reading.significance
    mark = f" {STEREOTYPE}" if row["stereotype"] else ""
    chance = "" if sure else "~"
    word = label(row["word"], longest=_LONGEST_WORD)
    return f"{chance}{word}{mark} ({count(row['count'])}/{count(row['count_others'])})"


def _count(row: Row | None) -> str:
    if row is None:
        return "–"
    return (
        f"{row['value']:,.0f}"
        if defined(row["value"])
        else "not judged"
        if "judge" in (row["reason"] or "")
        else "undefined"
    )


def word_listing(words: pl.DataFrame) -> Listing:
    """List words with association, interval, q and counts; as many of each group as a table has room for."""
    groups = in_order(words["group"], ())
    each = max(_FEWEST, LONGEST_LISTING // max(1, len(groups)))
    said = words.filter(pl.col("word").is_not_null())
    shown = []
    for group in groups:
        for row in said.filter(pl.col("group") == group).head(each).to_dicts():
            ends = interval(row["ci_low"], row["ci_high"])
            shown.append(
                (
                    group_title(group),
                    label(row["word"]),
                    with_interval(number(row["association"]), ends),
                    bare_p(row["q"]),
                    f"{count(row['count'])} of {count(row['n'])}",
                    f"{count(row['count_others'])} of {count(row['n_others'])}",
                    count(row["texts"]),
                    {True: f"{STEREOTYPE} stereotype", False: "no", None: "not judged"}[row["stereotype"]],
                    row["reason"] or "",
                )
            )
    heads = (
        "Group", "Word", "Association", "q", "Words about the group", "Words about the others", "Answers with it",
        "Judge", "Note",
    )  # fmt: skip
    note = left_out(said.height - len(shown), "words", "the table `word_associations`")
    return Listing(heads, shown, frozenset({2, 3, 4, 5, 6}), note)
