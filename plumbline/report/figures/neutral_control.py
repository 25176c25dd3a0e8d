"""How alike a set of images without groups looks to each model: the neutral control."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from plumbline.report.evidence import in_ends
from plumbline.report.figures.canvas import Picture, blank, drawing, label, panel, text_width
from plumbline.report.figures.marks import LegendDot, Mark, dots_with_intervals, legend
from plumbline.report.figures.palette import FAINT, SLATE
from plumbline.report.figures.panels import WIDTH, axis_title, number_scale, rows_axes
from plumbline.report.numbers import number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, in_order, or_nan, where


def control_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw how alike a set of images is to each model: mean pairwise cosine, its interval, and the spread."""
    rows = where(table, metric="intra_set_cosine", dataset=dataset, condition="before")
    means = where(rows, statistic="estimate")
    if means.is_empty():
        return None
    spread = by(where(rows, statistic="sd"), "model")
    names = in_order(means["model"], models)
    marks = [_cosine_mark(row, names.index(row["model"]), spread) for row in means.to_dicts()]
    left = text_width([label(name) for name in names]) + 32
    height = 12 + 26 * len(names)
    bands = [(m, or_nan(spread.get((names[int(m.y)],), {}).get("value"))) for m in marks]
    low = min(
        [0.0, *(m.value - sd for m, sd in bands if math.isfinite(m.value - sd)), *(m.low for m in marks)]
    )
    with drawing():
        figure = blank(WIDTH, 44 + height + 48)
        axes = panel(figure, left, 44, min(WIDTH - left - 16, 480), height)
        rows_axes(axes, names, shown=True)
        number_scale(axes, 1.0, low)
        for mark, sd in bands:
            if math.isfinite(mark.value) and math.isfinite(sd):
                axes.barh(
                    mark.y, 2 * sd, left=mark.value - sd, height=0.42, color=FAINT, zorder=1, linewidth=0
                )
        dots_with_intervals(axes, marks, SLATE, cap=1.0)
        entries = [
            LegendDot("mean, with its interval", SLATE),
            LegendDot("± one sd over pairs", FAINT, marker="s"),
        ]
        legend(figure, entries, left=left)
        axis_title(figure, left, 44 + height + 36, "cosine of two images, over all pairs")
    return Picture(
        name=f"control-{dataset}",
        title=f"How alike the images look to each model, {dataset}",
        description="Pairwise cosines of the portraits. Near 1 the model sees one and the same face.",
        figure=figure,
    )


def _cosine_mark(row: Row, y: float, spread: dict[tuple[Any, ...], Row]) -> Mark:
    sd = spread.get((row["model"],), {}).get("value")
    tip = f"{row['model']}: {in_ends(row)}, sd over pairs {number(sd)}, n = {row['n']}"
    return Mark.of(row, y, tip)
