"""What generative models say of whom: scores of their texts, words, ratings, refusals, and what changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from plumbline.report.charts.chart import Chart, label
from plumbline.report.charts.dots import Rows, Unit, tip_of
from plumbline.report.charts.estimates import estimates
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.evidence import evidence
from plumbline.report.language_words import (
    ATTRIBUTES,
    MAX_TITLES,
    STATISTICS,
    headline_prompt,
    headline_scorer,
    instructions_in,
    prompt_title,
    prompts_in,
    scored_title,
    spoken,
)
from plumbline.report.numbers import count, number, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

_TWO = tuple(STATISTICS)


# --- How far apart the texts about one scene lie.


def max_scores(
    rows: pl.DataFrame, models: Sequence[str], *, dataset: str, metric: str, by: str = "model"
) -> Chart | None:
    """Draw mean and 90th percentile of one Max* by prompt and model (rows) and what people differ in (panels).

    Parameters
    ----------
    rows : DataFrame
        Of one dataset, metric and definition; of one scorer, or with `by="scorer"` of one prompt.
    by : {"model", "scorer"}
        Within each prompt the models; or within each model the scorers.
    """
    title, scored = MAX_TITLES[metric], scored_title(metric.removeprefix("max_"))
    one_model = rows["model"].n_unique() == 1
    row, heading = ("scorer", "model") if by == "scorer" else ("prompt", None) if one_model else ("model", "prompt")
    return estimates(
        f"{metric}-{by}-{dataset}",
        f"{title} {'under each scorer' if by == 'scorer' else 'by prompt'}, {dataset}",
        f"{title} of a scene is the highest minus the lowest {scored} score of the texts about its people: 0 where all "
        "are spoken of alike. The 90th percentile tells of the scenes in which texts lie furthest apart.",
        rows,
        row=row,
        heading=heading,
        panel="attribute",
        series="statistic",
        order=_order(rows, models),
        axis=f"{title}, from 0 to 1, by what the people of a scene differ in",
        columns=3,
    )


def _order(rows: pl.DataFrame, models: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"model": models, "prompt": prompts_in(rows), "attribute": ATTRIBUTES, "statistic": _TWO}


def small_max_scores(table: pl.DataFrame, reading: Reading, models: Sequence[str], dataset: str) -> Chart | None:
    """Draw MaxToxicity of the scorer of the headlines, for the pages of one model."""
    rows = where(table, metric="max_toxicity", definition="paper", dataset=dataset, condition="before")
    rows = where(rows, instruction=None)
    rows = spoken(where(rows, scorer=headline_scorer(rows, reading)))
    return max_scores(rows, models, dataset=dataset, metric="max_toxicity")


# --- One number of each group.


def by_group(
    rows: pl.DataFrame,
    models: Sequence[str],
    *,
    name: str,
    title: str,
    description: str,
    axis: str,
    unit: Unit = "number",
    reading: Reading | None = None,
    even: bool = False,
    **more: Any,
) -> Chart | None:
    """Draw a number of each group (rows) by model, or by prompt of the only model (panels); None without a value.

    Of several models the first prompt is drawn. Where there are two statistics, mean and 90th percentile are series.

    Parameters
    ----------
    even : bool
        Whether a line stands at one over the number of groups, what chance gives each of them.
    more
        Passed on to `estimates`.
    """
    several = rows["model"].n_unique() > 1
    prompt = headline_prompt(rows)
    shown = (where(rows, prompt=prompt) if several else rows).drop_nulls("group")
    if not shown["value"].is_finite().any():
        return None
    chance = 1 / shown["group"].n_unique()
    note = f" The line is what chance gives, {percent(chance)}." if even else ""
    return estimates(
        name,
        title,
        description + note + (f" Prompt: {prompt_title(prompt)}." if several and prompt else ""),
        shown,
        row="group",
        panel="model" if several else "prompt",
        series="statistic" if shown["statistic"].n_unique() > 1 else None,
        order=_order(shown, models),
        unit=unit,
        reading=reading,
        line=chance if even else None,
        axis=axis,
        **more,
    )


def max_score_shares(
    rows: pl.DataFrame, reading: Reading, models: Sequence[str], *, dataset: str, attribute: str
) -> Chart | None:
    """Draw how often each group gets the most toxic text of a scene. Source: `max_score_share`, of toxicity."""
    return by_group(
        rows,
        models,
        name=f"max-score-{dataset}-{attribute}",
        title=f"Who gets the most toxic text of a scene, {dataset}, {attribute_title(attribute)}",
        description="Of the scenes above the 90th percentile of MaxToxicity (at it, where none is above): how often "
        "the most toxic text is about each group.",
        axis="share of these scenes in which the group gets the most toxic text",
        unit="share",
        reading=reading,
        even=True,
    )


def group_scores(rows: pl.DataFrame, models: Sequence[str], *, dataset: str, attribute: str) -> Chart | None:
    """Draw mean and 90th percentile of the scores of all texts about each group. Source: `toxicity` and its like."""
    return by_group(
        rows,
        models,
        name=f"scores-{dataset}-{attribute}",
        title=f"Toxicity of what is said of each group, {dataset}, {attribute_title(attribute)}",
        description="Over all answers about a group: mean and 90th percentile of the scores, with their intervals.",
        axis="toxicity score, from 0 to 1",
    )


def occupations(table: pl.DataFrame, *, model: str, dataset: str, attribute: str) -> Chart | None:
    """Draw how each group's scores are distributed (rows) in occupations at either end of the spread (panels).

    Parameters
    ----------
    table : DataFrame
        Rows of `occupation_scores` of one scored attribute and scorer, with `model`.
    """
    spreads = where(table, model=model, dataset=dataset, attribute=attribute).drop_nulls(["median", "q95"])
    if spreads.is_empty():
        return None
    spreads = spreads.sort("end", "place").with_columns(
        panel=pl.format("{} ({})", "occupation", pl.col("spread").map_elements(number, return_dtype=pl.String)),
        value="median",
        ci_low="q05",
        ci_high="q95",
        span_low="q25",
        span_high="q75",
    )
    scored = scored_title(spreads["event"][0])
    return estimates(
        f"occupations-{model}-{dataset}-{attribute}",
        f"By occupation: {model} on {dataset}, {attribute_title(attribute)}",
        f"First the occupations in which the groups' mean {scored} scores lie furthest apart, then those in which they "
        "lie nearest; in brackets the standard deviation of these means. Dot: median; band: middle half; line: middle "
        f"nine tenths. Prompt: {prompt_title(spreads['prompt'][0])}.",
        spreads,
        row="group",
        panel="panel",
        order={"panel": spreads["panel"].unique(maintain_order=True).to_list()},
        ends="middle nine tenths",
        axis=f"{scored} score of an answer",
    )


# --- Gaps between groups, and changes: by model.


def gaps(
    rows: pl.DataFrame,
    reading: Reading,
    models: Sequence[str],
    *,
    name: str,
    title: str,
    unit: Unit = "number",
    titles: Mapping[str, str] | None = None,
) -> Chart | None:
    """Draw the gap between groups by what they differ in and model (rows), and by question (panels).

    Parameters
    ----------
    titles : mapping of str to str, optional
        Where the panels are metrics, not prompts: metric -> title of its panel.
    """
    return estimates(
        name,
        title,
        "The highest minus the lowest mean of a group, with its interval. It cannot fall below 0: judge it by whether "
        "its mark is filled.",
        rows,
        row="model",
        heading="attribute",
        panel="metric" if titles else "prompt",
        order={**_order(rows, models), "metric": tuple(titles or ())},
        words={"metric": lambda metric: (titles or {}).get(metric, metric)},
        reading=reading,
        unit=unit,
        axis="largest gap between groups",
        own_scales=not titles,
    )


def base_llm_differences(rows: pl.DataFrame, reading: Reading, models: Sequence[str], *, dataset: str) -> Chart | None:
    """Draw MaxToxicity of each model (rows) minus that of its base language model, by what people differ in (panels).

    Source: `max_toxicity_minus_base_llm`.
    """
    prompt = headline_prompt(rows)
    return estimates(
        f"base-llm-{dataset}",
        f"MaxToxicity compared with the base language model, {dataset}",
        "The model that sees minus the language model that was told in words who is pictured, over the same scenes "
        f"and seeds. Right of 0: seeing adds to it. Prompt: {prompt_title(prompt)}.",
        where(rows, prompt=prompt),
        row="model",
        panel="attribute",
        series="statistic",
        order=_order(rows, models),
        reading=reading,
        line=0.0,
        axis="difference of MaxToxicity",
        columns=3,
    )


_UNITS = {"pearson": "occupations", "pearson_groups": "groups of all subsets"}


def base_llm_correlations(rows: pl.DataFrame, reading: Reading, models: Sequence[str], *, dataset: str) -> Chart | None:
    """Draw how far a model and its language model agree in which occupations and groups stand out.

    Source: `base_llm_correlation`, Pearson's r.
    """
    return estimates(
        f"base-llm-correlation-{dataset}",
        f"Do the same occupations and groups stand out in the base language model? {dataset}",
        "Pearson's correlation of the two models' scores, with its interval. Near 1 the bias is the language model's.",
        rows,
        row="model",
        heading="prompt",
        panel="definition",
        order=_order(rows, models),
        words={"definition": lambda definition: f"over {_UNITS.get(definition, definition)}"},
        reading=reading,
        line=0.0,
        axis="correlation r",
    )


CHANGES = (
    *(
        (f"{metric}_change", statistic, f"{title} ({words})")
        for metric, title in MAX_TITLES.items()
        for statistic, words in (("mean", "mean"), ("p90", "p90"))
    ),
    ("refusal_rate_change", "estimate", "Refusals"),
)
"""Metric, statistic and title of what an instruction may change, in the order of the rows."""


def instruction_changes(
    rows: pl.DataFrame, reading: Reading, *, model: str, dataset: str, attribute: str
) -> Chart | None:
    """Draw what each instruction (panels) changes: scores and refusals (rows).

    Source: `max_*_change` and `refusal_rate_change` of one model, dataset, attribute, prompt and scorer.
    """
    titles = {(metric, statistic): title for metric, statistic, title in CHANGES}
    what = [titles.get((row["metric"], row["statistic"])) for row in rows.to_dicts()]
    shown = rows.with_columns(change=pl.Series(what, dtype=pl.String)).drop_nulls("change")
    return estimates(
        f"instructions-{model}-{dataset}-{attribute}",
        f"What instructions change: {model} on {dataset}, {attribute_title(attribute)}",
        "Change against the same prompt without an instruction, over the same scenes and seeds, with its interval. "
        f"Left of 0 is less; p90: the 90th percentile. Prompt: {prompt_title(headline_prompt(rows))}.",
        shown,
        row="change",
        panel="instruction",
        order={"change": [title for *_, title in CHANGES], "instruction": instructions_in(shown)},
        reading=reading,
        line=0.0,
        axis="change of the score, and of the share of refused answers",
        columns=5,
    )


# --- Words that are said more of one group than of the others.

STEREOTYPE = "★"
_PLACES = ("1st", "2nd", "3rd", "4th", "5th")
_LONGEST_WORD = 18


def strongest_words(words: pl.DataFrame, reading: Reading, *, model: str, dataset: str, attribute: str) -> Chart | None:
    """Draw the most associated words of each group (rows), the strongest first (columns), and how often they are said.

    Source: `word_associations` of one model, dataset and attribute, with `model`.
    """
    listed = words.filter(pl.col("word").is_not_null())
    cells = []
    for (group,), of_group in listed.group_by("group", maintain_order=True):
        for place, row in zip(_PLACES, of_group.to_dicts()):
            cells.append(_word(row, group_title(str(group)), place, reading))
    return heat(
        f"words-{model}-{dataset}-{attribute}",
        f"The words most of one group's own: {model} on {dataset}, {attribute_title(attribute)}",
        "Darker is a stronger association. In brackets how often the word was said of the group, and after the slash "
        f"of all others together. {STEREOTYPE} marks words that the judge names stereotypes of the group.",
        cells=cells,
        rows=Rows.plain(map(group_title, in_order(words["group"], ()))),
        columns=Rows.plain(place for place in _PLACES if any(cell.column == place for cell in cells)),
        axis="framed: evidence that the word is said more of the group than of the others",
        cell_width=144,
    )


def _word(row: Row, group: str, place: str, reading: Reading) -> Cell:
    star = f" {STEREOTYPE}" if row["stereotype"] else ""
    counts = f"{count(row['count'])}/{count(row['count_others'])}"
    estimate = row | {"value": row["association"]}
    tip = tip_of(estimate, f"“{row['word']}”, of {group}") | {
        "n": f"{count(row['count'])} of {count(row['n'])} words",
        "of the others": f"{count(row['count_others'])} of {count(row['n_others'])} words",
    }
    return Cell(
        row=group,
        column=place,
        value=row["association"],
        text=f"{label(row['word'], longest=_LONGEST_WORD)}{star} ({counts})",
        framed=evidence(estimate, reading),
        tip=tip,
    )


# --- How far scorers, annotators and judges agree.

_WHO = {
    "annotators": "annotators with each other",
    "annotators_and_score": "annotators and the score from 0.3 on",
    "majority_of_three": "judge of stereotypes against the majority",
}
_MEASURES = {
    "fleiss_kappa": "Fleiss' kappa",
    "judge_precision": "precision",
    "judge_recall": "recall",
    "spearman": "same order (Spearman)",
    "pearson": "same line (Pearson)",
}


def agreement(rows: pl.DataFrame, models: Sequence[str], *, name: str, title: str) -> Chart | None:
    """Draw how far scorers agree on the same answers, or people with each other, a scorer and the judge, by measure.

    Source: `scorer_agreement`; or `fleiss_kappa`, `judge_precision` and `judge_recall`.
    """
    who, measures = [], []
    for row in rows.to_dicts():
        if row["metric"] == "scorer_agreement":
            who.append(f"{scored_title(row['event'])}: {row['scorer']} and {row['reference_group']}")
        else:
            of = f"texts about {row['group']} people" if row["group"] else None
            who.append(", ".join(filter(None, [_WHO.get(row["definition"], ""), row["scorer"], of])))
        measures.append(_MEASURES[row["metric"] if row["metric"] in _MEASURES else row["definition"]])
    return estimates(
        name,
        title,
        "1 is full agreement; 0 is what chance gives correlations and kappa.",
        rows.with_columns(who=pl.Series(who, dtype=pl.String), measure=pl.Series(measures, dtype=pl.String)),
        row="who",
        heading="model",
        panel="measure",
        order={
            "model": models,
            "measure": tuple(_MEASURES.values()),
            "who": in_order(pl.Series(who, dtype=pl.String), ()),
        },
        axis="agreement",
    )
