"""What one design factor changes: size, training data, data source."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.effects import FACTOR_TITLES, effect_rows, factor_effects, factor_title, pair_title
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.numbers import bare_p, interval, number
from plumbline.report.rows import Row, defined, in_order
from plumbline.report.vocabulary import EVENT_ORDER, attribute_title, event_title


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    effects = inputs.effects
    if effects is None or effects.is_empty():
        return []
    parts = []
    for dataset in inputs.datasets_in(effects["dataset"]):
        of_dataset = effects.filter(pl.col("dataset") == dataset)
        chart = factor_effects(of_dataset, inputs.audit, dataset)
        parts.append(
            Part(
                title=dataset,
                pictures=[chart] if chart else [],
                notes=_notes(effect_rows(of_dataset, dataset), inputs.audit.significance),
                listings=[
                    ("Effects on max skew in numbers", effect_listing(effect_rows(of_dataset, dataset))),
                    (
                        "Effects on harm rates in numbers",
                        effect_listing(of_dataset.filter(pl.col("metric") == "harm_rate")),
                    ),
                ],
            )
        )
    return parts


def _notes(rows: pl.DataFrame, significance: float) -> list[str]:
    """Say for each factor in how many comparisons each level is the more biased."""
    notes = []
    for factor in in_order(rows["factor"], tuple(FACTOR_TITLES)):
        of_factor = rows.filter(pl.col("factor") == factor)
        clear = of_factor.filter(pl.col("q") < significance)
        more, less = (int((clear["value"] * sign > 0).sum()) for sign in (1, -1))
        note = f"{factor_title(factor).capitalize()}: {of_factor.height} comparisons of max skew. "
        note += (
            f"In {more} the first of the pair is clearly the more biased, in {less} the second."
            if more + less
            else "None is clear: chance alone may explain them."
        )
        notes.append(note)
    return notes


def effect_listing(rows: pl.DataFrame) -> Listing:
    """List effects, one row a pair, event and attribute."""
    ordered = rows.sort("factor", "first", "second", "event", "attribute", "definition", nulls_last=True)
    shown = [
        (
            factor_title(row["factor"]),
            pair_title(row),
            event_title(row["event"]) if row["event"] in EVENT_ORDER else str(row["event"] or "–"),
            attribute_title(row["attribute"]) if row["attribute"] else "all images",
            _number(row, "value"),
            interval(row["ci_low"], row["ci_high"]),
            bare_p(row["q"]),
            f"{_number(row, 'value_first')} → {_number(row, 'value_second')}",
        )
        for row in ordered.to_dicts()
    ]
    heads = ("Factor", "First − second", "Event", "Groups", "Effect", "Interval", "q", "First → second")
    return Listing(heads, shown, frozenset({4, 5, 6, 7}))


def _number(row: Row, name: str) -> str:
    return number(row[name]) if defined(row[name]) else "undefined"


CHAPTER = Chapter(
    anchor="effects",
    title="What size, data and source change",
    lead="Pairs of checkpoints that differ in one design factor alone, compared on the same images. Right of the line "
    "the first of the pair is the more biased; a filled dot is a difference that chance would rarely make.",
    parts=_parts,
    method=(
        (
            "Effects of a factor",
            "The number of the first checkpoint minus that of the second, for every pair that differs in exactly one "
            "of the factors that the audit file gives. Intervals: paired BCa, both checkpoints' answers to an image "
            "are drawn together. q: Benjamini–Hochberg over all effects on one metric and definition.",
        ),
    ),
)
