"""How often each class is recognised in each group: true-positive rates with their intervals."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.figures.canvas import Picture, blank, drawing, label, text_width
from plumbline.report.figures.marks import (
    Mark,
    as_float,
    axis_title,
    dots_with_intervals,
    fit_grid,
    legend,
    legend_dot,
    panel_title,
    percent_scale,
    rows_axes,
)
from plumbline.report.figures.palette import AMBER, BLUE, GREEN, GREY, PURPLE, SLATE, VERMILION
from plumbline.report.inputs import Reading
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

WIDTH = 960
_STYLES = (
    (BLUE, "o"), (AMBER, "D"), (GREEN, "s"), (VERMILION, "^"), (PURPLE, "v"), (SLATE, "p"), (GREY, "h"),
)  # fmt: skip


def opportunity_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, *, attribute: str = "gender"
) -> Picture | None:
    """Draw the rate at which each class (rows) is recognised, a dot a group, one panel a model; None without rows."""
    rows = where(table, metric="true_positive_rate", dataset=dataset, attribute=attribute, condition="before")
    if rows.is_empty():
        return None
    names, groups = in_order(rows["model"], models), in_order(rows["group"], ())
    classes = list(dict.fromkeys(rows["event"]))
    texts = [group_title(name) for name in classes]
    left = text_width([label(text) for text in texts]) + 18
    apart = 0.56 / len(groups)
    grid = fit_grid(len(names), width=WIDTH, left=left, top=52, height=12 + 30 * len(classes), columns=4)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(names)) + 48)
        for index, name in enumerate(names):
            axes = grid.place(figure, index)
            rows_axes(axes, texts, shown=index % grid.columns == 0)
            percent_scale(axes, 1.0)
            panel_title(axes, name)
            for place, group in enumerate(groups):
                shift = (place - (len(groups) - 1) / 2) * apart
                own = where(rows, model=name, group=group).to_dicts()
                marks = [_mark(row, classes.index(row["event"]) + shift, reading) for row in own]
                # An empty cell is said in the listing: words would lie over the other groups' dots.
                marks = [mark for mark in marks if math.isfinite(mark.value)]
                colour, shape = _STYLES[place % len(_STYLES)]
                dots_with_intervals(axes, marks, colour, cap=1.0, size=6, shape=shape)
        entries = [
            legend_dot(group_title(group), _STYLES[i % len(_STYLES)][0], marker=_STYLES[i % len(_STYLES)][1])
            for i, group in enumerate(groups)
        ]
        legend(figure, entries, left=left)
        words = f"share of a class's images that are recognised (hollow: fewer than {reading.minimum_group} images)"
        axis_title(figure, left, grid.bottom(len(names)) + 36, words)
    return Picture(
        name=f"opportunity-{attribute}-{dataset}",
        title=f"How often each class is recognised, by {attribute_title(attribute)}, {dataset}",
        description="Each dot is the share of a class and group whose best match is the class, with its Wilson "
        "interval. Dots of one row that lie apart are unequal opportunity.",
        figure=figure,
    )


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {group_title(row['event'])}, {group_title(row['group'])}: "
        f"{percent(row['value'], row['n'])} [{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
    return Mark(
        y=y,
        value=as_float(row["value"]),
        low=as_float(row["ci_low"]),
        high=as_float(row["ci_high"]),
        tip=tip,
        filled=row["n"] >= reading.minimum_group,
    )
