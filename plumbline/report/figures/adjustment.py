"""Macro accuracy before and after the logit adjustment, a dumbbell a probe, one panel a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.figures.canvas import Picture, with_tips
from plumbline.report.figures.marks import LegendDot
from plumbline.report.figures.palette import BLUE, GREY, VERMILION
from plumbline.report.figures.panels import panels_figure, percent_scale
from plumbline.report.numbers import percent
from plumbline.report.rows import Row, by, in_order, or_nan, where
from plumbline.report.vocabulary import probes, suite_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def adjustments(table: pl.DataFrame, dataset: str, suite: str, *, leaking: tuple[str, ...] = ()) -> list[str]:
    """Return the ids of the logit adjustments that a suite was judged with; those that leak come last."""
    gains = where(table, metric="macro_accuracy_gain", definition="test_rows", dataset=dataset, suite=suite)
    return sorted(in_order(gains["condition"], ()), key=lambda name: name in leaking)


def on_test_rows(table: pl.DataFrame, metric: str, *, condition: str) -> pl.DataFrame:
    """Return a metric before and after an adjustment, on the images that it was not fitted on.

    Adjustments with other training rows than the first have test rows, and so a definition, of their own.
    """
    keys = ["model", "dataset", "suite", "definition"]
    rows = where(table, metric=metric, condition=("before", condition)).filter(
        pl.col("definition").str.starts_with("test_rows")
    )
    return rows.join(where(rows, condition=condition).select(keys).unique(), on=keys, how="semi")


def adjustment_figure(
    table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str, *, condition: str
) -> Picture | None:
    """Draw each probe's macro accuracy on test rows before (grey) and after (colour: better or worse).

    Parameters
    ----------
    condition : str
        Id of the logit adjustment, as in `adjustments`.
    """
    own = where(table, dataset=dataset, suite=suite)
    rows = on_test_rows(own, "macro_accuracy", condition=condition)
    after = where(rows, condition=condition, statistic="mean")
    if after.is_empty():
        return None
    names, words = in_order(after["model"], models), [word for word, _ in probes()]
    values = by(rows, "model", "probe", "condition", "statistic")
    finite = [
        v for v in where(rows, statistic="mean")["value"].to_list() if v is not None and math.isfinite(v)
    ]
    low = max(0.0, math.floor(10 * min(finite, default=0.0) - 0.5) / 10)

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, 1.0, low)
        # Between the valences, of five probes each.
        for end in (4.5, 9.5):
            axes.axhline(end, color=GREY, linewidth=0.7, linestyle=(0, (2, 3)))
        marked = {key[1:]: row for key, row in values.items() if key[0] == names[index]}
        _dumbbells(axes, words, marked, condition)

    return Picture(
        name=f"adjustment-{condition}-{suite}-{dataset}",
        title=f"Probe by probe before and after {condition}: {suite_title(suite)}, {dataset}",
        description="One line a probe, from the accuracy before to the accuracy after; negative, neutral and "
        "positive probes from top to bottom, one panel a model.",
        figure=panels_figure(
            names,
            draw,
            rows=words,
            height=10 + 19 * len(words),
            axis="macro accuracy over the classes on test rows, mean over trials",
            entries=[
                LegendDot("before", GREY, filled=False),
                LegendDot("after, better", BLUE),
                LegendDot("after, worse", VERMILION),
            ],
            columns=7,
        ),
    )


def _dumbbells(axes: Axes, words: list[str], values: dict[tuple[str, ...], Row], condition: str) -> None:
    for better, colour in ((True, BLUE), (False, VERMILION)):
        pairs = []
        for y, word in enumerate(words):
            old = or_nan(values.get((word, "before", "mean"), {}).get("value"))
            new = or_nan(values.get((word, condition, "mean"), {}).get("value"))
            spread = or_nan(values.get((word, condition, "sd"), {}).get("value"))
            if math.isfinite(old) and math.isfinite(new) and (new >= old) is better:
                pairs.append((y, word, old, new, spread))
        if not pairs:
            continue
        ys, _, olds, news, _ = zip(*pairs)
        tips = [
            f"{w}: {percent(o)} before, {percent(n)} after (sd over trials {percent(s)})"
            for _, w, o, n, s in pairs
        ]
        axes.hlines(ys, olds, news, color=colour, linewidth=1.8, alpha=0.55)
        axes.plot(olds, ys, "o", color=GREY, markerfacecolor="white", markersize=4.5, clip_on=False)
        (line,) = axes.plot(news, ys, "o", color=colour, markersize=5.5, clip_on=False, zorder=3)
        with_tips(line, tips)
