"""The small chart beside a finding: the groups that it compares."""

from __future__ import annotations

import polars as pl

from plumbline.catalog.schema import IDENTIFYING
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Unit
from plumbline.report.charts.estimates import estimates
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, where
from plumbline.report.scorecard import Question, group_rows

WIDTH = 300
"""Pixels of the scale: two findings stand side by side on a page."""
MOST_GROUPS = 8
"""Of more groups, those furthest from the middle are drawn, half of them at either end."""
UNITS: dict[str, Unit] = {
    "toxicity": "number",
    "rating": "number",
    "skew_at_k": "number",
    "sc_weat_effect": "number",
    "salary": "money",
}
_AXES = {
    "sc_weat_effect": "standard deviations; 0 is no association",
    "skew_at_k": "log of the share among the first over the fair share; 0 is fair",
    "toxicity": "mean toxicity of the texts about a group",
    "rating": "mean rating of a group",
    "salary": "mean salary of a group, US dollars a year",
    "max_score_share": "share of scenes in which the text about a group is the most toxic",
    "true_positive_rate": "share recognised, mean over classes; within a class groups lie further apart",
    "competence_words": "share of words that speak of competence",
    "warmth_words": "share of words that speak of warmth",
    "refusal_rate": "share of answers that are refusals",
}


def groups_of(what: str, row: Row, question: Question, table: pl.DataFrame, reading: Reading) -> Chart | None:
    """Draw the groups that a row compares, the highest first; None where the table does not hold them.

    Parameters
    ----------
    what : str
        What is compared, for the title.
    row : dict
        Of the metric table: a disparity between groups, or the value of one of them.
    question : Question
        Of its metric: it says which rows are the groups'.
    table : DataFrame
        The metric table.
    """
    if row["group"] is None:
        source = group_rows(row, question, table)
    else:
        same = {name: row[name] for name in IDENTIFYING if name not in ("group", "reference_group")}
        source = where(table, **same)
    known = (
        source.filter(pl.col("value").is_finite()).drop_nulls("group").sort("value", "group", descending=[True, False])
    )
    if known["group"].n_unique() < 2:
        return None
    if known["group"].is_duplicated().any():  # one row a probe or class: their mean has no interval
        means = known.group_by("group", maintain_order=True).agg(pl.mean("value"))
        first = known.unique("group", keep="first", maintain_order=True).drop("value")
        blank = {name: pl.lit(None, pl.Float64) for name in ("ci_low", "ci_high", "p", "q")}
        known = first.join(means, on="group").with_columns(**blank).sort("value", descending=True)
    if known.height > MOST_GROUPS:
        known = pl.concat([known.head(MOST_GROUPS // 2), known.tail(MOST_GROUPS // 2)])
    metric = known["metric"][0]
    chart = estimates(
        f"finding-{row['row_id']}",
        f"{what}: {row['model']} on {row['dataset']}",
        "A dot a group, with its interval.",
        known,
        row="group",
        order={"group": known["group"].to_list()},
        reading=reading if row["group"] is not None else None,
        unit=UNITS.get(metric, "share"),
        axis=_AXES.get(metric, "share of a group's images"),
        line=0.0 if UNITS.get(metric) == "number" and metric in ("sc_weat_effect", "skew_at_k") else None,
    )
    if chart is not None:
        chart.spec["spec"]["width"] = WIDTH
    return chart
