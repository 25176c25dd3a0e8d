"""Macro accuracy before and after the logit adjustment, a dumbbell a probe, one panel a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from plumbline.metrics.paired.mitigations import IMPROVED, NO_EVIDENCE, UNDEFINED, WORSENED
from plumbline.report.figures.canvas import (
    BLUE,
    GREY,
    INK,
    SLATE,
    SOFT,
    VERMILION,
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
from plumbline.report.figures.panels import (
    WIDTH,
    axis_title,
    number_scale,
    panel_title,
    panels_figure,
    percent_scale,
    rows_axes,
)
from plumbline.report.numbers import count, p_value, percent
from plumbline.report.rows import Row, by, in_order, or_nan, where
from plumbline.report.transfer import (
    BLOCKS,
    COSTS,
    SIX_AXES,
    Block,
    Tried,
    axis_of,
    block_of,
    both_values,
    change,
    change_interval,
    place,
    row_title,
    row_words,
)
from plumbline.report.vocabulary import probes, suite_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    of_suite = where(table, dataset=dataset, suite=suite)
    rows = on_test_rows(of_suite, "macro_accuracy", condition=condition)
    after = where(rows, condition=condition, statistic="mean")
    if after.is_empty():
        return None
    names, words = in_order(after["model"], models), [word for word, _ in probes()]
    values = by(rows, "model", "probe", "condition", "statistic")
    finite = [v for v in where(rows, statistic="mean")["value"].to_list() if v is not None and math.isfinite(v)]
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
            f"{w}: {percent(o)} before, {percent(n)} after (sd over trials {percent(s)})" for _, w, o, n, s in pairs
        ]
        axes.hlines(ys, olds, news, color=colour, linewidth=1.8, alpha=0.55)
        axes.plot(olds, ys, "o", color=GREY, markerfacecolor="white", markersize=4.5, clip_on=False)
        (line,) = axes.plot(news, ys, "o", color=colour, markersize=5.5, clip_on=False, zorder=3)
        with_tips(line, tips)


# --- What each mitigation changes: before and after on every axis and cost, one panel a mitigation.

PANELS = 6
"""Mitigations that fit beside each other; more are drawn in a further figure."""
STYLES = {IMPROVED: (BLUE, "o"), WORSENED: (VERMILION, "X"), NO_EVIDENCE: (SLATE, "s")}
"""Verdict -> colour and shape of the mark after."""
_GAP, _ROW, _BETWEEN, _TOP = 22.0, 22.0, 62.0, 70.0


@dataclass(frozen=True)
class _Rows:
    """A block as it is drawn: the titles of its rows, and where its scale begins and ends."""

    block: Block
    titles: tuple[str, ...]
    low: float
    high: float


def mitigation_figures(candidates: Sequence[Tried], *, model: str, dataset: str) -> list[Picture]:
    """Draw the six contrastive metrics, harm rates, Trident rates and costs before and after each mitigation.

    Parameters
    ----------
    candidates : sequence of Tried
        What was tried on the model and dataset; `PANELS` of them a figure, which share one scale.

    Returns
    -------
    list of Picture
        Empty where there is nothing to draw.
    """
    shown = [
        replace(one, rows=tuple(r for r in one.rows if block_of(r) != "axis" or axis_of(r) in SIX_AXES))
        for one in candidates
    ]
    blocks = _blocks([row for one in shown for row in one.rows])
    if not blocks:
        return []
    parts = [shown[start : start + PANELS] for start in range(0, len(shown), PANELS)]
    return [_picture(part, blocks, model, dataset, i if len(parts) > 1 else 0) for i, part in enumerate(parts, 1)]


def _blocks(rows: Sequence[Row]) -> list[_Rows]:
    blocks = []
    for block in BLOCKS:
        of_block = sorted((row for row in rows if block_of(row) == block.name), key=place)
        if of_block:
            titles = tuple(dict.fromkeys(row_title(row) for row in of_block))
            blocks.append(_Rows(block, titles, *_scale(of_block, block)))
    return blocks


def _scale(rows: Sequence[Row], block: Block) -> tuple[float, float]:
    """Return where a scale begins and ends: all values, and intervals unless they dwarf the values."""
    values = [v for r in rows for v in (or_nan(r["value_before"]), or_nan(r["value_after"])) if math.isfinite(v)]
    ends = [v for r in rows for v in _whisker(r) if math.isfinite(v)]
    largest = max(values, default=0.0)
    high = max(min(max([largest, *ends], default=0.0), 2 * largest) * 1.05, 1e-3)
    low = 0.0
    if block.name in COSTS:
        # Costs are small against the values: the scale begins just below the smallest.
        low = max(0.0, math.floor(20 * min(values, default=0.0) - 0.5) / 20)
        high = min(1.0, math.ceil(20 * high + 0.2) / 20)
    return low, high


def _whisker(row: Row) -> tuple[float, float]:
    """Return the interval of the change as values after: what the value before would become."""
    before = or_nan(row["value_before"])
    return before + or_nan(row["ci_low"]), before + or_nan(row["ci_high"])


def _picture(candidates: Sequence[Tried], blocks: Sequence[_Rows], model: str, dataset: str, part: int) -> Picture:
    left = text_width([title for rows in blocks for title in rows.titles]) + 18
    columns = len(candidates)
    width = min(300.0, (WIDTH - left - 16 - _GAP * (columns - 1)) / columns)
    tops = [_TOP]
    for rows in blocks[:-1]:
        tops.append(tops[-1] + _ROW * len(rows.titles) + _BETWEEN)
    with drawing():
        figure = blank(WIDTH, tops[-1] + _ROW * len(blocks[-1].titles) + 50)
        for rows, top in zip(blocks, tops):
            write(figure, 0, top - 14, rows.block.title, color=INK, fontsize=12.5, fontweight="bold", va="center")
            for column, one in enumerate(candidates):
                axes = panel(figure, left + column * (width + _GAP), top, width, _ROW * len(rows.titles))
                rows_axes(axes, rows.titles, shown=column == 0)
                (percent_scale if rows.block.share else number_scale)(axes, rows.high, rows.low)
                if rows is blocks[0]:
                    panel_title(axes, one.condition)
                _changes(axes, rows, one)
        _legend(figure)
        words = "line: from before to after; thin line: interval of the change, counted from before"
        axis_title(figure, left, tops[-1] + _ROW * len(blocks[-1].titles) + 40, words)
    return Picture(
        name=f"mitigations-{model}-{dataset}{f'-{part}' if part else ''}",
        title=f"What each mitigation changes, {model} on {dataset}{f' ({part})' if part else ''}",
        description="One panel a mitigation. Skews, harm rates and rates of the probes are better further left, "
        "accuracy and retrieval further right. The mark after says whether chance would rarely make such a "
        "change.",
        figure=figure,
    )


def _legend(figure: Figure) -> None:
    entries = [LegendDot("before", GREY, filled=False)]
    for verdict, words in ((IMPROVED, "improved"), (WORSENED, "worsened"), (NO_EVIDENCE, "no evidence of a change")):
        colour, shape = STYLES[verdict]
        entries.append(LegendDot(f"after: {words}", colour, marker=shape))
    legend(figure, entries, left=0)


def _changes(axes: Axes, rows: _Rows, one: Tried) -> None:
    by_title = {row_title(row): row for row in one.rows if block_of(row) == rows.block.name}
    if not by_title:
        axes.text(
            0.5, 0.5, "not judged", transform=axes.transAxes, ha="center", va="center", color=SOFT,
            fontsize=10, fontstyle="italic", backgroundcolor="white",
        )  # fmt: skip
        return
    for y, title in enumerate(rows.titles):
        row = by_title.get(title)
        if row is None or row["verdict"] == UNDEFINED or not _finite(row):
            words = "undefined" if row else "not judged"
            axes.text(rows.low, y, f" {words}", color=SOFT, fontsize=10, fontstyle="italic", va="center")
    for verdict in STYLES:
        marked = [
            (y, by_title[t]) for y, t in enumerate(rows.titles) if t in by_title and by_title[t]["verdict"] == verdict
        ]
        _mitigation_dumbbells(axes, rows, [(y, row) for y, row in marked if _finite(row)], one, verdict)


def _finite(row: Row) -> bool:
    return all(math.isfinite(or_nan(row[name])) for name in ("value", "value_before", "value_after"))


def _mitigation_dumbbells(axes: Axes, rows: _Rows, marked: list[tuple[int, Row]], one: Tried, verdict: str) -> None:
    if not marked:
        return
    colour, shape = STYLES[verdict]
    ys = [y for y, _ in marked]
    before, after = ([row[name] for _, row in marked] for name in ("value_before", "value_after"))
    _intervals(axes, rows, marked, colour)
    axes.hlines(ys, before, after, color=colour, linewidth=4.5, alpha=0.35, zorder=2)
    axes.plot(before, ys, "o", color=GREY, markerfacecolor="white", markersize=6, clip_on=False, zorder=3)
    size = 7.5 if shape == "X" else 6
    (line,) = axes.plot(after, ys, shape, color=colour, markersize=size, markeredgewidth=0.4, clip_on=False, zorder=4)
    with_tips(line, [_tip(row, one) for _, row in marked])


def _intervals(axes: Axes, rows: _Rows, marked: list[tuple[int, Row]], colour: str) -> None:
    known = [(y, *_whisker(row)) for y, row in marked if all(map(math.isfinite, _whisker(row)))]
    if known:
        ys, lows, highs = zip(*known)
        ends = [max(low, rows.low) for low in lows], [min(high, rows.high) for high in highs]
        axes.hlines(ys, *ends, color=colour, linewidth=1.2, zorder=2)
    for y, low, high in known:
        # No value is below 0: where the scale begins there, nothing goes on beyond it.
        for beyond, end, arrow in ((low < rows.low > 0, rows.low, "<"), (high > rows.high, rows.high, ">")):
            if beyond:
                axes.plot([end], [y], arrow, color=colour, markersize=4.5, clip_on=False)


def _tip(row: Row, one: Tried) -> str:
    return (
        f"{one.condition}, {row_words(row)}: {both_values(row)}, change {change(row)} [{change_interval(row)}], "
        f"{p_value(row['q'], 'q')}, n = {count(row['n'])}: {label(row['verdict'])}"
    )
