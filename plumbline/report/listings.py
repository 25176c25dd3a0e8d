"""Tables of the report about metrics, as text that is ready to be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plumbline.report.numbers import interval, number, percent, percent_interval, with_interval
from plumbline.report.rows import Row, defined

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


def share(row: Row | None) -> str:
    """Return a share with its interval in percent as text, else as `estimate`."""
    if row is None:
        return "–"
    if not defined(row["value"]):
        return "undefined"
    ends = percent_interval(row["ci_low"], row["ci_high"])
    return with_interval(percent(row["value"]), ends)
