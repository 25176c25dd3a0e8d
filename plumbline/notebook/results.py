"""What an audit in memory found: sentences, the metric table, the scorecard, charts, and what changed since another."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell
from plumbline.metrics.family import MetricSettings
from plumbline.report.finding import Finding
from plumbline.report.findings import headline_findings
from plumbline.report.front import not_checked
from plumbline.report.reading import Reading
from plumbline.report.scorecard import scorecard
from plumbline.report.scorecard_table import score_tables

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_SHOWN = 8


class Findings(tuple[Finding, ...]):
    """Findings, strongest first; shown as their sentences."""

    def __repr__(self) -> str:
        """Return one sentence a line."""
        return "\n".join(f"- {finding.sentence}" for finding in self) or "no finding"

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(finding.sentence)}</li>" for finding in self)
        return f"<ul>{items}</ul>" if items else "<p>no finding</p>"


@dataclass(frozen=True, repr=False)
class Audit:
    """An audit of one model on one set of images.

    Attributes
    ----------
    table : DataFrame
        The metric table, a row a number: columns of `plumbline.catalog.schema`.
    settings : MetricSettings
    cell : Cell
        The responses and labels that the numbers are of.
    left_out : mapping of str to str
        Suites and tests that the labels cannot answer, columns that were not read, labels that were not shown -> why.
        Mitigations, accuracy on things, automatic labels and
        models that answer in words are the pipeline's.
    """

    table: pl.DataFrame
    settings: MetricSettings
    cell: Cell
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def reading(self) -> Reading:
        """Return how the estimates are read: what counts as evidence, and as a small group."""
        level = self.settings.confidence
        return Reading(confidence=level, minimum_group=self.settings.min_group)

    @cached_property
    def findings(self) -> Findings:
        """Return what there is to say, strongest first, each with its evidence."""
        return Findings(headline_findings(self.table, self.reading))

    @cached_property
    def scores(self) -> pl.DataFrame:
        """Return the scorecard as a table: a row a question, columns of `plumbline.report.scorecard`."""
        return scorecard(self.table, self.reading)

    def to_pandas(self) -> pd.DataFrame:
        """Return the metric table as a pandas frame."""
        return self.table.to_pandas()

    def scorecard(self) -> alt.TopLevelMixin:
        """Return the scorecard as an Altair chart.

        Raises
        ------
        MetricError
            If none of its questions was asked.
        """
        from plumbline.report.charts.scorecard import scorecard as drawn

        chart = drawn(self.scores)
        if chart is None:
            raise MetricError(
                "no question of the scorecard was asked",
                found=", ".join(self.cell.logits) or "no suite",
                expected="a suite such as crime, agency, communion, trident or perception, and labels of people",
            )
        return chart.figure

    def charts(self) -> dict[str, alt.TopLevelMixin]:
        """Return every chart of the report that these numbers fill, by name, as Altair charts."""
        from plumbline.report.chapters import main_charts

        return {name: chart.figure for name, chart in main_charts(self.table, self.cell.dataset, self.reading).items()}

    def numbers(self) -> dict[str, float]:
        """Return the headline numbers as a flat dict, such as `max_skew/crime/crime/race`: what trackers take.

        Those of every event and attribute, parity differences among them, and all that `numbers.json` of an export has.
        """
        from plumbline.provenance.export import headline_rows
        from plumbline.provenance.forms import flat_numbers
        from plumbline.provenance.tracked_numbers import headline_metrics, parity_differences

        numbers: dict[str, float] = {}
        for rows in headline_rows(self.table, self.reading).values():
            numbers |= flat_numbers(rows)
        return numbers | headline_metrics(self.table) | parity_differences(self.table)

    def log_to(self, tracker: Any, *, step: int | None = None) -> None:
        """Hand the headline numbers to a tracker.

        Parameters
        ----------
        tracker : module, object or callable
            MLflow or whatever has its `log_metrics(numbers, step=)`; else a function of a flat dict, such as
            `wandb.log` or the `update` of a dict.
        step : int, optional
            Epoch or step; a function gets it as `step` of the dict.

        Raises
        ------
        MetricError
            If it is neither.
        """
        numbers = self.numbers()
        if hasattr(tracker, "log_metrics"):
            tracker.log_metrics(numbers, step=step)
        elif callable(tracker):
            tracker(numbers if step is None else {**numbers, "step": step})
        else:
            raise MetricError(
                "this takes no numbers",
                found=type(tracker).__name__,
                expected="a module or object with `log_metrics`, or a function of a dict",
            )

    def export(self, folder: str | Path, forms: Collection[str] | None = None) -> list[Path]:
        """Write the audit into a folder in the forms that others read; existing files of these names are replaced.

        Parameters
        ----------
        folder : path
            Is made where it is not there.
        forms : collection of str, optional
            Of `plumbline.provenance.forms.FORMS`, by default all: `tables` (Parquet, CSV, Croissant), `clip_benchmark`,
            `numbers`, `eval_results` and `model_cards` for the Hugging Face Hub, `scorecard`, `impact_ratios`.

        Returns
        -------
        list of Path

        Raises
        ------
        ConfigError
            If there is no such form.
        StorageError
            If a file would lie outside of the folder, as the name of a model may ask; nothing is written then.
        """
        from plumbline.provenance.forms import Exported, write_files, written

        title = f"{self.cell.model} on {self.cell.dataset}"
        suites = tuple(logits.suite for logits in self.cell.logits.values())
        files = written(Exported(self.table, self.reading, title=title, suites=suites), forms)
        return write_files(files, Path(folder))

    def diff(self, earlier: Audit, *, limits: Mapping[str, float] | None = None) -> pl.DataFrame:
        """Return what changed since another audit, what got worse on top.

        Where both are of the same images, disparities between groups are compared image by image; all other rows by
        their two intervals, and each row says how. Vectors say by `image_ids` which image they are of: without them,
        other vectors are other images. Of a model that is or was at chance for every label, accuracy alone is compared.

        Parameters
        ----------
        earlier : Audit
        limits : mapping of str to float, optional
            Metric -> how far it may move away from what is fair.

        Returns
        -------
        DataFrame
            Columns of `plumbline.provenance.diff.DIFF_SCHEMA`, q within the rows of one metric, definition, condition,
            statistic and scorer, and `verdict`: null where a row was not tested, or another definition of its metric
            has one.

        Raises
        ------
        MetricError
            If the other is no audit.
        """
        from plumbline.provenance.diff import in_order_of, judged, paired_differences, table_differences, with_q

        if not isinstance(earlier, Audit):
            raise MetricError(
                "a difference is from an audit", where="earlier", found=type(earlier).__name__, expected="an Audit"
            )
        old, new = earlier.cell, self.cell
        paired = []
        if (ordered := in_order_of(new, old)) is not None:
            hashes = {name: logits.suite.hash for name, logits in old.logits.items()}
            both = [name for name, logits in new.logits.items() if hashes.get(name) == logits.suite.hash]
            sides = [replace(cell, logits={name: cell.logits[name] for name in both}) for cell in (ordered, new)]
            paired = paired_differences(*sides, settings=self.settings)
        frames = []
        for dataset in sorted({*self.table["dataset"], *earlier.table["dataset"]}):
            before, after = (each.table.filter(pl.col("dataset") == dataset) for each in (earlier, self))
            of_dataset = [row for row in paired if row["dataset"] == dataset]
            level = self.settings.confidence
            models = (old.model, new.model)
            frames.append(table_differences(before, after, of_dataset, models=models, confidence=level))
        return judged(with_q(frames), limits or {}, significance=self.reading.significance)

    def __repr__(self) -> str:
        """Return what was audited, the strongest findings, and what was left out."""
        lines = [f"- {finding.sentence}" for finding in self.findings[:_SHOWN]]
        return "\n".join([self._title, *self._doubts, *lines, *([self._absent] if self.left_out else [])])

    @property
    def _doubts(self) -> tuple[str, ...]:
        return not_checked(self.scores, self.table)

    @property
    def _absent(self) -> str:
        return "Left out: " + "; ".join(f"{name} ({why})" for name, why in self.left_out.items()) + "."

    @property
    def _title(self) -> str:
        suites = ", ".join(self.cell.logits)
        return f"{self.cell.model} on {self.cell.records.height} images of {self.cell.dataset}: {suites}"

    def _repr_html_(self) -> str:
        sentences = [*self._doubts, *(finding.sentence for finding in self.findings[:_SHOWN])]
        items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
        tables = "".join(_html_table(self.scores) if self.scores.height else "")
        absent = f"<p>{html.escape(self._absent)}</p>" if self.left_out else ""
        return f"<p><b>{html.escape(self._title)}</b></p><ul>{items}</ul>{tables}{absent}"


def _html_table(scores: pl.DataFrame) -> str:
    rows = []
    for table in score_tables(scores):
        for _, cells in table.rows:
            for column, cell in zip(table.columns, cells):
                parts = (column.title, f"{cell.text} {column.unit}".strip(), cell.tip)
                rows.append("<tr>" + "".join(f"<td>{html.escape(part)}</td>" for part in parts) + "</tr>")
    return f"<table><tr><th>Question</th><th>Value</th><th></th></tr>{''.join(rows)}</table>"
