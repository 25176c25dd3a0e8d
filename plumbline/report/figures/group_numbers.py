"""Numbers that are given to each group: words of competence, ratings, salaries, refusals, lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import polars as pl

from plumbline.report.evidence import both_tests, evidence
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark
from plumbline.report.figures.palette import AMBER, BLUE, GREEN, SOFT
from plumbline.report.figures.panels import apart
from plumbline.report.figures.row_panels import RowPanel, Rows, Series, ends_of, row_figure
from plumbline.report.figures.toxicity import by_panels
from plumbline.report.language_words import attributes_in, headline_prompt, prompt_title, prompts_in
from plumbline.report.numbers import count, interval, money, number, p_value, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, first, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

_ATTRIBUTE_STYLES = {
    "race_gender": (BLUE, "o"),
    "physical_gender": (AMBER, "D"),
    "physical_race": (GREEN, "s"),
}


def group_mark(row: Row, y: float, *, share: bool = False, filled: bool = True) -> Mark:
    """Return a row as a mark with its words."""
    shown, ends = (percent, percent_interval) if share else (number, interval)
    who = [row["model"], row["group"] and group_title(row["group"]), prompt_title(row["prompt"])]
    tested = f", {both_tests(row)}" if row["p"] is not None else ""
    tip = (
        f"{', '.join(word for word in who if word)}: {shown(row['value'])} [{ends(row['ci_low'], row['ci_high'])}]"
        f"{tested}, n = {count(row['n'])}"
    )
    return Mark.of(row, y, tip, filled=filled)


def group_figure(
    rows: pl.DataFrame,
    models: Sequence[str],
    *,
    name: str,
    title: str,
    description: str,
    axis: str,
    share: bool = False,
    line: Callable[[int], float] | None = None,
) -> Picture | None:
    """Draw one number of each group (rows) by model, or by prompt of the only model; None without a defined value.

    Parameters
    ----------
    line : callable, optional
        From the number of groups to where an upright line stands.
    """
    if not any(math.isfinite(or_nan(value)) for value in rows["value"]):
        return None
    groups = in_order(rows["group"], ())
    drawn = [
        (head, [group_mark(row, groups.index(row["group"]), share=share) for row in own.to_dicts()])
        for head, own in by_panels(rows, models)
    ]
    at = line(len(groups)) if line else None
    ends = ends_of((m for _, marks in drawn for m in marks), lines=[at])
    asked = "" if len(models) == 1 else f" Prompt: {prompt_title(headline_prompt(rows))}."
    return row_figure(
        name,
        title,
        description + asked,
        rows=Rows.plain(group_title(group) for group in groups),
        panels=[
            RowPanel(head, [Series(marks, BLUE)], ends, unit="share" if share else "number", line=at)
            for head, marks in drawn
        ],
        axis=axis,
    )


def rating_figure(
    rows: pl.DataFrame, gaps: pl.DataFrame, *, model: str, dataset: str, attribute: str
) -> Picture | None:
    """Draw mean rating and salary of each group (rows) by question (panels), with the gap over each.

    Parameters
    ----------
    rows, gaps : DataFrame
        `rating` and `salary` by group, `rating_gap` and `salary_gap`; of one model, dataset and attribute.
    """
    groups, questions = in_order(rows["group"], ()), prompts_in(rows)
    marks = {
        question: [
            group_mark(row, groups.index(row["group"])) for row in where(rows, prompt=question).to_dicts()
        ]
        for question in questions
    }
    questions = [q for q in questions if any(math.isfinite(m.value) for m in marks[q])]
    if not questions:
        return None
    # Ratings share a scale, which begins where they do: a model that rates all people 8 to 9 still tells them apart.
    ratings = ends_of((m for q in questions if q != "salary" for m in marks[q]), zero=False)
    panels = [
        RowPanel(
            _headed(question, first(gaps, prompt=question)),
            [Series(marks[question], BLUE)],
            ends_of(marks[question], zero=False) if question == "salary" else ratings,
            unit="money" if question == "salary" else "number",
        )
        for question in questions
    ]
    return row_figure(
        f"ratings-{model}-{dataset}-{attribute}",
        f"What numbers {model} gives, {dataset}, {attribute_title(attribute)}",
        "Mean of the answers that hold a number, with its interval. Above each panel the gap between the highest and "
        "the lowest group, and its q. Scales begin where the numbers do; ratings share one.",
        rows=Rows.plain(group_title(group) for group in groups),
        panels=panels,
        axis="mean rating, from 1 to 10" + ("; salary in US dollars a year" if "salary" in questions else ""),
    )


def _headed(question: str, gap: Row | None) -> str:
    if gap is None or not math.isfinite(or_nan(gap["value"])):
        return prompt_title(question)
    level = p_value(gap["q"], "q") if gap["q"] is not None else p_value(gap["p"])
    size = money(gap["value"]) if question == "salary" else number(gap["value"])
    return f"{prompt_title(question)}: gap {size}, {level}"


def gap_figure(
    rows: pl.DataFrame,
    reading: Reading,
    models: Sequence[str],
    *,
    dataset: str,
    name: str,
    title: str,
    share: bool = False,
) -> Picture | None:
    """Draw the gap between groups by model (rows) and question (panels), a mark for each way in which people differ."""
    questions, attributes = prompts_in(rows), attributes_in(rows)
    styles = {name: _ATTRIBUTE_STYLES.get(name, (SOFT, "^")) for name in attributes}
    panels = []
    for question in questions:
        own = where(rows, prompt=question)
        series = []
        for place, attribute in enumerate(attributes):
            aside = apart(place, len(attributes), 0.26)
            marks = [
                group_mark(
                    row, models.index(row["model"]) + aside, share=share, filled=evidence(row, reading)
                )
                for row in where(own, attribute=attribute).to_dicts()
            ]
            series.append(Series(marks, *styles[attribute]))
        ends = ends_of(m for one in series for m in one.marks)
        panels.append(
            RowPanel(prompt_title(question), series, ends, unit="money" if question == "salary" else "number")
        )
    entries = [
        LegendDot(attribute_title(name), colour, marker=shape) for name, (colour, shape) in styles.items()
    ]
    return row_figure(
        f"{name}-{dataset}",
        title,
        "The highest minus the lowest mean of a group, with its interval. It cannot fall below 0: judge it by whether "
        "its mark is filled. Each panel has its own scale.",
        rows=Rows.plain(models),
        panels=panels,
        axis="largest gap between groups",
        entries=[*entries, HOLLOW],
    )
