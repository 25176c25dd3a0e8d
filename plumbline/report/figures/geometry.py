"""The text space of a model: positive and negative words on its principal axes, and how close they are."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.report.figures.canvas import (
    FAINT,
    GREY,
    GRID,
    INK,
    SOFT,
    VALENCE_COLOURS,
    Picture,
    blank,
    drawing,
    panel,
    with_tips,
)
from plumbline.report.figures.marks import LegendDot, legend
from plumbline.report.figures.panels import WIDTH, axis_title, panel_title
from plumbline.report.numbers import MINUS, number, percent
from plumbline.report.rows import in_order, where
from plumbline.report.vocabulary import DIMENSIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VALENCES = ("positive", "negative")
_SHAPES = {"agency": "o", "belief": "s", "communion": "^"}
_SIGNS = {"positive": "+", "negative": MINUS, "cross": ""}


def short_name(dimension: str, part: str) -> str:
    """Return the mark of a dimension's part: `A+` within its positive words, `A` across its valences."""
    return f"{dimension[:1].upper()}{_SIGNS[part]}"


def space_figure(words: pl.DataFrame, *, model: str) -> Picture | None:
    """Draw the words of a model on its principal axes, 1 by 2 and 1 by 3, with the centre of every pole."""
    of_model = where(words, model=model)
    if of_model.is_empty() or of_model["x"].is_nan().any() or of_model["y"].is_nan().any():
        return None
    views = [("x", "y"), ("x", "z")] if not of_model["z"].is_nan().any() else [("x", "y")]
    # One scale for all axes: a distance reads the same in every direction.
    reach = 1.12 * float(np.abs(of_model.select({axis for view in views for axis in view}).to_numpy()).max())
    size, top = 400.0, 62.0
    with drawing():
        figure = blank(WIDTH, top + size + 40)
        for index, (across, upwards) in enumerate(views):
            axes = panel(figure, 30 + index * (size + 70), top, size, size)
            axes.set_xlim(-reach, reach)
            axes.set_ylim(-reach, reach)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines["bottom"].set_visible(False)
            axes.axhline(0, color=GRID, linewidth=0.9, zorder=0)
            axes.axvline(0, color=GRID, linewidth=0.9, zorder=0)
            _poles(axes, of_model, across, upwards)
            panel_title(axes, f"upwards: {_axis(of_model, upwards)}")
            axis_title(figure, 30 + index * (size + 70), top + size + 18, f"across: {_axis(of_model, across)}")
        dimensions = in_order(of_model["dimension"], DIMENSIONS)
        entries = [LegendDot(name, SOFT, marker=_SHAPES.get(name, "D")) for name in dimensions]
        entries += [LegendDot(f"{name} words", VALENCE_COLOURS[name]) for name in VALENCES]
        legend(figure, entries, left=30)
    return Picture(
        name=f"space-{model}",
        title=f"The words in the text space of {model}",
        description="Each mark is a word, at its place on the first principal axes of the text embeddings; the "
        "letters stand at the centre of a pole, and lines lead to its words. Where centres of one letter lie "
        "together, the model hardly tells a trait from its opposite. Axes share one scale.",
        figure=figure,
    )


def _axis(own: pl.DataFrame, axis: str) -> str:
    names = {"x": "first axis", "y": "second axis", "z": "third axis"}
    return f"{names[axis]}, {percent(own[f'share_{axis}'][0])} of the variance"


def _poles(axes: Axes, own: pl.DataFrame, across: str, upwards: str) -> None:
    for dimension in in_order(own["dimension"], DIMENSIONS):
        for valence in VALENCES:
            pole = where(own, dimension=dimension, valence=valence)
            if pole.is_empty():
                continue
            x, y, colour = pole[across].to_numpy(), pole[upwards].to_numpy(), VALENCE_COLOURS[valence]
            centre = float(x.mean()), float(y.mean())
            for right, up in zip(x, y):
                axes.plot([centre[0], right], [centre[1], up], ":", color=colour, linewidth=1.0, alpha=0.7, zorder=1)
            (dots,) = axes.plot(x, y, _SHAPES.get(dimension, "D"), color=colour, markersize=6, zorder=3, clip_on=False)
            with_tips(dots, [f"{word}, {dimension}, {valence}" for word in pole["word"]])
            axes.annotate(
                short_name(dimension, valence), centre, ha="center", va="center_baseline", fontsize=10.5,
                color="white", fontweight="bold", zorder=5,
                bbox={"boxstyle": "circle,pad=0.2", "facecolor": colour, "edgecolor": "white", "linewidth": 1},
            )  # fmt: skip


