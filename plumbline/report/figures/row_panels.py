"""Panels that share their rows, some rows under headings: estimates with intervals by group, prompt or model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from plumbline.report.figures.canvas import Picture, blank, drawing, label, text_width
from plumbline.report.figures.marks import LegendDot, Mark, dots_with_intervals, legend
from plumbline.report.figures.palette import FAINT, GREY, GRID, SOFT
from plumbline.report.figures.panels import (
    WIDTH,
    axis_title,
    beside,
    fit_grid,
    money_scale,
    number_scale,
    panel_title,
    percent_scale,
)
from plumbline.report.numbers import UNDEFINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        found: list[tuple[str, str | None]] = []
        for heading, names in self.blocks:
            found += [(heading, None)] if heading else []
            found += [(heading, name) for name in names]
        return found

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


def ends_of(
    marks: Iterable[Mark], *, zero: bool = True, lines: Iterable[float | None] = ()
) -> tuple[float, float]:
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
    reach = (
        max(most - least, sorted(halves)[(len(halves) - 1) // 2] if halves else 0.0) or 0.1 * abs(most) or 0.1
    )
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
    grid = fit_grid(
        len(panels), width=WIDTH, left=left, top=top, height=8 + ROW * len(lines), columns=columns
    )
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
