"""The marks that several figures share: a dot with its interval, a grid of small panels, a legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.report.figures.canvas import label, panel, text_width, with_tips, write
from plumbline.report.figures.palette import GRID, INK, SOFT, attribute_colour, attribute_marker
from plumbline.report.numbers import MINUS, UNDEFINED
from plumbline.report.vocabulary import attribute_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@dataclass(frozen=True)
class Mark:
    """An estimate at a height of the panel, with its interval and the words of its tip.

    Attributes
    ----------
    value, low, high : float
        NaN where undefined.
    filled : bool
        False for an estimate that chance alone may explain.
    """

    y: float
    value: float
    low: float
    high: float
    tip: str
    filled: bool = True


def as_float(value: float | None) -> float:
    """Return NaN for None."""
    return math.nan if value is None else float(value)


def dots_with_intervals(
    axes: Axes, marks: Sequence[Mark], colour: str, *, cap: float, size: float = 7, shape: str = "o"
) -> None:
    """Draw dots with horizontal intervals; an interval beyond `cap` ends in an arrow, an undefined value in words."""
    shown = [m for m in marks if math.isfinite(m.value) and m.value <= cap]
    with_interval = [m for m in marks if math.isfinite(m.low) and m.low <= cap and not math.isnan(m.high)]
    if with_interval:
        ends = [min(m.high, cap) for m in with_interval]
        axes.hlines(
            [m.y for m in with_interval], [m.low for m in with_interval], ends, color=colour, linewidth=1.6
        )
    over = [m for m in marks if m.high > cap or (math.isfinite(m.value) and m.value > cap)]
    if over:
        axes.plot([cap] * len(over), [m.y for m in over], ">", color=colour, markersize=4.5, clip_on=False)
    for filled in (True, False):
        chosen = [m for m in shown if m.filled is filled]
        if chosen:
            (line,) = axes.plot(
                [m.value for m in chosen],
                [m.y for m in chosen],
                shape,
                color=colour,
                markerfacecolor=colour if filled else "white",
                markersize=0.82 * size if shape == "D" else size,
                markeredgewidth=1.4,
                clip_on=False,
                zorder=3,
            )
            with_tips(line, [m.tip for m in chosen])
    for mark in marks:
        if math.isnan(mark.value):
            axes.text(0, mark.y, f" {UNDEFINED}", color=SOFT, fontsize=10, fontstyle="italic", va="center")


def attribute_dots(axes: Axes, marks: Sequence[Mark], attribute: str, *, cap: float, size: float = 7) -> None:
    """Draw dots with intervals in the colour and shape of an attribute."""
    colour, shape = attribute_colour(attribute), attribute_marker(attribute)
    dots_with_intervals(axes, marks, colour, cap=cap, size=size, shape=shape)


def attribute_entry(attribute: str) -> Line2D:
    """Return the legend entry of an attribute."""
    return legend_dot(
        attribute_title(attribute), attribute_colour(attribute), marker=attribute_marker(attribute)
    )


def cap_of(marks: Sequence[Mark], *, room: float = 1.05, at_most: float = 2.0) -> float:
    """Return the right end of a scale: all intervals, but never more than `at_most` times the largest value."""
    values = [m.value for m in marks if math.isfinite(m.value)]
    highs = [m.high for m in marks if math.isfinite(m.high)]
    largest = max(values, default=0.0)
    wanted = max([largest, *highs], default=0.0)
    return max(min(wanted, largest * at_most if largest > 0 else wanted) * room, 1e-3)


def rows_axes(axes: Axes, names: Sequence[str], *, shown: bool) -> None:
    """Give a panel one row a name, the first on top, with a pale line along each."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks([])
    axes.hlines(
        range(len(names)), 0, 1, transform=axes.get_yaxis_transform(), color=GRID, linewidth=0.9, zorder=0
    )
    if shown:
        # Plain text: a tick costs matplotlib fifty times as much, and there are thousands.
        beside: dict[str, Any] = {"textcoords": "offset points", "xycoords": axes.get_yaxis_transform()}
        for y, name in enumerate(names):
            axes.annotate(
                label(name), (0, y), (-10, 0), ha="right", va="center_baseline", color=INK, **beside
            )


def percent_scale(axes: Axes, cap: float, low: float = 0.0) -> None:
    """Give a panel an axis of percentages from `low` to `cap`."""
    _scale(axes, low, cap, lambda x: f"{100 * x:g}%")


