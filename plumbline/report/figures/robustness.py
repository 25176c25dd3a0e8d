"""Directional bias under each wording."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.catalog.suites import TASKS as SUITE_TASKS
from plumbline.report.evidence import in_ends
from plumbline.report.figures.canvas import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    SLATE,
    SOFT,
    Picture,
    blank,
    drawing,
    label,
    panel,
    text_width,
    with_tips,
    write,
)
from plumbline.report.figures.marks import LegendDot, Mark, dots_with_intervals, legend
from plumbline.report.figures.panels import (
    WIDTH,
    axis_title,
    ends_with_room,
    number_scale,
    panel_title,
    panels_figure,
    rows_axes,
)
from plumbline.report.numbers import number, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where

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
        table, metric="directional_bias", dataset=dataset, condition="before", statistic="estimate", group=None
    )


def is_control(table: pl.DataFrame, dataset: str) -> bool:
    """Return whether a dataset has directional bias, and no groups in which it could differ."""
    rows = where(table, metric="directional_bias", dataset=dataset, condition="before")
    return not rows.is_empty() and rows["group"].null_count() == rows.height


def template_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw mean Δ by model (rows) and task (panels), a dot a template, joined; None without such rows."""
    rows = bias_rows(table, dataset)
    if rows.is_empty():
        return None
    names, templates = in_order(rows["model"], models), in_order(rows["probe"], TEMPLATES)
    drawn_kinds = set(rows.select("event", "definition").unique().iter_rows())
    tasks = [task for task in TASKS if task in drawn_kinds]
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
        (end for each_marks in marks.values() for mark in each_marks for end in (mark.value, mark.low, mark.high)),
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
            each_marks = marks[tasks[index], template]
            dots_with_intervals(axes, each_marks, colour, cap=high, size=6, shape=shape)

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
                LegendDot(f"“{template_title(name)}”", colour, marker=shape) for name, (colour, shape) in styles.items()
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


# --- How alike a set of images without groups looks to each model: the neutral control.


def control_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
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
    low = min([0.0, *(m.value - sd for m, sd in bands if math.isfinite(m.value - sd)), *(m.low for m in marks)])
    with drawing():
        figure = blank(WIDTH, 44 + height + 48)
        axes = panel(figure, left, 44, min(WIDTH - left - 16, 480), height)
        rows_axes(axes, names, shown=True)
        number_scale(axes, 1.0, low)
        for mark, sd in bands:
            if math.isfinite(mark.value) and math.isfinite(sd):
                axes.barh(mark.y, 2 * sd, left=mark.value - sd, height=0.42, color=FAINT, zorder=1, linewidth=0)
        dots_with_intervals(axes, marks, SLATE, cap=1.0)
        entries = [LegendDot("mean, with its interval", SLATE), LegendDot("± one sd over pairs", FAINT, marker="s")]
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


# --- How often images are harmed, by the size of their directional bias.

_BINS = ("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6")


def bias_size_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, *, definition: str = "cosine"
) -> Picture | None:
    """Draw the share of harmful best matches by size of the bias: models (rows) by tasks (columns)."""
    chosen = where(table, dataset=dataset, condition="before", definition=definition)
    shares = where(chosen, metric="harm_by_bias_size")
    if shares.is_empty():
        return None
    filled = by(where(chosen, metric="bias_size_bin_share"), "model", "event", "group")
    names = in_order(shares["model"], models)
    events = in_order(shares["event"], SUITE_TASKS)
    bins = shares["group"].unique().sort().to_list()
    left, top, height, gap = text_width([label(name) for name in names]) + 62, 54.0, 74.0, 22.0
    each = (WIDTH - left - 16 - 26 * (len(events) - 1)) / len(events)
    bottom = top + len(names) * (height + gap) - gap
    with drawing():
        figure = blank(WIDTH, bottom + 54)
        for row, model in enumerate(names):
            for column, event in enumerate(events):
                axes = panel(figure, left + column * (each + 26), top + row * (height + gap), each, height)
                of_event = by(where(shares, model=model, event=event), "group")
                _curve_frame(axes, bins, bottom=row == len(names) - 1, first=column == 0)
                _fill(axes, [or_nan(filled.get((model, event, b), {}).get("value")) for b in bins])
                _curve(axes, [of_event.get((b,)) for b in bins], reading)
                if row == 0:
                    panel_title(axes, event)
            middle = top + row * (height + gap) + height / 2
            write(figure, left - 44, middle, label(model), ha="right", va="center_baseline", color=INK, fontsize=12)
        entries = [
            LegendDot("share of the bin's images that are harmed", BLUE),
            LegendDot(f"fewer than {reading.minimum_group} images", BLUE, filled=False),
            LegendDot("share of all images in the bin", FAINT, marker="s"),
        ]
        legend(figure, entries, left=left)
        unit = "in cosine units" if definition == "cosine" else "as difference of softmax mass"
        axis_title(figure, left, bottom + 42, f"size of the directional bias of an image, {unit}")
    return Picture(
        name=f"bias-size-{definition}-{dataset}",
        title=f"How often harmed, by size of the bias{'' if definition == 'cosine' else ' (softmax mass)'}, {dataset}",
        description="Dots: how often the best match is a harmful one, with Wilson intervals. Bars: how full the bin "
        "is. The dashed line is one half: where the curve first reaches it is the elbow.",
        figure=figure,
    )


def _curve_frame(axes: Axes, bins: list[str], *, bottom: bool, first: bool) -> None:
    axes.set_xlim(-0.55, len(bins) - 0.45)
    axes.set_ylim(0, 1.04)
    places = [i - 0.5 for i in range(len(bins))]
    axes.set_xticks(places, _BINS[: len(bins)] if bottom else [""] * len(bins))
    axes.set_yticks([])
    if first:
        for share in (0.0, 0.5, 1.0):
            where_to: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "va": "center_baseline"}
            axes.annotate(percent(share), (-0.55, share), (-6, 0), color=SOFT, fontsize=10, **where_to)
    axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)


def _fill(axes: Axes, shares: list[float]) -> None:
    known = [(i, share) for i, share in enumerate(shares) if math.isfinite(share) and share > 0]
    if known:
        axes.bar([i for i, _ in known], [s for _, s in known], width=0.86, color=FAINT, zorder=0, linewidth=0)


def _curve(axes: Axes, rows: list[Row | None], reading: Reading) -> None:
    known = [(i, row) for i, row in enumerate(rows) if row and defined(row["value"])]
    if not known:
        return
    axes.plot([i for i, _ in known], [row["value"] for _, row in known], "-", color=BLUE, linewidth=1.2, zorder=2)
    ends = [(i, row) for i, row in known if defined(row["ci_low"])]
    axes.vlines(
        [i for i, _ in ends], [r["ci_low"] for _, r in ends], [r["ci_high"] for _, r in ends], color=BLUE, linewidth=1.4
    )
    for filled in (True, False):
        chosen = [(i, row) for i, row in known if (row["n"] >= reading.minimum_group) is filled]
        if chosen:
            (line,) = axes.plot(
                [i for i, _ in chosen],
                [row["value"] for _, row in chosen],
                "o",
                color=BLUE,
                markerfacecolor=BLUE if filled else "white",
                markersize=5.5,
                markeredgewidth=1.3,
                clip_on=False,
                zorder=3,
            )
            with_tips(line, [_bin_tip(row) for _, row in chosen])


def _bin_tip(row: Row) -> str:
    return (
        f"{row['model']}, {row['event']}, bias in {row['group']}: {percent(row['value'], row['n'])} "
        f"[{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
