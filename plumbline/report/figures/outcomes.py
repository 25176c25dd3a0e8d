"""Harm rates by model, and the share of every group that gets a label, each with its Wilson interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.figures.canvas import Picture, blank, drawing, label, text_width
from plumbline.report.figures.marks import (
    Mark,
    as_float,
    attribute_dots,
    attribute_entry,
    axis_title,
    cap_of,
    dots_with_intervals,
    fit_grid,
    legend,
    legend_dot,
    panel_title,
    percent_scale,
    rows_axes,
)
from plumbline.report.figures.palette import FAINT, INK, SLATE
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import event_title, group_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

HARM_EVENTS = ("crime", "non_human", "negative_communion", "negative_agency")
VARIANT_SUITES = ("crime_pooled", "pata_captions")
WIDTH = 960


def harm_figure(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the share of all images that get a harmful label, by model (rows) and event (panels)."""
    rows = where(table, metric="harm_rate", dataset=dataset, condition="before")
    rows = rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)))
    if rows.is_empty():
        return None
    events = in_order(rows["event"], HARM_EVENTS)
    names = in_order(rows["model"], models)
    left = text_width([label(name) for name in names]) + 18
    grid = fit_grid(len(events), width=WIDTH, left=left, top=32, height=10 + 22 * len(names), columns=4)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(events)) + 48)
        for index, event in enumerate(events):
            marks = [_mark(row, names.index(row["model"])) for row in where(rows, event=event).to_dicts()]
            axes, cap = grid.place(figure, index), cap_of(marks, at_most=3)
            rows_axes(axes, names, shown=index % grid.columns == 0)
            percent_scale(axes, cap)
            panel_title(axes, event_title(event))
            dots_with_intervals(axes, marks, SLATE, cap=cap)
        axis_title(
            figure, left, grid.bottom(len(events)) + 36, "share of all images (each panel has its own scale)"
        )
    return Picture(
        name=f"harm-{dataset}",
        title=f"Harm rates by model, {dataset}",
        description="Each dot is the share of all images whose best label is harmful, with its Wilson interval.",
        figure=figure,
    )


