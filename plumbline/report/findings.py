"""The headline findings of an audit, in plain words with their uncertainty, strongest first."""

from __future__ import annotations

import polars as pl

from plumbline.report.finding import Finding, at_first, headlines, in_rank_order
from plumbline.report.metric_findings import metric_findings
from plumbline.report.reading import Reading
from plumbline.report.rows import checked


def findings(table: pl.DataFrame, reading: Reading | None = None) -> list[Finding]:
    """Return every finding of a metric table, one a model, dataset and question, strongest first.

    Parameters
    ----------
    table : DataFrame
        Columns of `plumbline.tables.schema`.
    reading : Reading, optional
        Thresholds; the defaults otherwise.

    Raises
    ------
    MetricError
        If the table lacks columns of the schema.
    """
    reading, table = reading or Reading(), checked(table)
    return in_rank_order(metric_findings(table, reading))


def findings_table(
    metric_table: pl.DataFrame, reading: Reading | None = None, *, limit: int = 12
) -> pl.DataFrame:
    """Return a short table of the strongest findings for a terminal: model, dataset, finding, value, interval, q.

    `explain` names the metric row that a finding tells, for `plumbline explain`.
    A mean over probes has no interval of its own; the column then says "range over probes" and gives that.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.tables.schema`.
    reading : Reading, optional
        Thresholds, and the scorer of the headlines; the defaults, and the first scorer by name, otherwise.
    limit : int
        At most this many rows, one a topic.
    """
    rows = [
        {
            "model": f.model,
            "dataset": f.dataset,
            "finding": f.short,
            "value": f.value_text,
            "interval": f.interval_text,
            "q": f.q_text,
            "explain": f.row,
        }
        for f in at_first(headlines(findings(metric_table, reading))).first[:limit]
    ]
    columns = ("model", "dataset", "finding", "value", "interval", "q", "explain")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String))
