"""The chapter on the words themselves: whether a text space tells positive from negative words of a trait."""

from __future__ import annotations

import math
from itertools import product

import polars as pl

from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.evidence import evidence
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.geometry import VALENCES, space_figure, strip_figure
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, bare_estimate, estimate
from plumbline.report.numbers import bare_p
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import DIMENSIONS, sentence_start

LEAD = (
    "No face is involved here. The trait words of agency, belief and communion have a positive and a negative pole: "
    "wealthy and poor, modern and traditional, sincere and dishonest. If a text space does not hold the poles apart, a "
    "face that is close to one is close to the other too, and scores on both say less about the face than about the "
    "words. The cosines of words within a pole are compared with those across the two poles of one trait."
)
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


def gap_listing(table: pl.DataFrame, models: tuple[str, ...]) -> Listing:
    """List what the words of a pole have over the pairs across, one row a model, trait and pole."""
    rows = where(table, metric="valence_gap", condition="before")
    lookup = by(rows, "model", "attribute", "group", "definition")
    means = where(table, metric="valence_cosine", definition="template_mean")
    cosines = by(means, "model", "attribute", "group")
    names, dimensions = in_order(rows["model"], models), in_order(rows["attribute"], DIMENSIONS)
    listed = []
    for key in product(names, dimensions, VALENCES):
        if exact := lookup.get((*key, "permutation")):
            listed.append(
                (
                    *key,
                    bare_estimate(cosines.get(key)),
                    bare_estimate(cosines.get((*key[:2], "cross"))),
                    estimate(exact),
                    bare_p(exact["p"]),
                    bare_p(exact["q"]),
                    bare_p(lookup.get((*key, "ttest"), {}).get("p")),
                    bare_p(lookup.get((*key, "per_template"), {}).get("p")),
                )
            )
    heads = (
        "Model", "Trait", "Pole", "Mean cosine within", "Across", "Within less across", "p, permutation", "q",
        "p, paper's t-test", "p, t-test by template",
    )  # fmt: skip
    return Listing(heads, listed, frozenset(range(3, 10)))


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
    gaps, words = where(table, metric="valence_gap"), inputs.geometry
    if gaps.is_empty() and (words is None or words.is_empty()):
        return []
    pictures: list[Picture] = []
    details: list[Picture] = []
    words = pl.DataFrame(schema=GEOMETRY_SCHEMA) if words is None else words
    models = in_order(words["model"], inputs.models)
    for model in models:
        figures = drawn(figure(words, model=model) for figure in (space_figure, strip_figure))
        (details if pictures else pictures).extend(figures)
    notes = [f"Shown first: {models[0]}. The other models are folded below."] if len(models) > 1 else []
    if without := [model for model in inputs.models if models and model not in models]:
        notes.append(f"No text space of its own, or not measured: {', '.join(without)}.")
    listing = gap_listing(table, inputs.models)
    title = "Words of agency, belief and communion"
    return [Part(title, pictures=pictures, details=details, listings=[("Gaps in numbers", listing)], notes=notes)]


CHAPTER = Chapter(
    anchor="text-space",
    title="Positive and negative words in the text space",
    lead=LEAD,
    parts=_parts,
    findings=text_space_findings,
    method=METHOD,
)
