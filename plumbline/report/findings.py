"""What the rows of a metric table say, one finding a model, dataset and question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import row_ids
from plumbline.metrics.evidence import CELL, smallest_detectable, too_weak, value_without_difference
from plumbline.metrics.family import family_descriptions
from plumbline.reasons import find
from plumbline.report.chapters import CHAPTERS
from plumbline.report.evidence import Q_OF_KIND, QUESTION, name_of
from plumbline.report.finding import Company, Finding, at_first, headlines, in_rank_order
from plumbline.report.numbers import NO_INTERVAL, bare_p, confidence, count, interval, percent, percent_interval
from plumbline.report.reading import Picked, Reading, Selection
from plumbline.report.rows import Row, checked, defined
from plumbline.report.sentences import in_sentences
from plumbline.report.vocabulary import attribute_title
from plumbline.statistics.multiplicity import q_values, widened_intervals
from plumbline.statistics.power import required_p

_PLACE = "place"
_BY_ANY_READING = ("skew", "captions")
"""Kinds of findings that another reading of the same question may tell."""


def metric_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return what a metric table says about the questions of all chapters.

    Of a model that is too weak to interpret on a dataset nothing is told but that.
    """
    weak = too_weak(table)
    if weak.height:
        table = table.join(weak, on=CELL, how="anti", nulls_equal=True, maintain_order="left")
    sources = [chapter.findings for chapter in CHAPTERS if chapter.findings]
    return [*map(_weakness, weak.to_dicts()), *(finding for source in sources for finding in source(table, reading))]


# --- Models at chance


def _weakness(row: Row) -> Finding:
    chance = find(row["reason_codes"], "at_chance")
    assert chance is not None
    ends = percent_interval(row["ci_low"], row["ci_high"])
    sentence = (
        f"{row['model']} on {row['dataset']}: too weak to interpret. It recognises {attribute_title(row['attribute'])} "
        f"in {percent(row['value'])} of the images ({ends}), and its answers would do so by chance in "
        f"{percent(chance.params['chance'])}; nothing else is told of it."
    )
    return Finding(
        tone="undefined",
        topic=("weak", row["dataset"]),
        model=row["model"],
        dataset=row["dataset"],
        short="Too weak to interpret: no better than chance at what the dataset labels",
        sentence=sentence,
        value=row["value"],
        value_text=percent(row["value"]),
        interval_text=ends,
        strength=row["value"],
        row=name_of(row),
    )


# --- The headline findings of an audit, in plain words with their uncertainty, strongest first.


def findings(table: pl.DataFrame, reading: Reading | None = None) -> list[Finding]:
    """Return every finding of a metric table, one a model, dataset and question, strongest first.

    Parameters
    ----------
    table : DataFrame
        Columns of `plumbline.catalog.schema`.
    reading : Reading, optional
        Thresholds; the defaults otherwise.

    Raises
    ------
    MetricError
        If the table lacks columns of the schema.
    """
    reading, table = reading or Reading(), checked(table)
    return in_rank_order(_with_company(metric_findings(table, reading), table, reading))


