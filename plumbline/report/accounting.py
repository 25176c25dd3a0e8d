"""What a metric table holds as a whole: how many comparisons, and which values are undefined."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import count
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, first, reason_of
from plumbline.report.vocabulary import suite_title

_OF = ("attribute", "group", "event", "probe", "occupation", "prompt", "instruction", "scorer")


def undefined_listing(table: pl.DataFrame) -> Listing:
    """List every undefined value with its reason, the first `LONGEST_LISTING` of them."""
    chosen = table.filter(pl.col("value").is_null() | pl.col("value").is_nan())
    rows = [
        (
            row["model"],
            row["dataset"],
            f"{row['metric']} · {row['definition']}",
            suite_title(row["suite"] or "–"),
            " · ".join(str(row[name]) for name in _OF if row[name]) or "–",
            count(row["n"]) if row["n"] is not None else "–",
            reason_of(row),
        )
        for row in chosen.head(LONGEST_LISTING).to_dicts()
    ]
    more = chosen.height - len(rows)
    note = f"{count(more)} more are in the metric table." if more else ""
    return Listing(("Model", "Dataset", "Metric", "Suite", "Of", "n", "Reason"), rows, frozenset({5}), note)


@dataclass(frozen=True)
class Comparisons:
    """How many comparisons a table makes, as text.

    Attributes
    ----------
    rows, intervals, undefined : str
        Rows; those with an interval; those whose value is undefined.
    tests, below_p, by_chance : str
        Rows with a p-value; those below the level; how many would be if no group were treated differently.
    corrected, below_q : str
        Rows with a q-value; those below the level.
    """

    rows: str
    intervals: str
    undefined: str
    tests: str
    below_p: str
    by_chance: str
    corrected: str
    below_q: str


def comparisons(table: pl.DataFrame, reading: Reading) -> Comparisons:
    """Count the comparisons of a table."""
    tested, corrected = table.filter(pl.col("p").is_finite()), table.filter(pl.col("q").is_finite())
    return Comparisons(
        rows=count(table.height),
        intervals=count(table.filter(pl.col("ci_low").is_finite()).height),
        undefined=count(table.filter(pl.col("value").is_null() | pl.col("value").is_nan()).height),
        tests=count(tested.height),
        below_p=count(tested.filter(pl.col("p") < reading.significance).height),
        by_chance=count(round(reading.significance * tested.height)),
        corrected=count(corrected.height),
        below_q=count(corrected.filter(pl.col("q") < reading.significance).height),
    )


def example_row(table: pl.DataFrame) -> Row | None:
    """Return a Max Skew row with its lineage, to show how a number is traced."""
    return first(table, metric="max_skew", definition="mean_over_pairs") or first(table)
