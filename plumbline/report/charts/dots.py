"""Dots with intervals in rows, panels side by side: how nearly every number of the report is drawn.

A dot is filled where there is evidence of a difference, hollow where there is none, hollow with a bar where there is
evidence of none beyond the margin; filled too where nothing was tested. Colour only tells series apart, with a shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from plumbline.metrics.evidence import State, state
from plumbline.report.charts.chart import (
    ATTRIBUTE_COLOURS,
    ATTRIBUTE_SHAPES,
    BLUE,
    DOWN,
    PAPER,
    SLATE,
    WIDTH,
    Chart,
    Spec,
    label,
    text_width,
    top_level,
)
from plumbline.report.evidence import excludes_parity, name_of
from plumbline.report.numbers import UNDEFINED, bare_p, count, interval, money, number, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, or_nan
from plumbline.report.vocabulary import attribute_title

Unit = Literal["number", "share", "money"]

ROW = 20
COLUMN_OF: dict[State | None, str] = {
    "evidence": "filled",
    None: "filled",
    "no_evidence": "hollow",
    "evidence_of_none": "barred",
}
"""In which column of a chart's data the value of a dot stands, by what it is evidence of."""
KEYS = {
    "filled": "filled: evidence of a difference by q",
    "hollow": "hollow: no evidence by q, whatever the interval",
    "barred": "with a bar: evidence of no difference beyond the margin",
}
_FORMATS = {"number": "~g", "share": "~%", "money": "$~s"}
EXTREME = 2.5
"""How many times as far from 0 as all other values one lies that a scale may leave out."""
_BAR = "M0,-1.2L0,1.2"


@dataclass(frozen=True)
class Series:
    """Dots of one colour and shape; shapes are Vega's (`circle`, `square`, …) or `DIAMOND`, `UP`, `DOWN`."""

    name: str
    colour: str = BLUE
    shape: str = "circle"

    @classmethod
    def of_attribute(cls, attribute: str) -> Series:
        """Return an attribute in the colour and shape that it keeps through the whole report."""
        return cls(
            attribute_title(attribute), ATTRIBUTE_COLOURS.get(attribute, SLATE), ATTRIBUTE_SHAPES.get(attribute, DOWN)
        )


@dataclass(frozen=True)
class Rows:
    """Names of rows in blocks, from the top; a block without a heading has an empty one.

    Attributes
    ----------
    blocks : tuple of (str, tuple of str)
        Heading and the names of its rows.
    longest : int
        Characters of a name that are written.
    """

    blocks: tuple[tuple[str, tuple[str, ...]], ...]
    longest: int = 34

    @classmethod
    def plain(cls, names: Iterable[str]) -> Rows:
        """Return rows without headings."""
        return cls((("", tuple(names)),))

    @property
    def lines(self) -> list[tuple[str, str | None]]:
        """Return (heading, name) of each line of the chart; name is None for the line of a heading."""
        lines: list[tuple[str, str | None]] = []
        for heading, names in self.blocks:
            lines += [(heading, None)] if heading else []
            lines += [(heading, name) for name in names]
        return lines

    @property
    def texts(self) -> list[str]:
        """Return what is written beside each line."""
        return [label(heading if name is None else name, longest=self.longest) for heading, name in self.lines]

    @property
    def width(self) -> float:
        """Return about how many pixels the names take."""
        return text_width(self.texts)


