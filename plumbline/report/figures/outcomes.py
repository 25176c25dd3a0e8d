"""Harm rates by model, and the share of every group that gets a label, each with its Wilson interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    PURPLE,
    SEQUENTIAL,
    SLATE,
    SOFT,
    VERMILION,
    Picture,
    blank,
    drawing,
    label,
    panel,
    text_width,
)
from plumbline.report.figures.marks import (
    HOLLOW,
    LegendDot,
    Mark,
    attribute_dots,
    attribute_entry,
    cap_of,
    dots_with_intervals,
)
from plumbline.report.figures.panels import apart, number_scale, panels_figure, percent_scale, rows_axes
from plumbline.report.numbers import percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, event_title, group_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HARM_EVENTS = ("crime", "non_human", "negative_communion", "negative_agency")


def harm_figure(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the share of all images that get a harmful label, by model (rows) and event (panels)."""
    rows = where(table, metric="harm_rate", dataset=dataset, condition="before")
    rows = rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)))
    if rows.is_empty():
        return None
    events = in_order(rows["event"], HARM_EVENTS)
    names = in_order(rows["model"], models)

    def draw(axes: Axes, index: int) -> None:
        of_event = where(rows, event=events[index]).to_dicts()
        marks = [_mark(row, names.index(row["model"])) for row in of_event]
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


def proportion_rows(table: pl.DataFrame, dataset: str, suite: str, event: str, *, composite: bool) -> pl.DataFrame:
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
        every = [mark for each_marks in self.marks.values() for _, mark in each_marks]
        return max(cap_of(every, at_most=3), 1.05 * max(self.planted.values(), default=0.0))

    def draw(self, axes: Axes, model: str) -> None:
        if defined(everyone := self.everyone.get(model)):
            axes.axvline(or_nan(everyone), color=FAINT, linewidth=1.4, zorder=0)
        for attribute in dict.fromkeys(a for a, _ in self.lines):
            each_marks = [mark for kind, mark in self.marks[model] if kind == attribute]
            attribute_dots(axes, each_marks, attribute, cap=self.cap, size=6.5)
        for (name, attribute, group), rate in self.planted.items():
            if name == model and (attribute, group) in self.lines:
                y = self.lines.index((attribute, group))
                axes.plot([rate], [y], "|", color=INK, markersize=11, markeredgewidth=2, zorder=2)

    def entries(self) -> list[LegendDot]:
        entries = [attribute_entry(attribute) for attribute in dict.fromkeys(a for a, _ in self.lines)]
        entries += [LegendDot("planted truth", INK, marker="|")] if self.planted else []
        return entries + ([LegendDot("all images", FAINT, marker="|")] if self.everyone else [])


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


# --- Max Skew of every model and event with its interval, race and gender side by side.

EVENT_ORDER = ("crime", "negative_communion", "negative_agency", "mean_of_tasks")


def skew_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the plain-audit Max Skew rows of a dataset: default definition, main suites, single attributes."""
    rows = where(table, metric="max_skew", definition="mean_over_pairs", dataset=dataset, condition="before")
    attributes = [a for a in rows["attribute"].drop_nulls().unique().to_list() if not is_composite(a)]
    return rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("attribute").is_in(attributes))


def skew_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw Max Skew by model (rows) and event (panels); None where the dataset has no such row."""
    rows = skew_rows(table, dataset)
    if rows.is_empty():
        return None
    events = in_order(rows["event"], EVENT_ORDER)
    names = in_order(rows["model"], models)
    attributes = in_order(rows["attribute"], ("race", "gender", "age_group"))
    marks = {
        (event, attribute): [
            _skew_mark(row, names.index(row["model"]) + apart(place, len(attributes), 0.34), reading)
            for row in where(rows, event=event, attribute=attribute).to_dicts()
        ]
        for event in events
        for place, attribute in enumerate(attributes)
    }
    cap = cap_of([mark for group in marks.values() for mark in group])

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, cap)
        for attribute in attributes:
            attribute_dots(axes, marks[events[index], attribute], attribute, cap=cap)

    return Picture(
        name=f"skew-{dataset}",
        title=f"Max skew by model and event, {dataset}",
        description="Each dot is the mean relative gap over pairs of groups, with its interval. "
        "An arrow marks an interval that goes on beyond the scale.",
        figure=panels_figure(
            [event_title(event) for event in events],
            draw,
            rows=names,
            height=12 + 27 * len(names),
            axis="max skew (0: all groups get the label equally often)",
            entries=[*map(attribute_entry, attributes), HOLLOW],
        ),
    )


def _skew_mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {attribute_title(row['attribute'])}, {event_title(row['event'])}: "
        f"{in_ends(row)}, {both_tests(row)}, n = {row['n']}"
    )
    return Mark.of(row, y, tip, filled=evidence(row, reading))


# --- Captions by scene: a heat map of how often each group of a scene is given a negative caption.

SUITE = "pata_captions"
ATTRIBUTES = ("race", "gender", "age")
EVERYONE = "everyone"
_ROW, _COLUMN, _APART = 21, 92, 14


def caption_event(attribute: str) -> str:
    """Return the event of an attribute's negative captions."""
    return f"negative_{attribute}_caption"


