"""Whether an estimate is evidence, and its uncertainty in words."""

from __future__ import annotations

import math

import polars as pl

from plumbline.catalog.schema import IDENTIFYING, row_id
from plumbline.metrics.evidence import state, value_without_difference
from plumbline.reasons import find, why_no_interval
from plumbline.report.finding import DIFFERENCES, Finding
from plumbline.report.numbers import (
    NO_INTERVAL,
    bare_p,
    confidence,
    interval,
    number,
    p_value,
    percent,
    percent_interval,
)
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, or_nan, significance_level, where
from plumbline.report.vocabulary import sentence_start

QUESTION = tuple(name for name in IDENTIFYING if name != "model")


CELL = ["model", "dataset"]


def too_weak(table: pl.DataFrame) -> pl.DataFrame:
    """Return, of models that are at chance for every label of a dataset, the row of the best recognised one."""
    seen = where(table, metric="zero_shot_accuracy", statistic="estimate", condition="before")
    seen = seen.filter(pl.col("value").is_finite())
    at_chance = pl.col("reason_codes").map_elements(lambda codes: find(codes, "at_chance") is not None, pl.Boolean)
    weak = seen.filter(at_chance.fill_null(value=False).all().over(CELL))
    return weak.sort("value", descending=True).unique(CELL, keep="first", maintain_order=True).sort(CELL)


def evidence(row: Row, reading: Reading) -> bool:
    """Return whether a row's q-value (else its p-value) is below the significance level."""
    if reading.picked is not None:
        reading.picked.tested.append(row)
    level = significance_level(row)
    return level is not None and level < reading.significance


def uncertainty(row: Row, reading: Reading, *, share: bool = False) -> str:
    """Return interval, p and q of a row in words; `share` for values that are shown as percentages."""
    parts = [interval_words(row, reading, share=share)]
    parts.append(", ".join(p_value(row[name], name) for name in ("p", "q") if defined(row[name])) or "no p")
    return "; ".join(parts)


def interval_words(row: Row, reading: Reading, *, share: bool = False) -> str:
    """Return the interval of a row in words, `95% CI 1.5–2.4`, or that it has none."""
    if reading.picked is not None:
        reading.picked.estimated.append(row)
    ends = (percent_interval if share else interval)(row["ci_low"], row["ci_high"])
    adjusted = "" if reading.selection is None else "FCR-adjusted "
    return ends if ends == NO_INTERVAL else f"{adjusted}{confidence(reading.confidence)} CI {ends}"


def still_possible(row: Row, *, share: bool = False) -> str:
    """Say, of a row that is no evidence, how large it may be all the same, or why nobody knows."""
    absence = "This does not show its absence: "
    if not math.isnan(or_nan(row["ci_high"])):
        return f"{absence}the interval reaches {(percent if share else number)(row['ci_high'])}."
    why = why_no_interval(row["reason_codes"])
    return f"{absence}it has no interval{f' ({why})' if why else ''}."


_UNTOLD = ("nothing_detectable", "power_unknown", "few_relabellings", "p_floor")
"""Reasons that a row without evidence has no detectable value."""


def could_be_found(row: Row, *, share: bool = False, said: str = "") -> str:
    """Say, of a row that is no evidence, what would have been, and whether it excludes the declared margin.

    Parameters
    ----------
    said : str
        What is said of the row already: a reason that stands there is not repeated.
    """
    least = row.get("smallest_detectable")
    if defined(least):
        power = f" Four of five such audits would have found a true value of {(percent if share else number)(least)}."
    else:
        reasons = [str(why) for why in (find(row.get("reason_codes"), code) for code in _UNTOLD) if why]
        power = "".join(f" {sentence_start(why)}." for why in reasons if why.casefold() not in said.casefold())
        if least is not None and not reasons:
            power = " So few images would hardly show any difference at the p that the correction requires."
    excluded = row.get("equivalence_q")
    if excluded is None or state(row | {"q": None, "p": None}) != "evidence_of_none":
        return power
    return f"{power} It is evidence of none beyond the margin that the audit file declares ({p_value(excluded, 'q')})."


def subject_of(row: Row) -> str:
    """Return what a row is told of: `ID on DATASET`."""
    return f"{row['model']} on {row['dataset']}"


def remark(row: Row) -> str:
    """Return what else is to be known of a row, to stand behind its sample size; empty without a reason."""
    return f"; {row['reason']}" if row["reason"] else ""


FEW = ("few_clusters", "few_beyond_quantile", "few_relabellings")
"""Reasons that every finding tells: its interval or its test comes from few sets."""


def few_sets(row: Row, sentence: str) -> str:
    """Return what a sentence about a row does not yet say of the few sets it comes from, as sentences; or nothing."""
    reasons = (find(row.get("reason_codes"), code) for code in FEW)
    return "".join(f" {sentence_start(str(why))}." for why in reasons if why and str(why) not in sentence)


def reaches_parity(row: Row) -> str:
    """Return what to say of a claim whose interval, once adjusted for the picking, holds no difference; or nothing."""
    picked = " The evidence is q: the interval is wider, since the strongest was picked, and reaches no difference."
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    return picked if low <= (value_without_difference(row.get("metric") or "") or 0.0) <= high else ""


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
    *,
    tone: str,
    topic: tuple[str, ...],
    short: str,
    sentence: str,
    share: bool = False,
    strength: float | None = None,
    measure: str = "",
) -> Finding:
    """Return what a row says as a finding.

    Parameters
    ----------
    share : bool
        Whether its value is shown as a percentage.
    strength : float, optional
        The lower end of its interval, or its value, without.
    measure : str
        See `Finding`.
    """
    shown, ends = (percent, percent_interval) if share else (number, interval)
    sentence += few_sets(row, sentence)
    sentence += could_be_found(row, share=share, said=sentence) + excludes_parity(row) if tone == "none" else ""
    sentence += reaches_parity(row) if tone in DIFFERENCES else ""
    return Finding(
        tone=tone,
        topic=topic,
        model=row["model"],
        dataset=row["dataset"],
        short=short,
        sentence=sentence,
        value=or_nan(row["value"]),
        value_text=shown(row["value"]),
        interval_text=ends(row["ci_low"], row["ci_high"]),
        q_text=bare_p(row["q"]),
        strength=or_nan(row["ci_low"] if defined(row["ci_low"]) else row["value"]) if strength is None else strength,
        row=name_of(row),
        measure=measure,
        question=question_of(row),
    )


def question_of(row: Row) -> tuple[object, ...]:
    """Return what a row of the metric table measures, but for the model; empty of a row of another table."""
    return () if name_of(row) is None else tuple(row[name] for name in QUESTION)


def name_of(row: Row) -> str | None:
    """Return the name of a row of the metric table; None of a row of another table."""
    return row_id(row) if row.get("metric") and row.get("definition") else None
