"""How far apart the scores of texts about one scene lie, who gets the worst of them, and the scores of each group."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark
from plumbline.report.figures.palette import BLUE, SLATE, VERMILION
from plumbline.report.figures.row_panels import PANELS, RowPanel, Rows, Series, ends_of, row_figure
from plumbline.report.language_words import (
    MAX_TITLES,
    attributes_in,
    headline_prompt,
    headline_scorer,
    prompt_title,
    prompts_in,
    scored_title,
    spoken,
)
from plumbline.report.numbers import count, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

STYLES = {"mean": (SLATE, "o", -0.14), "p90": (BLUE, "D", 0.14)}
"""Statistic -> colour, shape, and how far off the line of its row it stands."""
_TWO = "mean and 90th percentile of the scores"


def _entries() -> list[LegendDot]:
    return [LegendDot("mean", SLATE), LegendDot("90th percentile", BLUE, marker="D")]


def two_marks(rows: Sequence[tuple[Row, float]]) -> list[Series]:
    """Return the mean and the 90th percentile of some rows, each with the line that it stands on."""
    return [
        Series(
            [_mark(row, y + aside) for row, y in rows if row["statistic"] == statistic],
            colour,
            shape,
        )
        for statistic, (colour, shape, aside) in STYLES.items()
    ]


def _mark(row: Row, y: float) -> Mark:
    who = [row["model"], row["group"] and group_title(row["group"]), prompt_title(row["prompt"])]
    tip = (
        f"{', '.join(word for word in who if word)}: {'mean' if row['statistic'] == 'mean' else '90th percentile'} "
        f"{in_ends(row)}, n = {count(row['n'])}"
    )
    return Mark.of(row, y, tip)


def max_figure(
    rows: pl.DataFrame, models: Sequence[str], *, dataset: str, metric: str, by: str = "model"
) -> Picture | None:
    """Draw mean and 90th percentile of one Max* by prompt and model (rows) and what differs (panels).

    Parameters
    ----------
    rows : DataFrame
        Of one dataset, metric and definition; of one scorer, or with `by="scorer"` of one prompt.
    by : {"model", "scorer"}
        Within each prompt the models; or within each model the scorers.
    """
    if rows.is_empty():
        return None
    lines = _lines(rows, models, by)
    panels = []
    attributes = attributes_in(rows)
    marks = {
        attribute: two_marks(
            [
                (row, lines.place(*_name(row, models, by)))
                for row in where(rows, attribute=attribute).to_dicts()
            ]
        )
        for attribute in attributes
    }
    ends = ends_of(m for own in marks.values() for series in own for m in series.marks)
    panels = [RowPanel(attribute_title(a), marks[a], ends) for a in attributes]
    title = MAX_TITLES.get(metric, metric)
    scored = scored_title(metric.removeprefix("max_"))
    what = (
        "under each scorer" if by == "scorer" else "by prompt" if len(models) == 1 else "by prompt and model"
    )
    return row_figure(
        f"{metric}-{by}-{dataset}",
        f"{title} {what}, {dataset}",
        f"Each scene is shown with its person changed, and {title} is the highest minus the lowest {scored} score of "
        "the texts about it: 0 where all its people are spoken of alike. Beside the mean, the 90th percentile tells "
        "of the tenth of the scenes in which texts lie furthest apart. One panel for each way in which the people of "
        "a scene differ; all panels share one scale.",
        rows=lines,
        panels=panels,
        axis=f"{title}, from 0 to 1",
        entries=_entries(),
        columns=3,
    )


def _lines(rows: pl.DataFrame, models: Sequence[str], by: str) -> Rows:
    if by == "scorer":
        scorers = tuple(in_order(rows["scorer"], ()))
        return Rows(tuple((model, scorers) for model in models))
    prompts = prompts_in(rows)
    if len(models) == 1:
        return Rows.plain(prompt_title(prompt) for prompt in prompts)
    present = {(row["prompt"], row["model"]) for row in rows.to_dicts()}
    return Rows(tuple((prompt_title(p), tuple(m for m in models if (p, m) in present)) for p in prompts))


def _name(row: Row, models: Sequence[str], by: str) -> tuple[str, str]:
    if by == "scorer":
        return row["scorer"], row["model"]
    prompt = prompt_title(row["prompt"])
    return (prompt, "") if len(models) == 1 else (row["model"], prompt)


def by_panels(rows: pl.DataFrame, models: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
    """Return title and rows of each panel: the models for the first prompt, or the prompts of the only model."""
    if len(models) > 1:
        own = where(rows, prompt=headline_prompt(rows))
        return [
            (model, where(own, model=model)) for model in models if not where(own, model=model).is_empty()
        ]
    return [(prompt_title(prompt), where(rows, prompt=prompt)) for prompt in prompts_in(rows)][:PANELS]


def worst_off_figure(
    rows: pl.DataFrame, reading: Reading, models: Sequence[str], *, dataset: str, attribute: str
) -> Picture | None:
    """Draw how often each group gets the most toxic text of the scenes that lie furthest apart; None without rows."""
    known = rows.filter(pl.col("value").is_finite())
    if known.is_empty():
        return None
    groups = in_order(rows["group"], ())
    lines, even = Rows.plain(group_title(group) for group in groups), 1 / len(groups)
    drawn = []
    for title, own in by_panels(known, models):
        marks = [_share_mark(row, groups.index(row["group"]), reading) for row in own.to_dicts()]
        drawn.append((title, marks))
    ends = ends_of((m for _, marks in drawn for m in marks), lines=[even])
    panels = [
        RowPanel(title, [Series(marks, VERMILION)], ends, unit="share", line=even) for title, marks in drawn
    ]
    asked = "" if len(models) == 1 else f" Prompt: {prompt_title(headline_prompt(known))}."
    return row_figure(
        f"worst-off-{dataset}-{attribute}",
        f"Who gets the most toxic text of a scene, {dataset}, {attribute_title(attribute)}",
        "Of the scenes above the 90th percentile of MaxToxicity: how often the most toxic text is about each group. "
        f"The upright line is what chance gives each of {len(groups)} groups, {percent(even)}.{asked}",
        rows=lines,
        panels=panels,
        axis="share of these scenes in which the group gets the most toxic text",
        entries=[
            LegendDot("differs from chance", VERMILION),
            HOLLOW,
        ],
    )


def _share_mark(row: Row, y: float, reading: Reading) -> Mark:
    tip = (
        f"{row['model']}, {group_title(row['group'])}, {prompt_title(row['prompt'])}: {percent(row['value'])} "
        f"[{percent_interval(row['ci_low'], row['ci_high'])}], {both_tests(row)}, "
        f"n = {count(row['n'])} scenes"
    )
    return Mark.of(row, y, tip, filled=evidence(row, reading))


def group_score_figure(
    rows: pl.DataFrame, models: Sequence[str], *, dataset: str, attribute: str, scored: str = "toxicity"
) -> Picture | None:
    """Draw mean and 90th percentile of the scores of each group (rows), by model, or by prompt of one model."""
    groups = in_order(rows["group"], ())
    if not groups or not any(defined(value) for value in rows["value"]):
        return None
    lines = Rows.plain(group_title(group) for group in groups)
    drawn = [
        (title, two_marks([(row, float(groups.index(row["group"]))) for row in own.to_dicts()]))
        for title, own in by_panels(rows, models)
    ]
    ends = ends_of(m for _, own in drawn for series in own for m in series.marks)
    asked = "" if len(models) == 1 else f" Prompt: {prompt_title(headline_prompt(rows))}."
    return row_figure(
        f"scores-{scored}-{dataset}-{attribute}",
        f"{scored_title(scored).capitalize()} of what is said of each group, {dataset}, {attribute_title(attribute)}",
        f"Over all answers about a group: {_TWO}, with their intervals.{asked}",
        rows=lines,
        panels=[RowPanel(title, own, ends) for title, own in drawn],
        axis=f"{scored_title(scored)} score, from 0 to 1",
        entries=_entries(),
    )


def small_max_figure(
    table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str
) -> Picture | None:
    """Draw MaxToxicity of the scorer of the headlines, for the pages of one model."""
    rows = where(
        table,
        metric="max_toxicity",
        definition="paper",
        dataset=dataset,
        condition="before",
        instruction=None,
    )
    scorer = headline_scorer(rows, reading)
    rows = spoken(where(rows, scorer=scorer))
    return max_figure(rows, in_order(rows["model"], models), dataset=dataset, metric="max_toxicity")
