"""Tables of shares with their numbers written in them, darker where the share is larger: readable in grey print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plumbline.report.charts.chart import DARK_FROM, SEQUENTIAL, Chart, Spec, label, text_width, top_level
from plumbline.report.charts.dots import Rows

CELL = 21
_ON_LIGHT, _ON_DARK = "#10151f", "#ffffff"
"""Text on coloured cells, which a dark page leaves as it is: not `INK` and `PAPER`, which it changes."""
_GAP = 0.35
"""Between blocks of columns, in columns."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number in its row and column.

    Attributes
    ----------
    row, column, heading, over : str
        Names of its row and column, and of the blocks that they are in; empty where there is one.
    value : float
        Makes its colour; NaN is not coloured.
    text : str
        What is written in it.
    framed : bool
        Whether it has a dark frame, which says that there is evidence of a difference.
    tip : mapping of str to str
        Shown when a reader points at it: title -> text.
    """

    row: str
    column: str
    value: float
    text: str
    heading: str = ""
    over: str = ""
    framed: bool = False
    tip: Mapping[str, str] = field(default_factory=dict)


def heat(
    name: str,
    title: str,
    description: str,
    *,
    cells: Iterable[Cell],
    rows: Rows,
    columns: Rows,
    axis: str = "",
    largest: float | None = None,
    cell_width: int = 46,
) -> Chart | None:
    """Draw cells by row and column, both in blocks with headings; None without a cell.

    Parameters
    ----------
    axis : str
        What the numbers are, written below.
    largest : float, optional
        The value of the darkest colour, which is that of the largest value without it.
    cell_width : int
        Pixels of a column.
    """
    at_row = {line: index for index, line in enumerate(rows.lines)}
    at_column = _column_places(columns)
    shown = [c for c in cells if (c.heading, c.row) in at_row and (c.over, c.column) in at_column]
    if not shown:
        return None
    top = largest or max((c.value for c in shown if math.isfinite(c.value)), default=0.0) or 1.0
    data = [_record(c, at_column[c.over, c.column], at_row[c.heading, c.row], top) for c in shown]
    titles = dict.fromkeys(title for c in shown for title in c.tip)
    tips = [{"field": title, "type": "nominal", "title": title} for title in titles]
    body: Spec = {
        "data": {"values": data},
        "width": round(cell_width * (max(at_column.values()) + 1)),
        "height": CELL * len(at_row),
        "layer": [
            *_cells(len(at_row), max(at_column.values()), top, cell_width, tips),
            *_heads(columns, at_column, cell_width),
        ],
    }
    if axis:
        body["title"] = {"text": [label(axis, longest=200)], "orient": "bottom"}
    bold = [text is None for _, text in rows.lines]
    return Chart(name, title, description, top_level(body, rows=rows.texts, headings=bold))


def _column_places(columns: Rows) -> dict[tuple[str, str], float]:
    places: dict[tuple[str, str], float] = {}
    for block, (over, names) in enumerate(columns.blocks):
        for column in names:
            places[over, column] = len(places) + _GAP * block
    return places


def _record(cell: Cell, x: float, y: int, top: float) -> Spec:
    record: Spec = {"x": x, "y": y, "text": label(cell.text)}
    if math.isfinite(cell.value):
        record["shade"] = float(f"{cell.value:.4g}")
        if cell.value >= DARK_FROM * top:
            record["dark"] = True
        if cell.framed:
            record["framed"] = True
    return record | {title: label(text, longest=200) for title, text in cell.tip.items()}


def _cells(lines: int, last: float, top: float, cell_width: int, tips: list[Spec]) -> list[Spec]:
    y_axis = {
        "values": list(range(lines)),
        "grid": False,
        "labelExpr": "rows[datum.value]",
        "labelFontWeight": {"condition": {"test": "headings[datum.value]", "value": "bold"}, "value": "normal"},
    }
    y_scale = {"domain": [-0.5, lines - 0.5], "reverse": True, "nice": False, "zero": False}
    x_scale = {"domain": [-0.5, last + 0.5], "nice": False, "zero": False}
    x: Spec = {"type": "quantitative", "title": None, "axis": None, "scale": x_scale}
    y: Spec = {"type": "quantitative", "title": None, "axis": y_axis, "scale": y_scale}
    box = {
        "x": x | {"field": "x"},
        "y": y | {"field": "y"},
        "color": {
            "field": "shade",
            "type": "quantitative",
            "legend": None,
            "scale": {"domain": [0, top], "range": list(SEQUENTIAL), "interpolate": "rgb", "clamp": True},
        },
        "stroke": {"condition": {"test": {"field": "framed", "equal": True}, "value": _ON_LIGHT}, "value": None},
        "tooltip": tips,
    }
    tall = f"{(CELL - 2) / (cell_width - 2):.3f}"
    on_it = {
        "condition": [
            {"test": {"field": "dark", "equal": True}, "value": _ON_DARK},
            {"test": {"field": "shade", "valid": True}, "value": _ON_LIGHT},
        ]
    }
    words = {
        "x": x | {"field": "x"},
        "y": y | {"field": "y"},
        "text": {"field": "text", "type": "nominal"},
        "color": on_it,
        "tooltip": tips,
    }
    return [
        # A shape needs two fields a cell, a rectangle four.
        {
            "transform": [{"filter": {"field": "shade", "valid": True}}],
            "mark": {
                "type": "point",
                "filled": True,
                "shape": f"M-1,-{tall}H1V{tall}H-1Z",
                "size": (cell_width - 2) ** 2,
            },
            "encoding": box,
        },
        {"mark": {"type": "text", "baseline": "middle"}, "encoding": words},
    ]


def _heads(columns: Rows, at: Mapping[tuple[str, str], float], cell_width: int) -> list[Spec]:
    """Return the names of columns and of their blocks as text above the cells, aslant where they are long."""
    names = [{"x": x, "column": label(column, longest=24)} for (_, column), x in at.items()]
    widest = text_width([str(one["column"]) for one in names], size=11)
    aslant = widest > cell_width - 4
    blocks = [
        {"x": (at[over, block[0]] + at[over, block[-1]]) / 2, "over": label(over)}
        for over, block in columns.blocks
        if over.strip() and block
    ]
    mark: Spec = {"type": "text", "style": "column", "baseline": "bottom"}
    mark |= {"angle": 325, "align": "left", "dx": 3} if aslant else {"align": "center"}
    x = {"field": "x", "type": "quantitative"}
    layers: list[Spec] = [
        {
            "data": {"values": names},
            "mark": mark,
            "encoding": {"x": x, "y": {"value": -6}, "text": {"field": "column", "type": "nominal"}},
        }
    ]
    if blocks:
        height = -26 - (0.57 * widest - 8 if aslant else 0)
        layers.append(
            {
                "data": {"values": blocks},
                "mark": {"type": "text", "style": "heading", "baseline": "bottom", "align": "center"},
                "encoding": {"x": x, "y": {"value": round(height)}, "text": {"field": "over", "type": "nominal"}},
            }
        )
    return layers
