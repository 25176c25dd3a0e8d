"""Captions by scene: a heat map of how often each group of a scene is given a negative caption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.report.figures.canvas import Picture, blank, drawing, label, panel, text_width
from plumbline.report.figures.palette import INK, SEQUENTIAL, SOFT
from plumbline.report.figures.panels import rows_axes
from plumbline.report.reading import Reading
from plumbline.report.rows import by, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUITE = "pata_captions"
ATTRIBUTES = ("race", "gender", "age")
EVERYONE = "everyone"
_ROW, _COLUMN, _APART = 21, 92, 14


def caption_event(attribute: str) -> str:
    """Return the event of an attribute's negative captions."""
    return f"negative_{attribute}_caption"


def heat_figure(
    table: pl.DataFrame, reading: Reading, *, model: str, dataset: str, attribute: str
) -> Picture | None:
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
                start + _COLUMN / 2,
                -0.75,
                label(group_title(name), longest=13),
                ha="center",
                color=SOFT,
                fontsize=11,
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
