"""The chapters of the report, in their order: one module each, one row here; and the main charts of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from plumbline.report.chapter import Chapter
from plumbline.report.chapters.associations import CHAPTER as ASSOCIATIONS
from plumbline.report.chapters.base_llm import CHAPTER as BASE_LLM
from plumbline.report.chapters.captions import CHAPTER as CAPTIONS
from plumbline.report.chapters.confounds import CHAPTER as CONFOUNDS
from plumbline.report.chapters.effects import CHAPTER as EFFECTS
from plumbline.report.chapters.equal_opportunity import CHAPTER as OPPORTUNITY
from plumbline.report.chapters.generation import CHAPTER as GENERATION
from plumbline.report.chapters.instructions import CHAPTER as INSTRUCTIONS
from plumbline.report.chapters.labels import CHAPTER as LABELS
from plumbline.report.chapters.mitigations import CHAPTER as MITIGATIONS
from plumbline.report.chapters.outcomes import CHAPTER as OUTCOMES
from plumbline.report.chapters.own_metrics import CHAPTER as OWN_METRICS
from plumbline.report.chapters.published import CHAPTER as PUBLISHED
from plumbline.report.chapters.rankings import CHAPTER as RANKINGS
from plumbline.report.chapters.ratings import CHAPTER as RATINGS
from plumbline.report.chapters.robustness import CHAPTER as ROBUSTNESS
from plumbline.report.chapters.text_space import CHAPTER as TEXT_SPACE
from plumbline.report.chapters.trident import CHAPTER as TRIDENT
from plumbline.report.chapters.utility import CHAPTER as UTILITY
from plumbline.report.chapters.words import CHAPTER as WORDS
from plumbline.report.charts.chart import Chart
from plumbline.report.page import page_html
from plumbline.report.reading import Reading
from plumbline.report.rows import checked, in_order

CHAPTERS: tuple[Chapter, ...] = (
    OUTCOMES,
    TRIDENT,
    CAPTIONS,
    OPPORTUNITY,
    OWN_METRICS,
    EFFECTS,
    ROBUSTNESS,
    ASSOCIATIONS,
    RANKINGS,
    CONFOUNDS,
    UTILITY,
    TEXT_SPACE,
    MITIGATIONS,
    GENERATION,
    WORDS,
    RATINGS,
    INSTRUCTIONS,
    BASE_LLM,
    LABELS,
    PUBLISHED,
)


# --- Their main charts, for places that show some of them: MLflow, Dagster, a notebook.

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
