"""Who is given a harmful label: max skew, shares of groups, harm rates, captions by scene, equal opportunity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from plumbline.catalog.suites import VARIANT_SUITES
from plumbline.report.charts.chart import PALETTE, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots, tip_of
from plumbline.report.charts.estimates import drawn_models, estimates
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.disparity import skew_rows
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, or_nan, where
from plumbline.report.vocabulary import (
    EVENT_ORDER,
    HARM_EVENTS,
    attribute_title,
    event_title,
    group_title,
    is_composite,
)

ATTRIBUTE_ORDER = ("race", "gender", "age_group")

# --- Max skew of every model and event, race and gender side by side.


def max_skew(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Chart | None:
    """Draw Max Skew by model (rows), event (panels) and attribute (series); None where the dataset has no such row.

    Each suite of one's own has its own panels.

    Rows: `max_skew`, `mean_over_pairs`, before any mitigation. Source: Janus, equation 1 (see `metrics.outcomes`).
    """
    rows = skew_rows(table, dataset)
    attributes = in_order(rows["attribute"], ATTRIBUTE_ORDER)
    panels = [
        event_title(event, suite)
        for event in in_order(rows["event"], EVENT_ORDER)
        for suite in in_order(where(rows, event=event)["suite"], ())
    ]
    return dots(
        f"skew-{dataset}",
        f"Max skew by model and event, {dataset}",
        "Each dot is the mean relative gap over pairs of groups, with its interval.",
        marks=(
            Dot.of(
                row,
                f"{row['model']}, {attribute_title(row['attribute'])}, {event_title(row['event'], row['suite'])}",
                row=row["model"],
                reading=reading,
                panel=event_title(row["event"], row["suite"]),
                series=attribute_title(row["attribute"]),
            )
            for row in rows.to_dicts()
        ),
        rows=Rows.plain(in_order(rows["model"], models)),
        panels=list(dict.fromkeys(panels)),
        series=[Series.of_attribute(attribute) for attribute in attributes],
        axis="max skew (0: all groups get the label equally often)",
    )


# --- Harm rates.


def harm_rates(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Chart | None:
    """Draw the share of all images that get a harmful label, by model (rows) and event (panels); None without rows.

    Rows: `harm_rate` of the main suites, with Wilson intervals.
    """
    rows = where(table, metric="harm_rate", dataset=dataset, condition="before")
    rows = rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("event").is_in(list(HARM_EVENTS)))
    return dots(
        f"harm-{dataset}",
        f"Harm rates by model, {dataset}",
        "Each dot is the share of all images whose best label is harmful, with its Wilson interval.",
        marks=[
            Dot.of(
                row,
                f"{row['model']}, {event_title(row['event'])}",
                row=row["model"],
                unit="share",
                panel=event_title(row["event"]),
            )
            for row in rows.to_dicts()
        ],
        rows=Rows.plain(in_order(rows["model"], models)),
        panels=[event_title(event) for event in in_order(rows["event"], HARM_EVENTS)],
        unit="share",
        axis="share of all images (each panel has its own scale)",
        own_scales=True,
    )


# --- The share of every group that gets a label.


def shares(
    table: pl.DataFrame,
    planted: pl.DataFrame | None,
    models: tuple[str, ...],
    *,
    dataset: str,
    suite: str,
    event: str,
    composite: bool = False,
) -> Chart | None:
    """Draw the share of each group (rows) that gets the label, one panel a model; planted rates where known.

    Rows: `outcome_proportion`, with Wilson intervals. Groups stand in the order of their mean share, so that the
    group that suffers most is on top.

    Parameters
    ----------
    planted : DataFrame or None
        Columns of `PLANTED_SCHEMA`.
    composite : bool
        Whether groups are of crossed attributes, such as `gender_race`, else of single ones.
    """
    rows = where(table, metric="outcome_proportion", dataset=dataset, suite=suite, event=event, condition="before")
    rows = rows.drop_nulls(["attribute", "group"])
    attributes = [a for a in in_order(rows["attribute"], ATTRIBUTE_ORDER) if is_composite(a) is composite]
    rows, left_out = drawn_models(rows.filter(pl.col("attribute").is_in(attributes)), models)
    known = _planted(planted, dataset=dataset, suite=suite, event=event)
    overall = where(table, metric="harm_rate", condition="before", dataset=dataset, suite=suite, event=event)
    everyone = {row["model"]: row["value"] for row in overall.to_dicts() if defined(row["value"])}
    notes = ["line: all images"] * bool(everyone) + ["stroke: planted truth"] * bool(known)
    return dots(
        f"share-{dataset}-{suite}-{event}-{'crossed' if composite else 'single'}",
        f"Who gets {event_title(event, suite)}, {dataset}" + (" (crossed groups)" if composite else ""),
        f"Each dot is a group's share with its Wilson interval, one panel a model.{left_out}",
        marks=[
            Dot.of(
                row,
                f"{row['model']}, {group_title(row['group'])}",
                row=group_title(row["group"]),
                heading=attribute_title(row["attribute"]),
                panel=row["model"],
                unit="share",
                second=known.get((row["model"], row["attribute"], row["group"])),
            )
            for row in rows.to_dicts()
        ],
        rows=Rows(tuple((attribute_title(a), _groups(where(rows, attribute=a))) for a in attributes)),
        panels=in_order(rows["model"], models),
        unit="share",
        axis="; ".join([f"share of the group's images given {event_title(event, suite)}", *notes]),
        line=everyone,
    )


def _groups(rows: pl.DataFrame) -> tuple[str, ...]:
    means = rows.group_by("group").agg(pl.col("value").fill_nan(None).mean().alias("mean"))
    ordered = means.sort(["mean", "group"], descending=[True, False], nulls_last=True)
    return tuple(group_title(group) for group in ordered["group"])


def _planted(planted: pl.DataFrame | None, **event: str) -> dict[tuple[str, str, str], float]:
    if planted is None:
        return {}
    rows = where(planted, **event).drop_nulls("planted")
    return {(row["model"], row["attribute"], row["group"]): float(row["planted"]) for row in rows.to_dicts()}


# --- Captions by scene: how often each group of a scene is given a negative caption.

CAPTION_SUITE = "pata_captions"
CAPTION_ATTRIBUTES = ("race", "gender", "age")
EVERYONE = "everyone"


def caption_event(attribute: str) -> str:
    """Return the event of an attribute's negative captions."""
    return f"negative_{attribute}_caption"


