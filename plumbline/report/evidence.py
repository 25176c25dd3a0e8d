"""Whether an estimate is evidence, and what is to be said where its interval says otherwise; a row as a finding."""

from __future__ import annotations

import polars as pl

from plumbline.catalog.schema import IDENTIFYING, row_id
from plumbline.metrics.evidence import CELL, is_inverted, value_without_difference
from plumbline.report.finding import Finding
from plumbline.report.numbers import bare_p, interval, number, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, or_nan, significance_level, where
from plumbline.report.vocabulary import sentence_start

QUESTION = tuple(name for name in IDENTIFYING if name != "model")


def unchecked(table: pl.DataFrame) -> set[tuple[str, str]]:
    """Return the (model, dataset) of encoders of which nobody knows whether they recognise anything.

    No prompt that was asked names a group as the dataset's labels do, so that `plumbline.metrics.evidence.too_weak`
    cannot tell.
    """
    judged, recognised = (
        where(table, metric=metric, condition="before").select(CELL).unique().rows()
        for metric in ("outcome_proportion", "zero_shot_accuracy")
    )
    return {*judged} - {*recognised}


def evidence(row: Row, reading: Reading) -> bool:
    """Return whether a row's q-value (else its p-value) is below the significance level."""
    if reading.picked is not None:
        reading.picked.tested.append(row)
    level = significance_level(row)
    return level is not None and level < reading.significance


Q_OF_KIND = "q_of_kind"
"""Column of a table whose q is over all rows that findings are picked from: q over the tests of one kind, which the
scorecard shows."""


def of_kind(row: Row) -> Row:
    """Return a row with q over the tests of its kind, whether or not its table has been picked from."""
    return {**row, "q": row.get(Q_OF_KIND, row["q"])}


def tone_of(row: Row, reading: Reading, evident: str = "bias") -> str:
    """Return the tone of a row that is evidence (`evident`), no evidence (`none`) or undefined."""
    if not defined(row["value"]):
        return "undefined"
    return evident if evidence(row, reading) else "none"


def titled(tone: str, what: str) -> str:
    """Return the title of a finding: what there is evidence of, or that there is none, or that it is undefined."""
    titles = {"none": f"no evidence of {what}", "undefined": f"{what}: undefined"}
    return titles.get(tone) or sentence_start(what)


def subject_of(row: Row) -> str:
    """Return what a row is told of: `ID on DATASET`."""
    return f"{row['model']} on {row['dataset']}"


_CHANCE = 0.05
"""At a larger p, what chance alone gives is another value, such as a skew of groups of unequal size."""


def excludes_parity(row: Row) -> str:
    """Return what to say of a row that is no evidence though its interval excludes no difference; or nothing."""
    low, high, p = (or_nan(row[name]) for name in ("ci_low", "ci_high", "p"))
    none = value_without_difference(row.get("metric") or "")
    if none is None or not (low > none or high < none) or p >= _CHANCE:
        return ""
    tests = f"{row['tests']:,} tests" if row.get("tests") else "all tests"
    return (
        f" Its interval excludes no difference, as one in twenty does by chance; q, which is corrected for {tests} of "
        "its kind, is what decides."
    )


def finding_of(
    row: Row,
    reading: Reading,
    *,
    tone: str,
    topic: tuple[str, ...],
    short: str,
    share: bool = False,
    strength: float | None = None,
    measure: str = "",
) -> Finding:
    """Return what a row says as a finding; `plumbline.report.sentences` tells it.

    Parameters
    ----------
    share : bool
        Whether its value is shown as a percentage.
    strength : float, optional
        The lower end of its interval, or its value, without.
    measure : str
        See `Finding`.
    """
    if reading.picked is not None:
        reading.picked.estimated.append(row)
    shown, ends = (percent, percent_interval) if share else (number, interval)
    return Finding(
        tone=tone,
        topic=topic,
        model=row["model"],
        dataset=row["dataset"],
        short=short,
        value=or_nan(row["value"]),
        value_text=shown(row["value"]),
        interval_text=ends(row["ci_low"], row["ci_high"]),
        q_text=bare_p(row["q"]),
        strength=_strength(row) if strength is None else strength,
        row=name_of(row),
        measure=measure,
        question=question_of(row),
        of_kind=tone != "undefined"
        and (level := significance_level(of_kind(row))) is not None
        and level < reading.significance,
    )


def _strength(row: Row) -> float:
    """Return how far the nearer end of the interval, else the value, lies from no difference.

    That end is the lower one, but of a metric that is largest where there is no difference.
    """
    metric = row.get("metric") or ""
    none, inverted = value_without_difference(metric) or 0.0, is_inverted(metric)
    end = row["ci_high" if inverted else "ci_low"]
    away = or_nan(end if defined(end) else row["value"]) - none
    return -away if inverted else away


def question_of(row: Row) -> tuple[object, ...]:
    """Return what a row of the metric table measures, but for the model; empty of a row of another table."""
    return () if name_of(row) is None else tuple(row[name] for name in QUESTION)


def name_of(row: Row) -> str | None:
    """Return the name of a row of the metric table; None of a row of another table."""
    return row_id(row) if row.get("metric") and row.get("definition") else None
