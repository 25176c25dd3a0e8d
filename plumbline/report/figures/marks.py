"""The marks that several figures share: a dot with its interval, and their legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plumbline.report.figures.canvas import SOFT, attribute_colour, attribute_marker, with_tips
from plumbline.report.numbers import UNDEFINED
from plumbline.report.rows import Row, or_nan
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

    @classmethod
    def of(cls, row: Row, y: float, tip: str, *, filled: bool = True) -> Mark:
        """Return the estimate and interval of a row of a table."""
        value, low, high = (or_nan(row[name]) for name in ("value", "ci_low", "ci_high"))
        return cls(y=y, value=value, low=low, high=high, tip=tip, filled=filled)


def dots_with_intervals(
    axes: Axes, marks: Sequence[Mark], colour: str, *, cap: float, size: float = 7, shape: str = "o"
) -> None:
    """Draw dots with horizontal intervals; an interval beyond `cap` ends in an arrow, an undefined value in words."""
    shown = [m for m in marks if math.isfinite(m.value) and m.value <= cap]
    with_interval = [m for m in marks if math.isfinite(m.low) and m.low <= cap and not math.isnan(m.high)]
    if with_interval:
        ends = [min(m.high, cap) for m in with_interval]
        axes.hlines([m.y for m in with_interval], [m.low for m in with_interval], ends, color=colour, linewidth=1.6)
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


def attribute_entry(attribute: str) -> LegendDot:
    """Return the legend entry of an attribute."""
    return LegendDot(attribute_title(attribute), attribute_colour(attribute), marker=attribute_marker(attribute))


def cap_of(marks: Sequence[Mark], *, at_most: float = 2.0) -> float:
    """Return the right end of a scale: all intervals, but never more than `at_most` times the largest value."""
    values = [m.value for m in marks if math.isfinite(m.value)]
    highs = [m.high for m in marks if math.isfinite(m.high)]
    largest = max(values, default=0.0)
    wanted = max([largest, *highs], default=0.0)
    return max(min(wanted, largest * at_most if largest > 0 else wanted) * 1.05, 1e-3)


@dataclass(frozen=True)
class LegendDot:
    """An entry of a legend."""

    text: str
    colour: str
    filled: bool = True
    marker: str = "o"

    def drawn(self) -> Line2D:
        """Return it as what matplotlib shows in a legend."""
        from matplotlib.lines import Line2D

        style: dict[str, Any] = {"markersize": {"|": 11, "D": 5.8}.get(self.marker, 7)}
        if self.marker == "|":
            style["markeredgewidth"] = 2
        return Line2D(
            [], [], color=self.colour, marker=self.marker, linestyle="", label=self.text,
            markerfacecolor=self.colour if self.filled else "white", **style,
        )  # fmt: skip


HOLLOW = LegendDot("hollow: chance alone may explain it", SOFT, filled=False)
"""What a mark is that is not filled, wherever evidence decides."""


def legend(figure: Figure, entries: Sequence[LegendDot], *, left: float) -> None:
    """Write the legend in one line at the top of a figure."""
    figure.legend(
        handles=[entry.drawn() for entry in entries],
        loc="upper left",
        bbox_to_anchor=(left / (figure.get_size_inches()[0] * 72), 1),
        ncols=len(entries),
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.2,
        columnspacing=1.6,
    )
