"""What a model reads in a face along pose, lighting, a smile and age, and how much each attribute moves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from plumbline.report.evidence import in_ends
from plumbline.report.figures.canvas import (
    BLUE,
    FAINT,
    GRID,
    SLATE,
    SOFT,
    VALENCE_COLOURS,
    Picture,
    blank,
    drawing,
    text_width,
    with_tips,
)
from plumbline.report.figures.marks import LegendDot, Mark, cap_of, dots_with_intervals, legend
from plumbline.report.figures.panels import WIDTH, axis_title, fit_grid, number_scale, panel_title, panels_figure
from plumbline.report.numbers import MINUS
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import attribute_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORDER = ("pose", "lighting", "smiling", "age")
PROTECTED = ("gender", "race", "age")
CURVES = ("positive", "negative", "blank")
_COLOURS = {**VALENCE_COLOURS, "blank": SLATE}
_SHAPES = {"positive": "o", "negative": "D", "blank": "s"}
_OF_SHAPE = "Intervals are of the shape of the line: every seed was first brought to the common mean."
_OF_MEAN = "Intervals are of the mean itself, and hold the differences between the seeds."
_WORDS = {"positive": "positive words", "negative": "negative words", "blank": "no word: “a person”"}


def curves_figure(table: pl.DataFrame, *, model: str, dataset: str, definition: str = "less_blank") -> Picture | None:
    """Draw the mean outcome at each level, one panel a confound, one line a valence; None without such rows.

    `definition` is `less_blank` (cosine with the word minus cosine without) or `raw` (the cosines themselves). The
    first is drawn with the intervals of `within_sets` where the dataset has sets.
    """
    of_dataset = where(table, metric="perception_by_level", model=model, dataset=dataset, condition="before")
    of_dataset = of_dataset.filter(pl.col("value").is_finite())
    centred = definition == "less_blank" and where(of_dataset, definition="within_sets").height > 0
    rows = where(of_dataset, definition="within_sets" if centred else definition)
    if rows.is_empty():
        return None
    confounds, events = in_order(rows["attribute"], ORDER), in_order(rows["event"], CURVES)
    low, high = _range(rows.to_dicts())
    left = text_width([_signed(t) for t in _ticks(low, high)], size=11) + 18
    grid = fit_grid(len(confounds), width=WIDTH, left=left, top=58, height=230, columns=4)
    with drawing():
        figure = blank(WIDTH, grid.bottom(len(confounds)) + 52)
        for index, confound in enumerate(confounds):
            axes = grid.place(figure, index)
            _frame(axes, where(rows, attribute=confound), (low, high), shown=index % grid.columns == 0)
            panel_title(axes, attribute_title(confound))
            for event in events:
                # Side by side, so that intervals at one level do not hide each other.
                _curve(axes, where(rows, attribute=confound, event=event).to_dicts(), event, events.index(event))
        marks = [LegendDot(_WORDS[e], _COLOURS[e], marker=_SHAPES[e]) for e in events]
        legend(figure, marks, left=left)
        what = "cosine with the word, less the cosine without" if definition == "less_blank" else "cosine"
        axis_title(figure, left, grid.bottom(len(confounds)) + 40, f"level of the confound; upwards: {what}")
    raw = ", without taking off the prompt that has no word" if definition == "raw" else ""
    return Picture(
        name=f"confounds-{definition}-{model}-{dataset}",
        title=f"What {model} reads in a face along each confound, {dataset}{raw}",
        description="Each mark is the mean over the faces at one level and the words of one valence. Nothing but the "
        "level differs between the faces of a panel: a flat line is one that the confound does not move. "
        f"{_OF_SHAPE if centred else _OF_MEAN} The panels share one scale.",
        figure=figure,
    )


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    ends = [row[name] for row in rows for name in ("value", "ci_low", "ci_high") if defined(row[name])]
    values = [row["value"] for row in rows]
    span = max(values) - min(values)
    # An interval of a few seeds may be very long: it is cut off rather than the curves flattened.
    low = max(min(ends), min(values) - 1.5 * span)
    high = min(max(ends), max(values) + 1.5 * span)
    room = 0.06 * (high - low) or 1e-3
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    ticks = [round(float(t), 9) for t in MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(low, high)]
    return [t for t in ticks if low <= t <= high]


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", MINUS)


def _frame(axes: Axes, rows: pl.DataFrame, ends: tuple[float, float], *, shown: bool) -> None:
    """Give a panel its levels across and the shared scale upwards."""
    from matplotlib.ticker import MaxNLocator

    levels = sorted({float(group) for group in rows["group"]})
    room = 0.07 * (levels[-1] - levels[0]) or 1.0
    axes.set_xlim(levels[0] - room, levels[-1] + room)
    across = MaxNLocator(nbins=5, integer=True).tick_values(levels[0], levels[-1])
    places = [float(t) for t in across if levels[0] - room <= t <= levels[-1] + room]
    axes.set_xticks(places, [_signed(t) for t in places])
    axes.set_ylim(*ends)
    axes.set_yticks([])
    lines = axes.get_yaxis_transform()
    ticks = _ticks(*ends)
    axes.hlines(ticks, 0, 1, transform=lines, color=GRID, linewidth=0.9, zorder=0)
    if levels[0] < 0 < levels[-1]:
        axes.axvline(0, color=FAINT, linewidth=1.4, zorder=0)
    if shown:
        for tick in ticks:
            axes.annotate(
                _signed(tick), (0, tick), (-8, 0), xycoords=lines, textcoords="offset points", ha="right",
                va="center_baseline", color=SOFT, fontsize=11,
            )  # fmt: skip


def _curve(axes: Axes, rows: list[Row], event: str, place: int) -> None:
    rows = sorted(rows, key=lambda row: float(row["group"]))
    if not rows:
        return
    ends, colour = axes.get_xlim(), _COLOURS[event]
    aside = 0.012 * (ends[1] - ends[0]) * (place - 0.5)
    x, y = [float(row["group"]) + aside for row in rows], [row["value"] for row in rows]
    axes.plot(x, y, "-", color=colour, linewidth=1.4, zorder=2)
    known = [row for row in rows if defined(row["ci_low"]) and defined(row["ci_high"])]
    low, high = axes.get_ylim()
    axes.vlines(
        [float(row["group"]) + aside for row in known],
        [max(row["ci_low"], low) for row in known],
        [min(row["ci_high"], high) for row in known],
        color=colour,
        linewidth=1.3,
        alpha=0.6,
    )
    size = 5 if _SHAPES[event] == "D" else 6
    (dots,) = axes.plot(x, y, _SHAPES[event], color=colour, markersize=size, zorder=3, clip_on=False)
    with_tips(dots, [_level_tip(row) for row in rows])


def _level_tip(row: Row) -> str:
    return (
        f"{attribute_title(row['attribute'])} {_signed(float(row['group']))}, {_WORDS[row['event']]}: "
        f"{in_ends(row)}, n = {row['n']}"
    )


def change_figure(table: pl.DataFrame, *, model: str, dataset: str) -> Picture | None:
    """Draw how much changing each attribute moves the outcome, by valence; None without such rows."""
    rows = where(
        table, metric="attribute_change", definition="cluster", model=model, dataset=dataset, condition="before"
    )
    if rows.is_empty():
        return None
    confounds = [name for name in in_order(rows["attribute"], ORDER) if name not in PROTECTED]
    names = confounds + [name for name in in_order(rows["attribute"], PROTECTED) if name in PROTECTED]
    valences = in_order(rows["event"], CURVES)
    marks = {
        (valence, protected): [
            _change_mark(row, names.index(row["attribute"]))
            for row in where(rows, event=valence).to_dicts()
            if (row["attribute"] in PROTECTED) is protected
        ]
        for valence in valences
        for protected in (False, True)
    }
    cap = cap_of([mark for each_marks in marks.values() for mark in each_marks])

    def draw(axes: Axes, index: int) -> None:
        number_scale(axes, cap)
        dots_with_intervals(axes, marks[valences[index], False], SLATE, cap=cap)
        dots_with_intervals(axes, marks[valences[index], True], BLUE, cap=cap, shape="D")

    return Picture(
        name=f"changes-{model}-{dataset}",
        title=f"Does a confound move {model} as much as a protected attribute? {dataset}",
        description="Each mark is the mean absolute change between two faces of one seed that differ in one "
        "attribute alone, with its interval over the seeds. A confound that lies as far right as gender or race "
        "can hide, or feign, a bias in photographs in which it is not held still.",
        figure=panels_figure(
            [_WORDS[valence] for valence in valences],
            draw,
            rows=[attribute_title(name) for name in names],
            height=30 * len(names),
            axis="mean absolute change of the outcome between two faces that differ in this alone",
            entries=[LegendDot("confound", SLATE), LegendDot("protected attribute", BLUE, marker="D")],
            columns=2,
            above=58,
            below=52,
        ),
    )


def _change_mark(row: Row, y: int) -> Mark:
    tip = f"{attribute_title(row['attribute'])}, {_WORDS[row['event']]}: {in_ends(row)}, {row['n']} pairs of faces"
    return Mark.of(row, y, tip)


def draw_curves(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw the curves of the first of some models that has them: the small picture of a cell."""
    drawn = (curves_figure(table, model=model, dataset=dataset) for model in models)
    return next((picture for picture in drawn if picture), None)