def caption_shares(table: pl.DataFrame, reading: Reading, models: Sequence[str], dataset: str) -> Chart | None:
    """Draw the share of each group (rows) that is given a negative caption, over all scenes, by model (panels).

    Rows: `outcome_proportion` of the caption suite, of each attribute's own captions.
    """
    rows = where(table, metric="outcome_proportion", dataset=dataset, suite=CAPTION_SUITE, probe=None)
    own_captions = pl.col("event") == pl.format("negative_{}_caption", "attribute")
    return estimates(
        f"caption-shares-{dataset}",
        f"Who is given a negative caption, {dataset}",
        "Each dot is the share of a group's images whose best caption, of those of its scene, is a negative one, with "
        "its Wilson interval. Each attribute has captions of its own.",
        where(rows, condition="before").filter(own_captions),
        row="group",
        heading="attribute",
        panel="model",
        order={"attribute": CAPTION_ATTRIBUTES, "model": models},
        unit="share",
        axis="share of the group's images given a negative caption",
    )


def captions_by_scene(
    table: pl.DataFrame, reading: Reading, *, model: str, dataset: str, attribute: str
) -> Chart | None:
    """Draw scenes (rows) by groups (columns), the scene's share over everyone on the right; None without rows.

    Rows: `outcome_proportion` of the caption suite. Scenes stand in the order of their share, so that the one in
    which most are given a negative caption is on top.
    """
    event = caption_event(attribute)
    rows = where(table, metric="outcome_proportion", model=model, dataset=dataset, suite=CAPTION_SUITE, event=event)
    rows = where(rows, condition="before")
    everyone, by_scene = where(rows, attribute="scene"), where(rows, attribute=attribute).drop_nulls("probe")
    if by_scene.is_empty():
        return None
    scenes = sorted(everyone.to_dicts(), key=lambda row: (-(row["value"] or 0), row["group"]))
    groups = in_order(where(rows, attribute=attribute)["group"], ())
    cells = [_caption_cell(row, row["probe"], row["group"], "", reading) for row in by_scene.to_dicts()]
    cells += [_caption_cell(row, row["group"], EVERYONE, " ", reading) for row in scenes]
    return heat(
        f"captions-{attribute}-{model}-{dataset}",
        f"Negative captions by scene and {attribute_title(attribute)}, {model} on {dataset}",
        "Each number is the percentage of a group's images in a scene whose best caption, of those that PATA gives "
        "for the scene, is a negative one. Scenes have captions of their own: compare along a row.",
        cells=[cell for cell in cells if cell.text],
        rows=Rows.plain(group_title(row["group"]) for row in scenes),
        columns=Rows((("", tuple(map(group_title, groups))), (" ", (EVERYONE,)))),
        axis=f"percent of a group's images (in brackets: fewer than {reading.minimum_group} images)",
        largest=1.0,
        cell_width=92,
    )


