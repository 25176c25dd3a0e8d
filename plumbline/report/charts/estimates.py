"""Rows of the metric table as dots with intervals: which columns make the rows, the panels and the series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import polars as pl

from plumbline.catalog.schema import IDENTIFYING
from plumbline.report.charts.chart import BLUE, DIAMOND, PALETTE, SLATE, VALENCE_COLOURS, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, Unit, dots
from plumbline.report.language_words import STATISTICS, prompt_title
from plumbline.report.numbers import confidence
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, largest_first, where
from plumbline.report.scorecard import Question, group_rows
from plumbline.report.vocabulary import attribute_title, event_title, group_title

Words = Callable[[Any], str]

WORDS: Mapping[str, Words] = {
    "model": str,
    "event": event_title,
    "attribute": attribute_title,
    "group": group_title,
    "occupation": str,
    "prompt": prompt_title,
    "instruction": str,
    "scorer": str,
    "statistic": lambda statistic: STATISTICS.get(statistic, ""),
}
"""Columns that a tip names, in this order, and how their values are written."""
STYLES: Mapping[str, tuple[str, str]] = {
    "positive": (VALENCE_COLOURS["positive"], "circle"),
    "negative": (VALENCE_COLOURS["negative"], DIAMOND),
    "mean": (SLATE, "circle"),
    "p90": (BLUE, DIAMOND),
}
"""Colour and shape of values that keep theirs wherever they are a series."""


MOST_MODELS = 12
"""Models that a chart with a panel or a block for each has at most; every one is in the table of all numbers."""


def drawn_models(rows: pl.DataFrame, models: Sequence[str]) -> tuple[pl.DataFrame, str]:
    """Return the rows of the models with the largest values, `MOST_MODELS` at most, and a sentence on what is left out.

    Parameters
    ----------
    models : sequence of str
        Which models stand first where values are equal.
    """
    names = largest_first(rows, tuple(models))
    if len(names) <= MOST_MODELS:
        return rows, ""
    kept = rows.filter(pl.col("model").is_in(names[:MOST_MODELS]))
    return kept, f" Of {len(names)} models the {MOST_MODELS} with the largest values are drawn."


def estimates(
    name: str,
    title: str,
    description: str,
    source: pl.DataFrame,
    *,
    row: str,
    heading: str | None = None,
    panel: str | None = None,
    series: str | None = None,
    order: Mapping[str, Sequence[str]] | None = None,
    words: Mapping[str, Words] | None = None,
    reading: Reading | None = None,
    unit: Unit = "number",
    ends: str = "interval",
    **more: Any,
) -> Chart | None:
    """Draw every row of a table at the place that its columns say; None without a row.

    Parameters
    ----------
    source : DataFrame
        Rows of the metric table. Where it has them, `second` is drawn as a stroke, `span_low` to `span_high` as a band.
    row, heading, panel, series : str
        Columns. A heading stands above the rows of its value, and is left out where there is one value alone.
    order : mapping of str to sequence of str
        Column -> its first values; those that are not named follow by name.
    words : mapping of str to callable
        How values of further columns are written, or of those of `WORDS` in another way.
    reading : Reading, optional
        What counts as evidence; without it all dots are filled.
    ends : str
        What `ci_low` and `ci_high` are, for the tips.
    more
        Passed on to `dots`.
    """
    if source.is_empty():
        return None
    if panel == "model":
        source, left_out = drawn_models(source, (order or {}).get("model", ()))
        description += left_out
    written = {**WORDS, **(words or {})}
    values = {c: in_order(source[c], tuple((order or {}).get(c, ()))) for c in (row, heading, panel, series) if c}

    def word(one: Row, column: str | None) -> str:
        return written.get(column, str)(one[column]) if column else ""

    heading = heading if heading and len(values[heading]) > 1 else None
    lines: dict[str, list[str]] = {}
    for of_heading in values[heading] if heading else [None]:
        under_heading = source.filter(pl.col(heading) == of_heading) if heading else source
        block = lines.setdefault(written.get(heading, str)(of_heading) if heading else "", [])
        block += [written.get(row, str)(value) for value in in_order(under_heading[row], tuple(values[row]))]
    marks = [
        Dot.of(
            one,
            ", ".join(text for c in WORDS if c in one and one[c] is not None and (text := written[c](one[c]))),
            row=word(one, row),
            heading=word(one, heading),
            panel=word(one, panel),
            series=word(one, series),
            reading=reading,
            unit=unit,
            second=one.get("second"),
            span=None if one.get("span_low") is None else (one["span_low"], one["span_high"]),
        )
        for one in source.to_dicts()
    ]  # fmt: skip
    if ends != "interval":
        marks = [
            replace(dot, tip={ends if key == "interval" else key: v for key, v in dot.tip.items()}) for dot in marks
        ]
    return dots(
        name,
        title,
        description,
        marks=marks,
        rows=Rows(tuple((head, tuple(dict.fromkeys(names))) for head, names in lines.items())),
        panels=[written.get(panel, str)(value) for value in values[panel]] if panel else ("",),
        series=_series(series, values[series], written) if series else (Series(""),),
        unit=unit,
        **more,
    )


def _series(column: str, values: Sequence[str], written: Mapping[str, Words]) -> list[Series]:
    if column == "attribute":
        return [Series.of_attribute(value) for value in values]
    others = cycle(PALETTE)
    word = written.get(column, str)
    return [Series(word(value), *(STYLES.get(value) or next(others))) for value in values]


WIDTH = 300
"""Pixels of the scale: two findings stand side by side on a page."""
MOST_GROUPS = 8
"""Of more groups, those furthest from the middle are drawn, half of them at either end."""
UNITS: dict[str, Unit] = {
    "toxicity": "number",
    "rating": "number",
    "skew_at_k": "number",
    "sc_weat_effect": "number",
    "salary": "money",
}
_AXES = {
    "sc_weat_effect": "standard deviations; 0 is no association",
    "skew_at_k": "log of the share among the first over the fair share; 0 is fair",
    "toxicity": "mean toxicity of the texts about a group",
    "rating": "mean rating of a group",
    "salary": "mean salary of a group, US dollars a year",
    "max_score_share": "share of scenes in which the text about a group is the most toxic",
    "true_positive_rate": "share recognised; within a class groups lie further apart",
    "competence_words": "share of words that speak of competence",
    "warmth_words": "share of words that speak of warmth",
    "refusal_rate": "share of answers that are refusals",
}


def groups_of(what: str, row: Row, question: Question, table: pl.DataFrame, reading: Reading) -> Chart | None:
    """Draw the groups that a row compares, the highest first; None where the table does not hold them.

    Parameters
    ----------
    what : str
        What is compared, for the title.
    row : dict
        Of the metric table: a disparity between groups, or the value of one of them.
    question : Question
        Of its metric: it says which rows are the groups'.
    table : DataFrame
        The metric table.
    """
    if row["group"] is None:
        source = group_rows(row, question, table)
    else:
        same = {name: row[name] for name in IDENTIFYING if name not in ("group", "reference_group")}
        source = where(table, **same)
    known = (
        source.filter(pl.col("value").is_finite()).drop_nulls("group").sort("value", "group", descending=[True, False])
    )
    if known["group"].n_unique() < 2:
        return None
    metric, unit = known["metric"][0], UNITS.get(known["metric"][0], "share")
    foot = [_AXES.get(metric, "share of a group's images")]
    if known["group"].is_duplicated().any():
        # One row a word or class, asked of the same images: their mean has no interval, but they have a range.
        each = known.group_by("group", maintain_order=True).agg(
            pl.mean("value"), span_low=pl.min("value"), span_high=pl.max("value"), parts=pl.len()
        )
        first = known.unique("group", keep="first", maintain_order=True).drop("value")
        blank = {name: pl.lit(None, pl.Float64) for name in ("ci_low", "ci_high", "p", "q")}
        known = first.join(each, on="group").with_columns(**blank).sort("value", descending=True)
        of = f"{max(known['parts'].to_list())} {'words' if known['probe'][0] else 'classes'}"
        foot.append(f"dot: mean over {of}; band: from the lowest to the highest of them, no interval")
    elif known["ci_low"].is_finite().any():
        adjusted = "selection-adjusted " if reading.selection is not None and row["group"] is not None else ""
        foot.append(f"line: {adjusted}{confidence(reading.confidence)} interval of a group")
    if known.height > MOST_GROUPS:
        half = MOST_GROUPS // 2
        foot.append(f"{MOST_GROUPS} of {known.height} groups: the {half} highest and the {half} lowest")
        known = pl.concat([known.head(half), known.tail(half)])
    chart = estimates(
        f"finding-{row['row_id']}",
        f"{what}: {row['model']} on {row['dataset']}",
        "A dot a group.",
        known,
        row="group",
        order={"group": known["group"].to_list()},
        reading=reading if row["group"] is not None else None,
        unit=unit,
        axis="\n".join(foot),
        line=0.0 if metric in ("sc_weat_effect", "skew_at_k") else None,
    )
    if chart is not None:
        chart.spec["spec"]["width"] = WIDTH
    return chart
