"""Tables of the chapter on rankings, as text."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from plumbline.reasons import find
from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.evidence import evidence, finding_of, subject_of, uncertainty
from plumbline.report.figures.associations import SCALES, scale_title
from plumbline.report.figures.rankings import (
    AGAINST,
    ATTRIBUTES,
    EQUAL,
    RANKED,
    most_skewed_first,
    ranking_rows,
    skew_at_k_figure,
    small_ranking_figure,
    small_spread_figure,
    spread_figure,
)
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.numbers import bare_p, count, interval, number, with_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_faces, group_title, sentence_start


def group_listing(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, definition: str
) -> Listing:
    """List Skew@k against one kind of desired shares: one row a model and group, one column a scale."""
    rows = ranking_rows(table, dataset, "skew_at_k", definition)
    lookup = by(rows, "model", "attribute", "group", "event")
    scales = in_order(rows["event"], SCALES)
    listed = []
    for model, attribute, group in _groups(rows, models):
        by_scale = {scale: lookup.get((model, attribute, group, scale)) for scale in scales}
        held = [row for row in by_scale.values() if row is not None]
        listed.append(
            (
                model,
                attribute_title(attribute),
                group_title(group),
                *(_marked(by_scale[scale], reading) for scale in scales),
                count(held[0]["k"]),
                count(held[0]["n"]),
                "; ".join(dict.fromkeys(row["reason"] for row in held if row["reason"])),
            )
        )
    heads = ("Model", "Attribute", "Group", *(scale_title(scale) for scale in scales), "k", "n", "Note")
    return Listing(heads, listed, frozenset(range(3, 5 + len(scales))), _asterisk(reading))


def spread_listing(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, definition: str
) -> Listing:
    """List MaxSkew@k and NDKL beside what random rankings give, one row a model, attribute and scale."""
    largest = ranking_rows(table, dataset, "max_skew_at_k", definition)
    whole = by(ranking_rows(table, dataset, "ndkl", definition), "model", "attribute", "event")
    chance = {
        metric: by(ranking_rows(table, dataset, metric, definition, statistic="chance"), "model", "attribute")
        for metric in ("max_skew_at_k", "ndkl")
    }
    names, attributes = in_order(largest["model"], models), in_order(largest["attribute"], ATTRIBUTES)
    scales = in_order(largest["event"], SCALES)
    listed = []
    for row in sorted(
        largest.to_dicts(),
        key=lambda r: (names.index(r["model"]), attributes.index(r["attribute"]), scales.index(r["event"])),
    ):
        pair = (row["model"], row["attribute"])
        ndkl = whole.get((*pair, row["event"]))
        listed.append(
            (
                row["model"],
                attribute_title(row["attribute"]),
                scale_title(row["event"]),
                *_with_chance(row, chance["max_skew_at_k"].get(pair)),
                *_with_chance(ndkl, chance["ndkl"].get(pair)),
                count(row["n"]),
                "; ".join(dict.fromkeys(r["reason"] for r in (row, ndkl) if r and r["reason"])),
            )
        )
    heads = (
        "Model", "Attribute", "Scale", "MaxSkew@k", "by chance", "p", "q", "NDKL", "by chance", "p", "q", "n", "Note",
    )  # fmt: skip
    return Listing(heads, listed, frozenset(range(3, 12)))


def word_listing(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, *, shown: int = 3
) -> Listing:
    """List the words by which each group is ranked first and last, one row a model and group."""
    rows = where(table, metric="skew_at_k", definition=EQUAL, dataset=dataset, condition="before").drop_nulls("probe")
    listed = []
    for model, attribute, group in _groups(rows, models):
        of_group = where(rows, model=model, attribute=attribute, group=group).to_dicts()
        known = [row for row in of_group if not math.isnan(or_nan(row["value"]))]
        ordered = sorted(known, key=lambda row: (-row["value"], row["probe"]))
        ends = (ordered[:shown], ordered[::-1][:shown])
        texts = ("; ".join(f"{row['probe']} {_value(row, reading)}" for row in end) for end in ends)
        listed.append((model, attribute_title(attribute), group_title(group), *texts))
    heads = ("Model", "Attribute", "Group", "Most often among the best for", "Least often among the best for")
    return Listing(heads, listed, frozenset(), f"Skew@k against equal shares. {_asterisk(reading)}")


def _groups(rows: pl.DataFrame, models: tuple[str, ...]) -> list[tuple[str, str, str]]:
    return [
        (model, attribute, group)
        for model in in_order(rows["model"], models)
        for attribute in in_order(rows["attribute"], ATTRIBUTES)
        for group in in_order(where(rows, model=model, attribute=attribute)["group"], ())
    ]


def _asterisk(reading: Reading) -> str:
    return f"An asterisk marks q < {reading.significance:g}."


def _value(row: Row, reading: Reading) -> str:
    return number(row["value"]) + ("*" if evidence(row, reading) else "")


def _marked(row: Row | None, reading: Reading) -> str:
    if row is None:
        return "–"
    ends = interval(row["ci_low"], row["ci_high"])
    return with_interval(_value(row, reading), ends)


def _with_chance(row: Row | None, chance: Row | None) -> tuple[str, str, str, str]:
    if row is None:
        return "–", "–", "–", "–"
    ends = interval(row["ci_low"], row["ci_high"])
    value = with_interval(number(row["value"]), ends)
    return value, "–" if chance is None else number(chance["value"]), bare_p(row["p"]), bare_p(row["q"])


# --- What the rows of the ranking family say, one finding a model, dataset and attribute.

_ABSENT = 10.0
"""A group that is absent from the top is skewed more than any other: e^10 is far beyond what k images can show."""


def ranking_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the strongest Skew@k of every model, dataset and attribute, against the shares of the ranked faces."""
    findings: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = ranking_rows(table, dataset, "skew_at_k", RANKED)
        for key in rows.select("model", "attribute").unique().sort("model", "attribute").iter_rows():
            findings += _strongest(where(rows, model=key[0], attribute=key[1]).to_dicts(), reading)
    return findings


