"""A row of bias transfer in words: what it is about, and by how much that changes."""

from __future__ import annotations

from plumbline.report.numbers import (
    EQUALS,
    NO_INTERVAL,
    agreeing_decimals,
    confidence,
    count,
    interval,
    number,
    p_value,
    percent,
    points,
)
from plumbline.report.rows import Row, defined
from plumbline.report.vocabulary import attribute_title, event_title

USUAL_SUITES = ("crime", "communion", "agency", "outcomes", "trident", "trident_mixed", "retrieval")
VARIANTS = {"crime_pooled": "pooled"}


def is_share(row: Row) -> bool:
    """Return whether a row's values are shares of images: all but skews are."""
    return bool(row["metric"] != "max_skew")


def row_title(row: Row) -> str:
    """Return what a row is about, for an axis or table in which its block is named."""
    match row["metric"]:
        case "probe_rate":
            return f"taken for a {row['event']} probe"
        case "parity_difference" if row["kind"] == "trident":
            return f"{_classes(row)} gap, {row['event']}"
        case "zero_shot_accuracy":
            return f"zero-shot, {_spaced(row['definition'])}"
        case "macro_accuracy":
            return "with a probe, macro"
        case "retrieval_recall":
            return _retrieval("recall", row["definition"])
        case "retrieval_r_precision":
            return _retrieval("R-precision", row["definition"])
    if row["kind"] == "axis":
        return f"{attribute_title(row['attribute'] or 'all images')}: {_short(row)}"
    return _short(row)


def row_words(row: Row) -> str:
    """Return what a row is about as the object of a sentence."""
    event = event_title(row["event"] or "")
    match row["metric"]:
        case "max_skew":
            smoothed = "smoothed " if row["definition"] == "smoothed" else ""
            return f"{smoothed}{attribute_title(row['attribute'] or '')} skew in {_task(row)}"
        case "harm_rate" if row["event"] == "mean_of_tasks":
            return "the mean harm rate of the three tasks"
        case "harm_rate":
            return f"the share of images given {_task(row)}"
        case "probe_rate":
            return f"the share of images taken for a {event} probe word"
        case "parity_difference" if row["kind"] == "trident":
            return (
                f"the gap between {attribute_title(row['attribute'] or '')} classes for {event} probe words"
            )
        case "zero_shot_accuracy":
            return f"zero-shot accuracy ({_spaced(row['definition'])})"
        case "macro_accuracy":
            return "macro accuracy with a probe among the labels"
        case "retrieval_recall" | "retrieval_r_precision":
            return row_title(row)
    return f"the {_spaced(row['metric'])} by {attribute_title(row['attribute'] or 'image')} in {_task(row)}"


def change(row: Row) -> str:
    """Return the difference after - before, signed, in the unit of its row."""
    if not defined(row["value"]):
        return "undefined"
    if is_share(row):
        return points(row["value"])
    return f"{'+' if row['value'] > 0 else ''}{number(row['value'])}"


def change_interval(row: Row) -> str:
    """Return the interval of the difference in the unit of its row."""
    return _ends(row["ci_low"], row["ci_high"], share=is_share(row))


def both_values(row: Row, *, decimals: int | None = None) -> str:
    """Return `before → after`, with so many `decimals` where they are given."""
    values = (row["value_before"], row["value_after"])
    before, after = (
        percent(value, decimals=decimals) if is_share(row) else number(value, decimals=decimals)
        for value in values
    )
    return f"{before} → {after}"


def stated(row: Row, level: float) -> str:
    """Return what changed and by how much: `gender skew in crime labels by 0.42 (95% CI 0.30–0.55; …)`."""
    falls = row["value"] < 0
    low, high = (row["ci_low"], row["ci_high"])
    if falls and defined(low) and defined(high):
        low, high = -high, -low
    decimals = _agreeing(row)
    apart = abs(row["value"])
    size = points(apart, decimals=decimals).lstrip("+") if is_share(row) else number(apart, decimals=decimals)
    ends = _ends(low, high, share=is_share(row))
    parts = [f"{confidence(level)} CI {ends}" if ends != NO_INTERVAL else ends]
    parts += [p_value(row["q"], "q"), both_values(row, decimals=decimals), f"n{EQUALS}{count(row['n'])}"]
    return f"{row_words(row)} by {size} ({'; '.join(parts)})"


def _agreeing(row: Row) -> int | None:
    """Return with how many decimals a change and the two values that it is of agree; None without both values."""
    values = (row["value_before"], row["value_after"], row["value"])
    if not all(map(defined, values)):
        return None
    return agreeing_decimals(*values, share=is_share(row))


def _ends(low: float | None, high: float | None, *, share: bool) -> str:
    return interval(low, high, scale=100, unit=" points") if share else interval(low, high)


def _classes(row: Row) -> str:
    return "class × gender" if row["suite"] == "trident_mixed" else "class"


def _task(row: Row) -> str:
    whole = "the " if row["event"] == "mean_of_tasks" else ""
    return f"{whole}{event_title(row['event'] or '–')}{_variant(row)}"


def _short(row: Row) -> str:
    return event_title(row["event"] or row["metric"]).removesuffix(" words") + _variant(row)


def _variant(row: Row) -> str:
    """Name the suite where another than the usual one asks for the event."""
    usual = row["suite"] in (None, *USUAL_SUITES)
    return "" if usual else f" ({VARIANTS.get(row['suite'], _spaced(row['suite']))})"


def _retrieval(measure: str, definition: str) -> str:
    direction, at, depth = definition.partition("@")
    return f"{measure}{at}{depth}, {_spaced(direction)}"


def _spaced(text: str) -> str:
    return text.replace("_", " ")
