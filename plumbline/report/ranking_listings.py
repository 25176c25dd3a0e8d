"""Tables of the chapter on rankings, as text."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.evidence import evidence
from plumbline.report.figures.associations import SCALES, scale_title
from plumbline.report.figures.rankings import ATTRIBUTES, EQUAL, ranking_rows
from plumbline.report.listings import Listing
from plumbline.report.numbers import bare_p, count, interval, number, with_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title


def group_listing(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, definition: str
) -> Listing:
    """List Skew@k against one kind of desired shares: one row a model and group, one column a scale."""
    rows = ranking_rows(table, dataset, "skew_at_k", definition)
    found = by(rows, "model", "attribute", "group", "event")
    scales = in_order(rows["event"], SCALES)
    listed = []
    for model, attribute, group in _groups(rows, models):
        own = {scale: found.get((model, attribute, group, scale)) for scale in scales}
        held = [row for row in own.values() if row is not None]
        listed.append(
            (
                model,
                attribute_title(attribute),
                group_title(group),
                *(_marked(own[scale], reading) for scale in scales),
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
    rows = where(table, metric="skew_at_k", definition=EQUAL, dataset=dataset, condition="before").drop_nulls(
        "probe"
    )
    listed = []
    for model, attribute, group in _groups(rows, models):
        own = where(rows, model=model, attribute=attribute, group=group).to_dicts()
        known = [row for row in own if not math.isnan(or_nan(row["value"]))]
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
