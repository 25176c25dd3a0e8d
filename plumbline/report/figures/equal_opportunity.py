"""How often each class is recognised in each group: true-positive rates with their intervals."""

from __future__ import annotations

import math
from itertools import cycle, islice
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import LegendDot, Mark, dots_with_intervals
from plumbline.report.figures.palette import AMBER, BLUE, GREEN, GREY, PURPLE, SLATE, VERMILION
from plumbline.report.figures.panels import apart, panels_figure, percent_scale
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    styles = list(islice(cycle(_STYLES), len(groups)))

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, 1.0)
        for place, group in enumerate(groups):
            shift = apart(place, len(groups), 0.56 / len(groups))
            own = where(rows, model=names[index], group=group).to_dicts()
            marks = [_mark(row, classes.index(row["event"]) + shift, reading) for row in own]
            # An empty cell is said in the listing: words would lie over the other groups' dots.
            marks = [mark for mark in marks if math.isfinite(mark.value)]
            colour, shape = styles[place]
            dots_with_intervals(axes, marks, colour, cap=1.0, size=6, shape=shape)

    return Picture(
        name=f"opportunity-{attribute}-{dataset}",
        title=f"How often each class is recognised, by {attribute_title(attribute)}, {dataset}",
        description="Each dot is the share of a class and group whose best match is the class, with its Wilson "
        "interval. Dots of one row that lie apart are unequal opportunity.",
        figure=panels_figure(
            names,
            draw,
            rows=texts,
            height=12 + 30 * len(classes),
            axis=f"share of a class's images that are recognised (hollow: fewer than {reading.minimum_group} images)",
            entries=[
                LegendDot(group_title(group), colour, marker=shape)
                for group, (colour, shape) in zip(groups, styles)
            ],
        ),
    )


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {group_title(row['event'])}, {group_title(row['group'])}: "
        f"{percent(row['value'], row['n'])} [{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
    return Mark.of(row, y, tip, filled=row["n"] >= reading.minimum_group)
