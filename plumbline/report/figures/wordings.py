"""Directional bias under each wording."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.evidence import in_ends
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import LegendDot, Mark, dots_with_intervals
from plumbline.report.figures.palette import AMBER, BLUE, FAINT, GREEN, GREY, SLATE
from plumbline.report.figures.panels import ends_with_room, number_scale, panels_figure
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TASKS = (
    ("crime", "positive_minus_negative"),
    ("crime", "crime_vs_non_human"),
    ("communion", "positive_minus_negative"),
    ("agency", "positive_minus_negative"),
)
TASK_TITLES = {
    TASKS[0]: "people − crime and animals",
    TASKS[1]: "crime − animals",
    TASKS[2]: "communion",
    TASKS[3]: "agency",
}
TEMPLATES = ("orig", "image_of", "portrait")
CONTROL_BOUND = 0.05
"""The paper's bound for |Δ| of its neutral portraits (Data Matters Most, table 5)."""

TEMPLATE_TITLES = {"orig": "a photo of …", "image_of": "an image of …", "portrait": "portrait of …"}

_STYLES = {"orig": (BLUE, "o"), "image_of": (AMBER, "D"), "portrait": (GREEN, "s")}


def template_title(template: str) -> str:
    """Return a template as its words."""
    return TEMPLATE_TITLES.get(template, template)


def bias_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the mean directional bias over all images of a dataset, one row a model, task and template."""
    return where(
        table,
        metric="directional_bias",
        dataset=dataset,
        condition="before",
        statistic="estimate",
        group=None,
    )


def is_control(table: pl.DataFrame, dataset: str) -> bool:
    """Return whether a dataset has directional bias, and no groups in which it could differ."""
    rows = where(table, metric="directional_bias", dataset=dataset, condition="before")
    return not rows.is_empty() and rows["group"].null_count() == rows.height


def template_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw mean Δ by model (rows) and task (panels), a dot a template, joined; None without such rows."""
    rows = bias_rows(table, dataset)
    if rows.is_empty():
        return None
    names, templates = in_order(rows["model"], models), in_order(rows["probe"], TEMPLATES)
    found = set(rows.select("event", "definition").unique().iter_rows())
    tasks = [task for task in TASKS if task in found]
    control = is_control(table, dataset)
    marks = {
        (task, template): [
            _bias_mark(row, names.index(row["model"]) + 0.22 * (templates.index(template) - 1))
            for row in where(rows, event=task[0], definition=task[1], probe=template).to_dicts()
        ]
        for task in tasks
        for template in templates
    }
    low, high = ends_with_room(
        (end for own in marks.values() for mark in own for end in (mark.value, mark.low, mark.high)),
        least=CONTROL_BOUND if control else 0.0,
        otherwise=0.01,
    )
    styles = {template: _STYLES.get(template, (SLATE, "^")) for template in templates}

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, high, low)
        if control:
            axes.axvspan(-CONTROL_BOUND, CONTROL_BOUND, color=FAINT, alpha=0.45, linewidth=0, zorder=0)
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
        _joined(axes, [marks[tasks[index], template] for template in templates])
        for template, (colour, shape) in styles.items():
            own = marks[tasks[index], template]
            dots_with_intervals(axes, own, colour, cap=high, size=6, shape=shape)

    return Picture(
        name=f"templates-{dataset}",
        title=f"Directional bias under three wordings, {dataset}",
        description="Each dot is the mean over all images under one wording, with its interval; a line joins the "
        "wordings of one model. All panels share one scale."
        + (f" Grey: the paper's bound for its own control, ±{CONTROL_BOUND}." if control else ""),
        figure=panels_figure(
            [TASK_TITLES[task] for task in tasks],
            draw,
            rows=names,
            height=14 + 36 * len(names),
            axis="mean directional bias, in cosine units (left: nearer to the negative prompts)",
            entries=[
                LegendDot(f"“{template_title(name)}”", colour, marker=shape)
                for name, (colour, shape) in styles.items()
            ],
            beside=32,
        ),
    )


def _joined(axes: Axes, by_template: list[list[Mark]]) -> None:
    for of_model in zip(*by_template):
        known = [mark for mark in of_model if math.isfinite(mark.value)]
        axes.plot([m.value for m in known], [m.y for m in known], "-", color=GREY, linewidth=0.9, zorder=1)


def _bias_mark(row: Row, y: float) -> Mark:
    tip = f"{row['model']}, {row['event']}, “{template_title(row['probe'])}”: {in_ends(row)}, n = {row['n']}"
    return Mark.of(row, y, tip)