def _strongest(rows: list[Row], reading: Reading) -> list[Finding]:
    """Return the largest of the skews for which there is evidence, else of all."""
    known = [row for row in rows if not math.isnan(or_nan(row["value"]))]
    if not known:
        return []
    evident = [row for row in known if evidence(row, reading)]
    row = max(evident or known, key=lambda r: (_size(r), r["event"], r["group"]))
    attribute, subject = attribute_title(row["attribute"]), subject_of(row)
    numbers = f"skew@k {number(row['value'])}; {uncertainty(row, reading)}; n = {row['n']:,}{_small(row)}"
    statement = f"{_sentence(row)} ({numbers})"
    if evident:
        # First for negative words is a harm to whichever group it is; first for warm ones is for the reader to judge.
        tone = "bias" if row["event"].endswith("negative") else "difference"
        short = f"{sentence_start(attribute)}: ranked unequally by {scale_title(row['event'])}"
        sentence = (
            f"{subject}: {statement}. It is the strongest of {len(evident)} such skews by {attribute} for which there "
            f"is evidence, of {len(known)} tested."
        )
    else:
        tone, short = "none", f"no evidence of unequal rankings by {attribute}"
        sentence = (
            f"{subject}: no evidence that rankings by social perception favour faces by {attribute}; the largest of "
            f"{len(known)} estimates: {statement}. This does not show that there is none."
        )
    finding = finding_of(
        row, tone=tone, topic=("ranking", row["dataset"], row["attribute"]), short=short, sentence=sentence
    )
    return [replace(finding, value=_size(row), value_text=number(row["value"]), strength=_least(row))]


def _sentence(row: Row) -> str:
    faces = group_faces(row["attribute"], row["group"])
    scale = scale_title(row["event"]).removesuffix(" words")
    words = f"{scale.replace(', ', ' (')})" if ", " in scale else scale
    best = f"among the {count(row['k'])} faces that best fit the words of {words}"
    if math.isinf(row["value"]):
        return f"{best} there are no {faces}"
    return f"{best}, {faces} are {number(math.exp(row['value']))} times as frequent as among all"


