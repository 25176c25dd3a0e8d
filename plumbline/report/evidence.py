"""Whether an estimate is evidence, and its uncertainty in words."""

from __future__ import annotations

import math

from plumbline.report.finding import Finding
from plumbline.report.inputs import Reading
from plumbline.report.numbers import bare_p, confidence, interval, number, p_value, percent, percent_interval
from plumbline.report.rows import Row, defined, significance_level
from plumbline.tables.row_identity import row_id


def evidence(row: Row, reading: Reading) -> bool:
    """Return whether a row's q-value (else its p-value) is below the significance level."""
    level = significance_level(row)
    return level is not None and level < reading.significance


def uncertainty(row: Row, reading: Reading, *, share: bool = False) -> str:
    """Return interval, p and q of a row in words; `share` for values that are shown as percentages."""
    ends = (percent_interval if share else interval)(row["ci_low"], row["ci_high"])
    parts = [f"{confidence(reading.confidence)} CI {ends}" if ends != "no interval" else ends]
    parts.append(", ".join(p_value(row[name], name) for name in ("p", "q") if defined(row[name])) or "no p")
    return "; ".join(parts)


def or_nan(value: float | None) -> float:
    """Return a value as float, nan for none."""
    return math.nan if value is None else float(value)


def finding_of(
    row: Row, *, tone: str, topic: tuple[str, ...], short: str, sentence: str, share: bool = False
) -> Finding:
    """Return what a row says as a finding, which is as strong as the lower end of its interval.

    Parameters
    ----------
    share : bool
        Whether its value is shown as a percentage.
    """
    shown, ends = (percent, percent_interval) if share else (number, interval)
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
        strength=or_nan(row["ci_low"] if defined(row["ci_low"]) else row["value"]),
        row=name_of(row),
    )


def name_of(row: Row) -> str | None:
    """Return the name of a row of the metric table; None of a row of another table."""
    return row_id(row) if row.get("metric") and row.get("definition") else None
