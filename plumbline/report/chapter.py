"""A chapter of the report about one family of metrics: one chart shown, the others folded behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from plumbline.report.charts.chart import Chart
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing
from plumbline.report.reading import Reading

Draw = Callable[[pl.DataFrame, Reading, tuple[str, ...], str], Chart | None]
"""Takes the metric table, how to read it, the models and a dataset; gives a chart, or None without rows."""


def drawn(charts: Iterable[Chart | None]) -> list[Chart]:
    """Return the charts without those for which there was nothing to draw."""
    return [chart for chart in charts if chart]


@dataclass(frozen=True)
class Part:
    """One dataset, or one question, of a chapter.

    Attributes
    ----------
    title : str
        The dataset's id, or what is asked.
    pictures, details : list of Chart
        Shown, and folded away.
    listings : list of (str, Listing)
        Folded tables with their titles.
    notes : list of str
        Plain sentences shown above the pictures.
    tables : list of (str, Listing)
        Short tables with their titles, shown below the pictures.
    """

    title: str
    pictures: list[Chart] = field(default_factory=list)
    details: list[Chart] = field(default_factory=list)
    listings: list[tuple[str, Listing]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[tuple[str, Listing]] = field(default_factory=list)

    @classmethod
    def of(cls, title: str, charts: Iterable[Chart | None], *, notes: Iterable[str] = ()) -> Part:
        """Return a part that shows the first of some charts, and folds the others away."""
        shown = drawn(charts)
        return cls(title, pictures=shown[:1], details=shown[1:], notes=list(notes))


@dataclass(frozen=True)
class Chapter:
    """A chapter.

    Attributes
    ----------
    anchor, title : str
        For the contents and the heading.
    lead : str
        What was asked and how to read the answer, for a first-time reader.
    parts : callable
        Of the checked metric table and the inputs; a chapter without parts is left out of the report.
    findings : callable, optional
        What the chapter adds to the headline findings.
    pictures : mapping of str to callable
        Small pictures for the Dagster and MLflow pages of one cell, by name.
    method : tuple of (str, str)
        Entries of "How the numbers are made": term and explanation.
    """

    anchor: str
    title: str
    lead: str
    parts: Callable[[pl.DataFrame, ReportInputs], list[Part]]
    findings: Callable[[pl.DataFrame, Reading], list[Finding]] | None = None
    pictures: Mapping[str, Draw] = field(default_factory=dict)
    method: tuple[tuple[str, str], ...] = ()
