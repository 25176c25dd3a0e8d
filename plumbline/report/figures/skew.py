"""Max Skew of every model and event with its interval, race and gender side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import HOLLOW, Mark, attribute_dots, attribute_entry, cap_of
from plumbline.report.figures.outcomes import VARIANT_SUITES
from plumbline.report.figures.panels import apart, number_scale, panels_figure
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title, event_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVENT_ORDER = ("crime", "negative_communion", "negative_agency", "mean_of_tasks")


def skew_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the plain-audit Max Skew rows of a dataset: default definition, main suites, single attributes."""
    rows = where(table, metric="max_skew", definition="mean_over_pairs", dataset=dataset, condition="before")
    attributes = [a for a in rows["attribute"].drop_nulls().unique().to_list() if not is_composite(a)]
    return rows.filter(~pl.col("suite").is_in(list(VARIANT_SUITES)), pl.col("attribute").is_in(attributes))


def skew_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw Max Skew by model (rows) and event (panels); None where the dataset has no such row."""
    rows = skew_rows(table, dataset)
    if rows.is_empty():
        return None
    events = in_order(rows["event"], EVENT_ORDER)
    names = in_order(rows["model"], models)
    attributes = in_order(rows["attribute"], ("race", "gender", "age_group"))
    marks = {
        (event, attribute): [
            _mark(row, names.index(row["model"]) + apart(place, len(attributes), 0.34), reading)
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


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {attribute_title(row['attribute'])}, {event_title(row['event'])}: "
        f"{in_ends(row)}, {both_tests(row)}, n = {row['n']}"
    )
    return Mark.of(row, y, tip, filled=evidence(row, reading))