def number_scale(axes: Axes, cap: float, low: float = 0.0) -> None:
    """Give a panel an axis of plain numbers from `low` to `cap`."""
    _scale(axes, low, cap, lambda x: f"{x:g}".replace("-", MINUS))


def money_scale(axes: Axes, cap: float, low: float = 0.0) -> None:
    """Give a panel an axis of US dollars from `low` to `cap`, in thousands."""
    _scale(axes, low, cap, lambda x: f"${x / 1000:g}k".replace("$-", f"{MINUS}$") if x else "$0")


def _scale(axes: Axes, low: float, cap: float, words: Callable[[float], str]) -> None:
    from matplotlib.ticker import MaxNLocator

    width = axes.get_window_extent().width
    bins = 2 if width < 130 else 4
    axes.set_xlim(low, cap)
    ticks = [round(t, 9) for t in MaxNLocator(nbins=bins, steps=[1, 2, 5, 10]).tick_values(low, cap)]
    ticks = [t for t in ticks if low <= t <= cap]
    axes.set_xticks(ticks, [words(t) for t in ticks])
    _keep_inside(axes, ticks, (low, cap), width)


def _keep_inside(axes: Axes, ticks: Sequence[float], ends: tuple[float, float], width: float) -> None:
    """Align labels that would reach into the neighbouring panel inwards, at the edge of their own."""
    low, high = ends
    for tick, text in zip(ticks, axes.get_xticklabels(), strict=True):
        half = text_width([text.get_text()], size=float(text.get_fontsize())) / 2
        place = width * (tick - low) / (high - low)
        if place < half:
            text.set_horizontalalignment("left")
        elif width - place < half:
            text.set_horizontalalignment("right")


@dataclass(frozen=True)
class Grid:
    """Small panels of one size in rows of `columns`; sizes in pixels."""

    columns: int
    left: float
    top: float
    width: float
    height: float
    gap_x: float = 22
    gap_y: float = 58

    def place(self, figure: Figure, index: int) -> Axes:
        """Return new axes for the panel of that index, filled row by row."""
        row, column = divmod(index, self.columns)
        return panel(
            figure,
            self.left + column * (self.width + self.gap_x),
            self.top + row * (self.height + self.gap_y),
            self.width,
            self.height,
        )

    def bottom(self, count: int) -> float:
        """Return the pixel at which the last row of `count` panels ends."""
        rows = math.ceil(count / self.columns)
        return self.top + rows * self.height + (rows - 1) * self.gap_y


def fit_grid(count: int, *, width: float, left: float, top: float, height: float, columns: int = 7) -> Grid:
    """Return a grid that spreads up to `columns` panels over the width; few panels stay narrow enough to read."""
    used = max(1, min(count, columns))
    gap = 30.0 if used < 6 else 20.0
    each = (width - left - 16 - gap * (used - 1)) / used
    return Grid(columns=used, left=left, top=top, width=min(each, 360), height=height, gap_x=gap)


def legend_dot(text: str, colour: str, *, filled: bool = True, marker: str = "o") -> Line2D:
    """Return a legend entry."""
    from matplotlib.lines import Line2D

    face = colour if filled else "white"
    style: dict[str, Any] = {"markersize": {"|": 11, "D": 5.8}.get(marker, 7)}
    if marker == "|":
        style["markeredgewidth"] = 2
    return Line2D(
        [], [], color=colour, marker=marker, markerfacecolor=face, linestyle="", label=text, **style
    )


def legend(figure: Figure, entries: Sequence[Line2D], *, left: float, top: float = 0) -> None:
    """Write the legend in one line at the top of a figure."""
    width, height = figure.get_size_inches() * 72
    figure.legend(
        handles=list(entries),
        loc="upper left",
        bbox_to_anchor=(left / width, 1 - top / height),
        ncols=len(entries),
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.2,
        columnspacing=1.6,
    )


def axis_title(figure: Figure, x: float, y: float, text: str) -> None:
    """Write what an axis measures at a place in pixels."""
    write(figure, x, y, text, color=SOFT, fontsize=12, va="center")


def panel_title(axes: Axes, text: str) -> None:
    """Write the name of a panel above it, from its left edge, small enough to fit."""
    width = axes.get_window_extent().width
    size = max(9.5, min(12.5, width / max(1, len(text)) / 0.52))
    axes.set_title(
        label(text, longest=max(12, int(width / (0.5 * size)))), loc="left", color=INK, pad=8, fontsize=size
    )