def _mark(row: Row, y: float) -> Mark:
    tip = (
        f"{row['model']}, {group_title(row['group']) if row['group'] else event_title(row['event'])}: "
        f"{percent(row['value'], row['n'])} [{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
    return Mark(
        y=y, value=as_float(row["value"]), low=as_float(row["ci_low"]), high=as_float(row["ci_high"]), tip=tip
    )


def proportion_rows(
    table: pl.DataFrame, dataset: str, suite: str, event: str, *, composite: bool
) -> pl.DataFrame:
    """Return the outcome proportions of one event, of single attributes or of composite ones."""
    rows = where(
        table, metric="outcome_proportion", dataset=dataset, suite=suite, event=event, condition="before"
    ).drop_nulls(["attribute", "group"])
    attributes = [a for a in rows["attribute"].unique().to_list() if is_composite(a) is composite]
    return rows.filter(pl.col("attribute").is_in(attributes))


@dataclass(frozen=True)
class _Shares:
    """What the panels of one event show: lines of (attribute, group), marks and rates by model."""

    lines: list[tuple[str, str]]
    marks: dict[str, list[tuple[str, Mark]]]
    everyone: dict[str, float | None]
    planted: dict[tuple[str, str, str], float]

    @property
    def cap(self) -> float:
        every = [mark for own in self.marks.values() for _, mark in own]
        return max(cap_of(every, at_most=3), 1.05 * max(self.planted.values(), default=0.0))

    def draw(self, axes: Axes, model: str) -> None:
        if defined(everyone := self.everyone.get(model)):
            axes.axvline(as_float(everyone), color=FAINT, linewidth=1.4, zorder=0)
        for attribute in dict.fromkeys(a for a, _ in self.lines):
            own = [mark for kind, mark in self.marks[model] if kind == attribute]
            attribute_dots(axes, own, attribute, cap=self.cap, size=6.5)
        for (name, attribute, group), rate in self.planted.items():
            if name == model and (attribute, group) in self.lines:
                y = self.lines.index((attribute, group))
                axes.plot([rate], [y], "|", color=INK, markersize=11, markeredgewidth=2, zorder=2)

    def entries(self) -> list[Line2D]:
        found = [attribute_entry(attribute) for attribute in dict.fromkeys(a for a, _ in self.lines)]
        found += [legend_dot("planted truth", INK, marker="|")] if self.planted else []
        return found + ([legend_dot("all images", FAINT, marker="|")] if self.everyone else [])


def _shares(rows: pl.DataFrame, table: pl.DataFrame, planted: pl.DataFrame | None, **event: str) -> _Shares:
    lines = _lines(rows)
    marks: dict[str, list[tuple[str, Mark]]] = {}
    for row in rows.to_dicts():
        mark = _mark(row, lines.index((row["attribute"], row["group"])))
        marks.setdefault(row["model"], []).append((row["attribute"], mark))
    overall = where(table, metric="harm_rate", condition="before", **event).to_dicts()
    everyone = {row["model"]: row["value"] for row in overall}
    return _Shares(lines=lines, marks=marks, everyone=everyone, planted=_planted(planted, **event))


def proportions_figure(
    table: pl.DataFrame,
    planted: pl.DataFrame | None,
    models: tuple[str, ...],
    *,
    dataset: str,
    suite: str,
    event: str,
    composite: bool = False,
) -> Picture | None:
    """Draw the share of each group (rows) that gets the label, one panel a model; planted rates where known.

    Groups stand in the order of their mean share, so the group that suffers most is on top.
    """
    rows = proportion_rows(table, dataset, suite, event, composite=composite)
    if rows.is_empty():
        return None
    shares = _shares(rows, table, planted, dataset=dataset, suite=suite, event=event)
    names, texts = in_order(rows["model"], models), [group_title(group) for _, group in shares.lines]
    left, cap = text_width([label(text) for text in texts]) + 18, shares.cap
    grid = fit_grid(len(names), width=WIDTH, left=left, top=52, height=10 + 21 * len(texts))
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(names)) + 48)
        for index, name in enumerate(names):
            axes = grid.place(figure, index)
            rows_axes(axes, texts, shown=index % grid.columns == 0)
            percent_scale(axes, cap)
            panel_title(axes, name)
            shares.draw(axes, name)
        legend(figure, shares.entries(), left=left)
        words = f"share of the group's images given {event_title(event)}"
        axis_title(figure, left, grid.bottom(len(names)) + 36, words)
    return Picture(
        name=f"share-{dataset}-{suite}-{event}-{'crossed' if composite else 'single'}",
        title=f"Who gets {event_title(event)}, {dataset}" + (" (crossed groups)" if composite else ""),
        description="Each dot is a group's share with its Wilson interval, one panel a model.",
        figure=figure,
    )


def _lines(rows: pl.DataFrame) -> list[tuple[str, str]]:
    means = rows.group_by("attribute", "group").agg(pl.col("value").fill_nan(None).mean().alias("mean"))
    ordered = means.sort(["mean", "group"], descending=[True, False], nulls_last=True)
    attributes = in_order(rows["attribute"], ("race", "gender", "age_group"))
    return [(a, group) for a in attributes for group in where(ordered, attribute=a)["group"].to_list()]


def _planted(
    planted: pl.DataFrame | None, *, dataset: str, suite: str, event: str
) -> dict[tuple[str, str, str], float]:
    if planted is None:
        return {}
    rows = where(planted, dataset=dataset, suite=suite, event=event).drop_nulls("planted")
    return {(row["model"], row["attribute"], row["group"]): float(row["planted"]) for row in rows.to_dicts()}
