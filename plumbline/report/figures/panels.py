"""Small panels that share their rows, in a grid: places, rows, scales and titles, and the whole figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from plumbline.report.figures.canvas import (
    FAINT,
    GREY,
    GRID,
    INK,
    SOFT,
    Picture,
    blank,
    drawing,
    label,
    panel,
    text_width,
    write,
)
from plumbline.report.figures.marks import LegendDot, Mark, dots_with_intervals, legend
from plumbline.report.numbers import MINUS, UNDEFINED

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


def ends_with_room(values: Iterable[float], *, least: float = 0.0, otherwise: float = 0.1) -> tuple[float, float]:
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
    axes.set_title(label(text, longest=max(12, int(width / (0.5 * size)))), loc="left", color=INK, pad=8, fontsize=size)


# --- Panels that share their rows, some rows under headings: estimates with intervals by group, prompt or
# model.

ROW = 21
PANELS = 12
"""Panels that a figure has at most; a caller that has more says what it leaves out."""


@dataclass(frozen=True)
class Rows:
    """Names of rows in blocks, from the top; a block without a heading has an empty one.

    Attributes
    ----------
    blocks : tuple of (str, tuple of str)
        Heading and the names of its rows.
    """

    blocks: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def plain(cls, names: Iterable[str]) -> Rows:
        """Return rows without headings."""
        return cls((("", tuple(names)),))

    @property
    def lines(self) -> list[tuple[str, str | None]]:
        """Return (heading, name) of each line of the figure; name is None for the line of a heading."""
        lines: list[tuple[str, str | None]] = []
        for heading, names in self.blocks:
            lines += [(heading, None)] if heading else []
            lines += [(heading, name) for name in names]
        return lines

    def place(self, name: str, heading: str = "") -> int:
        """Return the line of a row."""
        return self.lines.index((heading, name))

    @property
    def width(self) -> float:
        """Return the pixels that the names take."""
        return text_width([label(name if name is not None else heading) for heading, name in self.lines])


@dataclass(frozen=True)
class Series:
    """Marks of one colour and shape."""

    marks: Sequence[Mark]
    colour: str
    shape: str = "o"


@dataclass(frozen=True)
class RowPanel:
    """One panel.

    Attributes
    ----------
    ends : (float, float)
        Where its scale begins and ends; see `ends_of`.
    unit : {"number", "share", "money"}
        What the scale is in: shares are written in percent.
    line : float or None
        Where an upright line stands: what chance gives, or no difference.
    """

    title: str
    series: Sequence[Series]
    ends: tuple[float, float]
    unit: Literal["number", "share", "money"] = "number"
    line: float | None = None


def ends_of(marks: Iterable[Mark], *, zero: bool = True, lines: Iterable[float | None] = ()) -> tuple[float, float]:
    """Return the ends of a scale: all values, and their intervals unless they dwarf the values.

    Parameters
    ----------
    zero : bool
        Whether 0 is on it.
    lines : iterable of float or None
        Values that are on it too.
    """
    marks = list(marks)
    values = [m.value for m in marks if math.isfinite(m.value)] + [v for v in lines if v is not None]
    values += [0.0] if zero or not values else []
    least, most = min(values), max(values)
    halves = [m.high - m.low for m in marks if math.isfinite(m.low) and math.isfinite(m.high)]
    # Where all values are alike, the intervals alone say how far it is worth to look.
    reach = max(most - least, sorted(halves)[(len(halves) - 1) // 2] if halves else 0.0) or 0.1 * abs(most) or 0.1
    low = max(min([least, *(m.low for m in marks if math.isfinite(m.low))]), least - reach)
    high = min(max([most, *(m.high for m in marks if math.isfinite(m.high))]), most + reach)
    room = 0.05 * (high - low) or 0.05
    return (low if low == 0 else low - room), (high if high == 0 < -low else high + room)


def row_figure(
    name: str,
    title: str,
    description: str,
    *,
    rows: Rows,
    panels: Sequence[RowPanel],
    axis: str,
    entries: Sequence[LegendDot] = (),
    columns: int = 4,
) -> Picture | None:
    """Draw panels of dots with intervals that share their rows; None without a mark."""
    panels = panels[:PANELS]
    if not any(series.marks for one in panels for series in one.series):
        return None
    lines, left = rows.lines, rows.width + 20
    top = 52.0 if entries else 30.0
    grid = fit_grid(len(panels), width=WIDTH, left=left, top=top, height=8 + ROW * len(lines), columns=columns)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(panels)) + 48)
        for index, one in enumerate(panels):
            axes = grid.place(figure, index)
            _rows(axes, lines, shown=index % grid.columns == 0)
            _draw(axes, one)
        if entries:
            legend(figure, entries, left=left)
        axis_title(figure, left, grid.bottom(len(panels)) + 36, axis)
    return Picture(name=name, title=title, description=description, figure=figure)


def _rows(axes: Axes, lines: Sequence[tuple[str, str | None]], *, shown: bool) -> None:
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks([])
    ys = [y for y, (_, name) in enumerate(lines) if name is not None]
    axes.hlines(ys, 0, 1, transform=axes.get_yaxis_transform(), color=GRID, linewidth=0.9, zorder=0)
    if not shown:
        return
    for y, (heading, name) in enumerate(lines):
        weight = "bold" if name is None else "normal"
        beside(axes, y, label(heading if name is None else name), fontweight=weight)


def _draw(axes: Axes, one: RowPanel) -> None:
    low, high = one.ends
    {"number": number_scale, "share": percent_scale, "money": money_scale}[one.unit](axes, high, low)
    panel_title(axes, one.title)
    if one.line is not None:
        axes.axvline(one.line, color=GREY if one.line == 0 else FAINT, linewidth=1.2, zorder=0)
    for series in one.series:
        known = [m for m in series.marks if math.isfinite(m.value)]
        for mark in (m for m in series.marks if not math.isfinite(m.value)):
            axes.text(low, mark.y, f" {UNDEFINED}", color=SOFT, fontsize=10, fontstyle="italic", va="center")
        inside = [m if not m.low < low else replace(m, low=low) for m in known]
        dots_with_intervals(axes, inside, series.colour, cap=high, size=6, shape=series.shape)
        if before := [m.y for m in known if m.low < low]:
            axes.plot([low] * len(before), before, "<", color=series.colour, markersize=4.5, clip_on=False)
