"""What one design factor changes: size, training data, data source."""

from __future__ import annotations

import polars as pl

from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.metrics.paired.comparisons import SMOOTHED_SKEW, compared_skew
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots
from plumbline.report.charts.outcomes import ATTRIBUTE_ORDER
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.numbers import MINUS, bare_p, interval, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import EVENT_ORDER, attribute_title, event_title, is_composite

_COMPARED = ("factor", "level_first", "level_second", "held", "first", "second")
FACTOR_TITLES = {"size": "model size", "data_amount": "training data", "data_source": "data source"}


def effect_rows(effects: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the Max Skew effects of a dataset: main suites, single attributes, the definition that compares all."""
    by = [*_COMPARED, "dataset", "suite", "attribute", "event"]
    of_skew = where(effects, metric="max_skew", dataset=dataset)
    rows = of_skew.filter(pl.col("definition") == compared_skew(by))
    attributes = [a for a in rows["attribute"].drop_nulls().unique().to_list() if not is_composite(a)]
    return rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("attribute").is_in(attributes))


def factor_title(factor: str) -> str:
    """Return a design factor in words."""
    return FACTOR_TITLES.get(factor, factor.replace("_", " "))


def pair_title(row: Row) -> str:
    """Return a pair as the difference that it is, and what it holds: `small − large (3k, atlas)`."""
    held = f" ({row['held']})" if row["held"] else ""
    return f"{row['level_first']} {MINUS} {row['level_second']}{held}"


def factor_effects(effects: pl.DataFrame, reading: Reading, dataset: str) -> Chart | None:
    """Draw the change of Max Skew by pair of checkpoints (rows under their factor) and event (panels).

    Right of the line the first level of the pair is the more biased. The paper's figures 1 and 2 draw second - first;
    this is first - second, the sign of its tables.

    Parameters
    ----------
    effects : DataFrame
        In `plumbline.metrics.paired.comparisons.EFFECT_SCHEMA`.

    Returns
    -------
    Chart or None
        None where the dataset has no such row.
    """
    rows = effect_rows(effects, dataset)
    blocks = tuple(
        (factor_title(factor), tuple(dict.fromkeys(map(pair_title, where(rows, factor=factor).to_dicts()))))
        for factor in in_order(rows["factor"], tuple(FACTOR_TITLES))
    )
    return dots(
        f"effects-{dataset}",
        f"What one factor changes, {dataset}",
        "Each dot is the max skew of one checkpoint minus that of another which differs from it in one factor alone, "
        "on the same images, with its paired interval.",
        marks=[_dot(row, reading) for row in rows.to_dicts()],
        rows=Rows(blocks),
        panels=[event_title(event) for event in in_order(rows["event"], EVENT_ORDER)],
        series=[Series.of_attribute(attribute) for attribute in in_order(rows["attribute"], ATTRIBUTE_ORDER)],
        line=0.0,
        axis="change of max skew (right of the line: the first of the pair is the more biased)",
    )


def _dot(row: Row, reading: Reading) -> Dot:
    what = f"{row['first']} {MINUS} {row['second']}, {attribute_title(row['attribute'])}, {event_title(row['event'])}"
    dot = Dot.of(
        row,
        what,
        row=pair_title(row),
        heading=factor_title(row["factor"]),
        reading=reading,
        panel=event_title(row["event"]),
        series=attribute_title(row["attribute"]),
    )
    smoothed = "smoothed, " if row["definition"] == SMOOTHED_SKEW else ""
    return dot.saying(compared=f"{smoothed}{number(row['value_first'])} against {number(row['value_second'])}")


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
    """Say for each pair of levels of a factor in how many comparisons each of the two is the more biased."""
    notes = []
    for factor in in_order(rows["factor"], tuple(FACTOR_TITLES)):
        of_factor, pairs = where(rows, factor=factor), []
        for (first, second), of_pair in of_factor.group_by("level_first", "level_second", maintain_order=True):
            clear = of_pair.filter(pl.col("q") < significance)
            more, less = (int((clear["value"] * sign > 0).sum()) for sign in (1, -1))
            clearly = f"{first} is clearly the more biased in {more}, {second} in {less}"
            which = clearly if more + less else f"none of {first} against {second} is clear"
            comparisons = "1 comparison" if of_pair.height == 1 else f"{of_pair.height} comparisons"
            pairs.append(f"of {comparisons} of max skew {which}")
        notes.append(f"{factor_title(factor).capitalize()}: {'; '.join(pairs)}.")
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
            f"{_number(row, 'value_first')} → {_number(row, 'value_second')}"
            + (", smoothed" if row["definition"] == SMOOTHED_SKEW else ""),
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
    "the first of the pair is the more biased; a filled dot is a difference that chance would rarely make in other "
    "images. A checkpoint a level was trained: another training run may differ as much.",
    parts=_parts,
    method=(
        (
            "Effects of a factor",
            "The number of the first checkpoint minus that of the second, for every pair that differs in exactly one "
            "of the factors that the audit file gives. Intervals: paired BCa, both checkpoints' answers to an image "
            "are drawn together. Where one of the two leaves out pairs of groups, since one never has the event, both "
            "are the smoothed skew, which is of all pairs. q: Benjamini–Hochberg over all effects on one metric and "
            "definition.",
        ),
    ),
)
