"""The labels that numbers rest on: how a dataset is balanced, and how often the automatic gender label is wrong."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.labels import balance, label_errors
from plumbline.report.inputs import ReportInputs


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    parts = [Part.of(dataset.id, [label_errors(dataset), balance(dataset)]) for dataset in inputs.datasets]
    return [part for part in parts if part.pictures]


CHAPTER = Chapter(
    anchor="label-error",
    title="Labels: their balance and their errors",
    lead="Mixed tests rest on a gender label that one of the models gives. Where the dataset has its own label, this "
    "is how often the two differ; then the share of every label, against the range that the audit file declares for "
    "it.",
    parts=_parts,
)
