"""The main charts of all chapters, for places that show some of them: MLflow, Dagster, a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from plumbline.report.chapters import CHAPTERS
from plumbline.report.charts.chart import Chart
from plumbline.report.page import page_html
from plumbline.report.reading import Reading
from plumbline.report.rows import checked, in_order

_CHARTS = {name: draw for chapter in CHAPTERS for name, draw in chapter.pictures.items()}
NAMES = tuple(_CHARTS)
"""Of all chapters; with the rows of one model alone they show a cell."""


def main_charts(
    metric_table: pl.DataFrame, dataset: str, reading: Reading | None = None, *, names: Sequence[str] = NAMES
) -> dict[str, Chart]:
    """Return each main chart that a metric table has rows for, by name, in the order of `names`.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.catalog.schema`; of one model or of many.
    dataset : str
        The dataset to draw.
    names : sequence of str
        Which charts, of `NAMES`.
    """
    table, reading = checked(metric_table), reading or Reading()
    models = tuple(in_order(table["model"], ()))
    drawn = {name: _CHARTS[name](table, reading, models, dataset) for name in names}
    return {name: chart for name, chart in drawn.items() if chart is not None}


def charts_page(charts: Mapping[str, Chart], *, title: str) -> str:
    """Return some charts as one self-contained HTML page, which draws them where it is opened."""
    return page_html("charts.html.jinja", title=title, heading=title, charts=list(charts.values()))
