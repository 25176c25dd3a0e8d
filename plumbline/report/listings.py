"""Tables of the report about metrics, as text that is ready to be shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from plumbline.report.figures.adjustment import AFTER
from plumbline.report.numbers import bare_p, count, interval, number, percent, percent_interval, points
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, event_title, probes

LONGEST_LISTING = 200


@dataclass(frozen=True)
class Listing:
    """A table as text.

    Attributes
    ----------
    heads : tuple of str
        Column heads; those in `numeric` are set flush right.
    rows : sequence of tuple of str
        One text a column; escaped where it is put into the page.
    note : str
        What to know when reading it; may be empty.
    """

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[int] = frozenset()
    note: str = ""


def estimate(row: Row | None) -> str:
    """Return a number with its interval as text: `–` without a row, `undefined` where it is."""
    if row is None:
        return "–"
    if not defined(row["value"]):
        return "undefined"
    ends = interval(row["ci_low"], row["ci_high"])
    return number(row["value"]) + (f" [{ends}]" if ends != "no interval" else "")


def share(row: Row | None) -> str:
    """Return a share with its interval in percent as text, else as `estimate`."""
    if row is None:
        return "–"
    if not defined(row["value"]):
        return "undefined"
    ends = percent_interval(row["ci_low"], row["ci_high"])
    return percent(row["value"]) + (f" [{ends}]" if ends != "no interval" else "")


def skew_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List every reading of disparity of a dataset, one row a model, suite, event and attribute."""
    chosen = where(
        table,
        metric=("max_skew", "parity_difference", "impact_ratio"),
        dataset=dataset,
        condition="before",
    )
    found = by(chosen, "model", "suite", "event", "attribute", "definition")
    keys = sorted(
        {key[:4] for key in found}, key=lambda k: (models.index(k[0]) if k[0] in models else 99, *map(str, k))
    )
    rows = []
    for key in keys:
        mean = found.get((*key, "mean_over_pairs"))
        ratio = found.get((*key, "min_over_max"))
        notes = [r["reason"] for r in (mean, ratio) if r and r["reason"]]
        rows.append(
            (
                key[0],
                f"{event_title(key[2])}{' (pooled)' if key[1] == 'crime_pooled' else ''}",
                attribute_title(key[3]),
                estimate(mean),
                bare_p(mean["p"] if mean else None),
                bare_p(mean["q"] if mean else None),
                estimate(found.get((*key, "max_over_pairs"))),
                estimate(found.get((*key, "smoothed"))),
                share(found.get((*key, "max_minus_min"))),
                estimate(ratio),
                count(mean["n"]) if mean and mean["n"] is not None else "–",
                "; ".join(dict.fromkeys(notes)),
            )
        )
    heads = (
        "Model",
        "Event",
        "Attribute",
        "Max skew (mean over pairs)",
        "p",
        "q",
        "Largest pair",
        "Smoothed",
    )
    return Listing((*heads, "Parity difference", "Impact ratio", "n", "Note"), rows, frozenset(range(3, 11)))


