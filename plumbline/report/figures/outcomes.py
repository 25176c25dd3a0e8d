"""Harm rates by model, and the share of every group that gets a label, each with its Wilson interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import (
    LegendDot,
    Mark,
    attribute_dots,
    attribute_entry,
    cap_of,
    dots_with_intervals,
)
from plumbline.report.figures.palette import FAINT, INK, SLATE
from plumbline.report.figures.panels import panels_figure, percent_scale
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.rows import Row, defined, in_order, or_nan, where
from plumbline.report.vocabulary import event_title, group_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HARM_EVENTS = ("crime", "non_human", "negative_communion", "negative_agency")
VARIANT_SUITES = ("crime_pooled", "pata_captions")


def harm_figure(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the share of all images that get a harmful label, by model (rows) and event (panels)."""
    rows = where(table, metric="harm_rate", dataset=dataset, condition="before")
    rows = rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)))
    if rows.is_empty():
        return None
    events = in_order(rows["event"], HARM_EVENTS)
    names = in_order(rows["model"], models)

    def draw(axes: Axes, index: int) -> None:
        own = where(rows, event=events[index]).to_dicts()
        marks = [_mark(row, names.index(row["model"])) for row in own]
        cap = cap_of(marks, at_most=3)
        percent_scale(axes, cap)
        dots_with_intervals(axes, marks, SLATE, cap=cap)

    return Picture(
        name=f"harm-{dataset}",
        title=f"Harm rates by model, {dataset}",
        description="Each dot is the share of all images whose best label is harmful, with its Wilson interval.",
        figure=panels_figure(
            [event_title(event) for event in events],
            draw,
            rows=names,
            height=10 + 22 * len(names),
            axis="share of all images (each panel has its own scale)",
            above=32,
        ),
    )


def _mark(row: Row, y: float) -> Mark:
    tip = (
        f"{row['model']}, {group_title(row['group']) if row['group'] else event_title(row['event'])}: "
        f"{percent(row['value'], row['n'])} [{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
    return Mark.of(row, y, tip)


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
            axes.axvline(or_nan(everyone), color=FAINT, linewidth=1.4, zorder=0)
        for attribute in dict.fromkeys(a for a, _ in self.lines):
            own = [mark for kind, mark in self.marks[model] if kind == attribute]
            attribute_dots(axes, own, attribute, cap=self.cap, size=6.5)
        for (name, attribute, group), rate in self.planted.items():
            if name == model and (attribute, group) in self.lines:
                y = self.lines.index((attribute, group))
                axes.plot([rate], [y], "|", color=INK, markersize=11, markeredgewidth=2, zorder=2)

    def entries(self) -> list[LegendDot]:
        found = [attribute_entry(attribute) for attribute in dict.fromkeys(a for a, _ in self.lines)]
        found += [LegendDot("planted truth", INK, marker="|")] if self.planted else []
        return found + ([LegendDot("all images", FAINT, marker="|")] if self.everyone else [])


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
    cap = shares.cap

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, cap)
        shares.draw(axes, names[index])

    return Picture(
        name=f"share-{dataset}-{suite}-{event}-{'crossed' if composite else 'single'}",
        title=f"Who gets {event_title(event)}, {dataset}" + (" (crossed groups)" if composite else ""),
        description="Each dot is a group's share with its Wilson interval, one panel a model.",
        figure=panels_figure(
            names,
            draw,
            rows=texts,
            height=10 + 21 * len(texts),
            axis=f"share of the group's images given {event_title(event)}",
            entries=shares.entries(),
            columns=7,
        ),
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