@dataclass(frozen=True, kw_only=True)
class Dot:
    """An estimate at its place, and what its tip says.

    Attributes
    ----------
    row, heading, panel, series : str
        Names of its row, of the block that the row is in, of its panel and of its series; empty where there is one.
    value, low, high : float
        NaN where undefined.
    state : {"evidence", "no_evidence", "evidence_of_none"} or None
        None where nothing was tested.
    second : float, optional
        A second reading of the same, drawn as an upright stroke: the planted truth, the value before.
    span : (float, float), optional
        A range drawn as a pale band behind it, such as the one that an audit file declares.
    words : str
        What is written where the value is undefined.
    tip : mapping of str to str
        Shown when a reader points at it: title -> text.
    """

    row: str
    value: float
    low: float = math.nan
    high: float = math.nan
    heading: str = ""
    panel: str = ""
    series: str = ""
    state: State | None = None
    second: float | None = None
    span: tuple[float, float] | None = None
    words: str = UNDEFINED
    tip: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, source: Row, what: str, *, row: str, reading: Reading | None = None, unit: Unit = "number", **place: Any
    ) -> Dot:
        """Return the estimate of a row of a table: value, interval, evidence, and a tip with n, q and its row's id.

        Parameters
        ----------
        what : str
            What it is an estimate of, for the tip: model, event, group.
        row : str
            Name of its row of the chart.
        reading : Reading, optional
            What counts as evidence; without it nothing was tested.
        place
            The other attributes.
        """
        value, low, high = (or_nan(source[name]) for name in ("value", "ci_low", "ci_high"))
        evidence = state(source, significance=reading.significance) if reading else None
        tip = tip_of(source, what, unit=unit)
        if evidence == "no_evidence" and (why := excludes_parity(source).strip()):
            tip["although"] = why
        return cls(row=row, value=value, low=low, high=high, state=evidence, tip=tip, **place)

    def saying(self, **more: str) -> Dot:
        """Return the dot with more in its tip."""
        return replace(self, tip={**self.tip, **more})


def tip_of(source: Row, what: str, *, unit: Unit = "number") -> dict[str, str]:
    """Return the tip of a row of a table: what, value, interval, q (else p), n and the id for `plumbline explain`."""
    tip = {"of": what, "value": written(source["value"], unit)}
    ends = percent_interval if unit == "share" else interval
    tip["interval"] = ends(source["ci_low"], source["ci_high"])
    for name in ("q", "p"):
        if source.get(name) is not None and not math.isnan(source[name]):
            tip[name] = bare_p(source[name])
            break
    if source.get("n") is not None:
        tip["n"] = count(source["n"])
    if source.get("reason"):
        tip["note"] = label(source["reason"], longest=160)
    if row := name_of(source):
        tip["row"] = row
    return tip


def written(value: float | None, unit: Unit) -> str:
    """Return a value in its unit."""
    if unit == "share":
        return percent(value)
    return money(value) if unit == "money" else number(value)


def apart(place: int, of: int) -> float:
    """Return how far a dot stands off the middle of its row, where `of` series stand there side by side."""
    return (place - (of - 1) / 2) * min(0.34, 0.74 / of)


