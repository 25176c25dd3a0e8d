"""How the scores of each group are distributed in the occupations where groups lie furthest apart, and nearest."""

from __future__ import annotations

import polars as pl

from plumbline.report.figures.canvas import Picture, blank, drawing, with_tips
from plumbline.report.figures.marks import LegendDot, legend
from plumbline.report.figures.palette import BLUE, INK, SLATE
from plumbline.report.figures.panels import axis_title, fit_grid, number_scale, panel_title, rows_axes
from plumbline.report.figures.row_panels import WIDTH, Rows
from plumbline.report.language_words import prompt_title, scored_title
from plumbline.report.numbers import count, number
from plumbline.report.rows import in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

ENDS = ("largest", "smallest")
_QUANTILES = ("q05", "q25", "median", "q75", "q95")


def occupation_figure(table: pl.DataFrame, *, model: str, dataset: str, attribute: str) -> Picture | None:
    """Draw the quantiles of each group's scores (rows) by occupation (panels), largest spreads above smallest.

    Parameters
    ----------
    table : DataFrame
        Rows of `occupation_scores` of one scored attribute and scorer, with `model`.
    """
    own = where(table, model=model, dataset=dataset, attribute=attribute).drop_nulls(list(_QUANTILES))
    if own.is_empty():
        return None
    groups = in_order(own["group"], ())
    shown = [
        (end, place, own.filter(pl.col("end") == end, pl.col("place") == place))
        for end in ENDS
        for place in sorted(own.filter(pl.col("end") == end)["place"].unique())
    ]
    columns = max(sum(end == name for end, _, _ in shown) for name in ENDS)
    high = 1.04 * max(float(own["q95"].max() or 0.0), 1e-3)  # type: ignore[arg-type]
    left = Rows.plain(group_title(group) for group in groups).width + 20
    grid = fit_grid(columns, width=WIDTH, left=left, top=54, height=8 + 16 * len(groups), columns=columns)
    scored = scored_title(own["event"][0])
    with drawing():
        figure = blank(WIDTH, grid.bottom(2 * columns) + 46)
        for end, place, rows in shown:
            index = ENDS.index(end) * columns + place - 1
            axes = grid.place(figure, index)
            rows_axes(axes, [group_title(group) for group in groups], shown=index % columns == 0)
            number_scale(axes, high)
            panel_title(axes, f"{rows['occupation'][0]} ({number(rows['spread'][0])})")
            _boxes(axes, rows, groups)
        entries = [
            LegendDot("median", INK, marker="|"),
            LegendDot("middle half (thick), middle nine tenths (thin)", BLUE, marker="s"),
        ]
        legend(figure, entries, left=left)
        axis_title(figure, left, grid.bottom(2 * columns) + 34, f"{scored} score of an answer")
    return Picture(
        name=f"occupations-{model}-{dataset}-{attribute}",
        title=f"By occupation: {model} on {dataset}, {attribute_title(attribute)}",
        description=f"Above: the occupations in which the mean {scored} scores of groups lie furthest apart; below: "
        "those in which they lie nearest. In brackets the standard deviation of the group means; with few scenes "
        f"chance alone spreads them. Prompt: {prompt_title(own['prompt'][0])}.",
        figure=figure,
    )


def _boxes(axes, rows: pl.DataFrame, groups: list[str]) -> None:  # type: ignore[no-untyped-def]
    placed = [(groups.index(row["group"]), row) for row in rows.to_dicts()]
    ys = [y for y, _ in placed]
    for low, high, width, colour in (("q05", "q95", 1.2, SLATE), ("q25", "q75", 6.5, BLUE)):
        ends = [[row[name] for _, row in placed] for name in (low, high)]
        axes.hlines(ys, *ends, color=colour, linewidth=width, zorder=2)
    medians = [row["median"] for _, row in placed]
    (line,) = axes.plot(medians, ys, "|", color=INK, markersize=9, markeredgewidth=2, zorder=3, clip_on=False)
    with_tips(line, [_tip(row) for _, row in placed])


def _tip(row: dict[str, object]) -> str:
    said = ", ".join(f"{name} {number(row[name])}" for name in _QUANTILES)  # type: ignore[arg-type]
    return f"{group_title(str(row['group']))}: {said}, n = {count(row['n'])} answers"  # type: ignore[arg-type]
