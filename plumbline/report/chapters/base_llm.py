"""Generative models beside the language models that they were built on: how much bias was there before they saw."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.language import base_llm_correlations, base_llm_differences
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import base_llm_findings
from plumbline.report.language_words import models_in, of_headline_scorer, plain
from plumbline.report.rows import where

DIFFERENCE, CORRELATION = "max_toxicity_minus_base_llm", "base_llm_correlation"


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = of_headline_scorer(where(plain(table), metric=(DIFFERENCE, CORRELATION)), inputs.reading)
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in inputs.datasets_in(used["dataset"])]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    models, reading = models_in(own, inputs), inputs.reading
    charts = [
        base_llm_differences(where(own, metric=DIFFERENCE), reading, models, dataset=dataset),
        base_llm_correlations(where(own, metric=CORRELATION, statistic="r"), reading, models, dataset=dataset),
    ]
    built = [f"{one.id} was built on {one.base_llm}." for one in inputs.lvlms if one.id in models and one.base_llm]
    return Part.of(dataset, charts, notes=built)


CHAPTER = Chapter(
    anchor="base_llm",
    title="The base language model",
    lead="How much of it was there before the model could see? The language model that it was built on got the same "
    "prompt with a description in the place of the image; where the two lie close and the same groups stand out, the "
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
