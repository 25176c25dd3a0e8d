"""Small PNGs of the main figures, for places that show pictures but no SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

from plumbline.report.chapters import CHAPTERS
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.outcomes import harm_figure, proportions_figure, skew_figure
from plumbline.report.figures.trident import bubble_figure, gap_figure
from plumbline.report.reading import Reading
from plumbline.report.rows import checked, in_order

# Where only one model is in the table, these show a cell; the rest compare models.
NAMES = ("skew", "harm", "crime_by_group", "trident", "trident_mixed", "gap")
_OF_CHAPTERS = {name: draw for chapter in CHAPTERS for name, draw in chapter.pictures.items()}


def thumbnails(
    metric_table: pl.DataFrame,
    *,
    dataset: str,
    model: str | None = None,
    planted: pl.DataFrame | None = None,
    reading: Reading | None = None,
    names: Sequence[str] = (*NAMES, *_OF_CHAPTERS),
) -> dict[str, bytes]:
    """Return a PNG of less than 30 KB for each main figure that the table has rows for.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.catalog.schema`; of one cell or of many.
    dataset : str
        The dataset to draw.
    model : str, optional
        Draw this model alone; all models of the table otherwise, and the first in the Trident charts.
    planted : DataFrame, optional
        Planted truth (`PLANTED_SCHEMA`).
    names : sequence of str
        Which figures, of `NAMES` and of the chapters' pictures; each takes about a quarter of a second.

    Returns
    -------
    dict of str to bytes
        By name, in the order of `names`.
    """
    table, reading = checked(metric_table), reading or Reading()
    if model is not None:
        table = table.filter(pl.col("model") == model)
    models = tuple(in_order(table["model"], ()))
    shown = model or (models[0] if models else "")
    drawn: dict[str, Callable[[], Picture | None]] = {
        "skew": lambda: skew_figure(table, reading, models, dataset),
        "harm": lambda: harm_figure(table, models, dataset),
        "crime_by_group": lambda: proportions_figure(
            table, planted, models, dataset=dataset, suite="crime", event="crime"
        ),
        "trident": lambda: bubble_figure(table, model=shown, dataset=dataset, suite="trident"),
        "trident_mixed": lambda: bubble_figure(table, model=shown, dataset=dataset, suite="trident_mixed"),
        "gap": lambda: gap_figure(table, reading, models, dataset),
    }
    drawn |= {name: partial(draw, table, reading, models, dataset) for name, draw in _OF_CHAPTERS.items()}
    pictures = {name: drawn[name]() for name in names}
    return {name: picture.png for name, picture in pictures.items() if picture is not None}