def _small(row: Row) -> str:
    return ", small group" if find(row["reason_codes"], "small_group") else ""


def _size(row: Row) -> float:
    return min(abs(or_nan(row["value"])), _ABSENT)


def _least(row: Row) -> float:
    """Return the end of the interval that is nearer to 0, 0 where it holds it."""
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    if math.isnan(low) or math.isnan(high):
        return _size(row)
    return max(0.0, min(low, _ABSENT)) if row["value"] > 0 else max(0.0, min(-high, _ABSENT))


# --- Social perception: whose faces come first when all are ranked by a trait.

METRICS = ("skew_at_k", "max_skew_at_k", "ndkl")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    reading, models = inputs.audit, inputs.models
    names = most_skewed_first(own, models, dataset)
    by_group = [skew_at_k_figure(own, reading, model=model, dataset=dataset) for model in names]
    spreads = [spread_figure(own, reading, models, dataset, metric) for metric in METRICS[1:]]
    equal = [
        *(skew_at_k_figure(own, reading, model=model, dataset=dataset, definition=EQUAL) for model in names[:1]),
        *(spread_figure(own, reading, models, dataset, metric, EQUAL) for metric in METRICS[1:]),
    ]
    listings = [
        (f"{what}, desired: {AGAINST[definition]}", listing(own, reading, models, dataset, definition))
        for what, listing in (("MaxSkew@k and NDKL", spread_listing), ("Skew@k", group_listing))
        for definition in (RANKED, EQUAL)
    ]
    listings.append(("Words that rank a group first and last", word_listing(own, reading, models, dataset)))
    return Part(
        title=dataset,
        pictures=drawn([*by_group[:1], *spreads]),
        details=drawn([*by_group[1:], *equal]),
        listings=[(title, listing) for title, listing in listings if listing.rows],
        notes=_notes(own, models=len(names)),
    )


def _notes(own: pl.DataFrame, *, models: int) -> list[str]:
    notes = []
    lengths = own["k"].drop_nulls().unique().sort().to_list()
    if lengths and lengths != [1000]:
        listing = " and ".join(count(k) for k in lengths)
        notes.append(f"With fewer than 2,000 labelled faces, k is half of them instead of 1,000: here {listing}.")
    if models > 1:
        notes.append("Of the rankings by group, those of the model with the largest skew are shown first.")
    return notes


CHAPTER = Chapter(
    anchor="rankings",
    title="Social perception: rankings",
    lead="An image search for “a friendly person” shows whom a model finds friendliest. When all faces are ranked by "
    "how well an adjective fits them, whose faces come first, and is that more than a random order would give?",
    parts=_parts,
    findings=ranking_findings,
    pictures={"rankings": small_ranking_figure, "ndkl": small_spread_figure},
    method=(
        (
            "Skew@k and MaxSkew@k",
            "Faces are ranked by their cosine with a word, averaged over four templates, for a scale over its words; "
            "equal faces by image id. Skew@k is the natural logarithm of a group's share among the k best over its "
            "desired share: an equal one for every group, as in the paper, or the group's share of the ranked faces; "
            "−∞ for a group that is absent. MaxSkew@k is the largest. Intervals are BCa over resampled faces (over "
            "resampled sets where faces come in sets); that of the largest, which chance makes too large, is joined "
            "with those of the groups. p asks whether the order has anything to do with the groups: "
            "Fisher's exact test of each group's count, random tops for the largest; it is the same for either kind "
            "of desired share, so against equal shares a skew can be large and yet only mirror the data.",
        ),
        (
            "NDKL",
            "The Kullback–Leibler divergence of the groups' shares from the desired ones, in nats, over every prefix "
            "of the ranking, earlier prefixes weighing more. The first face is of one group whatever the model, so "
            "NDKL is never 0: read it against the stroke that marks random rankings. The interval is the jackknife's "
            "for the expected NDKL of as many faces; p by random rankings; where faces come in sets, by dealing out "
            "all faces of one group in a set together, a thousand times at most.",
        ),
    ),
)
