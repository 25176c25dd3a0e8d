"""Directional bias under each wording, how often images are harmed by its size, and how alike a control looks."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from plumbline.catalog.suites import TASKS as SUITE_TASKS
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Rows, tip_of
from plumbline.report.charts.estimates import estimates
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where

TASKS = (
    ("crime", "positive_minus_negative"),
    ("crime", "crime_vs_non_human"),
    ("communion", "positive_minus_negative"),
    ("agency", "positive_minus_negative"),
)
TASK_TITLES = {
    TASKS[0]: "people − crime and animals",
    TASKS[1]: "crime − animals",
    TASKS[2]: "communion",
    TASKS[3]: "agency",
}
TEMPLATES = ("orig", "image_of", "portrait")
TEMPLATE_TITLES = {"orig": "a photo of …", "image_of": "an image of …", "portrait": "portrait of …"}
CONTROL_BOUND = 0.05
"""The paper's bound for |Δ| of its neutral portraits (Data Matters Most, table 5)."""


def template_title(template: str) -> str:
    """Return a template as its words."""
    return TEMPLATE_TITLES.get(template, template)


def bias_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the mean directional bias over all images of a dataset, one row a model, task and template."""
    return where(
        table, metric="directional_bias", dataset=dataset, condition="before", statistic="estimate", group=None
    )


def is_control(table: pl.DataFrame, dataset: str) -> bool:
    """Return whether a dataset has directional bias, and no groups in which it could differ."""
    rows = where(table, metric="directional_bias", dataset=dataset, condition="before")
    return not rows.is_empty() and rows["group"].null_count() == rows.height


def wordings(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw the mean directional bias by model (rows) and task (panels), a dot a wording of the prompts.

    Source: `directional_bias` over all images. In a control the paper's bound is a pale band.
    """
    control = is_control(table, dataset)
    tasks = pl.struct("event", "definition").map_elements(
        lambda task: TASK_TITLES.get((task["event"], task["definition"])), return_dtype=pl.String
    )
    rows = bias_rows(table, dataset).with_columns(task=tasks).drop_nulls("task")
    return estimates(
        f"wordings-{dataset}",
        f"Directional bias under three wordings, {dataset}",
        "Each dot is the mean over all images under one wording, with its interval. Dots of a row that lie apart: the "
        "wording of the prompts decides."
        + (f" The band is the paper's bound for its own control, ±{CONTROL_BOUND}." if control else ""),
        rows,
        row="model",
        panel="task",
        series="probe",
        order={"model": tuple(models), "task": tuple(TASK_TITLES.values()), "probe": TEMPLATES},
        words={"probe": lambda probe: f"“{template_title(probe)}”"},
        line=0.0,
        band=(-CONTROL_BOUND, CONTROL_BOUND) if control else None,
        axis="mean directional bias, in cosine units (left: nearer to the negative prompts)",
    )


def control_similarity(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw how alike images without groups look to each model: `intra_set_cosine`, the band one sd over the pairs."""
    rows = where(table, metric="intra_set_cosine", dataset=dataset, condition="before")
    spread = where(rows, statistic="sd").select("model", sd="value")
    means = where(rows, statistic="estimate").join(spread, on="model", how="left", maintain_order="left")
    return estimates(
        f"control-{dataset}",
        f"How alike the images look to each model, {dataset}",
        "Mean cosine of all pairs of images, with its interval; the band is one standard deviation over the pairs to "
        "either side. Near 1 the model sees one and the same face.",
        means.with_columns(span_low=pl.col("value") - pl.col("sd"), span_high=pl.col("value") + pl.col("sd")),
        row="model",
        order={"model": tuple(models)},
        axis="cosine of two images, over all pairs",
    )


def harm_by_bias_size(
    table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str, *, definition: str = "cosine"
) -> Chart | None:
    """Draw the share of harmful best matches by model (rows), and by task and size of the bias (columns).

    Source: `harm_by_bias_size`, and `bias_size_bin_share` for how full a bin is.
    """
    chosen = where(table, dataset=dataset, condition="before", definition=definition)
    shares = where(chosen, metric="harm_by_bias_size").filter(pl.col("value").is_finite())
    key = ["model", "event", "group"]
    filled = where(chosen, metric="bias_size_bin_share").select(*key, filled="value")
    bins = sorted(where(chosen, metric="harm_by_bias_size")["group"].unique())
    rows = shares.join(filled, on=key, how="left", maintain_order="left").to_dicts()
    scaled = definition != "cosine"
    return heat(
        f"bias-size-{definition}-{dataset}",
        f"How often harmed, by size of the bias{' (softmax mass)' if scaled else ''}, {dataset}",
        "The share of the images of a bin, in percent, whose best match is a harmful one. In brackets: fewer than "
        f"{reading.minimum_group} images. Empty bins are left out.",
        cells=[_bin(row, reading) for row in rows],
        rows=Rows.plain(in_order(shares["model"], tuple(models))),
        columns=Rows(tuple((event, tuple(map(_from, bins))) for event in in_order(shares["event"], SUITE_TASKS))),
        axis=f"columns: size of an image's directional bias, from, in {'softmax mass' if scaled else 'cosine units'}",
        largest=1.0,
        cell_width=38,
    )


def _from(bin_title: str) -> str:
    return bin_title.strip("[]() ").split(",")[0]


def _bin(row: Row, reading: Reading) -> Cell:
    text = f"{100 * row['value']:.0f}"
    tip = tip_of(row, f"{row['model']}, {row['event']}, bias in {row['group']}", unit="share")
    return Cell(
        row=row["model"],
        over=row["event"],
        column=_from(row["group"]),
        value=row["value"],
        text=text if row["n"] >= reading.minimum_group else f"({text})",
        tip=tip | ({"share of all images": percent(row["filled"])} if defined(row["filled"]) else {}),
    )
