"""Markedness: which groups a model takes for granted, and which have to be named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.figures.associations import ATTRIBUTES, OTHERS, ComparisonLines
from plumbline.report.figures.canvas import Picture, with_tips
from plumbline.report.figures.marks import LegendDot
from plumbline.report.figures.palette import INK, attribute_colour
from plumbline.report.figures.panels import percent_scale
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AVERAGED = "mean_over_templates"


def markedness_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the markedness of every group (rows) under every model (panels) as bars; None without such rows."""
    rows = where(table, metric="markedness", definition=AVERAGED, dataset=dataset, condition="before")
    rows = rows.filter(pl.col("value").is_finite()).with_columns(reference_group=pl.lit(OTHERS))
    if rows.is_empty():
        return None
    shown_models = in_order(rows["model"], models)
    lines, attributes = ComparisonLines.of(rows), in_order(rows["attribute"], ATTRIBUTES)

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, 1.0)
        for attribute in attributes:
            own = where(rows, model=shown_models[index], attribute=attribute).to_dicts()
            _bars(axes, own, [lines.places[attribute, row["group"]] for row in own], attribute)

    return Picture(
        name=f"markedness-{dataset}",
        title=f"Who has to be named, {dataset}",
        description="Each bar is the share of a group's faces that lie closer to the prompt without the group's name, "
        "averaged over four templates, with its interval. A long bar: the group is what a person is taken to be.",
        figure=lines.figure(
            shown_models,
            draw,
            axis="share of faces closer to “a person” than to the prompt that names their group (short: marked)",
            entries=[LegendDot(attribute_title(a), attribute_colour(a), marker="s") for a in attributes],
        ),
    )


def _bars(axes: Axes, rows: list[Row], places: list[float], attribute: str) -> None:
    if not rows:
        return
    colour = attribute_colour(attribute)
    tips = [
        f"{group_title(row['group'])}: {percent(row['value'] / 100, row['n'])} "
        f"[{percent_interval(row['ci_low'] / 100, row['ci_high'] / 100)}]"
        for row in rows
    ]
    bars = axes.barh(
        places, [row["value"] / 100 for row in rows], height=0.62, color=colour, alpha=0.55, zorder=2
    )
    for bar, tip in zip(bars, tips):
        with_tips(bar, [tip])
    axes.hlines(
        places,
        [row["ci_low"] / 100 for row in rows],
        [row["ci_high"] / 100 for row in rows],
        color=INK,
        linewidth=1.4,
        zorder=3,
    )
