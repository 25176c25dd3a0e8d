"""Tables of the words that are said more of one group than of the others; every word is hostile text."""

from __future__ import annotations

import polars as pl

from plumbline import reasons
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import label
from plumbline.report.inputs import ReportInputs
from plumbline.report.language_words import attributes_in, left_out, models_in, of_subset, plain
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import bare_p, count, interval, number, with_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, first, in_order, where
from plumbline.report.vocabulary import group_title, listed

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
        of_group = words.filter(pl.col("group") == group)
        listed = of_group.filter(pl.col("word").is_not_null()).to_dicts()
        associated, stereotypes = (
            first(counts, group=group, metric=metric) for metric in ("associated_words", "stereotype_words")
        )
        reason = of_group["reason"].drop_nulls().to_list() if not listed else []
        strongest = [_word(row, reading) for row in listed[:STRONGEST]]
        strongest += [""] * (STRONGEST - len(strongest))
        if not listed:
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
        if reasons.find(row["reason_codes"], "no_judge")
        else "undefined"
    )


def word_listing(words: pl.DataFrame) -> Listing:
    """List words with association, interval, q and counts; as many of each group as a table has room for."""
    groups = in_order(words["group"], ())
    each = max(_FEWEST, LONGEST_LISTING // max(1, len(groups)))
    listed = words.filter(pl.col("word").is_not_null())
    shown = []
    for group in groups:
        for row in listed.filter(pl.col("group") == group).head(each).to_dicts():
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
    note = left_out(listed.height - len(shown), "words", "the table `word_associations`")
    return Listing(heads, shown, frozenset({2, 3, 4, 5, 6}), note)


# --- Words that generative models say more of one group than of the others: ranked lists with counts, no
# clouds.

METRICS = ("associated_words", "stereotype_words")
OPEN = 2
"""Models of a subset whose strongest words are shown; those of the others are folded."""


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    words, counts = inputs.language.get("word_associations"), where(plain(table), metric=METRICS)
    if words is None:
        return []
    # Also where no word is listed: that is a result, and has a reason.
    subsets = pl.concat([frame.select("dataset", "attribute") for frame in (words, counts)])
    parts = [Part(title="Which are stereotypes?", notes=_judges(inputs))] if words.height else []
    for dataset in inputs.datasets_in(subsets["dataset"]):
        of_dataset = where(words, dataset=dataset)
        for attribute in attributes_in(where(subsets, dataset=dataset)):
            parts.append(_part(of_dataset, counts, inputs, dataset, attribute))
    return parts


def _part(words: pl.DataFrame, counts: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> Part:
    rows = where(words, attribute=attribute)
    of_attribute = where(counts, dataset=dataset, attribute=attribute)
    models = models_in(rows, inputs)
    silent = [model for model in models_in(of_attribute, inputs) if model not in models]
    first = [
        (
            f"{model}: the strongest words of each group",
            strongest_listing(where(rows, model=model), where(of_attribute, model=model), inputs.reading),
        )
        for model in models
    ]
    every = [
        (f"{model}: words with association, interval and counts", word_listing(where(rows, model=model)))
        for model in models
    ]
    return Part(
        title=of_subset(dataset, attribute),
        notes=[*(_none(model, where(of_attribute, model=model)) for model in silent), *_missing(of_attribute)],
        tables=first[:OPEN],
        listings=[*first[OPEN:], *every],
    )


def _none(model: str, counts: pl.DataFrame) -> str:
    """Say why no word of a model is listed: the setting, where it leaves none of any group."""
    codes = where(counts, metric="associated_words")["reason_codes"].to_list()
    rare = [why for each in codes if (why := reasons.find(each, "words_too_rare"))]
    if rare and len(rare) == len(codes):
        return f"{model}: no word is listed, since {rare[0]}. A smaller one lists words that were said less often."
    return f"{model}: no word is listed: none is said of one group that much more than of the others."


def _missing(counts: pl.DataFrame) -> list[str]:
    """Say once which of the main prompts were not asked."""
    codes = where(counts, metric="associated_words")["reason_codes"].unique().to_list()
    missing = {str(why) for each in codes if (why := reasons.find(each, "prompts_not_asked"))}
    return [f"Of the five main prompts {why}." for why in sorted(missing)]


def _judges(inputs: ReportInputs) -> list[str]:
    judges = list(dict.fromkeys(one.judge for one in inputs.lvlms if one.judge))
    if not judges:
        return ["No judge is configured: which of these words are stereotypes is left to the reader."]
    return [
        f"{STEREOTYPE} marks words that {listed(judges)} named stereotypes of the group, given the words alone. The "
        "judge is a language model: where people have annotated its words, its precision and recall are told above."
    ]


CHAPTER = Chapter(
    anchor="words",
    title="Words said of one group more than of the others",
    lead="Which words does a model keep for one group? Counted are the answers to the five main prompts together. A "
    "word is listed where it is said of a group more than twice as often as of the others in the same scenes, the "
    "strongest first. The words are the models' own, shown as they were said.",
    parts=_parts,
    method=(
        (
            "Words of a group",
            "Association: the binary logarithm of a word's share among all words about a group over its share among "
            "the words about the other groups of the same subset; 1 is twice as often. Listed are words above 1 that "
            "were said often enough, function words left out. A word that was never said of the others counts there "
            "as half a time, which the note says. Intervals and p go by blocks of whole scenes; q over every word of "
            "the subset that was said often enough.",
        ),
    ),
)
