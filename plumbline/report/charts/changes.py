"""How far numbers moved between two audits or checkpoints: dots of change with their intervals, the worst on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Dot, Rows, Unit, dots
from plumbline.report.rows import Row

MOST = 16
"""Rows of a chart; the tables beside it have more."""


def changes(told: Mapping[str, Sequence[Row]], titles: Mapping[str, str], *, unit: Unit) -> Chart | None:
    """Draw new - old with its interval, a row a number, in blocks by what became of it; None without one.

    Parameters
    ----------
    told : mapping of str to sequence of dict
        Heading of a block -> rows of a diff with value and interval, and `what`, `old`, `new` and `change` in words.
    titles : mapping of str to str
        Unit -> what its numbers are.
    unit : {"number", "share"}
        Of all of them.
    """
    marks, blocks, room = [], [], MOST
    for heading, rows in told.items():
        # Readings of one number under other wordings have the same words: the first, the worst, stands for them.
        first: dict[str, Row] = {}
        for row in rows:
            first.setdefault(row["what"], row)
        shown = list(first.values())[:room]
        room -= len(shown)
        blocks += [(heading, tuple(row["what"] for row in shown))] if shown else []
        marks += [
            Dot(
                row=row["what"],
                heading=heading,
                value=row["value"],
                low=row["ci_low"],
                high=row["ci_high"],
                state="evidence",
                tip={"of": row["what"], "before": row["old"], "after": row["new"], "change": row["change"]},
            )
            for row in shown
        ]
    return dots(
        f"changes-{unit}",
        f"How far {titles[unit]} moved",
        "A dot is the change, after minus before, with its interval; the line is no change.",
        marks=marks,
        rows=Rows(tuple(blocks), longest=64),
        unit=unit,
        axis="after minus before" + (", in percentage points" if unit == "share" else ""),
        line=0.0,
    )