def strip_figure(words: pl.DataFrame, *, model: str) -> Picture | None:
    """Draw the cosine of every pair of words of one dimension: within each valence, and across."""
    of_model = where(words, model=model)
    if of_model.is_empty():
        return None
    columns = _columns(of_model)
    every = np.concatenate([values for _, _, values, _ in columns])
    low, high = float(every.min()), float(every.max())
    room = 0.06 * (high - low) or 0.01
    left, top, height = 52.0, 52.0, 250.0
    with drawing():
        figure = blank(WIDTH, top + height + 66)
        axes = panel(figure, left, top, WIDTH - left - 16, height)
        axes.set_ylim(low - room, high + room)
        axes.set_xlim(-0.6, len(columns) - 0.4)
        _upwards(axes, low - room, high + room)
        axes.hlines([float(np.median(every))], 0, 1, transform=axes.get_yaxis_transform(), color=GREY, linewidth=1.2)
        axes.set_xticks(range(len(columns)), [short_name(d, part) for d, part, _, _ in columns])
        axes.tick_params(axis="x", labelsize=13, labelcolor=INK)
        for place, (_, part, values, tips) in enumerate(columns):
            _strip(axes, place, part, values, tips)
        entries = [
            LegendDot("within the positive words", VALENCE_COLOURS["positive"]),
            LegendDot("across", GREY),
            LegendDot("within the negative words", VALENCE_COLOURS["negative"]),
            LegendDot("mean", INK, marker="D"),
        ]
        legend(figure, entries, left=left)
        caption = "cosine of two words of one trait; upright stroke: middle half, line across: median of all pairs"
        axis_title(figure, left, top + height + 50, caption)
    return Picture(
        name=f"pairs-{model}",
        title=f"How close words of one trait are in the text space of {model}",
        description=f"A, B, C: agency, belief, communion. Each dot is a pair of words, A+ within the positive words, "
        f"A{MINUS} within the negative, A across. If valence mattered, A would lie below A+ and A{MINUS}.",
        figure=figure,
    )


def _columns(own: pl.DataFrame) -> list[tuple[str, str, NDArray[np.float64], list[str]]]:
    """Return dimension, part, cosines and tips of each strip."""
    cosines, word = np.array(own["cosines"].to_list()), own["word"].to_list()
    columns = []
    for dimension in in_order(own["dimension"], DIMENSIONS):
        place = {
            v: np.flatnonzero(((own["dimension"] == dimension) & (own["valence"] == v)).to_numpy()) for v in VALENCES
        }
        pairs = {v: list(combinations(place[v].tolist(), 2)) for v in VALENCES}
        pairs["cross"] = [(i, j) for i in place["positive"].tolist() for j in place["negative"].tolist()]
        for part in ("positive", "cross", "negative"):
            if chosen := sorted(pairs[part], key=lambda pair: float(cosines[pair])):
                values = np.array([cosines[pair] for pair in chosen])
                tips = [f"{word[i]} – {word[j]}: {number(float(cosines[i, j]))}" for i, j in chosen]
                columns.append((dimension, part, values, tips))
    return columns


def _strip(axes: Axes, place: int, part: str, values: NDArray[np.float64], tips: list[str]) -> None:
    colour = VALENCE_COLOURS.get(part, GREY)
    # Golden-ratio steps spread neighbours in value apart sideways, the same way every time.
    aside = 0.44 * ((np.arange(len(values)) * 0.6180339887) % 1 - 0.5)
    (dots,) = axes.plot(
        place + aside, values, "o", color=colour, markersize=4.4, alpha=0.75, zorder=2, markeredgewidth=0
    )
    with_tips(dots, tips)
    quarter = np.quantile(values, [0.25, 0.75])
    axes.vlines([place], quarter[:1], quarter[1:], color=INK, linewidth=2.2, zorder=3)
    axes.plot([place], [values.mean()], "D", color=INK, markersize=6, zorder=4, markeredgecolor="white")


def _upwards(axes: Axes, low: float, high: float) -> None:
    from matplotlib.ticker import MaxNLocator

    ticks = [float(t) for t in MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= t <= high]
    axes.set_yticks([])
    axes.hlines(ticks, 0, 1, transform=axes.get_yaxis_transform(), color=FAINT, linewidth=0.8, zorder=0)
    for tick in ticks:
        axes.annotate(
            f"{round(tick, 9):g}".replace("-", MINUS), (0, tick), (-8, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", ha="right", va="center_baseline", color=SOFT, fontsize=11,
        )  # fmt: skip
