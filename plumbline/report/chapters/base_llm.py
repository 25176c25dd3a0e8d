"""Generative models beside the language models that they were built on: how much bias was there before they saw."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.evidence import evidence
from plumbline.report.figures.canvas import BLUE, SLATE, Picture
from plumbline.report.figures.language import STYLES, group_mark
from plumbline.report.figures.marks import HOLLOW, LegendDot
from plumbline.report.figures.panels import RowPanel, Rows, Series, ends_of, row_figure
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import base_llm_findings, capped
from plumbline.report.language_words import (
    STATISTICS,
    attributes_in,
    headline_prompt,
    models_in,
    of_headline_scorer,
    plain,
    prompt_title,
)
from plumbline.report.listings import Listing, estimate
from plumbline.report.numbers import bare_p, count
from plumbline.report.rows import where
from plumbline.report.vocabulary import attribute_title

UNITS = {"pearson": "occupations", "pearson_groups": "groups of all subsets"}


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(plain(table), metric=("max_toxicity_minus_base_llm", "base_llm_correlation"))
    parts = []
    for dataset in inputs.datasets_in(used["dataset"]):
        of_dataset = where(used, dataset=dataset)
        shown = of_headline_scorer(of_dataset, inputs.reading)
        picture = difference_figure(where(shown, metric="max_toxicity_minus_base_llm"), inputs, dataset)
        correlations = where(of_dataset, metric="base_llm_correlation", statistic="r")
        tables = [("Do the same occupations and groups stand out?", correlation_listing(correlations, inputs))]
        differences = difference_listing(where(of_dataset, metric="max_toxicity_minus_base_llm"), inputs)
        parts.append(
            Part(
                title=dataset,
                notes=_base_llms(inputs, models_in(of_dataset, inputs)),
                pictures=[picture] if picture else [],
                tables=tables,
                listings=[("Differences in numbers", differences)],
            )
        )
    return parts


def _base_llms(inputs: ReportInputs, models: list[str]) -> list[str]:
    return [f"{one.id} was built on {one.base_llm}." for one in inputs.lvlms if one.id in models and one.base_llm]


def difference_figure(rows: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Picture | None:
    """Draw MaxToxicity of each model minus that of its language model by what differs (panels)."""
    rows = where(rows, prompt=headline_prompt(rows))
    models = models_in(rows, inputs)
    panels = []
    for attribute in attributes_in(rows):
        of_panel = where(rows, attribute=attribute).to_dicts()
        series = [
            Series(
                [
                    group_mark(row, models.index(row["model"]) + aside, filled=evidence(row, inputs.reading))
                    for row in of_panel
                    if row["statistic"] == statistic
                ],
                colour,
                shape,
            )
            for statistic, (colour, shape, aside) in STYLES.items()
        ]
        panels.append((attribute_title(attribute), series))
    ends = ends_of(m for _, of_panel in panels for one in of_panel for m in one.marks)
    return row_figure(
        f"base-llm-{dataset}",
        f"MaxToxicity compared with the base language model, {dataset}",
        "The model that sees minus the language model that was told in words who is pictured, over the same scenes "
        f"and seeds. Right of 0: seeing adds to it. Prompt: {prompt_title(headline_prompt(rows))}.",
        rows=Rows.plain(models),
        panels=[RowPanel(title, series, ends, line=0.0) for title, series in panels],
        axis="difference of MaxToxicity",
        entries=[LegendDot("mean", SLATE), LegendDot("90th percentile", BLUE, marker="D"), HOLLOW],
        columns=3,
    )


def difference_listing(rows: pl.DataFrame, inputs: ReportInputs) -> Listing:
    """List differences with interval, p and q."""
    shown = [
        (
            row["model"],
            attribute_title(row["attribute"]),
            prompt_title(row["prompt"]),
            STATISTICS[row["statistic"]],
            row["scorer"] or "–",
            estimate(row),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for model in models_in(rows, inputs)
        for row in where(rows, model=model).to_dicts()
    ]
    heads = (
        "Model", "People differ in", "Prompt", "Of", "Scorer", "Difference", "p", "q", "Scenes", "Note",
    )  # fmt: skip
    return capped(heads, shown, frozenset({5, 6, 7, 8}))


def correlation_listing(rows: pl.DataFrame, inputs: ReportInputs) -> Listing:
    """List correlations over occupations and over groups, with what n counts."""
    shown = [
        (
            row["model"],
            UNITS.get(row["definition"], row["definition"]),
            prompt_title(row["prompt"]),
            row["scorer"] or "–",
            estimate(row),
            bare_p(row["p"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for model in models_in(rows, inputs)
        for row in where(rows, model=model).to_dicts()
    ]
    heads = ("Model", "Correlation over", "Prompt", "Scorer", "r", "p", "n", "Note")
    return capped(heads, shown, frozenset({4, 5, 6}))


CHAPTER = Chapter(
    anchor="base_llm",
    title="The base language model",
    lead="How much of it was there before the model could see? The language model that it was built on got the same "
    "prompt with a description in the place of the image. Where the two lie close and the same groups stand out, the "
    "bias is one of the language model.",
    parts=_parts,
    findings=base_llm_findings,
    method=(
        (
            "Compared with the base language model",
            "MaxToxicity of the model minus that of its language model over scenes and seeds that both answered "
            "completely; mean and 90th percentile; intervals and p by whole scenes. Pearson's r over occupations (mean "
            "MaxToxicity), and over the groups of all subsets (mean of a group's score above the least of its scene): "
            "the paper does not say which of the two it printed.",
        ),
    ),
)
