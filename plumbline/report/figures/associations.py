"""Associations of groups with the scales of social perception, markedness, and how the two valences go together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.evidence import evidence
from plumbline.report.figures.canvas import Picture, blank, drawing, label, text_width, with_tips
from plumbline.report.figures.marks import (
    Mark,
    as_float,
    attribute_dots,
    attribute_entry,
    axis_title,
    fit_grid,
    legend,
    legend_dot,
    number_scale,
    panel_title,
    percent_scale,
    rows_axes,
)
from plumbline.report.figures.palette import GREY, GRID, INK, SEQUENTIAL, SOFT, attribute_colour
from plumbline.report.inputs import Reading
from plumbline.report.numbers import MINUS, interval, number, p_value, percent, percent_interval
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title, is_composite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 960
SUITE = "perception"
SCALES = (
    "warmth", "competence", "agency_positive", "agency_negative",
    "belief_positive", "belief_negative", "communion_positive", "communion_negative",
)  # fmt: skip
DIMENSIONS = ("agency", "belief", "communion")
ATTRIBUTES = ("gender", "race", "age_group", "physical")
AVERAGED = "mean_over_templates"
OTHERS = "others"
EVERYONE = "all images"
_ROW, _APART = 20, 0.7


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
    places, names = _places(rows)
    ends = _ends(rows.to_dicts())
    left = text_width([label(name) for name in names]) + 28
    height = _ROW * (max(places.values()) + 1)
    grid = fit_grid(len(scales), width=WIDTH, left=left, top=52, height=height, columns=4)
    attributes = in_order(rows["attribute"], ATTRIBUTES)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(scales)) + 48)
        for index, scale in enumerate(scales):
            axes = grid.place(figure, index)
            _rows(axes, list(places.values()), names, shown=index % grid.columns == 0)
            number_scale(axes, ends[1], ends[0])
            axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
            panel_title(axes, scale_title(scale))
            for attribute in attributes:
                own = where(rows, event=scale, attribute=attribute).to_dicts()
                marks = [_mark(row, places[attribute, row["group"]], reading) for row in own]
                attribute_dots(axes, marks, attribute, cap=ends[1], size=6)
        entries = [attribute_entry(attribute) for attribute in attributes]
        entries.append(legend_dot("hollow: chance alone may explain it", SOFT, filled=False))
        legend(figure, entries, left=left)
        words = "SC-WEAT effect size, in standard deviations (right: the group lies closer to the words)"
        axis_title(figure, left, grid.bottom(len(scales)) + 36, words)
    return Picture(
        name=f"associations-{model}-{dataset}",
        title=f"Who is associated with what: {model} on {dataset}",
        description="Each dot is the difference between the mean cosines of two groups of faces with the words of a "
        "scale, in standard deviations, with its interval: one group against the other where there are two, each "
        "against all others where there are more.",
        figure=figure,
    )


def _places(rows: pl.DataFrame) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Return the height of every comparison, attributes set apart, and its name."""
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
    return places, names


def _rows(axes: Axes, places: list[float], names: list[str], *, shown: bool) -> None:
    """Give a panel one row a name at the given heights, as `rows_axes` does at whole ones."""
    axes.set_yticks([])
    axes.set_ylim(max(places) + 0.5, -0.5)
    across = axes.get_yaxis_transform()
    axes.hlines(places, 0, 1, transform=across, color=GRID, linewidth=0.9, zorder=0)
    if shown:
        beside: dict[str, Any] = {"textcoords": "offset points", "xycoords": across}
        for y, name in zip(places, names):
            axes.annotate(
                label(name),
                (0, y),
                (-10, 0),
                ha="right",
                va="center_baseline",
                color=INK,
                fontsize=11,
                **beside,
            )


def _ends(rows: list[Row]) -> tuple[float, float]:
    values = [as_float(row[name]) for row in rows for name in ("value", "ci_low", "ci_high")]
    known = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *known]), max([0.0, *known])
    room = 0.06 * (high - low) or 0.1
    return low - room, high + room


def _mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{attribute_title(row['attribute'])}, {comparison_title(row)}, {scale_title(row['event'])}: "
        f"{number(row['value'])} [{interval(row['ci_low'], row['ci_high'])}], {p_value(row['p'])}, "
        f"{p_value(row['q'], 'q')}, n = {row['n']}"
    )
    low, high = as_float(row["ci_low"]), as_float(row["ci_high"])
    return Mark(y=y, value=as_float(row["value"]), low=low, high=high, tip=tip, filled=evidence(row, reading))


