"""Associations of groups with the scales of social perception."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark, attribute_dots, attribute_entry
from plumbline.report.figures.palette import GREY
from plumbline.report.figures.panels import ends_with_room, number_scale, panels_figure
from plumbline.report.numbers import MINUS
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, largest_first, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUITE = "perception"
SCALES = (
    "warmth", "competence", "agency_positive", "agency_negative",
    "belief_positive", "belief_negative", "communion_positive", "communion_negative",
)  # fmt: skip
ATTRIBUTES = ("gender", "race", "age_group", "physical")
OTHERS = "others"
ROW = 20
"""Pixels of a row."""
_APART = 0.7


def scale_title(scale: str) -> str:
    """Return a scale in words: `warmth`, `agency, negative words`."""
    dimension, _, pole = scale.rpartition("_")
    return f"{dimension}, {pole} words" if dimension else scale


def comparison_title(row: Row) -> str:
    """Return who is compared: `man − woman`, `Black` (against all others)."""
    group = group_title(row["group"])
    return (
        group
        if row["reference_group"] == OTHERS
        else f"{group} {MINUS} {group_title(row['reference_group'])}"
    )


def scale_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the effect sizes of the scales on a dataset, with the p-values that evidence goes by."""
    rows = where(table, metric="sc_weat_effect", dataset=dataset, condition="before", probe=None)
    return by_evidence(rows)


def by_evidence(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the test that respects sets where images come in sets, of the two-sided one elsewhere."""
    respecting = where(rows, definition="cluster_t")
    return where(rows, definition="two_sided") if respecting.is_empty() else respecting


def association_figure(table: pl.DataFrame, reading: Reading, *, model: str, dataset: str) -> Picture | None:
    """Draw the effect sizes of one model by group (rows) and scale (panels); None without such rows."""
    rows = where(scale_rows(table, dataset), model=model)
    if rows.is_empty():
        return None
    scales = in_order(rows["event"], SCALES)
    lines = ComparisonLines.of(rows)
    low, high = ends_with_room(
        or_nan(row[name]) for row in rows.to_dicts() for name in ("value", "ci_low", "ci_high")
    )
    attributes = in_order(rows["attribute"], ATTRIBUTES)

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, high, low)
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
        for attribute in attributes:
            own = where(rows, event=scales[index], attribute=attribute).to_dicts()
            marks = [_mark(row, lines.places[attribute, row["group"]], reading) for row in own]
            attribute_dots(axes, marks, attribute, cap=high, size=6)

    return Picture(
        name=f"associations-{model}-{dataset}",
        title=f"Who is associated with what: {model} on {dataset}",
        description="Each dot is the difference between the mean cosines of two groups of faces with the words of a "
        "scale, in standard deviations, with its interval: one group against the other where there are two, each "
        "against all others where there are more.",
        figure=lines.figure(
            [scale_title(scale) for scale in scales],
            draw,
            axis="SC-WEAT effect size, in standard deviations (right: the group lies closer to the words)",
            entries=[*map(attribute_entry, attributes), HOLLOW],
        ),
    )


@dataclass(frozen=True)
class ComparisonLines:
    """The rows of a figure of comparisons of groups: attributes stand apart.

    Attributes
    ----------
    places : dict of (str, str) to float
        Attribute and group -> height.
    names : tuple of str
        What is compared, in the same order.
    """

    places: dict[tuple[str, str], float]
    names: tuple[str, ...]

    @classmethod
    def of(cls, rows: pl.DataFrame) -> ComparisonLines:
        """Return the lines of the comparisons of some rows."""
        places: dict[tuple[str, str], float] = {}
        names: list[str] = []
        place = 0.0
        for attribute in in_order(rows["attribute"], ATTRIBUTES):
            own = where(rows, attribute=attribute).unique("group", maintain_order=True).sort("group")
            for row in own.to_dicts():
                places[attribute, row["group"]] = place
                names.append(comparison_title(row))
                place += 1
            place += _APART
        return cls(places, tuple(names))

    def figure(
        self,
        titles: Sequence[str],
        draw: Callable[[Axes, int], None],
        *,
        axis: str,
        entries: Sequence[LegendDot],
    ) -> Figure:
        """Return panels with these rows."""
        heights = list(self.places.values())
        return panels_figure(
            titles,
            draw,
            rows=self.names,
            height=ROW * (max(heights) + 1),
            axis=axis,
            entries=entries,
            places=heights,
            size=11,
            beside=28,
        )


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{attribute_title(row['attribute'])}, {comparison_title(row)}, {scale_title(row['event'])}: "
        f"{in_ends(row)}, {both_tests(row)}, n = {row['n']}"
    )
    return Mark.of(row, y, tip, filled=evidence(row, reading))


def strongest_first(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> list[str]:
    """Return the models with associations on a dataset, the one with the largest effect first."""
    return largest_first(scale_rows(table, dataset), models)


def small_association_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the associations of the first model that has any, for places with one small picture."""
    shown = strongest_first(table, models, dataset)
    return association_figure(table, reading, model=shown[0], dataset=dataset) if shown else None
