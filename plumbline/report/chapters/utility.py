"""Utility beside harm: what models can do, and whether the able ones harm more."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.charts.utility import accuracy_rows, class_accuracy, harm_against_utility
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import percent
from plumbline.report.rows import by, defined, where


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
