"""What the datasets' labels are like: their balance against the declared range, and errors of the automatic ones."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.figures.canvas import (
    BLUE,
    FAINT,
    INK,
    VERMILION,
    Picture,
    blank,
    drawing,
    label,
    panel,
    text_width,
)
from plumbline.report.figures.marks import LegendDot, Mark, attribute_dots, cap_of, legend
from plumbline.report.figures.panels import WIDTH, axis_title, panel_title, percent_scale, rows_axes
from plumbline.report.inputs import DatasetSummary
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.rows import Row, defined, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

OVERALL = "overall"
_ROW, _GAP = 22, 66


def _stacked(heights: list[int], columns: int) -> tuple[list[tuple[int, float]], float]:
    """Return (column, top) of each panel, filled into the shortest column, and the pixel at which all end."""
    ends = [34.0] * columns
    places = []
    for height in heights:
        column = ends.index(min(ends))
        places.append((column, ends[column]))
        ends[column] += height + _GAP
    return places, max(ends) - _GAP


def balance_figure(dataset: DatasetSummary) -> Picture | None:
    """Draw each label's share as a bar with the range that the audit declares for it; bars outside it stand out."""
    shares = dataset.label_shares
    if shares.is_empty():
        return None
    blocks = [(a, where(shares, attribute=a).to_dicts()) for a in in_order(shares["attribute"], ("race", "gender"))]
    texts = [label(group_title(row["label"])) for _, rows in blocks for row in rows]
    left = text_width(texts) + 18
    columns = min(2, len(blocks))
    each = (WIDTH - columns * left - 12) / columns
    places, end = _stacked([_ROW * len(rows) for _, rows in blocks], columns)
    with drawing():
        figure = blank(WIDTH, end + 54)
        for (attribute, rows), (column, top) in zip(blocks, places):
            axes = panel(figure, left + column * (each + left), top + 22, each, _ROW * len(rows))
            rows_axes(axes, [group_title(row["label"]) for row in rows], shown=True)
            panel_title(axes, attribute_title(attribute))
            percent_scale(axes, 1.05 * _largest(rows))
            _bars(axes, rows)
        entries = [
            LegendDot("share, as declared", BLUE, marker="s"),
            LegendDot("share, outside the declared range", VERMILION, marker="s"),
            LegendDot("ends of the declared range", INK, marker="|"),
        ]
        legend(figure, entries, left=left)
    return Picture(
        name=f"balance-{dataset.id}",
        title=f"Label balance, {dataset.id}",
        description="Each bar is the share of accepted images with a label; the two strokes end its declared range.",
        figure=figure,
    )


def is_outside(row: Row) -> bool:
    """Return whether a label's share lies outside its declared range; an undefined share does not."""
    low, high = row["expected_low"], row["expected_high"]
    if not defined(row["share"]):
        return False
    return (defined(low) and row["share"] < low) or (defined(high) and row["share"] > high)


def _largest(rows: list[Row]) -> float:
    ends = [row[name] for row in rows for name in ("share", "expected_high") if defined(row[name])]
    # Where no image was accepted and no range declared there is nothing to scale to: the whole.
    return max(ends, default=0.0) or 1.0


def _bars(axes, rows: list[Row]) -> None:  # type: ignore[no-untyped-def]
    for y, row in enumerate(rows):
        colour = VERMILION if is_outside(row) else BLUE
        axes.barh(y, or_nan(row["share"]), height=0.74, color=colour, zorder=2)
        ends = [row[name] for name in ("expected_low", "expected_high") if defined(row[name])]
        axes.plot(ends, [y] * len(ends), "|", color=INK, markersize=17, markeredgewidth=1.6, zorder=3, clip_on=False)
        inside = {"ha": "left", "va": "center_baseline", "fontsize": 11, "color": "white", "zorder": 4}
        axes.annotate(percent(row["share"]), (0, y), (6, 0), textcoords="offset points", **inside)


def label_error_figure(dataset: DatasetSummary) -> Picture | None:
    """Draw the error rate of the automatic gender labels by group, with intervals; the line is the overall rate."""
    errors = dataset.label_errors
    if errors.is_empty():
        return None
    names = [name for name in in_order(errors["group_by"], ("race", "gender")) if name != OVERALL]
    blocks = [(name, where(errors, group_by=name).to_dicts()) for name in names]
    if not blocks:
        return None
    texts = [label(group_title(row["group"])) for _, rows in blocks for row in rows]
    left, columns = text_width(texts) + 14, min(2, len(blocks))
    each = (WIDTH - columns * left - 12) / columns
    places, end = _stacked([_ROW * len(rows) for _, rows in blocks], columns)
    marks = {name: [_error_mark(row, y) for y, row in enumerate(rows)] for name, rows in blocks}
    cap = cap_of([mark for group in marks.values() for mark in group], at_most=4)
    overall = _overall_rate(errors)
    with drawing():
        figure = blank(WIDTH, end + 40)
        for (name, rows), (column, top) in zip(blocks, places):
            axes = panel(figure, left + column * (each + left), top - 8, each, _ROW * len(rows))
            rows_axes(axes, [group_title(row["group"]) for row in rows], shown=True)
            percent_scale(axes, cap)
            panel_title(axes, attribute_title(name))
            if defined(overall):
                axes.axvline(overall, color=FAINT, linewidth=1.4, zorder=0)
            attribute_dots(axes, marks[name], name, cap=cap)
        axis_title(figure, left, end + 28, "share of images whose automatic gender label is wrong (line: all images)")
    return Picture(
        name=f"label-error-{dataset.id}",
        title=f"Automatic-label error by group, {dataset.id}",
        description="Each dot is the share of a group's images with a wrong automatic gender label, with its interval.",
        figure=figure,
    )


def _overall_rate(errors: pl.DataFrame) -> float:
    """Return the error rate over all images: the row `overall`, else the grouping that covers most images."""
    counts = errors.group_by("group_by").agg(pl.col("errors").sum(), pl.col("n").sum())
    counts = counts.sort(pl.col("group_by") == OVERALL, "n", "group_by", descending=[True, True, False])
    wrong, images = counts["errors"][0], counts["n"][0]
    return float(wrong / images) if images else math.nan


def _error_mark(row: Row, y: int) -> Mark:
    tip = (
        f"{group_title(row['group'])}: {row['errors']} of {row['n']} wrong, {percent(row['rate'])} "
        f"[{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
    return Mark(y=y, value=or_nan(row["rate"]), low=or_nan(row["ci_low"]), high=or_nan(row["ci_high"]), tip=tip)