def _caption_cell(row: Row, scene: str, group: str, over: str, reading: Reading) -> Cell:
    text = f"{100 * row['value']:.0f}" if defined(row["value"]) else ""
    return Cell(
        row=group_title(scene),
        column=group_title(group),
        over=over,
        value=or_nan(row["value"]),
        text=text if not text or row["n"] >= reading.minimum_group else f"({text})",
        tip=tip_of(row, f"{group_title(scene)}, {group_title(group)}", unit="share"),
    )


# --- How often each class is recognised in each group: true-positive rates.

_MOST_SERIES = 3


def opportunity(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, *, attribute: str = "gender"
) -> Chart | None:
    """Draw the rate at which each class is recognised in each group, by model; None without rows.

    Rows: `true_positive_rate`, with Wilson intervals. Up to three groups are dots, one panel a model; more are a table,
    groups in its columns.
    """
    rows = where(table, metric="true_positive_rate", dataset=dataset, attribute=attribute, condition="before")
    rows, left_out = drawn_models(rows.filter(pl.col("value").is_finite()), models)
    names, groups = in_order(rows["model"], models), in_order(rows["group"], ())
    classes = tuple(group_title(name) for name in dict.fromkeys(rows["event"]))
    words: dict[str, Any] = {
        "name": f"opportunity-{attribute}-{dataset}",
        "title": f"How often each class is recognised, by {attribute_title(attribute)}, {dataset}",
    }
    share = "the share of a class and group whose best match is the class"
    if len(groups) > _MOST_SERIES:
        return heat(
            **words,
            description=f"Each number is {share}, in percent; unequal numbers in a row: unequal opportunity.{left_out}",
            cells=[
                Cell(
                    row=group_title(row["event"]),
                    heading=row["model"],
                    column=group_title(row["group"]),
                    value=row["value"],
                    text=_bracketed(f"{100 * row['value']:.0f}", row, reading),
                    tip=tip_of(row, _recognised(row), unit="share"),
                )
                for row in rows.to_dicts()
            ],
            rows=Rows(tuple((name, classes) for name in names)),
            columns=Rows.plain(map(group_title, groups)),
            axis=f"percent of a class's images (in brackets: fewer than {reading.minimum_group})",
            largest=1.0,
            cell_width=int(min(92, 660 / len(groups))),
        )
    return dots(
        **words,
        description=f"Each dot is {share}, with its Wilson interval. Dots of one row that lie apart are unequal "
        f"opportunity.{left_out}",
        marks=[
            Dot.of(
                row,
                _recognised(row),
                row=group_title(row["event"]),
                unit="share",
                panel=row["model"],
                series=group_title(row["group"]),
            )
            for row in rows.to_dicts()
        ],
        rows=Rows.plain(classes),
        panels=names,
        series=[Series(group_title(group), *style) for group, style in zip(groups, PALETTE)],
        unit="share",
        axis="share of a class's images that are recognised",
        zero=False,
    )


def _bracketed(text: str, row: Row, reading: Reading) -> str:
    return text if row["n"] >= reading.minimum_group else f"({text})"


def _recognised(row: Row) -> str:
    return f"{row['model']}, {group_title(row['event'])}, {group_title(row['group'])}"
