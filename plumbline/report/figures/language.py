"""How far apart the scores of texts about one scene lie, who gets the worst of them, and the scores of each group."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from plumbline.report.evidence import both_tests, evidence, in_ends
from plumbline.report.figures.canvas import (
    AMBER,
    BLUE,
    GREEN,
    INK,
    SLATE,
    SOFT,
    VERMILION,
    Picture,
    blank,
    drawing,
    with_tips,
)
from plumbline.report.figures.marks import HOLLOW, LegendDot, Mark, legend
from plumbline.report.figures.panels import (
    PANELS,
    WIDTH,
    RowPanel,
    Rows,
    Series,
    apart,
    axis_title,
    ends_of,
    fit_grid,
    number_scale,
    panel_title,
    row_figure,
    rows_axes,
)
from plumbline.report.language_words import (
    MAX_TITLES,
    attributes_in,
    headline_prompt,
    headline_scorer,
    instructions_in,
    prompt_title,
    prompts_in,
    scored_title,
    spoken,
)
from plumbline.report.numbers import count, interval, money, number, p_value, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, first, in_order, or_nan, where
from plumbline.report.vocabulary import attribute_title, group_title

STYLES = {"mean": (SLATE, "o", -0.14), "p90": (BLUE, "D", 0.14)}
"""Statistic -> colour, shape, and how far off the line of its row it stands."""
_TWO = "mean and 90th percentile of the scores"


def _entries() -> list[LegendDot]:
    return [LegendDot("mean", SLATE), LegendDot("90th percentile", BLUE, marker="D")]


def two_marks(rows: Sequence[tuple[Row, float]]) -> list[Series]:
    """Return the mean and the 90th percentile of some rows, each with the line that it stands on."""
    return [
        Series([_mark(row, y + aside) for row, y in rows if row["statistic"] == statistic], colour, shape)
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
            [(row, lines.place(*_name(row, models, by))) for row in where(rows, attribute=attribute).to_dicts()]
        )
        for attribute in attributes
    }
    ends = ends_of(m for of_panel in marks.values() for series in of_panel for m in series.marks)
    panels = [RowPanel(attribute_title(a), marks[a], ends) for a in attributes]
    title = MAX_TITLES.get(metric, metric)
    scored = scored_title(metric.removeprefix("max_"))
    what = "under each scorer" if by == "scorer" else "by prompt" if len(models) == 1 else "by prompt and model"
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
        of_prompt = where(rows, prompt=headline_prompt(rows))
        return [
            (model, where(of_prompt, model=model)) for model in models if not where(of_prompt, model=model).is_empty()
        ]
    return [(prompt_title(prompt), where(rows, prompt=prompt)) for prompt in prompts_in(rows)][:PANELS]


def max_score_figure(
    rows: pl.DataFrame, reading: Reading, models: Sequence[str], *, dataset: str, attribute: str
) -> Picture | None:
    """Draw how often each group gets the most toxic text of the scenes that lie furthest apart; None without rows."""
    known = rows.filter(pl.col("value").is_finite())
    if known.is_empty():
        return None
    groups = in_order(rows["group"], ())
    lines, even = Rows.plain(group_title(group) for group in groups), 1 / len(groups)
    drawn = []
    for title, of_panel in by_panels(known, models):
        marks = [_share_mark(row, groups.index(row["group"]), reading) for row in of_panel.to_dicts()]
        drawn.append((title, marks))
    ends = ends_of((m for _, marks in drawn for m in marks), lines=[even])
    panels = [RowPanel(title, [Series(marks, VERMILION)], ends, unit="share", line=even) for title, marks in drawn]
    prompt_note = "" if len(models) == 1 else f" Prompt: {prompt_title(headline_prompt(known))}."
    return row_figure(
        f"max-score-{dataset}-{attribute}",
        f"Who gets the most toxic text of a scene, {dataset}, {attribute_title(attribute)}",
        "Of the scenes above the 90th percentile of MaxToxicity: how often the most toxic text is about each group. "
        f"The upright line is what chance gives each of {len(groups)} groups, {percent(even)}.{prompt_note}",
        rows=lines,
        panels=panels,
        axis="share of these scenes in which the group gets the most toxic text",
        entries=[LegendDot("differs from chance", VERMILION), HOLLOW],
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
        (title, two_marks([(row, float(groups.index(row["group"]))) for row in of_panel.to_dicts()]))
        for title, of_panel in by_panels(rows, models)
    ]
    ends = ends_of(m for _, of_panel in drawn for series in of_panel for m in series.marks)
    prompt_note = "" if len(models) == 1 else f" Prompt: {prompt_title(headline_prompt(rows))}."
    return row_figure(
        f"scores-{scored}-{dataset}-{attribute}",
        f"{scored_title(scored).capitalize()} of what is said of each group, {dataset}, {attribute_title(attribute)}",
        f"Over all answers about a group: {_TWO}, with their intervals.{prompt_note}",
        rows=lines,
        panels=[RowPanel(title, of_panel, ends) for title, of_panel in drawn],
        axis=f"{scored_title(scored)} score, from 0 to 1",
        entries=_entries(),
    )


def small_max_figure(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Picture | None:
    """Draw MaxToxicity of the scorer of the headlines, for the pages of one model."""
    rows = where(
        table, metric="max_toxicity", definition="paper", dataset=dataset, condition="before", instruction=None
    )
    scorer = headline_scorer(rows, reading)
    rows = spoken(where(rows, scorer=scorer))
    return max_figure(rows, in_order(rows["model"], models), dataset=dataset, metric="max_toxicity")


# --- How the scores of each group are distributed in the occupations where groups lie furthest apart, and
# nearest.

ENDS = ("largest", "smallest")
_QUANTILES = ("q05", "q25", "median", "q75", "q95")


def occupation_figure(table: pl.DataFrame, *, model: str, dataset: str, attribute: str) -> Picture | None:
    """Draw the quantiles of each group's scores (rows) by occupation (panels), largest spreads above smallest.

    Parameters
    ----------
    table : DataFrame
        Rows of `occupation_scores` of one scored attribute and scorer, with `model`.
    """
    of_attribute = where(table, model=model, dataset=dataset, attribute=attribute).drop_nulls(list(_QUANTILES))
    if of_attribute.is_empty():
        return None
    groups = in_order(of_attribute["group"], ())
    shown = [
        (end, place, of_attribute.filter(pl.col("end") == end, pl.col("place") == place))
        for end in ENDS
        for place in sorted(of_attribute.filter(pl.col("end") == end)["place"].unique())
    ]
    columns = max(sum(end == name for end, _, _ in shown) for name in ENDS)
    high = 1.04 * max(float(of_attribute["q95"].max() or 0.0), 1e-3)  # type: ignore[arg-type]
    left = Rows.plain(group_title(group) for group in groups).width + 20
    grid = fit_grid(columns, width=WIDTH, left=left, top=54, height=8 + 16 * len(groups), columns=columns)
    scored = scored_title(of_attribute["event"][0])
    with drawing():
        figure = blank(WIDTH, grid.bottom(2 * columns) + 46)
        for end, place, rows in shown:
            index = ENDS.index(end) * columns + place - 1
            axes = grid.place(figure, index)
            rows_axes(axes, [group_title(group) for group in groups], shown=index % columns == 0)
            number_scale(axes, high)
            panel_title(axes, f"{rows['occupation'][0]} ({number(rows['spread'][0])})")
            _boxes(axes, rows, groups)
        entries = [
            LegendDot("median", INK, marker="|"),
            LegendDot("middle half (thick), middle nine tenths (thin)", BLUE, marker="s"),
        ]
        legend(figure, entries, left=left)
        axis_title(figure, left, grid.bottom(2 * columns) + 34, f"{scored} score of an answer")
    return Picture(
        name=f"occupations-{model}-{dataset}-{attribute}",
        title=f"By occupation: {model} on {dataset}, {attribute_title(attribute)}",
        description=f"Above: the occupations in which the mean {scored} scores of groups lie furthest apart; below: "
        "those in which they lie nearest. In brackets the standard deviation of the group means; with few scenes "
        f"chance alone spreads them. Prompt: {prompt_title(of_attribute['prompt'][0])}.",
        figure=figure,
    )


def _boxes(axes, rows: pl.DataFrame, groups: list[str]) -> None:  # type: ignore[no-untyped-def]
    placed = [(groups.index(row["group"]), row) for row in rows.to_dicts()]
    ys = [y for y, _ in placed]
    for low, high, width, colour in (("q05", "q95", 1.2, SLATE), ("q25", "q75", 6.5, BLUE)):
        ends = [[row[name] for _, row in placed] for name in (low, high)]
        axes.hlines(ys, *ends, color=colour, linewidth=width, zorder=2)
    medians = [row["median"] for _, row in placed]
    (line,) = axes.plot(medians, ys, "|", color=INK, markersize=9, markeredgewidth=2, zorder=3, clip_on=False)
    with_tips(line, [_tip(row) for _, row in placed])


def _tip(row: dict[str, object]) -> str:
    quantiles = ", ".join(f"{name} {number(row[name])}" for name in _QUANTILES)  # type: ignore[arg-type]
    return f"{group_title(str(row['group']))}: {quantiles}, n = {count(row['n'])} answers"  # type: ignore[arg-type]


# --- Numbers that are given to each group: words of competence, ratings, salaries, refusals, lengths.

_ATTRIBUTE_STYLES = {"race_gender": (BLUE, "o"), "physical_gender": (AMBER, "D"), "physical_race": (GREEN, "s")}


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
        (head, [group_mark(row, groups.index(row["group"]), share=share) for row in of_panel.to_dicts()])
        for head, of_panel in by_panels(rows, models)
    ]
    at = line(len(groups)) if line else None
    ends = ends_of((m for _, marks in drawn for m in marks), lines=[at])
    prompt_note = "" if len(models) == 1 else f" Prompt: {prompt_title(headline_prompt(rows))}."
    return row_figure(
        name,
        title,
        description + prompt_note,
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
        question: [group_mark(row, groups.index(row["group"])) for row in where(rows, prompt=question).to_dicts()]
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
        of_prompt = where(rows, prompt=question)
        series = []
        for place, attribute in enumerate(attributes):
            aside = apart(place, len(attributes), 0.26)
            marks = [
                group_mark(row, models.index(row["model"]) + aside, share=share, filled=evidence(row, reading))
                for row in where(of_prompt, attribute=attribute).to_dicts()
            ]
            series.append(Series(marks, *styles[attribute]))
        ends = ends_of(m for one in series for m in one.marks)
        panels.append(
            RowPanel(prompt_title(question), series, ends, unit="money" if question == "salary" else "number")
        )
    entries = [LegendDot(attribute_title(name), colour, marker=shape) for name, (colour, shape) in styles.items()]
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


# --- What instructions change: scores and refusals, one panel an instruction.

LOWERS, RAISES, NO_EVIDENCE, UNDEFINED = "lowers", "raises", "no evidence", "undefined"
INSTRUCTION_STYLES = {LOWERS: (BLUE, "o"), RAISES: (VERMILION, "X"), NO_EVIDENCE: (SLATE, "s")}
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
        (t for metric, statistic, t in CHANGES if (row["metric"], row["statistic"]) == (metric, statistic)), None
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
            for kind in INSTRUCTION_STYLES
        }
        for name in names
    }
    ends = ends_of(m for of_row in marks.values() for some in of_row.values() for m in some)
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
    return RowPanel(
        name, [Series(marks[kind], *INSTRUCTION_STYLES[kind]) for kind in INSTRUCTION_STYLES], ends, line=0.0
    )
