"""How often images are harmed, by the size of their directional bias."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.figures.canvas import (
    Picture,
    blank,
    drawing,
    label,
    panel,
    text_width,
    with_tips,
    write,
)
from plumbline.report.figures.marks import LegendDot, legend
from plumbline.report.figures.palette import BLUE, FAINT, GREY, INK, SOFT
from plumbline.report.figures.panels import WIDTH, axis_title, panel_title
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = ("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6")


def calibration_figure(
    table: pl.DataFrame,
    reading: Reading,
    models: tuple[str, ...],
    dataset: str,
    *,
    definition: str = "cosine",
) -> Picture | None:
    """Draw the share of harmful best matches by size of the bias: models (rows) by tasks (columns)."""
    chosen = where(table, dataset=dataset, condition="before", definition=definition)
    shares = where(chosen, metric="calibration_p_harm")
    if shares.is_empty():
        return None
    filled = by(where(chosen, metric="calibration_filled"), "model", "event", "group")
    names = in_order(shares["model"], models)
    events = in_order(shares["event"], ("crime", "communion", "agency"))
    bins = shares["group"].unique().sort().to_list()
    left, top, height, gap = text_width([label(name) for name in names]) + 62, 54.0, 74.0, 22.0
    each = (WIDTH - left - 16 - 26 * (len(events) - 1)) / len(events)
    bottom = top + len(names) * (height + gap) - gap
    with drawing():
        figure = blank(WIDTH, bottom + 54)
        for row, model in enumerate(names):
            for column, event in enumerate(events):
                axes = panel(figure, left + column * (each + 26), top + row * (height + gap), each, height)
                own = by(where(shares, model=model, event=event), "group")
                _curve_frame(axes, bins, bottom=row == len(names) - 1, first=column == 0)
                _fill(axes, [or_nan(filled.get((model, event, b), {}).get("value")) for b in bins])
                _curve(axes, [own.get((b,)) for b in bins], reading)
                if row == 0:
                    panel_title(axes, event)
            middle = top + row * (height + gap) + height / 2
            write(
                figure,
                left - 44,
                middle,
                label(model),
                ha="right",
                va="center_baseline",
                color=INK,
                fontsize=12,
            )
        entries = [
            LegendDot("share of the bin's images that are harmed", BLUE),
            LegendDot(f"fewer than {reading.minimum_group} images", BLUE, filled=False),
            LegendDot("share of all images in the bin", FAINT, marker="s"),
        ]
        legend(figure, entries, left=left)
        unit = "in cosine units" if definition == "cosine" else "as difference of softmax mass"
        axis_title(figure, left, bottom + 42, f"size of the directional bias of an image, {unit}")
    return Picture(
        name=f"calibration-{definition}-{dataset}",
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
    axes.plot(
        [i for i, _ in known], [row["value"] for _, row in known], "-", color=BLUE, linewidth=1.2, zorder=2
    )
    ends = [(i, row) for i, row in known if defined(row["ci_low"])]
    axes.vlines(
        [i for i, _ in ends],
        [r["ci_low"] for _, r in ends],
        [r["ci_high"] for _, r in ends],
        color=BLUE,
        linewidth=1.4,
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
