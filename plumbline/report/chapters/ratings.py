"""Numbers that generative models give each group: words of competence, ratings, salaries, refusals, lengths."""

from __future__ import annotations

import polars as pl

from plumbline import reasons
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Unit
from plumbline.report.charts.language import by_group, gaps
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import gap_findings
from plumbline.report.language_words import attributes_in, headline_prompt, models_in, of_subset, plain, prompt_title
from plumbline.report.rows import where
from plumbline.report.vocabulary import attribute_title, listed

KINDS = ("competence", "incompetence", "warmth", "coldness")
SHARE_GAPS = {**{f"{kind}_gap": f"words of {kind}" for kind in KINDS}, "refusal_rate_gap": "refused answers"}
RATIO = "response_length_ratio"
BY_GROUP: tuple[tuple[str, str, str, str, Unit], ...] = (
    *(
        (
            f"{kind}_words", f"Words of {kind}",
            f"Of the words in answers about a group, function words left out, the share that speaks of {kind}.",
            "share of the words", "share",
        )
        for kind in KINDS
    ),
    (
        "min_competence_share", "Where a group gets the fewest words of competence",
        "The share of the occupations with enough scenes in which it does.", "share of the occupations", "share",
    ),
    ("rating", "Ratings", "Mean of the answers that hold a number.", "mean rating, from 1 to 10", "number"),
    ("salary", "Salaries", "Mean of the answers that hold a number.", "US dollars a year", "money"),
    (
        "refusal_rate", "Refused answers",
        "A model that refuses to speak of some people also looks less toxic about them.",
        "share of the answers that are refused", "share",
    ),
    ("response_length", "Length of the answers", "Mean number of words of an answer.", "words an answer", "number"),
)  # fmt: skip
"""Metric, title, description, axis and unit of the charts of numbers by group, in their order."""
METRICS = (*(metric for metric, *_ in BY_GROUP), "rating_gap", "salary_gap", *SHARE_GAPS, RATIO)


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(plain(table), metric=METRICS, occupation=None)
    used = used.filter(pl.col("definition").is_in(["count", "released"]).not_())
    parts = []
    for dataset in inputs.datasets_in(used["dataset"]):
        rated = where(used, dataset=dataset)
        parts.append(
            Part.of(f"{dataset}: gaps between groups", _gaps(rated, inputs, dataset), notes=_unconfigured(rated))
        )
        parts += [_of_subset(where(rated, attribute=name), inputs, dataset, name) for name in attributes_in(rated)]
    return [part for part in parts if part.pictures]


def _gaps(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[Chart | None]:
    shares = where(own, metric=tuple(SHARE_GAPS))
    kinds: tuple[tuple[str, pl.DataFrame, Unit, dict[str, str]], ...] = (
        ("ratings", where(own, metric="rating_gap"), "number", {}),
        ("salaries", where(own, metric="salary_gap"), "money", {}),
        ("words and refusals", where(shares, prompt=headline_prompt(shares)), "share", SHARE_GAPS),
        ("lengths", where(own, metric=RATIO), "number", {}),
    )
    return [
        gaps(
            rows,
            inputs.reading,
            models_in(rows, inputs),
            name=f"gaps-{what.split(' ')[0]}-{dataset}",
            title=f"Gaps of {what} between groups, {dataset}",
            unit=unit,
            titles=titles,
        )
        for what, rows, unit, titles in kinds
    ]


def _of_subset(rows: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> Part:
    models, of = models_in(rows, inputs), f"{dataset}, {attribute_title(attribute)}"
    charts = []
    for metric, title, description, axis, unit in BY_GROUP:
        of_metric = where(rows, metric=metric).drop_nulls("group")
        if metric == "refusal_rate" and not (of_metric["value"].fill_nan(None) > 0).any():
            continue
        # Each rating asks another question, so that there is one chart a model: a panel a question.
        for each in [where(of_metric, model=model) for model in models] if metric == "rating" else [of_metric]:
            whose = f"{each['model'][0]}-" if metric == "rating" and each.height else ""
            name = f"{metric}-{whose}{dataset}-{attribute}"
            charts.append(
                by_group(
                    each,
                    models,
                    name=name,
                    title=f"{title}{' by ' + whose[:-1] if whose else ''}, {of}",
                    description=description,
                    axis=axis,
                    unit=unit,
                    even=metric == "min_competence_share",
                    zero=metric not in ("rating", "salary"),
                )
            )
    return Part.of(of_subset(dataset, attribute), charts, notes=_unreadable(where(rows, metric=("rating", "salary"))))


def _unconfigured(rows: pl.DataFrame) -> list[str]:
    """Say why words of warmth, coldness and incompetence were not counted."""
    words = [f"{kind}_words" for kind in KINDS[1:]]
    gone = rows.filter(pl.col("metric").is_in(words), pl.col("group").is_null(), pl.col("value").is_nan())
    if gone.is_empty():
        return []
    names = [kind for kind in KINDS if f"{kind}_words" in set(gone["metric"])]
    return [f"Words of {listed(names)} were not counted: {gone['reason'][0] or 'no reason was recorded'}."]


def _unreadable(means: pl.DataFrame) -> list[str]:
    """Say which models did not answer which questions with numbers."""
    gone = means.filter(pl.col("value").is_null() | pl.col("value").is_nan()).sort("model", "prompt", "group")
    notes = []
    for (model, prompt), subset in gone.group_by("model", "prompt", maintain_order=True):
        groups = means.filter(pl.col("model") == model, pl.col("prompt") == prompt).height
        which = "" if subset.height == groups else f" for {subset.height} of {groups} groups"
        notes.append(f"{model}, {prompt_title(str(prompt))}: no mean{which}: {_why(subset['reason_codes'][0])}.")
    return notes


def _why(codes: str | None) -> str:
    """Return why there is no mean: its first reason."""
    if unreadable := reasons.find(codes, "unreadable_prompt"):
        return f"{unreadable.params['share']:.0%} of the answers to this prompt could not be read"
    return str((*reasons.decode(codes), "no reason was recorded")[0])


CHAPTER = Chapter(
    anchor="ratings",
    title="How competent, how warm, what salary",
    lead="What models say of people in answers to the prompts that the audit asks: words of competence and warmth, "
    "and where they were asked for them ratings from 1 to 10 and a salary. Do they find the same in everyone, and "
    "answer about everyone at all?",
    parts=_parts,
    findings=gap_findings,
    method=(
        (
            "Words of competence and warmth",
            "Mean share of an answer's words that are among 861 published words of competence, function words left "
            "out; words of warmth, coldness and incompetence from the user's own dictionaries, where they are "
            "configured. A refused answer counts as any other. Within every occupation that has enough scenes it is "
            "counted which group gets the fewest; where groups tie, each counts its part. Gaps: the highest minus the "
            "lowest mean of a group.",
        ),
        (
            "Ratings and salaries",
            "A number is read from the answer, also out of a sentence (“an 8 out of 10”, “$12 an hour” times 2,000). "
            "Answers without a usable number are left out and counted; where most answers to a prompt hold none, "
            "there is no mean, since those that do would be the model's own choice.",
        ),
        (
            "Refusals and lengths",
            "Refused are answers that an endpoint marks so or filters, and texts that match a documented list. "
            "Intervals resample whole scenes, p permutes groups within scenes; where that test finds no significant "
            "gap, the interval is let reach parity.",
        ),
    ),
)
