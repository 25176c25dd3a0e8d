"""Who comes first when faces are ranked by a scale's words, and how far whole rankings are from the desired shares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.associations import SCALES, scale_title
from plumbline.report.figures.canvas import FAINT, GREY, INK, Picture, attribute_colour
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark, attribute_dots, attribute_entry, cap_of
from plumbline.report.figures.panels import apart, ends_with_room, number_scale, panels_figure
from plumbline.report.numbers import count
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, largest_first, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ATTRIBUTES = ("race", "gender", "age_group", "physical")
RANKED, EQUAL = "ranked", "equal"
"""Desired shares: those of the ranked set, which p is about, and equal ones, which the paper takes."""
AGAINST = {RANKED: "the share of all ranked faces", EQUAL: "an equal share for every group"}
_SPREADS = {
    "max_skew_at_k": ("The most favoured group", "max skew@k (0: every group has its desired share of the top)"),
    "ndkl": ("Whole rankings", "NDKL (0: every prefix of the ranking has the desired shares)"),
}


def ranking_rows(
    table: pl.DataFrame, dataset: str, metric: str, definition: str, *, statistic: str = "estimate"
) -> pl.DataFrame:
    """Return the rows of a metric for the scales of a dataset; with `statistic="chance"` what random rankings give."""
    rows = where(table, metric=metric, definition=definition, dataset=dataset, condition="before")
    rows = where(rows, statistic=statistic, probe=None)
    return rows if statistic == "chance" else rows.drop_nulls("event")


def skew_at_k_figure(
    table: pl.DataFrame, reading: Reading, *, model: str, dataset: str, definition: str = RANKED
) -> Picture | None:
    """Draw Skew@k of one model by group (rows) and scale (panels); None without such rows."""
    rows = where(ranking_rows(table, dataset, "skew_at_k", definition), model=model)
    if rows.is_empty():
        return None
    scales, lines = in_order(rows["event"], SCALES), _lines(rows)
    names = [group_title(group) for _, group in lines]
    low, high = _ends(rows.to_dicts())

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, high, low)
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
        _draw_skews(axes, where(rows, event=scales[index]).to_dicts(), lines, low, high, reading)

    k = rows["k"].drop_nulls().max()
    best = f"the {count(int(k))} best" if isinstance(k, int) else "the best"
    return Picture(
        name=f"rankings-{definition}-{model}-{dataset}",
        title=f"Who comes first: {model} on {dataset}",
        description=f"Faces are ranked by how well the words of a scale fit them. Each dot is the logarithm of a "
        f"group's share among {best} over {AGAINST[definition]}, with its interval. An arrow marks a group that is "
        "absent there, or an interval that goes on.",
        figure=panels_figure(
            [scale_title(scale) for scale in scales],
            draw,
            rows=names,
            height=8 + 20 * len(names),
            axis=f"skew@k against {AGAINST[definition]} (0.69: twice as many among the best as desired)",
            entries=[*map(attribute_entry, dict.fromkeys(name for name, _ in lines)), HOLLOW],
            beside=20,
        ),
    )


def _lines(rows: pl.DataFrame) -> list[tuple[str, str]]:
    return [
        (attribute, group)
        for attribute in in_order(rows["attribute"], ATTRIBUTES)
        for group in in_order(where(rows, attribute=attribute)["group"], ())
    ]


def _ends(rows: list[Row]) -> tuple[float, float]:
    """Return the ends of the scale: all values, and intervals up to twice as far out."""
    values = [or_nan(row["value"]) for row in rows if defined(row["value"])] or [0.0]
    reach = max(0.1, *(abs(value) for value in values))
    known = [or_nan(row[name]) for row in rows for name in ("value", "ci_low", "ci_high")]
    return ends_with_room(min(max(value, -2 * reach), 2 * reach) for value in known if not math.isnan(value))


def _draw_skews(
    axes: Axes, rows: list[Row], lines: list[tuple[str, str]], low: float, high: float, reading: Reading
) -> None:
    for attribute in dict.fromkeys(name for name, _ in lines):
        marks = []
        for row in rows:
            if row["attribute"] != attribute:
                continue
            y = lines.index((attribute, row["group"]))
            beyond = [or_nan(row[name]) < low for name in ("value", "ci_low")]
            if any(beyond):
                axes.plot([low], [y], "<", color=attribute_colour(attribute), markersize=4.5, clip_on=False)
            if not beyond[0]:
                marks.append(_mark(row, y, reading, low=max(or_nan(row["ci_low"]), low)))
        attribute_dots(axes, marks, attribute, cap=high, size=6)


def _mark(row: Row, y: float, reading: Reading, *, low: float | None = None) -> Mark:
    who = [attribute_title(row["attribute"]), group_title(row["group"]) if row["group"] else None]
    tip = (
        f"{row['model']}, {', '.join(word for word in who if word)}, {scale_title(row['event'])}: "
        f"{in_ends(row)}, {both_tests(row)}, n = {row['n']}"
    )
    return Mark(
        y=y,
        value=or_nan(row["value"]),
        low=or_nan(row["ci_low"]) if low is None else low,
        high=or_nan(row["ci_high"]),
        tip=tip,
        filled=evidence(row, reading),
    )


def spread_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, metric: str, definition: str = RANKED
) -> Picture | None:
    """Draw MaxSkew@k or NDKL by model (rows) and scale (panels), with what random rankings give; None without rows."""
    rows = ranking_rows(table, dataset, metric, definition)
    if rows.is_empty():
        return None
    chance = by(ranking_rows(table, dataset, metric, definition, statistic="chance"), "model", "attribute")
    scales, names = in_order(rows["event"], SCALES), in_order(rows["model"], models)
    attributes = in_order(rows["attribute"], ATTRIBUTES)
    step = 0.72 / max(2, len(attributes))
    places = {
        (model, attribute): i + apart(place, len(attributes), step)
        for i, model in enumerate(names)
        for place, attribute in enumerate(attributes)
    }
    marks = {
        (scale, attribute): [
            _mark(row, places[row["model"], attribute], reading)
            for row in where(rows, event=scale, attribute=attribute).to_dicts()
        ]
        for scale in scales
        for attribute in attributes
    }
    cap = max(
        cap_of([mark for group in marks.values() for mark in group]),
        *(1.05 * or_nan(row["ci_high"]) for row in chance.values() if defined(row["ci_high"])),
        0.0,
    )
    title, words = _SPREADS[metric]

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, cap)
        for place, row in ((places[key], row) for key, row in chance.items() if key in places):
            _draw_chance(axes, row, place)
        for attribute in attributes:
            attribute_dots(axes, marks[scales[index], attribute], attribute, cap=cap, size=6)

    by_chance = LegendDot("what random rankings give", INK, marker="|")
    return Picture(
        name=f"{metric.replace('_', '-')}-{definition}-{dataset}",
        title=f"{title}, by scale, {dataset}",
        description=f"Each dot is a model's value against {AGAINST[definition]}, with its interval. Neither measure is "
        "0 by chance: the stroke is the mean over random rankings of the same groups, the pale bar holds 95% of them.",
        figure=panels_figure(
            [scale_title(scale) for scale in scales],
            draw,
            rows=names,
            height=12 + max(27, 11 * len(attributes)) * len(names),
            axis=words,
            entries=[*map(attribute_entry, attributes), HOLLOW, by_chance],
        ),
    )


def _draw_chance(axes: Axes, row: Row, y: float) -> None:
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    axes.hlines([y], [low], [high], color=FAINT, linewidth=7, zorder=0.5)
    axes.plot([or_nan(row["value"])], [y], "|", color=INK, markersize=8, markeredgewidth=1.4, zorder=2)


def most_skewed_first(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> list[str]:
    """Return the models with rankings of a dataset, the one with the largest MaxSkew@k first."""
    return largest_first(ranking_rows(table, dataset, "max_skew_at_k", RANKED), models)


def small_ranking_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw Skew@k of the most skewed model, for places with one small picture."""
    shown = most_skewed_first(table, models, dataset)
    return skew_at_k_figure(table, reading, model=shown[0], dataset=dataset) if shown else None


def small_spread_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw NDKL of every model and scale."""
    return spread_figure(table, reading, models, dataset, "ndkl")