def _with_company(found: list[Finding], table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return findings with the number of models in which the same row is evidence, to either side.

    Of a skew it is the reading that speaks of each model (`plumbline.report.disparity.Disparity.told`), as in the
    scorecard. Models that are too weak to interpret do not count.
    """
    any_reading: dict[tuple[str, ...], list[Finding]] = {}
    for finding in found:
        if finding.topic[0] in _BY_ANY_READING and np.isfinite(finding.value):
            any_reading.setdefault(finding.topic, []).append(finding)
    table = table.join(too_weak(table), on=CELL, how="anti", nulls_equal=True)
    metrics = sorted({str(finding.question[QUESTION.index("metric")]) for finding in found if finding.question})
    none = pl.col("metric").replace_strict({name: value_without_difference(name) or 0.0 for name in metrics})
    levels = {
        "side": pl.coalesce(pl.col("q").fill_nan(None), pl.col("p").fill_nan(None)),
        "side_of_kind": pl.coalesce(pl.col(Q_OF_KIND if Q_OF_KIND in table.columns else "q", "p").fill_nan(None)),
    }
    tested = table.filter(levels["side"].is_not_null(), pl.col("metric").is_in(metrics))
    sides = [
        pl.when(level < reading.significance).then((pl.col("value") - none).sign()).otherwise(0.0).alias(name)
        for name, level in levels.items()
    ]
    asked = tested.group_by(QUESTION).agg(pl.col("model"), *sides).rows_by_key(QUESTION)

    def counted(finding: Finding) -> Company | None:
        if topic := any_reading.get(finding.topic):
            evident = sum(each.tone == "bias" for each in topic)
            return Company(evident, len(topic), same_of_kind=sum(each.of_kind for each in topic))
        return _company(finding.model, *asked[finding.question][0]) if finding.question in asked else None

    return [replace(finding, company=counted(finding)) for finding in found]


def _company(model: str, models: Sequence[str], sides: Sequence[float], of_kind: Sequence[float]) -> Company:
    """Count the models whose evidence points to the side of one of them; of one without evidence, all that have it."""
    place = models.index(model) if model in models else None
    its_side = 0.0 if place is None else sides[place] or of_kind[place]
    same, same_of_kind = (
        sum(side == its_side if its_side else bool(side) for side in each) for each in (sides, of_kind)
    )
    opposite, opposite_of_kind = (sum(side == -its_side for side in each if its_side) for each in (sides, of_kind))
    return Company(same, len(models), opposite, same_of_kind, opposite_of_kind)


def picked_findings(table: pl.DataFrame, reading: Reading | None = None) -> list[Finding]:
    """Return the findings that headlines are picked from, corrected for that; see `findings` and `as_picked`."""
    return findings(*as_picked(checked(table), reading or Reading()))


def headline_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the strongest finding of every topic with its sentence, corrected for having been picked."""
    picked, as_told = as_picked(checked(table), reading)
    return in_sentences(headlines(findings(picked, as_told)), table, picked, as_told)


def beyond_scorecard(model: str, cells: Iterable[Mapping[str, Any]], ranked: Iterable[Finding]) -> list[Finding]:
    """Return a model's findings of bias that are no cell of the scorecard."""
    rows = {cell["row"] for cell in cells}
    return [f for f in ranked if f.model == model and f.tone == "bias" and f.row not in rows]


def as_picked(table: pl.DataFrame, reading: Reading) -> tuple[pl.DataFrame, Reading]:
    """Return a metric table as its headlines read it, and with which selection in mind.

    A headline is the strongest of many rows of many families. Where the table has p, q is therefore over all rows that
    may become one, together (Benjamini & Hochberg 1995): of the headlines that claim evidence 5% at most are wrong on
    average. The intervals of these rows are adjusted for the selection (Benjamini & Yekutieli 2005), with one finding
    told a topic. The table itself keeps q of each family and the ordinary intervals: its cells are not picked.
    """
    picked = Picked()
    first = metric_findings(table.with_row_index(_PLACE), replace(reading, picked=picked))
    tested = sorted({row[_PLACE] for row in picked.tested})
    estimated = sorted({*tested, *(row[_PLACE] for row in picked.estimated)})
    p, q = (table[name].cast(pl.Float64).fill_null(float("nan")).to_numpy().copy() for name in ("p", "q"))
    tested = [place for place in tested if np.isfinite(p[place])]
    q[tested], corrected = q_values(p[tested]), len(tested)
    needed = np.full(len(p), np.nan)
    needed[tested] = required_p(p[tested], level=reading.significance)
    detectable = pl.when(pl.Series(np.isfinite(needed))).then(smallest_detectable(table, needed))
    table = table.with_columns(
        pl.col("q").alias(Q_OF_KIND),
        pl.Series("q", q).fill_nan(None),
        detectable.otherwise("smallest_detectable").alias("smallest_detectable"),
    )
    known = table["ci_low"].is_finite().fill_null(value=False) & table["ci_high"].is_finite().fill_null(value=False)
    places = [place for place in estimated if known[place]]
    number = min(len({finding.topic for finding in first}), len(places))
    if number in (0, len(places)):
        return table, reading
    selection = Selection(number, len(places), corrected)
    low, high = _widened(table[places], selection, reading)
    ends = [table[name].to_numpy().copy() for name in ("ci_low", "ci_high")]
    ends[0][places], ends[1][places] = low, high
    widened = table.with_columns(pl.Series("ci_low", ends[0]), pl.Series("ci_high", ends[1]))
    return widened, replace(reading, selection=selection)


def _widened(rows: pl.DataFrame, selection: Selection, reading: Reading) -> NDArray[np.float64]:
    """Return the (2, m) ends of intervals, adjusted for the selection."""
    limits = {traits.name: traits.bounds for each in family_descriptions().values() for traits in each.metrics}
    return widened_intervals(
        *(rows[name].to_numpy() for name in ("value", "ci_low", "ci_high")),
        bounds=[limits.get(name, (-np.inf, np.inf)) for name in rows["metric"]],
        confidence=reading.confidence,
        wanted=selection.level(reading.confidence),
    )


def adjusted_text(table: pl.DataFrame, name: str, reading: Reading) -> str:
    """Say which interval and q a row of a metric table has where it is picked for a finding, and of how many.

    Parameters
    ----------
    table : DataFrame
        The whole metric table: how many rows findings are picked from follows from it.
    name : str
        Of the row, see `plumbline.catalog.schema.row_id`.
    """
    picked, as_told = as_picked(checked(table), reading)
    selection = as_told.selection
    if selection is None:
        return "Nothing is picked here: its interval needs no adjustment."
    row = table.filter(row_ids(table).alias("row_id") == name)
    (low,), (high,) = _widened(row, selection, reading).tolist()
    known = defined(low) and defined(high)
    ends = f"the FCR-adjusted {confidence(reading.confidence)} CI {interval(low, high)}" if known else NO_INTERVAL
    level = confidence(round(selection.level(reading.confidence), 5))
    q = picked.filter(row_ids(table).alias("row_id") == name)["q"].item()
    tests = (
        f" Its q is then {bare_p(q)}, over {count(selection.tests)} tests of all kinds together." if defined(q) else ""
    )
    return (
        f"In a finding it has {ends}: {count(selection.findings)} findings are told of "
        f"{count(selection.rows)} rows, so that an interval is one of {level}.{tests}"
    )


def findings_table(metric_table: pl.DataFrame, reading: Reading | None = None, *, limit: int = 12) -> pl.DataFrame:
    """Return a short table of the strongest findings for a terminal: model, dataset, finding, value, interval, q.

    `explain` names the metric row that a finding tells, for `plumbline explain`.
    A mean over probes has no interval of its own; the column then says "range over probes" and gives that.

    Parameters
    ----------
    metric_table : DataFrame
        Columns of `plumbline.catalog.schema`.
    reading : Reading, optional
        Thresholds, and the scorer of the headlines; the defaults, and the first scorer by name, otherwise.
    limit : int
        At most this many rows, one a topic.
    """
    rows = [
        {
            "model": f.model,
            "dataset": f.dataset,
            "finding": f.short,
            "value": f.value_text,
            "interval": f.interval_text,
            "q": f.q_text,
            "explain": f.row,
        }
        for f in at_first(headlines(picked_findings(metric_table, reading))).first[:limit]
    ]
    columns = ("model", "dataset", "finding", "value", "interval", "q", "explain")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String))
