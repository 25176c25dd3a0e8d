"""The text space of a model: whether positive and negative words of a trait lie apart."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from plumbline.report.charts.chart import SOFT, Chart, Spec, label, top_level
from plumbline.report.charts.estimates import STYLES, estimates
from plumbline.report.numbers import MINUS, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import in_order, where
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
