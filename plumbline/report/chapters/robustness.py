"""How robust directional bias is: the wording of the prompts, the size from which it harms, a neutral control."""

from __future__ import annotations

import math
from collections.abc import Iterable

import polars as pl

from plumbline.catalog.suites import TASKS as SUITE_TASKS
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Rows, tip_of
from plumbline.report.charts.estimates import estimates
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.evidence import finding_of
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, or_nan, where

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


DEFAULT = "positive_minus_negative"


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=("directional_bias", "intra_set_cosine"), condition="before")
    return [_part(where(table, dataset=dataset), inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    arguments = (own, inputs.audit, inputs.models, dataset)
    sizes = () if is_control(own, dataset) else ("cosine", "scaled")
    by_size = (harm_by_bias_size(*arguments, definition=definition) for definition in sizes)
    return Part.of(dataset, [wordings(*arguments), control_similarity(*arguments), *by_size])


def robustness_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what wording does to the bias, what the neutral control shows, and from where on it harms."""
    findings: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        of_dataset = where(table, dataset=dataset, condition="before")
        control = is_control(of_dataset, dataset)
        for model in of_dataset["model"].unique().sort().to_list():
            of_model = where(of_dataset, model=model)
            findings += _control(of_model, dataset, reading) if control else _shift(of_model, dataset, reading)
            findings += [] if control else _harm(of_model, reading)
        findings += _order(of_dataset, dataset, reading)
    return findings


def _shift(rows: pl.DataFrame, dataset: str, reading: Reading) -> list[Finding]:
    shifts = where(rows, metric="template_shift", definition=DEFAULT, group=None).to_dicts()
    shifts = [row for row in shifts if defined(row["value"])]
    if not shifts:
        return []
    row = max(shifts, key=lambda r: (r["value"], r["event"]))
    short = f"Largest shift of the mean directional bias between wordings ({_task(row)})"
    return [_finding(row, reading, topic=("wording", dataset), short=short)]


def _control(rows: pl.DataFrame, dataset: str, reading: Reading) -> list[Finding]:
    means = [row for row in bias_rows(rows, dataset).to_dicts() if row["definition"] == DEFAULT]
    means = [row for row in means if defined(row["value"])]
    if not means:
        return []
    row = max(means, key=lambda r: (abs(r["value"]), r["event"], r["probe"]))
    short = f"Largest directional bias of images that show no group ({_task(row)})"
    return [_finding(row, reading, topic=("control", dataset), short=short)]


def _harm(rows: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the fullest account a task gives: the bin in which most are harmed, of those with enough images."""
    findings = []
    bins = where(rows, metric="harm_by_bias_size", definition="cosine")
    for event in bins["event"].unique().sort().to_list():
        of_event = where(bins, event=event).to_dicts()
        full = [row for row in of_event if row["n"] >= reading.minimum_group and defined(row["value"])]
        if not full:
            continue
        row = max(full, key=lambda r: (r["value"], r["n"]))
        short = f"Largest share of harmful matches at one size of the {event} bias, {_size(row['group'])}"
        topic = ("bias size", row["dataset"], event)
        findings.append(_finding(row, reading, tone="harm", topic=topic, short=short, share=True))
    return findings


def _size(bin: str) -> str:
    """Return a bin of the size of a bias in words: `0.0 to 0.1`, `0.9 or more`."""
    low, high = bin.strip("[)").split(", ")
    return f"{low} or more" if high == "∞" else f"{low} to {high}"


def _order(rows: pl.DataFrame, dataset: str, reading: Reading) -> list[Finding]:
    ranks = where(rows, metric="template_rank_correlation", definition=DEFAULT).to_dicts()
    ranks = [row for row in ranks if defined(row["value"])]
    if not ranks:
        return []
    row = min(ranks, key=lambda r: (r["value"], r["event"], r["group"]))
    one, other = (template_title(row[side]) for side in ("reference_group", "group"))
    short = f"Lowest rank correlation of models between wordings ({_task(row)}, “{one}” against “{other}”)"
    return [_finding(row, reading, topic=("order", dataset), short=short)]


def _finding(
    row: Row, reading: Reading, *, topic: tuple[str, ...], short: str, tone: str = "robust", share: bool = False
) -> Finding:
    strength = math.fabs(or_nan(row["value"]))
    return finding_of(row, reading, tone=tone, topic=topic, short=short, share=share, strength=strength)


def _task(row: Row) -> str:
    return TASK_TITLES.get((row["event"], row["definition"]), str(row["event"]))


CHAPTER = Chapter(
    anchor="robustness",
    title="How robust: prompts, size of the bias, neutral control",
    lead="Directional bias says how much nearer an image lies to a task's positive prompts than to its negative ones. "
    "Does another wording change it, how large must it be before harmful descriptions win, and how large is it where "
    "an image shows nobody in particular?",
    parts=_parts,
    findings=robustness_findings,
    pictures={"templates": wordings, "bias_size": harm_by_bias_size, "control": control_similarity},
    method=(
        (
            "Directional bias",
            "Mean cosine to a task's positive prompts minus mean cosine to its negative ones, for each image; for "
            "crime, the descriptions of people against crime and animals. Intervals of its mean and spread are "
            "linearised; where images come in sets, sets are the units.",
        ),
        (
            "Shift between wordings",
            "The largest difference of the mean between two wordings, image by image; p tests that no wording "
            "differs from another (Hotelling's T²). Where it does not reject, the interval reaches 0.",
        ),
        (
            "Harm by size of the bias",
            "Images are sorted by the size of their bias into bins; in each, the share whose best match is harmful, "
            "with Wilson's interval. The elbow is the first bin in which it reaches one half. Cosines differ by "
            "little, so that most bins may be empty: softmax mass at the model's own temperature spreads them.",
        ),
        (
            "Order of the models",
            "Spearman's rank correlation of the models' mean bias under two wordings; p is one-sided and exact "
            "up to nine models.",
        ),
    ),
)
