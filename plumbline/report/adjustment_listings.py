"""What a logit adjustment gives and costs, probe by probe: a table and the findings about it."""

from __future__ import annotations

import math

import polars as pl

from plumbline.report.figures.adjustment import adjustments, on_test_rows
from plumbline.report.finding import Finding
from plumbline.report.listings import Listing
from plumbline.report.numbers import count, number, percent, points
from plumbline.report.reading import Reading
from plumbline.report.rows import in_order, where
from plumbline.report.vocabulary import suite_title

HEADS = (
    "Model", "Mitigation", "Before", "After", "Gain (sd over trials)", "Probes it makes worse", "Worst probe",
    "Taken for the probe, before → after", "Class × probe rates that rise by over 1 point",
)  # fmt: skip


def adjustment_listing(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str, suite: str
) -> Listing:
    """List what the logit adjustments give and what they cost, one row a model and adjustment."""
    chosen = where(table, dataset=dataset, suite=suite)
    ids = adjustments(table, dataset, suite, leaking=reading.leaking)
    rows = [
        row
        for name in in_order(chosen["model"], models)
        for condition in ids
        if (row := _adjusted(where(chosen, model=name), name, condition))
    ]
    leaking = [name for name in ids if name in reading.leaking]
    note = (
        f"{', '.join(leaking)}: test accuracy had a say in the fit; for comparison only." if leaking else ""
    )
    return Listing(HEADS, rows, frozenset({2, 3, 4, 5, 7, 8}), note)


def _adjusted(own: pl.DataFrame, name: str, condition: str) -> tuple[str, ...] | None:
    gains = where(own, metric="macro_accuracy_gain", definition="test_rows", condition=condition)
    mean = where(gains, statistic="mean").filter(pl.col("value").is_finite()).sort(["value", "probe"])
    if mean.is_empty():
        return None
    spread = where(gains, statistic="sd")["value"].fill_nan(None).mean()
    worst, lowered = mean.row(0, named=True), mean.filter(pl.col("value") < 0).height
    accuracy = on_test_rows(own, "macro_accuracy", condition=condition)
    return (
        name,
        condition,
        percent(_mean(accuracy, "before")),
        percent(_mean(accuracy, condition)),
        f"{points(_mean_of(mean))} (sd {number(100 * spread) if isinstance(spread, float) else '–'})",
        f"{lowered} of {mean.height}",
        f"{worst['probe']} ({points(worst['value'])})" if lowered else "none",
        *_probe_rate_cost(on_test_rows(own, "probe_rate", condition=condition), condition),
    )


def _mean_of(frame: pl.DataFrame) -> float:
    values = frame["value"].to_numpy()
    return float(values.mean()) if values.size else math.nan


def _mean(rows: pl.DataFrame, condition: str) -> float:
    return _mean_of(where(rows, condition=condition, statistic="mean").filter(pl.col("value").is_finite()))


def _probe_rate_cost(rates: pl.DataFrame, condition: str) -> tuple[str, str]:
    old, new = (
        where(rates, condition=name, statistic="mean").select("group", "probe", "value")
        for name in ("before", condition)
    )
    both = old.join(new, on=["group", "probe"], suffix="_after")
    if both.is_empty():
        return "–", "–"
    risen = both.filter(pl.col("value_after") - pl.col("value") > 0.01).height
    before, after = (_mean(rates, name) for name in ("before", condition))
    return f"{percent(before)} → {percent(after)}", f"{risen} of {both.height}"


def adjustment_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the gain of every logit adjustment that does not leak, one a model, dataset and suite."""
    gains = where(
        table, metric="macro_accuracy_gain", definition="test_rows", statistic="mean"
    ).filter(pl.col("value").is_finite(), ~pl.col("condition").is_in(list(reading.leaking)))  # fmt: skip
    keys = ("dataset", "suite", "condition", "model")
    groups = sorted(gains.group_by(*keys), key=lambda item: str(item[0]))
    return [_adjustment(*map(str, key), rows=rows.sort("value")) for key, rows in groups]


def _adjustment(dataset: str, suite: str, condition: str, model: str, *, rows: pl.DataFrame) -> Finding:
    values = rows["value"].to_numpy()
    mean, worst = float(values.mean()), rows.row(0, named=True)
    lowered = int((values < 0).sum())
    # The probes share their images, so their spread is a range and no interval of the mean.
    ends = f"range over probes {points(values.min()).removesuffix(' points')} to {points(values.max())}"
    verb = "raises" if mean > 0 else "lowers"
    sentence = (
        f"{model} on {dataset} ({suite_title(suite)}): the logit adjustment ({condition}) {verb} macro accuracy on "
        f"test rows by {points(abs(mean)).lstrip('+')} on average over {count(rows.height)} probes ({ends})."
    )
    if lowered:
        sentence += (
            f" It lowers it for {lowered} of them, most for “{worst['probe']}” ({points(worst['value'])})."
        )
    return Finding(
        tone="gain" if mean > 0 else "cost",
        topic=("adjustment", dataset, suite, condition),
        model=model,
        dataset=dataset,
        short=f"Macro accuracy gained by {condition} ({suite_title(suite)})",
        sentence=sentence,
        value=mean,
        value_text=points(mean),
        interval_text=ends,
        strength=abs(mean),
    )
