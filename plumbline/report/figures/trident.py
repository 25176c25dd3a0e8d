"""The Trident bubble chart, and the gap between classes by the valence of the probe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.evidence import both_tests, evidence
from plumbline.report.figures.canvas import (
    GREY,
    GRID,
    INK,
    SEQUENTIAL,
    SOFT,
    VALENCE_COLOURS,
    Picture,
    blank,
    drawing,
    label,
    panel,
    text_width,
    with_tips,
)
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark, cap_of, dots_with_intervals
from plumbline.report.figures.panels import WIDTH, apart, panels_figure, percent_scale, rows_axes
from plumbline.report.numbers import number, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.vocabulary import VALENCES, group_title, probes, suite_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST_BUBBLE = 29.0
NORMALISATION = {"trident": "single", "trident_mixed": "mixed"}


def bubble_figure(table: pl.DataFrame, *, model: str, dataset: str, suite: str) -> Picture | None:
    """Draw classes (rows) by the 15 probes ordered by valence (columns); None where there is no such test.

    Area of a bubble: accuracy over all images with that probe among the candidates. Colour: how often the class
    is predicted as the probe, min-max normalised to 0-100 within the model. Number: the plain percentage.
    """
    chosen = where(table, model=model, dataset=dataset, suite=suite, condition="before", statistic="estimate")
    rates = by(where(chosen, metric="probe_rate", definition="logit"), "group", "probe")
    normalised = where(chosen, metric="probe_rate_normalised", definition=NORMALISATION.get(suite, "joint"))
    colours = by(normalised, "group", "probe")
    accuracy = by(where(chosen, metric="accuracy", definition="logit"), "probe")
    if not rates:
        return None
    classes = list(dict.fromkeys(group for group, _ in rates))
    texts = [group_title(name) for name in classes]
    left, row_height = text_width([label(text) for text in texts]) + 18, 34
    height = row_height * len(classes)
    with drawing():
        figure = blank(WIDTH, 52 + height + 80)
        axes = panel(figure, left, 52, WIDTH - left - 6, height)
        _frame(axes, texts, accuracy)
        _bubbles(axes, classes, rates, colours, accuracy)
        _keys(figure, left, 52 + height + 46)
    return Picture(
        name=f"trident-{suite}-{model}-{dataset}",
        title=f"{suite_title(suite)}: {model} on {dataset}",
        description="Rows: classes. Columns: probe words by valence. Area: accuracy with the probe. "
        "Colour: normalised probability of being predicted as the probe. Number: that probability in percent.",
        figure=figure,
    )


def _columns() -> dict[str, float]:
    return {word: i + 0.6 * VALENCES.index(valence) for i, (word, valence) in enumerate(probes())}


def _frame(axes, texts: list[str], accuracy: dict[tuple[str, ...], Row]) -> None:  # type: ignore[no-untyped-def]
    places = _columns()
    rows_axes(axes, texts, shown=True)
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(-0.55, max(places.values()) + 0.55)
    axes.set_xticks([])
    for word, valence in probes():
        axes.text(places[word], -0.68, word, ha="center", fontsize=10, color=VALENCE_COLOURS[valence], va="bottom")
        share = accuracy.get((word,), {}).get("value")
        shown = percent(share) if defined(share) else "–"
        axes.text(places[word], len(texts) - 0.28, shown, ha="center", fontsize=11, color=SOFT, va="center")
    axes.text(-0.72, len(texts) - 0.28, "accuracy", ha="right", fontsize=11, color=SOFT, va="center")
    for index, valence in enumerate(VALENCES):
        middle = 5.6 * index + 2
        axes.text(middle, -1.3, valence, ha="center", fontsize=12, color=VALENCE_COLOURS[valence], va="bottom")


def _bubbles(axes, classes, rates, colours, accuracy) -> None:  # type: ignore[no-untyped-def]
    places = _columns()
    x, y, areas, shades, tips = [], [], [], [], []
    for (group, probe), row in rates.items():
        if probe not in places or not defined(row["value"]):
            continue
        share = or_nan(accuracy.get((probe,), {}).get("value"))
        shade = or_nan(colours.get((group, probe), {}).get("value"))
        x.append(places[probe])
        y.append(classes.index(group))
        areas.append(LARGEST_BUBBLE**2 * (share if math.isfinite(share) else 0.2))
        shades.append(shade)
        tips.append(
            f"{group_title(group)} → {probe}: {percent(row['value'], row['n'])} "
            f"[{percent_interval(row['ci_low'], row['ci_high'])}], normalised {number(shade)}, "
            f"accuracy with the probe {percent(share)}"
        )
        if row["value"] >= 0.005:
            ink = "white" if math.isfinite(shade) and shade > 55 else INK
            words, middle = f"{100 * row['value']:.0f}", {"ha": "center", "va": "center_baseline"}
            axes.text(x[-1], y[-1], words, fontsize=10.5, color=ink, zorder=4, **middle)
    _draw_bubbles(axes, x, y, areas, shades, tips)


def _draw_bubbles(axes, x, y, areas, shades, tips) -> None:  # type: ignore[no-untyped-def]
    import matplotlib

    scale = matplotlib.colormaps[SEQUENTIAL]
    faces = [scale(0.04 + 0.9 * shade / 100) if math.isfinite(shade) else (1, 1, 1, 1) for shade in shades]
    marks = axes.scatter(x, y, s=areas, c=faces, edgecolors=GREY, linewidths=0.7, zorder=3, clip_on=False)
    with_tips(marks, tips)


def _keys(figure, left: float, top: float) -> None:  # type: ignore[no-untyped-def]
    import matplotlib

    scale = matplotlib.colormaps[SEQUENTIAL]
    axes = panel(figure, left, top, WIDTH - left - 6, 30)
    axes.set_xlim(0, WIDTH - left - 6)
    axes.set_ylim(30, 0)
    axes.axis("off")
    words: dict[str, Any] = {"fontsize": 11, "color": SOFT, "va": "center"}
    axes.text(0, 15, "area: accuracy", **words)
    place = 100.0
    for share in (0.25, 0.5, 1.0):
        bubble: dict[str, Any] = {"s": [LARGEST_BUBBLE**2 * share], "c": GRID, "edgecolors": GREY, "linewidths": 0.7}
        axes.scatter([place], [15], clip_on=False, **bubble)
        axes.text(place + 19, 15, percent(share), **words)
        place += 66
    start = place + 8
    axes.text(start, 15, "colour: normalised share", **words)
    start += 158
    axes.text(start - 6, 15, "0", ha="right", **words)
    for step in range(10):
        ends = [start + 10 * step, start + 10 * (step + 1)]
        axes.fill_between(ends, 9, 21, color=scale(0.04 + 0.1 * step), linewidth=0)
    axes.text(start + 105, 15, "100", **words)
    axes.text(start + 150, 15, "number: share in %", **words)


def gap_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the largest difference between classes in being predicted as a probe, by model and valence."""
    rows = where(table, metric="probe_rate_gap", definition="by_valence", dataset=dataset, condition="before")
    if rows.is_empty():
        return None
    suites = in_order(rows["suite"], ("trident", "trident_mixed"))
    names = in_order(rows["model"], models)
    marks = {
        (suite, valence): [
            _gap_mark(row, names.index(row["model"]) + apart(place, len(VALENCES), 0.25), reading)
            for row in where(rows, suite=suite, event=valence).to_dicts()
        ]
        for suite in suites
        for place, valence in enumerate(VALENCES)
    }
    cap = cap_of([mark for group in marks.values() for mark in group])

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, cap)
        for valence in VALENCES:
            each_marks = marks[suites[index], valence]
            dots_with_intervals(axes, each_marks, VALENCE_COLOURS[valence], cap=cap, size=6)

    return Picture(
        name=f"gap-{dataset}",
        title=f"Gap between classes by valence of the probe, {dataset}",
        description="Each dot is the difference between the class most and the class least often predicted as a probe.",
        figure=panels_figure(
            [suite_title(suite) for suite in suites],
            draw,
            rows=names,
            height=12 + 32 * len(names),
            axis="largest minus smallest class share predicted as the probe, mean over five probes",
            entries=[*(LegendDot(f"{name} probes", VALENCE_COLOURS[name]) for name in VALENCES), HOLLOW],
            columns=2,
        ),
    )


def _gap_mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {row['event']} probes: {percent(row['value'])} "
        f"[{percent_interval(row['ci_low'], row['ci_high'])}], {both_tests(row)}"
    )
    return Mark.of(row, y, tip, filled=evidence(row, reading))
