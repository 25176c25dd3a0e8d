"""Positive and negative words in the text space: whether it tells the poles of a trait apart."""

from __future__ import annotations

import math
from collections.abc import Iterable

import polars as pl

from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import SOFT, Chart, Spec, label, top_level
from plumbline.report.charts.estimates import MOST_MODELS, STYLES, estimates
from plumbline.report.evidence import evidence, titled
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import MINUS, confidence, interval, number, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, in_order, where
from plumbline.report.vocabulary import DIMENSIONS

VALENCES = ("positive", "negative")
_SIGNS = {"positive": "+", "negative": MINUS}
_SHAPES = {"agency": "circle", "belief": "square", "communion": "triangle-up"}


def valence_gaps(table: pl.DataFrame, reading: Reading, models: Iterable[str]) -> Chart | None:
    """Draw how much closer words are within a pole than across the two poles, by model (rows) and trait (panels).

    Source: `valence_gap`, with the p of the permutation test.
    """
    rows = where(table, metric="valence_gap", definition="permutation", condition="before")
    return estimates(
        "valence-gaps",
        "Does the text space hold a trait apart from its opposite?",
        "The mean cosine of two words of one pole less that of two words from either pole, with its interval. At 0 "
        "the model does not tell the words of a pole from their opposites.",
        rows,
        row="model",
        panel="attribute",
        series="group",
        order={"model": tuple(models), "attribute": DIMENSIONS, "group": VALENCES},
        words={"group": lambda pole: f"{pole} words"},
        reading=reading,
        line=0.0,
        axis="mean cosine within the pole less that across the poles",
        columns=3,
    )


def word_space(words: pl.DataFrame, *, model: str) -> Chart | None:
    """Draw the words of a model on its first two principal axes, each pole's centre joined with its words.

    Source: the rows of a model of `GEOMETRY_SCHEMA`.
    """
    points = where(words, model=model).filter(pl.col("x").is_not_nan() & pl.col("y").is_not_nan())
    if points.is_empty():
        return None
    pole = pl.col("x", "y").mean().over("dimension", "valence").name.prefix("centre_")
    points = points.with_columns(pole)
    # One scale for both axes: a distance reads the same in every direction.
    reach = 1.1 * float(max(points["x"].abs().max(), points["y"].abs().max()))  # type: ignore[arg-type, type-var]
    data = [
        {
            "x": round(row["x"], 4),
            "y": round(row["y"], 4),
            "cx": round(row["centre_x"], 4),
            "cy": round(row["centre_y"], 4),
            "word": label(row["word"]),
            "trait": row["dimension"],
            "pole": f"{row['valence']} words",
            "at": label(f"{row['dimension']} {_SIGNS.get(row['valence'], '')}"),
        }
        for row in points.to_dicts()
    ]
    body: Spec = {
        "data": {"values": data},
        "width": 420,
        "height": 420,
        "layer": _layers(reach, in_order(points["dimension"], DIMENSIONS)),
        "title": {
            "text": [
                f"across: first axis, {percent(points['share_x'][0])} of the variance; "
                f"upwards: second, {percent(points['share_y'][0])}"
            ],
            "orient": "bottom",
        },
    }
    return Chart(
        f"words-{model}",
        f"The words in the text space of {model}",
        "Each mark is a word at its place on the first principal axes of the text embeddings; lines lead from the "
        "centre of each pole to its words. Where the centres of two poles lie together, the model hardly tells a "
        "trait from its opposite.",
        top_level(body),
    )


def _layers(reach: float, traits: list[str]) -> list[Spec]:
    def axis(field: str) -> Spec:
        scale = {"domain": [-reach, reach], "zero": False, "nice": False}
        return {"field": field, "type": "quantitative", "title": None, "scale": scale, "axis": None}

    poles = [f"{name} words" for name in VALENCES]
    colour = {
        "field": "pole", "type": "nominal", "title": None,
        "scale": {"domain": poles, "range": [STYLES[name][0] for name in VALENCES]}, "legend": {"orient": "top"},
    }  # fmt: skip
    shape = {
        "field": "trait", "type": "nominal", "title": None,
        "scale": {"domain": traits, "range": [_SHAPES.get(name, "cross") for name in traits]},
        "legend": {"orient": "top"},
    }  # fmt: skip
    # Grey print: the negative pole's lines are dashed, and its marks hollow.
    dashes = {"condition": {"test": {"field": "pole", "equal": poles[1]}, "value": [3, 3]}, "value": [1, 0]}
    fill = {"condition": {"test": {"field": "pole", "equal": poles[1]}, "value": 0}, "value": 1}
    tips = [{"field": name, "type": "nominal"} for name in ("word", "trait", "pole")]
    axes: list[Spec] = [
        {
            "mark": {"type": "rule", "style": "line", "strokeWidth": 0.7},
            "encoding": {channel: {"datum": 0, **_only_scale(axis("x"))}},
        }
        for channel in ("x", "y")
    ]
    return [
        *axes,
        {
            "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.7},
            "encoding": {
                "x": axis("cx"), "y": axis("cy"), "x2": {"field": "x"}, "y2": {"field": "y"}, "color": colour,
                "strokeDash": dashes,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "stroke": SOFT, "strokeWidth": 1},
            "encoding": {
                "x": axis("x"), "y": axis("y"), "color": colour, "shape": shape, "fillOpacity": fill, "tooltip": tips,
            },
        },
        {
            "transform": [
                {
                    "aggregate": [{"op": "mean", "field": "cx", "as": "cx"}, {"op": "mean", "field": "cy", "as": "cy"}],
                    "groupby": ["trait", "pole", "at"],
                }
            ],
            "mark": {"type": "text", "fontSize": 11, "fontWeight": "bold"},
            "encoding": {"x": axis("cx"), "y": axis("cy"), "text": {"field": "at", "type": "nominal"}},
        },
    ]  # fmt: skip


def _only_scale(axis: Spec) -> Spec:
    return {name: axis[name] for name in ("type", "scale", "axis")}


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
    least = min(known, key=lambda row: row["value"])
    share = f"{len(apart)} of {len(known)}"
    of = f"{least['group']} {least['attribute']}"
    adjusted = "selection-adjusted " if reading.selection else ""
    ends = f"{adjusted}{confidence(reading.confidence)} CI {interval(least['ci_low'], least['ci_high'])}"
    sentence = (
        f"{model}: evidence in {share} traits and poles that its text space holds words closer to their own pole than "
        f"to the other; "
        f"the smallest gap of mean cosines is {number(least['value'])} ({ends}), of {of}."
    )
    tone = "difference" if apart else "none"
    short = f"positive and negative words apart in {share} poles" if apart else "positive and negative words apart"
    return Finding(
        tone=tone,
        topic=("text space", dataset),
        model=model,
        dataset=dataset,
        short=titled(tone, short),
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
