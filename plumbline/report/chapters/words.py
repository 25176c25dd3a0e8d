"""Words that generative models say more of one group than of the others; every word is hostile text."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from plumbline import reasons
from plumbline.catalog.prompts import prompt_ids
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import label
from plumbline.report.charts.language import STEREOTYPE, strongest_words
from plumbline.report.inputs import ReportInputs
from plumbline.report.language_words import attributes_in, left_out, models_in, of_subset, plain
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import bare_p, count, interval, number, with_interval
from plumbline.report.rows import in_order, where
from plumbline.report.vocabulary import group_title, listed

_FEWEST = 3
UNLIKE = 3.0
"""Times that answers about one group are as long as about another, from which shares of words are said to be unlike."""


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    words, counts = inputs.language.get("word_associations"), where(plain(table), metric="associated_words")
    lengths = where(plain(table), metric="response_length_ratio", prompt=prompt_ids("main"))
    if words is None:
        return []
    # Also where no word is listed: that is a result, and has a reason.
    subsets = pl.concat([frame.select("dataset", "attribute") for frame in (words, counts)])
    parts = []
    for dataset in inputs.datasets_in(subsets["dataset"]):
        of_dataset = where(words, dataset=dataset)
        for attribute in attributes_in(where(subsets, dataset=dataset)):
            part = _part(of_dataset, counts, inputs, dataset, attribute)
            unlike = _unlike(where(lengths, dataset=dataset, attribute=attribute))
            parts.append(replace(part, notes=[*part.notes, *unlike]))
    judged = _judges(inputs) if words.height else []
    return [replace(part, notes=[*(judged if part is parts[0] else ()), *part.notes]) for part in parts]


def _part(words: pl.DataFrame, counts: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> Part:
    rows = where(words, attribute=attribute)
    of_attribute = where(counts, dataset=dataset, attribute=attribute)
    by_model = {model: where(rows, model=model) for model in models_in(rows, inputs)}
    silent = [model for model in models_in(of_attribute, inputs) if model not in by_model]
    charts = [
        strongest_words(frame, inputs.reading, model=model, dataset=dataset, attribute=attribute)
        for model, frame in by_model.items()
    ]
    notes = [*(_none(model, where(of_attribute, model=model)) for model in silent), *_missing(of_attribute)]
    part = Part.of(of_subset(dataset, attribute), charts, notes=notes)
    every = [
        (f"{model}: words with association, interval and counts", word_listing(each))
        for model, each in by_model.items()
    ]
    return replace(part, listings=every)


def _none(model: str, counts: pl.DataFrame) -> str:
    """Say why no word of a model is listed: the setting, where it leaves none of any group."""
    codes = where(counts, metric="associated_words")["reason_codes"].to_list()
    rare = [why for each in codes if (why := reasons.find(each, "words_too_rare"))]
    if rare and len(rare) == len(codes):
        return f"{model}: no word is listed, since {rare[0]}. A smaller one lists words that were said less often."
    return f"{model}: no word is listed: none is said of one group that much more than of the others."


def _unlike(lengths: pl.DataFrame) -> list[str]:
    """Say of which models answers about some group are so long that shares of words compare unlike texts."""
    long = lengths.filter(pl.col("value").is_finite(), pl.col("value") >= UNLIKE).sort("value", descending=True)
    return [
        f"{row['model']}: to “{row['prompt']}”, answers about one group are {number(row['value'])} times as long as "
        "about another. Read some before a word is told: a few very long ones, such as loops, make every other word "
        "of their group rarer, and so more said of the others."
        for row in long.unique("model", keep="first", maintain_order=True).to_dicts()
    ]


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


CHAPTER = Chapter(
    anchor="words",
    title="Words said of one group more than of the others",
    lead="Which words does a model keep for one group? A word is listed where it is said of a group more than twice as "
    "often as of the others in the same scenes, as it was said.",
    parts=_parts,
    method=(
        (
            "Words of a group",
            "Counted are the answers to the five main prompts together. Association: the binary logarithm of a word's "
            "share among all words about a group over its share among "
            "the words about the other groups of the same subset; 1 is twice as often. Listed are words above 1 that "
            "were said often enough, function words left out. A word that was never said of the others counts there "
            "as half a time, which the note says. Intervals and p go by blocks of whole scenes; q over every word of "
            "the subset that was said often enough.",
        ),
    ),
)
