"""Whether an estimate is evidence, and its uncertainty in words."""

from __future__ import annotations

import math

from plumbline.report.inputs import Reading
from plumbline.report.numbers import confidence, interval, p_value, percent_interval
from plumbline.report.rows import Row, defined, significance_level


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
