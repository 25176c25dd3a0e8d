"""Positive and negative words in the text space: whether it tells the poles of a trait apart."""

from __future__ import annotations

import math

import polars as pl

from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.estimates import MOST_MODELS
from plumbline.report.charts.text_space import valence_gaps, word_space
from plumbline.report.evidence import could_be_found, evidence
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import estimate
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import sentence_start

METHOD = (
    (
        "Words in the text space",
        "Every adjective is embedded in the four templates; each embedding is brought to unit length, and the mean of "
        "the four again. The paper does not say in which prompt it embeds an adjective. Its one-sided t-test of the "
        "pairs within a pole against those across takes pairs that share a word for independent, and rejects too "
        "often (10% of draws without a difference at the 5% level); the permutation test deals the words of the trait "
        "to two poles in every possible way. Intervals are a jackknife over words. Axes are principal components of "
        "the 32 mean embeddings; on each the word farthest out is on the positive side.",
    ),
)


def text_space_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return one finding a model: in how many traits and poles words are closer to their own pole."""
    rows = where(table, metric="valence_gap", definition="permutation", condition="before")
    findings = []
    for (model, dataset), subset in rows.group_by("model", "dataset", maintain_order=True):
        known = [row for row in subset.to_dicts() if defined(row["value"]) and defined(row["p"])]
        if known:
            findings.append(_finding(str(model), str(dataset), known, reading))
    return findings


def _finding(model: str, dataset: str, known: list[Row], reading: Reading) -> Finding:
    apart = [row for row in known if evidence(row, reading)]
    together = ", ".join(f"{row['group']} {row['attribute']}" for row in known if row not in apart)
    least = min(known, key=lambda row: row["value"])
    of = f"{least['group']} {least['attribute']}"
    smallest = f"The smallest gap of mean cosines is {estimate(least)}, of {of}."
    share = f"{len(apart)} of {len(known)}"
    if len(apart) == len(known):
        sentence = f"{model}: its text space holds the positive and negative words of every trait apart. {smallest}"
    elif apart:
        sentence = (
            f"{model}: its text space holds words closer to their own pole than to the other in {share} traits and "
            f"poles; no evidence of it for {together}. {smallest}"
        )
    else:
        sentence = f"{model}: no evidence that its text space tells positive from negative words. {smallest}"
    if least not in apart:
        sentence += could_be_found(least, said=sentence)
    short = f"positive and negative words apart in {share} poles"
    return Finding(
        tone="difference" if apart else "none",
        topic=("text space", dataset),
        model=model,
        dataset=dataset,
        short=sentence_start(short) if apart else f"no evidence: {short}",
        sentence=sentence,
        value=float(least["value"]),
        value_text=share,
        interval_text="–",
        strength=len(apart) / len(known) if known else math.nan,
    )


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    words = pl.DataFrame(schema=GEOMETRY_SCHEMA) if inputs.geometry is None else inputs.geometry
    models = in_order(words["model"], inputs.models)
    gaps = valence_gaps(table, inputs.audit, inputs.models)
    if not gaps and not models:
        return []
    without = [model for model in inputs.models if models and model not in models]
    notes = [f"No text space of its own, or not measured: {', '.join(without)}."] if without else []
    title = "Words of agency, belief and communion"
    return [Part.of(title, [gaps, *(word_space(words, model=model) for model in models[:MOST_MODELS])], notes=notes)]


CHAPTER = Chapter(
    anchor="text-space",
    title="Positive and negative words in the text space",
    lead="No face is involved here: do the words wealthy and poor, modern and traditional, sincere and dishonest lie "
    "apart? Where they do not, a face that is close to one pole of a trait is close to the other too.",
    parts=_parts,
    findings=text_space_findings,
    method=METHOD,
)