def strongest_model(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> list[str]:
    """Return the models with associations on a dataset, the one with the largest effect first."""
    rows = scale_rows(table, dataset)
    largest = {
        model: max((abs(v) for v in where(rows, model=model)["value"] if defined(v)), default=0.0)
        for model in in_order(rows["model"], models)
    }
    return sorted(largest, key=lambda model: -largest[model])


# --- markedness


def markedness_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the markedness of every group (rows) under every model (panels) as bars; None without such rows."""
    rows = where(table, metric="markedness", definition=AVERAGED, dataset=dataset, condition="before")
    rows = rows.filter(pl.col("value").is_finite()).with_columns(reference_group=pl.lit(OTHERS))
    if rows.is_empty():
        return None
    shown_models = in_order(rows["model"], models)
    places, names = _places(rows)
    left = text_width([label(name) for name in names]) + 28
    height = _ROW * (max(places.values()) + 1)
    grid = fit_grid(len(shown_models), width=WIDTH, left=left, top=52, height=height, columns=4)
    attributes = in_order(rows["attribute"], ATTRIBUTES)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(shown_models)) + 48)
        for index, model in enumerate(shown_models):
            axes = grid.place(figure, index)
            _rows(axes, list(places.values()), names, shown=index % grid.columns == 0)
            percent_scale(axes, 1.0)
            panel_title(axes, model)
            for attribute in attributes:
                own = where(rows, model=model, attribute=attribute).to_dicts()
                _bars(axes, own, [places[attribute, row["group"]] for row in own], attribute)
        entries = [legend_dot(attribute_title(a), attribute_colour(a), marker="s") for a in attributes]
        legend(figure, entries, left=left)
        words = (
            "share of faces closer to “a person” than to the prompt that names their group (short: marked)"
        )
        axis_title(figure, left, grid.bottom(len(shown_models)) + 36, words)
    return Picture(
        name=f"markedness-{dataset}",
        title=f"Who has to be named, {dataset}",
        description="Each bar is the share of a group's faces that lie closer to the prompt without the group's name, "
        "averaged over four templates, with its interval. A long bar: the group is what a person is taken to be.",
        figure=figure,
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
    bars = axes.barh(
        places, [row["value"] / 100 for row in rows], height=0.62, color=colour, alpha=0.55, zorder=2
    )
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


# --- correlation of the valences


def correlation_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the correlation of the valences by group (rows), dimension (columns) and model (panels) as heat maps."""
    rows = where(table, metric="valence_correlation", dataset=dataset, condition="before")
    if rows.is_empty():
        return None
    shown_models = in_order(rows["model"], models)
    groups = _correlated_groups(rows)
    found = by(rows, "model", "event", "attribute", "group")
    names = [EVERYONE if group is None else group_title(group) for _, group in groups]
    dimensions = in_order(rows["event"], DIMENSIONS)
    left = text_width([label(name) for name in names]) + 28
    grid = fit_grid(len(shown_models), width=WIDTH, left=left, top=44, height=_ROW * len(names), columns=4)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(shown_models)) + 20)
        for index, model in enumerate(shown_models):
            axes = grid.place(figure, index)
            rows_axes(axes, names, shown=index % grid.columns == 0)
            axes.set_xlim(0, len(dimensions))
            axes.set_xticks([i + 0.5 for i in range(len(dimensions))], dimensions)
            axes.spines["bottom"].set_visible(False)
            panel_title(axes, model)
            for i, dimension in enumerate(dimensions):
                _heat(axes, i, [found.get((model, dimension, *group)) for group in groups], reading)
    return Picture(
        name=f"valences-{dataset}",
        title=f"Do positive and negative words go together? {dataset}",
        description="Pearson's correlation, over a group's faces, of the mean cosine with the positive words and with "
        "the negative words of a dimension. Near 1 the model hardly tells the two apart. In brackets: groups with "
        f"fewer than {reading.minimum_group} images.",
        figure=figure,
    )


def _correlated_groups(rows: pl.DataFrame) -> list[tuple[str | None, str | None]]:
    """Return all images and the groups of gender × race, or of single attributes where there is no such crossing."""
    attributes = in_order(rows["attribute"], ATTRIBUTES)
    crossed = [name for name in attributes if is_composite(name)]
    found: list[tuple[str | None, str | None]] = [(None, None)]
    for attribute in crossed or attributes:
        found += [(attribute, group) for group in in_order(where(rows, attribute=attribute)["group"], ())]
    return found


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


def small_association_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw the associations of the first model that has any, for places with one small picture."""
    shown = strongest_model(table, models, dataset)
    return association_figure(table, reading, model=shown[0], dataset=dataset) if shown else None
