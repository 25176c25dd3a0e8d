"""Tables of the report about associations, markedness and the two valences."""

from __future__ import annotations

import polars as pl

from plumbline.report.evidence import evidence
from plumbline.report.figures.associations import (
    SCALES,
    by_evidence,
    comparison_title,
    scale_rows,
    scale_title,
)
from plumbline.report.figures.markedness import AVERAGED
from plumbline.report.figures.valences import EVERYONE
from plumbline.report.listings import Listing, estimate
from plumbline.report.numbers import (
    bare_p,
    count,
    interval,
    number,
    percent,
    percent_interval,
    points,
    with_interval,
)
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import DIMENSIONS, attribute_title, group_title

EVIDENT = "*"


def scale_listing(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Listing:
    """List the effect sizes of the scales, a row a model and comparison; a star marks evidence."""
    rows = scale_rows(table, dataset)
    return _effects(rows, reading, models, in_order(rows["event"], SCALES), scale_title)


def weat_listing(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Listing:
    """List the WEAT effect sizes of the dimensions, a row a model and comparison; a star marks evidence."""
    rows = by_evidence(where(table, metric="weat_effect", dataset=dataset, condition="before"))
    return _effects(rows, reading, models, in_order(rows["event"], DIMENSIONS), lambda dimension: dimension)


def _effects(rows, reading, models, events, title) -> Listing:  # type: ignore[no-untyped-def]
    found = by(rows, "model", "attribute", "group", "event")
    shown = []
    for row in _comparisons(rows, models):
        own = [found.get((row["model"], row["attribute"], row["group"], event)) for event in events]
        cells = [_starred(each, reading) for each in own]
        smallest = bare_p(min((e["q"] for e in own if e and defined(e["q"])), default=None))
        shown.append((*_who(row), *cells, smallest, count(row["n"]), row["reason"] or ""))
    heads = ("Model", "Attribute", "Group", *(title(event) for event in events), "Smallest q", "n", "Note")
    note = (
        "Standard deviations, with intervals. A group stands against all others where it names no second one. "
        f"{EVIDENT} q below {reading.significance:g} (two-sided)."
    )
    return Listing(heads, shown, frozenset(range(3, 5 + len(events))), note)


def _comparisons(rows: pl.DataFrame, models: tuple[str, ...]) -> list[Row]:
    firsts = rows.unique(["model", "attribute", "group"], maintain_order=True).to_dicts()
    place = {name: i for i, name in enumerate(in_order(rows["model"], models))}
    return sorted(firsts, key=lambda row: (place[row["model"]], row["attribute"], row["group"]))


def _who(row: Row) -> tuple[str, str, str]:
    return row["model"], attribute_title(row["attribute"]), comparison_title(row)


def _starred(row: Row | None, reading: Reading) -> str:
    if row is None:
        return "–"
    if not defined(row["value"]):
        return "undefined"
    ends = interval(row["ci_low"], row["ci_high"])
    star = EVIDENT if evidence(row, reading) else ""
    return with_interval(f"{number(row['value'])}{star}", ends)


def word_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str, *, shown: int = 3) -> Listing:
    """List the words that lie closest to a group, and furthest from it, a row a model and comparison."""
    rows = where(
        table, metric="sc_weat_effect", definition="paper", dataset=dataset, condition="before", event=None
    ).drop_nulls("probe")
    lines = []
    for row in _comparisons(rows, models):
        own = where(rows, model=row["model"], attribute=row["attribute"], group=row["group"])
        words = [(r["value"], r["probe"]) for r in own.to_dicts() if defined(r["value"])]
        words.sort(key=lambda pair: (-pair[0], pair[1]))
        closest, furthest = words[:shown], words[: -shown - 1 : -1]
        told = ["; ".join(f"{word} {number(value)}" for value, word in side) for side in (closest, furthest)]
        lines.append((*_who(row), *told, count(row["n"])))
    heads = ("Model", "Attribute", "Group", "Closest words", "Furthest words", "n")
    note = "SC-WEAT effect sizes in standard deviations; every word is in the metric table, with its interval and p."
    return Listing(heads, lines, frozenset({5}), note)


def markedness_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List markedness under every template and averaged, a row a model and group."""
    rows = where(table, metric="markedness", dataset=dataset, condition="before")
    found = by(rows, "model", "attribute", "group", "definition")
    templates = [name for name in in_order(rows["definition"], ()) if name != AVERAGED]
    place = {name: i for i, name in enumerate(in_order(rows["model"], models))}
    keys = sorted({key[:3] for key in found}, key=lambda key: (place[key[0]], *key[1:]))
    lines = []
    for key in keys:
        row = found[(*key, AVERAGED)]
        each = [_percent(found.get((*key, template))) for template in templates]
        who = (key[0], attribute_title(key[1]), group_title(key[2]))
        lines.append((*who, _percent(row), *each, count(row["n"]), row["reason"] or ""))
    heads = ("Model", "Attribute", "Group", "All templates", *templates, "n", "Note")
    return Listing(heads, lines, frozenset(range(3, 5 + len(templates))))


def _percent(row: Row | None) -> str:
    if row is None or not defined(row["value"]):
        return "–"
    ends = percent_interval(row["ci_low"] / 100, row["ci_high"] / 100)
    return with_interval(percent(row["value"] / 100), ends)


def gap_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the gap between the least and the most marked group, a row a model and attribute."""
    rows = where(table, metric="markedness_gap", dataset=dataset, condition="before")
    lines = [
        (
            row["model"],
            attribute_title(row["attribute"]),
            points(row["value"] / 100) if defined(row["value"]) else "undefined",
            interval(row["ci_low"], row["ci_high"]),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for model in in_order(rows["model"], models)
        for row in where(rows, model=model).to_dicts()
    ]
    heads = ("Model", "Attribute", "Gap", "Interval (points)", "p", "q", "n", "Note")
    return Listing(heads, lines, frozenset(range(2, 7)))


def correlation_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the correlations of the valences, a row a model and group."""
    rows = where(table, metric="valence_correlation", dataset=dataset, condition="before")
    found = by(rows, "model", "attribute", "group", "event")
    dimensions = in_order(rows["event"], DIMENSIONS)
    place = {name: i for i, name in enumerate(in_order(rows["model"], models))}
    keys = sorted({key[:3] for key in found}, key=lambda key: (place[key[0]], key[1] or "", key[2] or ""))
    lines = []
    for key in keys:
        own = [found.get((*key, dimension)) for dimension in dimensions]
        one = next(row for row in own if row)
        who = EVERYONE if key[2] is None else group_title(key[2])
        attribute = attribute_title(key[1]) if key[1] else "–"
        cells = [estimate(row) for row in own]
        lines.append((key[0], attribute, who, *cells, count(one["n"]), one["reason"] or ""))
    heads = ("Model", "Attribute", "Group", *dimensions, "n", "Note")
    return Listing(heads, lines, frozenset(range(3, 4 + len(dimensions))))
