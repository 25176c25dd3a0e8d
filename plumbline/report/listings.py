"""Tables of the report about metrics, as text that is ready to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from plumbline.catalog.suites import MIXED_SUITES
from plumbline.report.numbers import bare_p, count, interval, number, percent, percent_interval, with_interval
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
    return with_interval(number(row["value"]), ends)


def bare_estimate(row: Row | None) -> str:
    """Return a number without its interval as text; `–` without a row."""
    return "–" if row is None else number(row["value"])


def share(row: Row | None) -> str:
    """Return a share with its interval in percent as text, else as `estimate`."""
    if row is None:
        return "–"
    if not defined(row["value"]):
        return "undefined"
    ends = percent_interval(row["ci_low"], row["ci_high"])
    return with_interval(percent(row["value"]), ends)


def skew_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List every reading of disparity of a dataset, one row a model, suite, event and attribute."""
    chosen = where(table, metric=("max_skew", "parity_difference", "impact_ratio"), dataset=dataset, condition="before")
    lookup = by(chosen, "model", "suite", "event", "attribute", "definition")
    keys = sorted(
        {key[:4] for key in lookup}, key=lambda k: (models.index(k[0]) if k[0] in models else 99, *map(str, k))
    )
    rows = []
    for key in keys:
        mean = lookup.get((*key, "mean_over_pairs"))
        ratio = lookup.get((*key, "min_over_max"))
        notes = [r["reason"] for r in (mean, ratio) if r and r["reason"]]
        rows.append(
            (
                key[0],
                f"{event_title(key[2])}{' (pooled)' if key[1] == 'crime_pooled' else ''}",
                attribute_title(key[3]),
                estimate(mean),
                bare_p(mean["p"] if mean else None),
                bare_p(mean["q"] if mean else None),
                estimate(lookup.get((*key, "max_over_pairs"))),
                estimate(lookup.get((*key, "smoothed"))),
                share(lookup.get((*key, "max_minus_min"))),
                estimate(ratio),
                count(mean["n"]) if mean and mean["n"] is not None else "–",
                "; ".join(dict.fromkeys(notes)),
            )
        )
    heads = ("Model", "Event", "Attribute", "Max skew (mean over pairs)", "p", "q", "Largest pair", "Smoothed")
    return Listing((*heads, "Parity difference", "Impact ratio", "n", "Note"), rows, frozenset(range(3, 11)))


def harm_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the harm rates of a dataset, one row a model, one column a suite and event."""
    chosen = where(table, metric="harm_rate", dataset=dataset, condition="before")
    lookup = by(chosen, "model", "suite", "event")
    columns = sorted({key[1:] for key in lookup}, key=str)
    names = in_order(chosen["model"], models)
    rows = [
        (
            name,
            *(share(lookup.get((name, *column))) for column in columns),
            count(next((r["n"] for k, r in lookup.items() if k[0] == name and r["n"] is not None), None)),
        )
        for name in names
    ]
    heads = tuple(f"{event_title(e)}{' (pooled)' if s == 'crime_pooled' else ''}" for s, e in columns)
    return Listing(("Model", *heads, "n"), rows, frozenset(range(1, len(heads) + 2)))


def gap_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str) -> Listing:
    """List the gaps between classes by valence, one row a model."""
    chosen = where(
        table, metric="probe_rate_gap", definition="by_valence", dataset=dataset, suite=suite, condition="before"
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
    chosen = where(table, metric="macro_accuracy", definition="paper", dataset=dataset, suite=suite, condition="before")
    lookup, words = by(chosen, "model", "probe"), [word for word, _ in probes()]
    rows = [
        (name, *(percent(lookup.get((name, word), {}).get("value")) for word in words))
        for name in in_order(chosen["model"], models)
    ]
    return Listing(("Model", *words), rows, frozenset(range(1, len(words) + 1)))


def variant_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List mean macro accuracy over probes under each definition of the mixed test, one row a model."""
    chosen = where(
        table, metric="macro_accuracy", dataset=dataset, condition="before", statistic="estimate",
        suite=MIXED_SUITES,
    ).filter(pl.col("value").is_finite())  # fmt: skip
    means = chosen.group_by("model", "suite", "definition").agg(pl.col("value").mean(), pl.len().alias("probes"))
    lookup = by(means, "model", "suite", "definition")
    columns = sorted({key[1:] for key in lookup}, key=lambda k: (k[0] != "trident_mixed", k[1] != "paper", str(k)))
    rows = [
        (name, *(percent(lookup.get((name, *column), {}).get("value")) for column in columns))
        for name in in_order(chosen["model"], models)
    ]
    heads = tuple(
        f"{'composite candidates' if s == 'trident_composite' else 'mixed'}: {str(d).replace('_', ' ')}"
        for s, d in columns
    )
    return Listing(("Model", *heads), rows, frozenset(range(1, len(heads) + 1)))