def ends_of(
    dots: Iterable[Dot], *, zero: bool = True, also: Iterable[float | None] = (), reach: float = 1.0
) -> tuple[float, float]:
    """Return the ends of a scale: all values, and their intervals unless they dwarf the values.

    Parameters
    ----------
    zero : bool
        Whether 0 is on it.
    also : iterable of float or None
        Values that are on it too.
    reach : float
        How far intervals may go on beyond the values, in lengths of the values' own range.
    """
    dots = list(dots)
    on_it = [v for one in dots for v in (one.value, one.second, *(one.span or ())) if v is not None]
    values = [v for v in (*on_it, *also, *([0.0] if zero else [])) if v is not None and math.isfinite(v)] or [0.0]
    least, most = min(values), max(values)
    widths = sorted(d.high - d.low for d in dots if math.isfinite(d.low) and math.isfinite(d.high))
    # Where all values are alike, the intervals alone say how far it is worth to look.
    typical = widths[(len(widths) - 1) // 2] if widths else 0.0
    far = reach * max(most - least, typical) or 0.1 * abs(most) or 0.1
    low = max(min([least, *(d.low for d in dots if math.isfinite(d.low))]), least - far)
    high = min(max([most, *(d.high for d in dots if math.isfinite(d.high))]), most + far)
    room = 0.05 * (high - low) or 0.05
    return (low if low == 0 else low - room), (high if high == 0 > low else high + room)


def dots(
    name: str,
    title: str,
    description: str,
    *,
    marks: Iterable[Dot],
    rows: Rows,
    panels: Sequence[str] = ("",),
    series: Sequence[Series] = (Series(""),),
    unit: Unit = "number",
    axis: str = "",
    line: float | Mapping[str, float | None] | None = None,
    band: tuple[float, float] | None = None,
    zero: bool = True,
    own_scales: bool = False,
    overlaid: bool = False,
    columns: int = 4,
    extremes: bool = True,
) -> Chart | None:
    """Draw dots with intervals, rows shared by panels side by side; None without a dot.

    Parameters
    ----------
    marks : iterable of Dot
        Those whose row, panel or series is not among the given ones are left out.
    panels : sequence of str
        Titles, in their order.
    axis : str
        What the scales measure, and what lines, strokes and bands mean; it may have several lines.
    line : float or mapping of panel to float, optional
        Where an upright line stands: no difference, or the value of all images.
    band : (float, float), optional
        A pale band through all panels, such as what counts as no difference.
    zero : bool
        Whether 0 is on every scale.
    own_scales : bool
        Whether each panel has a scale of its own.
    overlaid : bool
        Whether series share the middle of their row, where each row has a dot of one of them alone; else they stand
        side by side.
    columns : int
        Panels side by side at most.
    extremes : bool
        Whether every value is on its scale. Else one that lies `EXTREME` times as far from 0 as all others is an arrow
        at the end, with its number, so that the others can be told apart.
    """
    lines, order = rows.lines, [one.name for one in series]
    places = {line: index for index, line in enumerate(lines)}
    shown = [
        one
        for one in marks
        if (one.heading, one.row) in places and one.panel in panels and one.series in order
    ]  # fmt: skip
    if not shown:
        return None
    upright = {panel: line.get(panel) if isinstance(line, Mapping) else line for panel in panels}
    ordinary = shown if extremes else without_extremes(shown)
    ends = _ends(ordinary, panels, upright, zero=zero, own_scales=own_scales, band=band)
    data: list[Spec] = []
    for number_, panel in enumerate(panels):
        low, high = ends[panel]
        data.append({"panel": number_, "end": _short(low)})
        data.append({"panel": number_, "end": _short(high)})
        if upright[panel] is not None and math.isfinite(upright[panel]):  # type: ignore[arg-type]
            data.append({"panel": number_, "line": _short(upright[panel])})
    for one in shown:
        shift = 0.0 if overlaid else apart(order.index(one.series), len(order))
        place = {"panel": panels.index(one.panel), "y": _short(places[one.heading, one.row] + shift)}
        beyond = "" if extremes else written(one.value, unit)
        data.append(
            place | _record(one, ends[one.panel], upright[one.panel], with_series=len(order) > 1, beyond=beyond)
        )
    width, used = _panel_width(len(panels), rows.width, columns)
    scale: Spec = {"nice": False, "zero": False}
    if not own_scales:
        scale["domain"] = [_short(end) for end in ends[panels[0]]]
    per_row = ROW if overlaid or len(order) < 2 else min(40, 9 * len(order) + 6)
    layers = _layers(
        data, series, scale, unit=unit, width=width, band=band, count_of_lines=len(lines), tips=_tips_of(shown)
    )  # fmt: skip
    header: Spec = {"labelExpr": "panels[datum.value]", "labelAnchor": "start", "labelOrient": "top"}
    if not any(panels):
        header |= {"labelFontSize": 1, "labelPadding": 0}
    body: Spec = {
        "data": {"values": data},
        "facet": {"field": "panel", "type": "ordinal", "title": None, "header": header},
        "columns": used,
        "spacing": {"row": 22, "column": 26},
        "resolve": {"axis": {"x": "independent"}, "scale": {"x": "independent" if own_scales else "shared"}},
        "spec": {"width": width, "height": per_row * len(lines), "layer": layers},
    }
    if foot := [text for text in (*axis.split("\n"), _key(shown)) if text]:
        body["title"] = {"text": [label(text, longest=200) for text in foot], "orient": "bottom"}
    titles = [label(text, longest=max(12, int(width / 6))) for text in panels]
    headings = [text is None for _, text in lines]
    return Chart(
        name, title, description, top_level(body, rows=rows.texts, headings=headings, panels=titles, paper=PAPER)
    )


def without_extremes(shown: Sequence[Dot]) -> list[Dot]:
    """Return the dots but those, one in ten at most, whose values lie `EXTREME` times as far from 0 as all others."""
    ranked = sorted(shown, key=lambda one: abs(one.value) if math.isfinite(one.value) else 0.0)
    for _ in range(len(ranked) // 10):
        if abs(ranked[-1].value) <= EXTREME * abs(ranked[-2].value):
            break
        ranked.pop()
    return ranked


def _ends(
    shown: Sequence[Dot],
    panels: Sequence[str],
    upright: Mapping[str, float | None],
    *,
    zero: bool,
    own_scales: bool,
    band: tuple[float, float] | None,
) -> dict[str, tuple[float, float]]:
    if own_scales:
        return {
            panel: ends_of((d for d in shown if d.panel == panel), zero=zero, also=(upright[panel], *(band or ())))
            for panel in panels
        }
    return dict.fromkeys(panels, ends_of(shown, zero=zero, also=(*upright.values(), *(band or ()))))


def _record(one: Dot, ends: tuple[float, float], line: float | None, *, with_series: bool, beyond: str) -> Spec:
    """Return what is drawn of a dot: each reading in a column of its own, and none where it is not drawn."""
    low, high = ends
    record: Spec = {"series": label(one.series)} if with_series else {}
    if one.span is not None:
        record |= {"from": _short(max(one.span[0], low)), "to": _short(min(one.span[1], high))}
    if one.second is not None and low <= one.second <= high:
        record["second"] = _short(one.second)
    if math.isnan(one.value):
        # Words begin right of a line that would cross them.
        crossed = line is not None and low < line < low + 0.45 * (high - low)
        record |= {"at": _short(line if crossed else low), "words": label(one.words)}
    elif low <= one.value <= high:
        record[COLUMN_OF[one.state]] = _short(one.value)
    if not math.isnan(one.low) and not math.isnan(one.high) and one.low <= high and one.high >= low:
        record |= {"low": _short(max(one.low, low)), "high": _short(min(one.high, high))}
    if one.high > high or one.value > high:
        record["over"] = _short(high)
    if one.low < low or one.value < low:
        record["under"] = _short(low)
    if beyond and not low <= one.value <= high and not math.isnan(one.value):
        record |= {"past" if one.value > high else "short": _short(high if one.value > high else low), "beyond": beyond}
    return record | {title: label(text, longest=200) for title, text in one.tip.items()}


def _short(value: float | None) -> float | int:
    """Return a number with six digits, which no pixel shows."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _tips_of(shown: Sequence[Dot]) -> list[Spec]:
    titles = dict.fromkeys(title for one in shown for title in one.tip)
    return [{"field": title, "type": "nominal", "title": title} for title in titles]


def _key(shown: Sequence[Dot]) -> str:
    """Return what fill means, where something was tested: of what is there."""
    if not any(one.state for one in shown):
        return ""
    used = {COLUMN_OF[one.state] for one in shown if not math.isnan(one.value)}
    return "; ".join(words for column, words in KEYS.items() if column in used)


def _panel_width(panels: int, beside: float, columns: int) -> tuple[int, int]:
    """Return the width of a panel, and how many stand side by side; one alone stays narrow enough to read."""
    used = max(1, min(panels, columns))
    each = (WIDTH - beside - 24 - 26 * (used - 1)) / used
    return int(max(60, min(each, 520 if used == 1 else 360))), used


def _layers(
    data: Sequence[Spec],
    series: Sequence[Series],
    scale: Spec,
    *,
    unit: Unit,
    width: int,
    band: tuple[float, float] | None,
    count_of_lines: int,
    tips: list[Spec],
) -> list[Spec]:
    used = set().union(*data)
    x_axis = {"format": _FORMATS[unit], "tickCount": max(3, min(6, width // 55)), "grid": False, "labelOverlap": True}
    y = {
        "field": "y",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [-0.5, count_of_lines - 0.5], "reverse": True, "nice": False, "zero": False},
        "axis": {
            "values": list(range(count_of_lines)),
            "labelExpr": "rows[datum.value]",
            "labelLimit": 420,
            "gridOpacity": {"condition": {"test": "headings[datum.value]", "value": 0}, "value": 1},
            "labelFontWeight": {"condition": {"test": "headings[datum.value]", "value": "bold"}, "value": "normal"},
        },
    }

    def x(column: str) -> Spec:
        return {"field": column, "type": "quantitative", "title": None, "axis": x_axis, "scale": scale}

    encoding: Spec = {"color": {"value": series[0].colour}}
    shape: Spec = {"shape": {"value": series[0].shape}}
    if len(series) > 1:
        names = [label(one.name) for one in series]
        shared = {"field": "series", "type": "nominal", "title": None, "legend": {"orient": "top"}}
        encoding = {"color": shared | {"scale": {"domain": names, "range": [one.colour for one in series]}}}
        shape = {"shape": shared | {"scale": {"domain": names, "range": [one.shape for one in series]}}}
    words, beyond = ({"field": name, "type": "nominal"} for name in ("words", "beyond"))
    point = {"y": y, **encoding, **shape, "tooltip": tips}
    arrow = {"y": y, **encoding, "tooltip": tips}
    layers: list[tuple[str, Spec, Spec]] = [
        ("end", {"type": "point", "opacity": 0, "size": 0}, {}),
        ("from", {"type": "rule", "style": "band", "strokeWidth": 12}, {"x2": {"field": "to"}, "y": y}),
        ("line", {"type": "rule", "style": "line"}, {}),
        ("low", {"type": "rule"}, {"x2": {"field": "high"}, "y": y, **encoding}),
        ("over", {"type": "point", "filled": True, "shape": "triangle-right", "size": 34}, arrow),
        ("under", {"type": "point", "filled": True, "shape": "triangle-left", "size": 34}, arrow),
        ("second", {"type": "point", "style": "second", "shape": _BAR}, {"y": y}),
        ("filled", {"type": "point", "filled": True}, point),
        ("hollow", {"type": "point", "filled": False, "fill": {"expr": "paper"}}, point),
        ("barred", {"type": "point", "filled": False, "fill": {"expr": "paper"}}, point),
        ("barred", {"type": "point", "shape": _BAR}, {"y": y, **encoding}),
        ("at", {"type": "text", "style": "said"}, {"y": y, "text": words, "tooltip": tips}),
        ("past", {"type": "text", "align": "right", "dx": -7, "dy": -7}, {"y": y, "text": beyond, **encoding}),
        ("short", {"type": "text", "align": "left", "dx": 7, "dy": -7}, {"y": y, "text": beyond, **encoding}),
    ]
    drawn = [{"mark": mark, "encoding": {"x": x(column)} | rest} for column, mark, rest in layers if column in used]
    if band is not None:
        ends = {"x": {"datum": _short(band[0])}, "x2": {"datum": _short(band[1])}}
        drawn.insert(0, {"data": {"values": [{}]}, "mark": {"type": "rect", "style": "band"}, "encoding": ends})
    return drawn
