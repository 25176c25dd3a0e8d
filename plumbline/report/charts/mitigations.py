"""What mitigations change: every axis and cost with its interval, and macro accuracy probe by probe."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from plumbline.metrics.paired.mitigations import IMPROVED, NO_EVIDENCE, UNDEFINED, WORSENED
from plumbline.report.charts.chart import BLUE, DOWN, SLATE, UP, VERMILION, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots
from plumbline.report.charts.estimates import drawn_models
from plumbline.report.numbers import bare_p, count, percent
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.transfer import (
    BLOCKS,
    SIX_AXES,
    Tried,
    axis_of,
    block_of,
    both_values,
    change,
    change_interval,
    place,
    row_title,
    row_words,
)
from plumbline.report.vocabulary import VALENCES, probes, suite_title

# --- What each mitigation changes, one panel a mitigation.

VERDICTS = {
    IMPROVED: Series("improved", BLUE, "circle"),
    WORSENED: Series("worsened", VERMILION, UP),
    NO_EVIDENCE: Series("no evidence of a change", SLATE, "square"),
}
_STATES = {IMPROVED: "evidence", WORSENED: "evidence", NO_EVIDENCE: "no_evidence"}


def changes(candidates: Sequence[Tried], *, model: str, dataset: str) -> list[Chart]:
    """Draw the change of max skews, then of shares of images, by mitigation (panels), with its paired interval.

    Rows: bias transfer, with the six contrastive metrics alone of the axes. Skews, harm rates and rates of probes are
    better left of the line, accuracy and retrieval right of it.

    Parameters
    ----------
    candidates : sequence of Tried
        What was tried on the model and dataset.
    """
    rows = [(one, row) for one in candidates for row in one.rows if _is_shown(row)]
    panels = [one.condition for one in candidates]
    drawn = []
    for share, name, title in ((False, "skew", "Max skew"), (True, "share", "Harm, probes, accuracy and retrieval")):
        titles = {block.name: block.title for block in BLOCKS if block.share is share}
        titled = [(one, row) for one, row in rows if block_of(row) in titles]
        blocks = _blocks([row for _, row in titled], titles)
        drawn.append(
            dots(
                f"mitigations-{name}-{model}-{dataset}",
                f"{title}: what each mitigation changes, {model} on {dataset}",
                "One panel a mitigation; each dot is the number with it minus the number without it, on the same "
                "images, with its paired interval. Skews, harm rates and rates of the probes are better further left, "
                "accuracy and retrieval further right. A number at the end of a scale lies beyond it.",
                marks=_with_gaps(
                    [_change(row, one, titles[str(block_of(row))]) for one, row in titled], blocks, panels
                ),
                rows=blocks,
                panels=panels,
                series=tuple(VERDICTS.values()),
                unit="share" if share else "number",
                line=0.0,
                axis="change in points" if share else "change of max skew",
                overlaid=True,
                extremes=share,
            )
        )
    return [chart for chart in drawn if chart]


def _is_shown(row: Row) -> bool:
    return block_of(row) is not None and (block_of(row) != "axis" or axis_of(row) in SIX_AXES)


def _blocks(rows: Sequence[Row], titles: dict[str, str]) -> Rows:
    ordered = sorted(rows, key=place)
    return Rows(
        tuple(
            (title, tuple(dict.fromkeys(row_title(row) for row in ordered if block_of(row) == name)))
            for name, title in titles.items()
            if any(block_of(row) == name for row in ordered)
        )
    )


def _with_gaps(marks: list[Dot], rows: Rows, panels: Sequence[str]) -> list[Dot]:
    """Say of each row and mitigation without a dot that it was not judged."""
    there, series = {(one.heading, one.row, one.panel) for one in marks}, VERDICTS[NO_EVIDENCE].name
    return marks + [
        Dot(row=name, heading=heading, panel=panel, series=series, value=math.nan, words="not judged")
        for heading, name in rows.lines
        for panel in panels
        if marks and name is not None and (heading, name, panel) not in there
    ]


def _change(row: Row, one: Tried, heading: str) -> Dot:
    verdict = row["verdict"]
    known = verdict != UNDEFINED and all(defined(row[name]) for name in ("value", "value_before", "value_after"))
    return Dot(
        row=row_title(row),
        heading=heading,
        panel=one.condition,
        series=VERDICTS.get(verdict, VERDICTS[NO_EVIDENCE]).name,
        state=_STATES.get(verdict),  # type: ignore[arg-type]
        value=row["value"] if known else math.nan,
        low=or_nan(row["ci_low"]) if known else math.nan,
        high=or_nan(row["ci_high"]) if known else math.nan,
        tip={
            "of": f"{one.condition}, {row_words(row)}",
            "value": change(row),
            "interval": change_interval(row),
            "before → after": both_values(row),
            "q": bare_p(row["q"]),
            "n": count(row["n"]),
            "verdict": str(verdict).replace("_", " "),
        },
    )


# --- Macro accuracy before and after the logit adjustment, probe by probe.


def adjustments(table: pl.DataFrame, dataset: str, suite: str, *, leaking: tuple[str, ...] = ()) -> list[str]:
    """Return the ids of the logit adjustments that a suite was judged with; those that leak come last."""
    gains = where(table, metric="macro_accuracy_gain", definition="test_rows", dataset=dataset, suite=suite)
    return sorted(in_order(gains["condition"], ()), key=lambda name: name in leaking)


def on_test_rows(table: pl.DataFrame, metric: str, *, condition: str) -> pl.DataFrame:
    """Return a metric before and after an adjustment, on the images that it was not fitted on.

    Adjustments with other training rows than the first have test rows, and so a definition, of their own.
    """
    keys = ["model", "dataset", "suite", "definition"]
    rows = where(table, metric=metric, condition=("before", condition)).filter(
        pl.col("definition").str.starts_with("test_rows")
    )
    return rows.join(where(rows, condition=condition).select(keys).unique(), on=keys, how="semi")


_BETTER, _WORSE = Series("after, better", BLUE), Series("after, worse", VERMILION, DOWN)


def adjustment(
    table: pl.DataFrame, models: tuple[str, ...], dataset: str, suite: str, *, condition: str
) -> Chart | None:
    """Draw macro accuracy with each probe (rows) after a logit adjustment, a stroke where it was before, by model.

    Rows: `macro_accuracy` on test rows, mean over trials; the tip has the standard deviation over trials.

    Parameters
    ----------
    condition : str
        Id of the logit adjustment, as in `adjustments`.
    """
    rows = on_test_rows(where(table, dataset=dataset, suite=suite), "macro_accuracy", condition=condition)
    after, left_out = drawn_models(where(rows, condition=condition, statistic="mean"), models)
    values, valence = by(rows, "model", "probe", "condition", "statistic"), dict(probes())
    marks = []
    for row in after.to_dicts():
        model, probe = row["model"], row["probe"]
        old = or_nan(values.get((model, probe, "before", "mean"), {}).get("value"))
        spread = values.get((model, probe, condition, "sd"), {}).get("value")
        if probe in valence and defined(old) and defined(row["value"]):
            better = row["value"] >= old
            tip = {
                "of": f"{model}, {probe}",
                "value": f"{percent(old)} before, {percent(row['value'])} after",
                "sd over trials": percent(spread),
            }
            place_ = {"row": probe, "heading": valence[probe], "panel": model}
            marks.append(
                Dot(
                    **place_,
                    value=row["value"],
                    low=min(old, row["value"]),
                    high=max(old, row["value"]),
                    second=old,
                    series=(_BETTER if better else _WORSE).name,
                    tip=tip,
                )
            )
    return dots(
        f"adjustment-{condition}-{suite}-{dataset}",
        f"Probe by probe before and after {condition}: {suite_title(suite)}, {dataset}",
        f"A line a probe, from the accuracy before (stroke) to the accuracy after (dot), a panel a model.{left_out}",
        marks=marks,
        rows=Rows(tuple((v, tuple(word for word, of in valence.items() if of == v)) for v in VALENCES)),
        panels=in_order(after["model"], models),
        series=(_BETTER, _WORSE),
        unit="share",
        zero=False,
        axis="macro accuracy over the classes on test rows, mean over trials (stroke: before)",
        overlaid=True,
    )