def harm_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the harm rates of a dataset, one row a model, one column a suite and event."""
    chosen = where(table, metric="harm_rate", dataset=dataset, condition="before")
    found = by(chosen, "model", "suite", "event")
    columns = sorted({key[1:] for key in found}, key=str)
    names = in_order(chosen["model"], models)
    rows = [
        (
            name,
            *(share(found.get((name, *column))) for column in columns),
            count(next((r["n"] for k, r in found.items() if k[0] == name and r["n"] is not None), None)),
        )
        for name in names
    ]
    heads = tuple(f"{event_title(e)}{' (pooled)' if s == 'crime_pooled' else ''}" for s, e in columns)
    return Listing(("Model", *heads, "n"), rows, frozenset(range(1, len(heads) + 2)))


def gap_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str) -> Listing:
    """List the gaps between classes by valence, one row a model."""
    chosen = where(
        table,
        metric="probe_rate_gap",
        definition="by_valence",
        dataset=dataset,
        suite=suite,
        condition="before",
    )
    rows = [
        (
            row["model"],
            row["event"],
            share(row),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]) if row["n"] is not None else "–",
            row["reason"] or "",
        )
        for name in in_order(chosen["model"], models)
        for row in where(chosen, model=name).to_dicts()
    ]
    heads = ("Model", "Probes", "Largest minus smallest class share", "p", "q", "n", "Note")
    return Listing(heads, rows, frozenset({2, 3, 4, 5}))


def accuracy_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str) -> Listing:
    """List macro accuracy with each probe among the candidates, one row a model, one column a probe."""
    chosen = where(
        table, metric="macro_accuracy", definition="paper", dataset=dataset, suite=suite, condition="before"
    )
    found, words = by(chosen, "model", "probe"), [word for word, _ in probes()]
    rows = [
        (name, *(percent(found.get((name, word), {}).get("value")) for word in words))
        for name in in_order(chosen["model"], models)
    ]
    return Listing(("Model", *words), rows, frozenset(range(1, len(words) + 1)))


def variant_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List mean macro accuracy over probes under each definition of the mixed test, one row a model."""
    chosen = where(
        table, metric="macro_accuracy", dataset=dataset, condition="before", statistic="estimate",
        suite=("trident_mixed", "trident_composite"),
    ).filter(pl.col("value").is_finite())  # fmt: skip
    means = chosen.group_by("model", "suite", "definition").agg(
        pl.col("value").mean(), pl.len().alias("probes")
    )
    found = by(means, "model", "suite", "definition")
    columns = sorted(
        {key[1:] for key in found}, key=lambda k: (k[0] != "trident_mixed", k[1] != "paper", str(k))
    )
    rows = [
        (name, *(percent(found.get((name, *column), {}).get("value")) for column in columns))
        for name in in_order(chosen["model"], models)
    ]
    heads = tuple(
        f"{'composite candidates' if s == 'trident_composite' else 'mixed'}: {str(d).replace('_', ' ')}"
        for s, d in columns
    )
    return Listing(("Model", *heads), rows, frozenset(range(1, len(heads) + 1)))


def adjustment_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str) -> Listing:
    """List what the logit adjustment gives and what it costs, one row a model."""
    chosen = where(table, dataset=dataset, suite=suite)
    gains = where(
        chosen,
        metric="macro_accuracy_gain",
        definition="test_rows",
        condition=AFTER,
        statistic=("mean", "sd"),
    )
    rows = []
    for name in in_order(gains["model"], models):
        own = where(gains, model=name)
        mean = where(own, statistic="mean").filter(pl.col("value").is_finite()).sort(["value", "probe"])
        if mean.is_empty():
            continue
        spread = where(own, statistic="sd")["value"].fill_nan(None).mean()
        worst = mean.row(0, named=True)
        lowered = mean.filter(pl.col("value") < 0).height
        rows.append(
            (
                name,
                percent(_mean(chosen, name, "before")),
                percent(_mean(chosen, name, AFTER)),
                f"{points(_mean_of(mean))} (sd {number(100 * spread) if isinstance(spread, float) else '–'})",
                percent(_mean(chosen, name, "logit_adjustment_released")),
                f"{lowered} of {mean.height}",
                f"{worst['probe']} ({points(worst['value'])})" if lowered else "none",
                *_probe_rate_cost(chosen, name),
            )
        )
    heads = (
        "Model", "Before", "After", "Gain (sd over trials)", "After, released variant", "Probes it makes worse",
        "Worst probe", "Taken for the probe, before → after", "Class × probe rates that rise by over 1 point",
    )  # fmt: skip
    return Listing(heads, rows, frozenset({1, 2, 3, 4, 5, 7, 8}))


def _mean_of(frame: pl.DataFrame) -> float:
    values = frame["value"].to_numpy()
    return float(values.mean()) if values.size else math.nan


def _mean(chosen: pl.DataFrame, model: str, condition: str, metric: str = "macro_accuracy") -> float:
    rows = where(
        chosen, model=model, metric=metric, definition="test_rows", condition=condition, statistic="mean"
    )
    return _mean_of(rows.filter(pl.col("value").is_finite()))


def _probe_rate_cost(chosen: pl.DataFrame, model: str) -> tuple[str, str]:
    rates = where(chosen, model=model, metric="probe_rate", definition="test_rows", statistic="mean")
    old = where(rates, condition="before").select("group", "probe", old="value")
    both = old.join(
        where(rates, condition=AFTER).select("group", "probe", new="value"), on=["group", "probe"]
    )
    if both.is_empty():
        return "–", "–"
    risen = both.filter(pl.col("new") - pl.col("old") > 0.01).height
    before, after = (_mean(chosen, model, condition, "probe_rate") for condition in ("before", AFTER))
    return f"{percent(before)} → {percent(after)}", f"{risen} of {both.height}"
