"""Utility beside harm: what models can do, and whether the able ones harm more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.charts.chart import BLUE, SOFT, Chart, Spec, label, top_level
from plumbline.report.charts.dots import tip_of
from plumbline.report.charts.estimates import estimates
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import event_title

_KINDS = {
    ("utility_accuracy", "top_1"): "best match",
    ("utility_accuracy", "top_5"): "among the five best",
    ("mean_per_class_recall", "top_1"): "best match, mean over classes",
}
MOST_EVENTS = 3
"""Harmful events that are drawn side by side."""


def accuracy_rows(table: pl.DataFrame, dataset: str) -> pl.DataFrame:
    """Return the top-1 accuracy of every model on a dataset of things."""
    return where(table, metric="utility_accuracy", definition="top_1", dataset=dataset, condition="before")


def class_accuracy(table: pl.DataFrame, reading: Reading, models: Iterable[str], dataset: str) -> Chart | None:
    """Draw how many images of things are recognised, by model (rows) and what counts (panels)."""
    kind = pl.struct("metric", "definition").map_elements(
        lambda row: _KINDS.get((row["metric"], row["definition"])), return_dtype=pl.String
    )
    rows = where(table, metric=("utility_accuracy", "mean_per_class_recall"), dataset=dataset, condition="before")
    return estimates(
        f"utility-{dataset}",
        f"How many images are recognised, {dataset}",
        "The share of images whose class is the best match of all classes, or among the five best, with its interval.",
        rows.with_columns(kind=kind).filter(pl.col("value").is_finite()),
        row="model",
        panel="kind",
        order={"model": tuple(models), "kind": tuple(_KINDS.values())},
        unit="share",
        axis="images recognised",
    )


def harm_against_utility(
    table: pl.DataFrame, reading: Reading, models: Iterable[str], things: str, *, people: str
) -> Chart | None:
    """Draw harm rates on a dataset of people against top-1 accuracy on one of things, a mark a model, a panel an event.

    Source: `harm_rate` by top-1, and `class_accuracy`.
    """
    accurate = by(accuracy_rows(table, things), "model")
    harm = where(table, metric="harm_rate", definition="top1", dataset=people, condition="before")
    harm = harm.filter(pl.col("model").is_in([model for (model,) in accurate]) & pl.col("value").is_finite())
    events = in_order(harm["event"], ())[:MOST_EVENTS]
    if len(set(harm["model"])) < 2:
        return None
    panels = [_panel(where(harm, event=event), accurate, event) for event in events]
    return Chart(
        f"harm-utility-{things}-{people}",
        f"Harm on {people} against accuracy on {things}",
        f"Each mark is a model: to the right more images of {things} are recognised, upwards more people of {people} "
        "are given a harmful description. Lines are intervals. Models in the upper right are able and harmful.",
        top_level({"hconcat": panels}),
    )


def _panel(harm: pl.DataFrame, accurate: dict[tuple[Any, ...], Row], event: str) -> Spec:
    values = []
    for row in harm.to_dicts():
        x = accurate[(row["model"],)]
        if not defined(x["value"]):
            continue
        tip = tip_of(row, row["model"], unit="share") | {"accuracy": percent(x["value"])}
        ends = {"x1": x["ci_low"], "x2": x["ci_high"], "y1": row["ci_low"], "y2": row["ci_high"]}
        values.append({"x": x["value"], "y": row["value"], **ends, "model": label(row["model"], longest=20)} | tip)
    values = [{k: round(v, 5) if isinstance(v, float) else v for k, v in one.items()} for one in values]

    def axis(field: str, title: str) -> Spec:
        scale = {"zero": field.startswith("y")}
        return {
            "field": field, "type": "quantitative", "title": title, "scale": scale,
            "axis": {"format": "%", "tickCount": 4},
        }  # fmt: skip

    x, y = axis("x", "images recognised"), axis("y", event_title(event))
    tips = [{"field": name, "type": "nominal"} for name in ("model", "value", "interval", "accuracy", "n")]
    rule = {"type": "rule", "color": SOFT, "strokeWidth": 1, "opacity": 0.6}
    return {
        "data": {"values": values},
        "width": 230,
        "height": 210,
        "layer": [
            {"mark": rule, "encoding": {"x": axis("x1", "images recognised"), "x2": {"field": "x2"}, "y": y}},
            {"mark": rule, "encoding": {"x": x, "y": axis("y1", event_title(event)), "y2": {"field": "y2"}}},
            {"mark": {"type": "point", "filled": True, "color": BLUE}, "encoding": {"x": x, "y": y, "tooltip": tips}},
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "dy": -6, "fontSize": 10},
                "encoding": {"x": x, "y": y, "text": {"field": "model", "type": "nominal"}},
            },
        ],
    }


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric="utility_accuracy", condition="before")
    harm = where(table, metric="harm_rate", definition="top1", condition="before")
    parts = []
    for things in inputs.datasets_in(used["dataset"]):
        of_people = inputs.datasets_in(harm["dataset"])
        against = drawn(
            harm_against_utility(table, inputs.audit, inputs.models, things, people=people) for people in of_people
        )
        accuracy = drawn([class_accuracy(table, inputs.audit, inputs.models, things)])
        notes = [note for people in of_people if (note := _most_accurate(table, things, people))]
        pictures = [*against[:1], *accuracy]
        parts.append(Part(things, pictures=pictures, details=against[1:], notes=notes))
    return parts


def _most_accurate(table: pl.DataFrame, things: str, people: str) -> str | None:
    """Return where the most accurate model stands among all in harm; None of fewer than two models."""
    accuracy = by(accuracy_rows(table, things), "model")
    rows = where(table, metric="harm_rate", definition="top1", event="crime", dataset=people, condition="before")
    rates = {row["model"]: row["value"] for row in rows.to_dicts() if (row["model"],) in accuracy}
    known = {model: rate for model, rate in rates.items() if defined(rate) and defined(accuracy[(model,)]["value"])}
    if len(known) < 2:
        return None
    best = max(known, key=lambda model: (accuracy[(model,)]["value"], model))
    more = sum(rate > known[best] for rate in known.values())
    return (
        f"{people}: of {len(known)} models {best} recognises the most images of {things} "
        f"({percent(accuracy[(best,)]['value'])}). It gives {percent(known[best])} of people crime labels; "
        + (f"{more} models give more." if more > 1 else f"{more or 'no'} model gives more.")
    )


CHAPTER = Chapter(
    anchor="utility",
    title="What models can do, and the harm that comes with it",
    lead="Zero-shot accuracy on images of things, as benchmarks have it, beside the harm that the same models do to "
    "people. Section 5 of Data Matters Most found its most accurate models among the most harmful.",
    parts=_parts,
    method=(
        (
            "Zero-shot accuracy",
            "A class is the mean of the unit vectors of its name in every template, at unit norm; an image is given "
            "the class of the largest cosine. Names and templates are those of open_clip, and the numbers those of "
            "CLIP_benchmark. Intervals are Wilson's; that of the mean over classes adds the classes' intervals in "
            "squares.",
        ),
    ),
)