def heat_figure(table: pl.DataFrame, reading: Reading, *, model: str, dataset: str, attribute: str) -> Picture | None:
    """Draw scenes (rows) by groups (columns), the scene's share over everyone on the right; None without rows.

    Scenes stand in the order of their share, so the one in which most are given a negative caption is on top.
    """
    chosen = where(
        table,
        metric="outcome_proportion",
        model=model,
        dataset=dataset,
        suite=SUITE,
        event=caption_event(attribute),
        condition="before",
    )
    everyone = by(where(chosen, attribute="scene"), "group")
    cells = by(where(chosen, attribute=attribute).drop_nulls("probe"), "probe", "group")
    if not cells:
        return None
    scenes = sorted((scene for (scene,) in everyone), key=lambda s: (-(everyone[s,]["value"] or 0), s))
    groups = in_order(where(chosen, attribute=attribute)["group"], ())
    texts = [group_title(scene) for scene in scenes]
    left = text_width([label(text) for text in texts]) + 18
    width = _COLUMN * (len(groups) + 1) + _APART
    with drawing():
        figure = blank(max(left + width + 8, 420), 34 + _ROW * len(scenes) + 10)
        axes = panel(figure, left, 30, width, _ROW * len(scenes))
        rows_axes(axes, texts, shown=True)
        axes.set_xlim(0, width)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        columns = [(name, {s: cells.get((s, name)) for s in scenes}) for name in groups]
        columns.append((EVERYONE, {s: everyone.get((s,)) for s in scenes}))
        for index, (name, rows) in enumerate(columns):
            start = index * _COLUMN + (_APART if name == EVERYONE else 0)
            axes.text(
                start + _COLUMN / 2, -0.75, label(group_title(name), longest=13), ha="center", color=SOFT, fontsize=11
            )
            _column(axes, start, [rows[scene] for scene in scenes], reading)
    return Picture(
        name=f"captions-{attribute}-{model}-{dataset}",
        title=f"Negative captions by scene and {attribute_title(attribute)}, {model} on {dataset}",
        description="Each number is the percentage of a group's images in a scene whose best caption, of those that "
        "PATA gives for the scene, is a negative one. In brackets: groups with fewer than "
        f"{reading.minimum_group} images. Scenes have captions of their own: compare along a row.",
        figure=figure,
    )


def _column(axes: Axes, start: float, rows: list[Any], reading: Reading) -> None:
    import matplotlib
    from matplotlib.collections import PolyCollection

    scale = matplotlib.colormaps[SEQUENTIAL]
    known = [(y, row) for y, row in enumerate(rows) if row and defined(row["value"])]
    left, right = start + 1.5, start + _COLUMN - 1.5
    corners = [[(left, y - 0.45), (right, y - 0.45), (right, y + 0.45), (left, y + 0.45)] for y, _ in known]
    colours = [scale(0.04 + 0.9 * row["value"]) for _, row in known]
    # One collection a column: a patch a cell takes ten times as long.
    axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0, zorder=2))
    middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 10.5, "zorder": 3}
    for y, row in known:
        text = f"{100 * row['value']:.0f}"
        shown = text if row["n"] >= reading.minimum_group else f"({text})"
        axes.text(start + _COLUMN / 2, y, shown, color="white" if row["value"] > 0.55 else INK, **middle)


# --- How often each class is recognised in each group: true-positive rates with their intervals.

_STYLES = (
    (BLUE, "o"), (AMBER, "D"), (GREEN, "s"), (VERMILION, "^"), (PURPLE, "v"), (SLATE, "p"), (GREY, "h"),
)  # fmt: skip


def opportunity_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, *, attribute: str = "gender"
) -> Picture | None:
    """Draw the rate at which each class (rows) is recognised, a dot a group, one panel a model; None without rows."""
    rows = where(table, metric="true_positive_rate", dataset=dataset, attribute=attribute, condition="before")
    if rows.is_empty():
        return None
    names, groups = in_order(rows["model"], models), in_order(rows["group"], ())
    classes = list(dict.fromkeys(rows["event"]))
    texts = [group_title(name) for name in classes]
    styles = list(islice(cycle(_STYLES), len(groups)))

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, 1.0)
        for place, group in enumerate(groups):
            shift = apart(place, len(groups), 0.56 / len(groups))
            of_group = where(rows, model=names[index], group=group).to_dicts()
            marks = [_opportunity_mark(row, classes.index(row["event"]) + shift, reading) for row in of_group]
            # An empty cell is said in the listing: words would lie over the other groups' dots.
            marks = [mark for mark in marks if math.isfinite(mark.value)]
            colour, shape = styles[place]
            dots_with_intervals(axes, marks, colour, cap=1.0, size=6, shape=shape)

    return Picture(
        name=f"opportunity-{attribute}-{dataset}",
        title=f"How often each class is recognised, by {attribute_title(attribute)}, {dataset}",
        description="Each dot is the share of a class and group whose best match is the class, with its Wilson "
        "interval. Dots of one row that lie apart are unequal opportunity.",
        figure=panels_figure(
            names,
            draw,
            rows=texts,
            height=12 + 30 * len(classes),
            axis=f"share of a class's images that are recognised (hollow: fewer than {reading.minimum_group} images)",
            entries=[
                LegendDot(group_title(group), colour, marker=shape) for group, (colour, shape) in zip(groups, styles)
            ],
        ),
    )


def _opportunity_mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {group_title(row['event'])}, {group_title(row['group'])}: "
        f"{percent(row['value'], row['n'])} [{percent_interval(row['ci_low'], row['ci_high'])}]"
    )
    return Mark.of(row, y, tip, filled=row["n"] >= reading.minimum_group)
