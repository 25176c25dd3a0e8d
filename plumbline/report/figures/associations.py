"""Associations of groups with the scales of social perception."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import GREY, INK, SEQUENTIAL, Picture, attribute_colour, with_tips
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark, attribute_dots, attribute_entry
from plumbline.report.figures.panels import ends_with_room, number_scale, panels_figure, percent_scale
from plumbline.report.numbers import MINUS, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, largest_first, or_nan, where
from plumbline.report.vocabulary import DIMENSIONS, attribute_title, group_title, is_composite

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
    return group if row["reference_group"] == OTHERS else f"{group} {MINUS} {group_title(row['reference_group'])}"


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
    low, high = ends_with_room(or_nan(row[name]) for row in rows.to_dicts() for name in ("value", "ci_low", "ci_high"))
    attributes = in_order(rows["attribute"], ATTRIBUTES)

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, high, low)
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
        for attribute in attributes:
            of_attribute = where(rows, event=scales[index], attribute=attribute).to_dicts()
            marks = [_mark(row, lines.places[attribute, row["group"]], reading) for row in of_attribute]
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
            of_attribute = where(rows, attribute=attribute).unique("group", maintain_order=True).sort("group")
            for row in of_attribute.to_dicts():
                places[attribute, row["group"]] = place
                names.append(comparison_title(row))
                place += 1
            place += _APART
        return cls(places, tuple(names))

    def figure(
        self, titles: Sequence[str], draw: Callable[[Axes, int], None], *, axis: str, entries: Sequence[LegendDot]
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


# --- Markedness: which groups a model takes for granted, and which have to be named.

AVERAGED = "mean_over_templates"


def markedness_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the markedness of every group (rows) under every model (panels) as bars; None without such rows."""
    rows = where(table, metric="markedness", definition=AVERAGED, dataset=dataset, condition="before")
    rows = rows.filter(pl.col("value").is_finite()).with_columns(reference_group=pl.lit(OTHERS))
    if rows.is_empty():
        return None
    shown_models = in_order(rows["model"], models)
    lines, attributes = ComparisonLines.of(rows), in_order(rows["attribute"], ATTRIBUTES)

    def draw(axes: Axes, index: int) -> None:
        percent_scale(axes, 1.0)
        for attribute in attributes:
            of_attribute = where(rows, model=shown_models[index], attribute=attribute).to_dicts()
            _bars(axes, of_attribute, [lines.places[attribute, row["group"]] for row in of_attribute], attribute)

    return Picture(
        name=f"markedness-{dataset}",
        title=f"Who has to be named, {dataset}",
        description="Each bar is the share of a group's faces that lie closer to the prompt without the group's name, "
        "averaged over four templates, with its interval. A long bar: the group is what a person is taken to be.",
        figure=lines.figure(
            shown_models,
            draw,
            axis="share of faces closer to “a person” than to the prompt that names their group (short: marked)",
            entries=[LegendDot(attribute_title(a), attribute_colour(a), marker="s") for a in attributes],
        ),
    )


def _bars(axes: Axes, rows: list[Row], places: list[float], attribute: str) -> None:
    if not rows:
        return
    colour = attribute_colour(attribute)
    tips = [
        f"{group_title(row['group'])}: {percent(row['value'] / 100, row['n'])} "
        f"[{percent_interval(row['ci_low'] / 100, row['ci_high'] / 100)}]"
        for row in rows
    ]
    bars = axes.barh(places, [row["value"] / 100 for row in rows], height=0.62, color=colour, alpha=0.55, zorder=2)
    for bar, tip in zip(bars, tips):
        with_tips(bar, [tip])
    axes.hlines(
        places,
        [row["ci_low"] / 100 for row in rows],
        [row["ci_high"] / 100 for row in rows],
        color=INK,
        linewidth=1.4,
        zorder=3,
    )


# --- How the positive and the negative words of a dimension go together over the faces of a group.

EVERYONE = "all images"


def correlation_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the correlation of the valences by group (rows), dimension (columns) and model (panels) as heat maps."""
    rows = where(table, metric="valence_correlation", dataset=dataset, condition="before")
    if rows.is_empty():
        return None
    shown_models = in_order(rows["model"], models)
    groups = _correlated_groups(rows)
    lookup = by(rows, "model", "event", "attribute", "group")
    names = [EVERYONE if group is None else group_title(group) for _, group in groups]
    dimensions = in_order(rows["event"], DIMENSIONS)

    def draw(axes: Axes, index: int) -> None:
        axes.set_xlim(0, len(dimensions))
        axes.set_xticks([i + 0.5 for i in range(len(dimensions))], dimensions)
        axes.spines["bottom"].set_visible(False)
        for i, dimension in enumerate(dimensions):
            _heat(axes, i, [lookup.get((shown_models[index], dimension, *group)) for group in groups], reading)

    return Picture(
        name=f"valences-{dataset}",
        title=f"Do positive and negative words go together? {dataset}",
        description="Pearson's correlation, over a group's faces, of the mean cosine with the positive words and with "
        "the negative words of a dimension. Near 1 the model hardly tells the two apart. In brackets: groups with "
        f"fewer than {reading.minimum_group} images.",
        figure=panels_figure(shown_models, draw, rows=names, height=ROW * len(names), beside=28, above=44, below=20),
    )


def _correlated_groups(rows: pl.DataFrame) -> list[tuple[str | None, str | None]]:
    """Return all images and the groups of gender × race, or of single attributes where there is no such crossing."""
    attributes = in_order(rows["attribute"], ATTRIBUTES)
    crossed = [name for name in attributes if is_composite(name)]
    groups: list[tuple[str | None, str | None]] = [(None, None)]
    for attribute in crossed or attributes:
        groups += [(attribute, group) for group in in_order(where(rows, attribute=attribute)["group"], ())]
    return groups


def _heat(axes: Axes, column: int, rows: list[Row | None], reading: Reading) -> None:
    import matplotlib

    scale = matplotlib.colormaps[SEQUENTIAL]
    middle: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 10.5, "zorder": 3}
    for y, row in enumerate(rows):
        if row is None or not defined(row["value"]):
            continue
        shade = 0.04 + 0.9 * max(0.0, row["value"])
        axes.barh(y, 0.95, left=column + 0.025, height=0.9, color=scale(shade), linewidth=0, zorder=2)
        text = f"{row['value']:.2f}".replace("-", MINUS)
        shown = text if row["n"] >= reading.minimum_group else f"({text})"
        axes.text(column + 0.5, y, shown, color="white" if row["value"] > 0.55 else INK, **middle)
