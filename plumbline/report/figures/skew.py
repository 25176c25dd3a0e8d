"""Max Skew of every model and event with its interval, race and gender side by side."""

from __future__ import annotations

import polars as pl

from plumbline.report.figures.canvas import Picture, blank, drawing, label, text_width
from plumbline.report.figures.marks import (
    Mark,
    as_float,
    attribute_dots,
    attribute_entry,
    axis_title,
    cap_of,
    fit_grid,
    legend,
    legend_dot,
    number_scale,
    panel_title,
    rows_axes,
)
from plumbline.report.figures.palette import SOFT
from plumbline.report.inputs import Reading
from plumbline.report.numbers import interval, number, p_value
from plumbline.report.rows import Row, in_order, significance_level, where
from plumbline.report.vocabulary import attribute_title, event_title, is_composite

EVENT_ORDER = ("crime", "negative_communion", "negative_agency", "mean_of_tasks")
VARIANT_SUITES = ("crime_pooled", "pata_captions")
WIDTH = 960


def skew_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the plain-audit Max Skew rows of a dataset: default definition, main suites, single attributes."""
    rows = where(table, metric="max_skew", definition="mean_over_pairs", dataset=dataset, condition="before")
    attributes = [a for a in rows["attribute"].drop_nulls().unique().to_list() if not is_composite(a)]
    return rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("attribute").is_in(attributes))


def skew_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw Max Skew by model (rows) and event (panels); None where the dataset has no such row."""
    rows = skew_rows(table, dataset)
    if rows.is_empty():
        return None
    events = in_order(rows["event"], EVENT_ORDER)
    names = in_order(rows["model"], models)
    attributes = in_order(rows["attribute"], ("race", "gender", "age_group"))
    marks = {
        (event, attribute): [
            _mark(row, names.index(row["model"]) + _offset(attributes, attribute), reading)
            for row in where(rows, event=event, attribute=attribute).to_dicts()
        ]
        for event in events
        for attribute in attributes
    }
    cap = cap_of([mark for group in marks.values() for mark in group])
    left = text_width([label(name) for name in names]) + 18
    grid = fit_grid(len(events), width=WIDTH, left=left, top=52, height=12 + 27 * len(names), columns=4)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(events)) + 48)
        for index, event in enumerate(events):
            axes = grid.place(figure, index)
            rows_axes(axes, names, shown=index % grid.columns == 0)
            number_scale(axes, cap)
            panel_title(axes, event_title(event))
            for attribute in attributes:
                attribute_dots(axes, marks[event, attribute], attribute, cap=cap)
        entries = [attribute_entry(a) for a in attributes]
        entries.append(legend_dot("hollow: chance alone may explain it", SOFT, filled=False))
        legend(figure, entries, left=left)
        axis_title(
            figure,
            left,
            grid.bottom(len(events)) + 36,
            "max skew (0: all groups get the label equally often)",
        )
    return Picture(
        name=f"skew-{dataset}",
        title=f"Max skew by model and event, {dataset}",
        description="Each dot is the mean relative gap over pairs of groups, with its interval. "
        "An arrow marks an interval that goes on beyond the scale.",
        figure=figure,
    )


def _offset(attributes: list[str], attribute: str) -> float:
    return (attributes.index(attribute) - (len(attributes) - 1) / 2) * 0.34


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    level = significance_level(row)
    tip = (
        f"{row['model']}, {attribute_title(row['attribute'])}, {event_title(row['event'])}: "
        f"{number(row['value'])} [{interval(row['ci_low'], row['ci_high'])}], {p_value(row['p'])}, "
        f"{p_value(row['q'], 'q')}, n = {row['n']}"
    )
    return Mark(
        y=y,
        value=as_float(row["value"]),
        low=as_float(row["ci_low"]),
        high=as_float(row["ci_high"]),
        tip=tip,
        filled=level is not None and level < reading.significance,
    )
