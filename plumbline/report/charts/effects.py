"""What one design factor changes: differences between checkpoints with intervals, race and gender side by side."""

from __future__ import annotations

import polars as pl

from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots
from plumbline.report.charts.outcomes import ATTRIBUTE_ORDER
from plumbline.report.numbers import MINUS, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import EVENT_ORDER, attribute_title, event_title, is_composite

FACTOR_TITLES = {"size": "model size", "data_amount": "training data", "data_source": "data source"}


def effect_rows(effects: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the plain Max Skew effects of a dataset: default definition, main suites, single attributes."""
    rows = where(effects, metric="max_skew", definition="mean_over_pairs", dataset=dataset)
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
        In `plumbline.metrics.paired.factors.EFFECT_SCHEMA`.

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
    return dot.saying(compared=f"{number(row['value_first'])} against {number(row['value_second'])}")
