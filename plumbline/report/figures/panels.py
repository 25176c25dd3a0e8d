"""Small panels that share their rows, in a grid: places, rows, scales and titles, and the whole figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.report.figures.canvas import blank, drawing, label, panel, text_width, write
from plumbline.report.figures.marks import LegendDot, legend
from plumbline.report.figures.palette import GRID, INK, SOFT
from plumbline.report.numbers import MINUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 960
"""Pixels of a figure that takes the page's whole width."""


def panels_figure(
    titles: Sequence[str],
    draw: Callable[[Axes, int], None],
    *,
    rows: Sequence[str],
    height: float,
    axis: str = "",
    entries: Sequence[LegendDot] = (),
    columns: int = 4,
    places: Sequence[float] | None = None,
    size: float = 12,
    beside: float = 18,
    above: float = 52,
    below: float = 48,
) -> Figure:
    """Return panels of one size that share their rows, a legend above them, and what they measure below.

    Parameters
    ----------
    titles : sequence of str
        Of the panels.
    draw : callable
        Gives the axes of the panel of an index a scale and marks.
    rows : sequence of str
        Names of the rows.
    height : float
        Pixels of a panel.
    axis : str
        What the scales measure; nothing is written where it is empty.
    columns : int
        Panels that stand side by side at most.
    places, size : sequence of float, float
        As in `rows_axes`.
    beside, above, below : float
        Pixels between the names of the rows and the first panel, and above and below all of them.
    """
    left = text_width([label(name) for name in rows]) + beside
    grid = fit_grid(len(titles), width=WIDTH, left=left, top=above, height=height, columns=columns)
    end = grid.bottom(len(titles))
    with drawing():
        figure = blank(WIDTH, end + below)
        for index, title in enumerate(titles):
            axes = grid.place(figure, index)
            rows_axes(axes, rows, shown=index % grid.columns == 0, places=places, size=size)
            draw(axes, index)
            panel_title(axes, title)
        if entries:
            legend(figure, entries, left=left)
        if axis:
            axis_title(figure, left, end + below - 12, axis)
    return figure


def apart(place: int, of: int, step: float) -> float:
    """Return how far a mark stands off the middle of its row, where `of` of them stand there side by side."""
    return (place - (of - 1) / 2) * step


def ends_with_room(
    values: Iterable[float], *, least: float = 0.0, otherwise: float = 0.1
) -> tuple[float, float]:
    """Return the ends of a scale that holds all known values and ±`least`; `otherwise` where that is one point."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min([-least, *known]), max([least, *known])
    room = 0.06 * (high - low) or otherwise
    return low - room, high + room


def rows_axes(
    axes: Axes, names: Sequence[str], *, shown: bool, places: Sequence[float] | None = None, size: float = 12
) -> None:
    """Give a panel one row a name, the first on top, with a pale line along each.

    Parameters
    ----------
    shown : bool
        Whether the names are written beside it.
    places : sequence of float, optional
        Heights of the rows, where some stand apart; 0, 1, 2, … without.
    """
    heights = list(range(len(names))) if places is None else places
    axes.set_ylim(max(heights, default=-1) + 0.5, -0.5)
    axes.set_yticks([])
    axes.hlines(heights, 0, 1, transform=axes.get_yaxis_transform(), color=GRID, linewidth=0.9, zorder=0)
    for y, name in zip(heights, names if shown else ()):
        beside(axes, y, label(name), fontsize=size)


def beside(axes: Axes, y: float, text: str, **style: Any) -> None:
    """Write the name of a row beside a panel: plain text, since a tick costs matplotlib fifty times as much."""
    axes.annotate(
        text, (0, y), (-10, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", ha="right",
        va="center_baseline", color=INK, **style,
    )  # fmt: skip


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
