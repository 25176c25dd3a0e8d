"""What instructions change: scores and refusals, one panel an instruction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl

from plumbline.report.evidence import evidence
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.group_numbers import group_mark
from plumbline.report.figures.marks import LegendDot, Mark
from plumbline.report.figures.palette import BLUE, SLATE, VERMILION
from plumbline.report.figures.row_panels import RowPanel, Rows, Series, ends_of, row_figure
from plumbline.report.language_words import MAX_TITLES, instructions_in
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, or_nan
from plumbline.report.vocabulary import attribute_title

LOWERS, RAISES, NO_EVIDENCE, UNDEFINED = "lowers", "raises", "no evidence", "undefined"
STYLES = {LOWERS: (BLUE, "o"), RAISES: (VERMILION, "X"), NO_EVIDENCE: (SLATE, "s")}
"""Verdict -> colour and shape of the mark."""
CHANGES = (
    *(
        (f"{metric}_change", statistic, f"{title} ({words})")
        for metric, title in MAX_TITLES.items()
        for statistic, words in (("mean", "mean"), ("p90", "p90"))
    ),
    ("refusal_rate_change", "estimate", "Refusals"),
    ("response_length_change", "mean", "Words an answer"),
)
"""Metric, statistic and title of what an instruction may change, in the order of the rows."""
LENGTH = "response_length_change"


def verdict(row: Row, reading: Reading) -> str:
    """Return whether an instruction lowers or raises something, as far as chance allows to say so."""
    if not math.isfinite(or_nan(row["value"])):
        return UNDEFINED
    if not evidence(row, reading) or row["value"] == 0:
        return NO_EVIDENCE
    return LOWERS if row["value"] < 0 else RAISES


def title_of(row: Row) -> str | None:
    """Return what a row says the change of, None where it is none of `CHANGES`."""
    return next(
        (t for metric, statistic, t in CHANGES if (row["metric"], row["statistic"]) == (metric, statistic)),
        None,
    )


def instruction_figure(
    rows: pl.DataFrame, reading: Reading, *, model: str, dataset: str, attribute: str, prompt: str
) -> Picture | None:
    """Draw the changes under each instruction (panels) of scores and refusals (rows); None without rows.

    Parameters
    ----------
    rows : DataFrame
        Of one model, dataset, attribute, prompt and scorer.
    """
    known = [row for row in rows.to_dicts() if title_of(row) and row["metric"] != LENGTH]
    titles = [title for *_, title in CHANGES if any(title_of(row) == title for row in known)]
    if not titles:
        return None
    names = instructions_in(rows)
    marks = {
        name: {
            kind: [
                group_mark(row, titles.index(str(title_of(row))))
                for row in known
                if row["instruction"] == name
                and verdict(row, reading) in (kind, *((UNDEFINED,) if kind == NO_EVIDENCE else ()))
            ]
            for kind in STYLES
        }
        for name in names
    }
    ends = ends_of(m for own in marks.values() for some in own.values() for m in some)
    return row_figure(
        f"instructions-{model}-{dataset}-{attribute}-{prompt}",
        f"What instructions change: {model} on {dataset}, {attribute_title(attribute)}",
        "Change against the same prompt without an instruction, over the same scenes and seeds, with its interval. "
        f"Further left is less; p90: the 90th percentile. Prompt: {prompt.replace('_', ' ')}.",
        rows=Rows.plain(titles),
        panels=[_panel(name, marks[name], ends) for name in names],
        axis="change of the score, and of the share of refused answers",
        entries=[
            LegendDot("lowers", BLUE),
            LegendDot("raises", VERMILION, marker="X"),
            LegendDot("no evidence of a change", SLATE, marker="s"),
        ],
        columns=5,
    )


def _panel(name: str, marks: Mapping[str, Sequence[Mark]], ends: tuple[float, float]) -> RowPanel:
    return RowPanel(name, [Series(marks[kind], *STYLES[kind]) for kind in STYLES], ends, line=0.0)
