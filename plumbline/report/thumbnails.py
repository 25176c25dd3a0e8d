"""Small PNGs of the main charts, for places that show pictures but no Vega-Lite."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from plumbline.report.chapters import CHAPTERS
from plumbline.report.charts.chart import Chart
from plumbline.report.reading import Reading
from plumbline.report.rows import checked, in_order

_CHARTS = {name: draw for chapter in CHAPTERS for name, draw in chapter.pictures.items()}
NAMES = tuple(_CHARTS)
"""Of all chapters; with the rows of one model alone they show a cell."""


def charts(
    metric_table: pl.DataFrame, dataset: str, reading: Reading | None = None, *, names: Sequence[str] = NAMES
) -> dict[str, Chart]:
    """Return each main chart that a metric table has rows for, by name; see `thumbnails`."""
    table, reading = checked(metric_table), reading or Reading()
    models = tuple(in_order(table["model"], ()))
    drawn = {name: _CHARTS[name](table, reading, models, dataset) for name in names}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def thumbnails(
    metric_table: pl.DataFrame,
    *,
    dataset: str,
    model: str | None = None,
    reading: Reading | None = None,
    names: Sequence[str] = NAMES,
) -> dict[str, bytes]:
    """Return a PNG of less than 30 KB for each main chart that the table has rows for.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.catalog.schema`; of one cell or of many.
    dataset : str
        The dataset to draw.
    model : str, optional
        Draw this model alone; all models of the table otherwise.
    names : sequence of str
        Which charts, of `NAMES`; each takes about a fifth of a second.

    Returns
    -------
    dict of str to bytes
        By name, in the order of `names`.
    """
    table = metric_table if model is None else checked(metric_table).filter(pl.col("model") == model)
    return {name: chart.png for name, chart in charts(table, dataset, reading, names=names).items()}
