"""What one design factor changes: differences between checkpoints with intervals, race and gender side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import (
    FAINT,
    INK,
    Picture,
    attribute_colour,
    blank,
    drawing,
    label,
    panel,
    text_width,
    write,
)
from plumbline.report.figures.marks import HOLLOW, Mark, attribute_dots, attribute_entry, legend
from plumbline.report.figures.outcomes import EVENT_ORDER
from plumbline.report.figures.panels import WIDTH, apart, axis_title, number_scale, panel_title, rows_axes
from plumbline.report.numbers import MINUS, number
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title, event_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FACTOR_TITLES = {"size": "model size", "data_amount": "training data", "data_source": "data source"}
_GAP, _ROW, _BETWEEN = 30.0, 30.0, 92.0


def effect_rows(effects: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the plain Max Skew effects of a dataset: default definition, main suites, single attributes."""
    rows = where(effects, metric="max_skew", definition="mean_over_pairs", dataset=dataset)
    attributes = [a for a in rows["attribute"].drop_nulls().unique().to_list() if not is_composite(a)]
    return rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("attribute").is_in(attributes))


def pair_title(row: Row) -> str:
    """Return a pair as the difference that it is, and what it holds: `small − large (3k, atlas)`."""
    held = f" ({row['held']})" if row["held"] else ""
    return f"{row['level_first']} {MINUS} {row['level_second']}{held}"


def effects_figure(effects: pl.DataFrame, reading: Reading, dataset: str) -> Picture | None:
    """Draw the change of Max Skew by pair of checkpoints (rows), event (columns) and factor (blocks).

    Right of the line the first level of the pair is the more biased. The paper's figures 1 and 2 draw second - first;
    this is first - second, the sign of its tables.

    Parameters
    ----------
    effects : DataFrame
        In `plumbline.metrics.paired.factors.EFFECT_SCHEMA`.

    Returns
    -------
    Picture or None
        None where the dataset has no such row.
    """
    rows = effect_rows(effects, dataset)
    if rows.is_empty():
        return None
    events = in_order(rows["event"], EVENT_ORDER)
    attributes = in_order(rows["attribute"], ("race", "gender", "age_group"))
    blocks = [
        _block(factor, where(rows, factor=factor), events, attributes, reading)
        for factor in in_order(rows["factor"], tuple(FACTOR_TITLES))
    ]
    caps = {event: _cap([mark for block in blocks for mark in block.every(event)]) for event in events}
    left = text_width([label(name, longest=40) for block in blocks for name in block.names]) + 18
    width = min(360.0, (WIDTH - left - 16 - _GAP * (len(events) - 1)) / len(events))
    tops = _tops([_ROW * len(block.names) for block in blocks])
    bottom = tops[-1] + _ROW * len(blocks[-1].names)
    with drawing():
        figure = blank(WIDTH, bottom + 48)
        for block, top in zip(blocks, tops):
            write(figure, 0, top - 40, block.title, color=INK, fontsize=12.5, fontweight="bold", va="center")
            for column, event in enumerate(events):
                place = left + column * (width + _GAP)
                axes = panel(figure, place, top, width, _ROW * len(block.names))
                rows_axes(axes, ["" for _ in block.names], shown=False)
                panel_title(axes, event_title(event))
                _changes(axes, block, event, caps[event])
            _names(figure, block.names, top, left)
        legend(figure, [*map(attribute_entry, attributes), HOLLOW], left=left)
        words = "change of max skew (right of the line: the first of the pair is the more biased)"
        axis_title(figure, left, bottom + 36, words)
    return Picture(
        name=f"effects-{dataset}",
        title=f"What one factor changes, {dataset}",
        description="Each dot is the max skew of one checkpoint minus that of another which differs from it in one "
        "factor alone, on the same images, with its paired interval. An arrow marks an interval that goes on beyond "
        "the scale.",
        figure=figure,
    )


@dataclass(frozen=True)
class _Block:
    """The pairs of one factor, and the marks by event and attribute."""

    title: str
    names: tuple[str, ...]
    marks: dict[tuple[str, str], list[Mark]]

    def every(self, event: str) -> list[Mark]:
        return [mark for (of, _), marks in self.marks.items() if of == event for mark in marks]


def _block(factor: str, rows: pl.DataFrame, events: Sequence[str], attributes: list[str], reading: Reading) -> _Block:
    pairs = {(row["first"], row["second"]): pair_title(row) for row in rows.to_dicts()}
    order = list(pairs)
    marks = {
        (event, attribute): [
            _mark(row, order.index((row["first"], row["second"])) + apart(place, len(attributes), 0.34), reading)
            for row in where(rows, event=event, attribute=attribute).to_dicts()
        ]
        for event in events
        for place, attribute in enumerate(attributes)
    }
    return _Block(FACTOR_TITLES.get(factor, factor.replace("_", " ")), tuple(pairs.values()), marks)


def _tops(heights: Sequence[float]) -> list[float]:
    tops = [78.0]
    for height in heights[:-1]:
        tops.append(tops[-1] + height + _BETWEEN)
    return tops


def _cap(marks: Sequence[Mark]) -> float:
    """Return how far a scale reaches to both sides: all intervals, but at most twice the largest change."""
    values = [abs(m.value) for m in marks if math.isfinite(m.value)]
    ends = [abs(end) for m in marks for end in (m.low, m.high) if math.isfinite(end)]
    largest = max(values, default=0.0)
    wanted = max([largest, *ends], default=0.0)
    return max(min(wanted, 2 * largest if largest > 0 else wanted) * 1.05, 1e-3)


def _changes(axes: Axes, block: _Block, event: str, cap: float) -> None:
    number_scale(axes, cap, -cap)
    axes.axvline(0, color=FAINT, linewidth=1.4, zorder=0)
    for (of, attribute), marks in block.marks.items():
        if of != event:
            continue
        beyond = [mark for mark in marks if mark.low < -cap]
        if beyond:
            colour = attribute_colour(attribute)
            places = [mark.y for mark in beyond]
            axes.plot([-cap] * len(beyond), places, "<", color=colour, markersize=4.5, clip_on=False)
        inside = [replace(m, low=max(m.low, -cap)) if math.isfinite(m.low) else m for m in marks]
        attribute_dots(axes, inside, attribute, cap=cap)


def _names(figure: Figure, names: Sequence[str], top: float, left: float) -> None:
    for i, name in enumerate(names):
        place = top + (i + 0.5) * _ROW
        write(figure, left - 10, place, label(name, longest=40), ha="right", va="center", color=INK)


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['first']} {MINUS} {row['second']}, {attribute_title(row['attribute'])}, {event_title(row['event'])}: "
        f"{in_ends(row)}, {number(row['value_first'])} against "
        f"{number(row['value_second'])}, {both_tests(row)}, n = {row['n']}"
    )
    return Mark.of(row, y, tip, filled=evidence(row, reading))
