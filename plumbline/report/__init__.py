"""The audit report: findings in words, charts and tables from the metric table, one HTML file.

>>> from plumbline.report import findings_table, render
"""

from plumbline.report.charts.chart import Chart
from plumbline.report.finding import Finding, headlines
from plumbline.report.findings import findings, findings_table
from plumbline.report.html import render
from plumbline.report.inputs import AbsentCell, DatasetSummary, EncoderSummary, ReportInputs
from plumbline.report.reading import AuditSummary, Reading

__all__ = [
    "AbsentCell",
    "AuditSummary",
    "Chart",
    "DatasetSummary",
    "EncoderSummary",
    "Finding",
    "Reading",
    "ReportInputs",
    "findings",
    "findings_table",
    "headlines",
    "render",
]
