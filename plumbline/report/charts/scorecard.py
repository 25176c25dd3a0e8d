"""The scorecard as a picture, for Dagster, MLflow, exports and notebooks; a report has it as a table."""

from __future__ import annotations

import polars as pl

from plumbline.report.charts.chart import INK, SOFT, VERMILION, Chart, Spec, label, top_level
from plumbline.report.rows import where
from plumbline.report.scorecard import (
    OF_SMOOTHED,
    UNITS,
    Kind,
    asked_models,
    asked_questions,
    elsewhere,
    is_smoothed,
    not_ranked,
    notes,
    question_of,
    usual_datasets,
    value_text,
)
from plumbline.report.scorecard_table import STATES, score_tip
from plumbline.report.vocabulary import listed

CELL_WIDTH, CELL_HEIGHT = 66, 24
MOST_MODELS = 30
"""Of more models the worst are drawn: a picture of all could not be read."""
_KINDS: tuple[Kind, ...] = ("encoder", "generator")
_TITLES = {"encoder": "Encoders, worst first", "generator": "Generative models, worst first"}
_CIRCLE, _BAR, _CROSS = "circle", "M0,-1L0,1", "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7"
MARKS: dict[str, tuple[tuple[str, str], ...]] = {
    "evidence": ((_CIRCLE, VERMILION),),
    "none": ((_CIRCLE, "white"),),
    "evidence_of_none": ((_CIRCLE, "white"), (_BAR, INK)),
    "too_weak": ((_CROSS, INK),),
}
"""State -> the shapes and fills that show it, one on the other."""
_EVIDENT = {"field": "state", "equal": "evidence"}
_WORDS = {"evidence": "filled", "none": "hollow", "evidence_of_none": "hollow with a bar", "too_weak": "a cross"}


def scorecard(card: pl.DataFrame) -> Chart | None:
    """Draw the scorecard: a row a model, a column a question, in each cell the value and what it is evidence of.

    Parameters
    ----------
    card : DataFrame
        Columns of `plumbline.report.scorecard.SCORECARD_SCHEMA`.

    Returns
    -------
    Chart or None
        None of an empty scorecard.
    """
    panels = [_panel(where(card, kind=kind), kind) for kind in _KINDS if asked_models(card, kind)]
    if not panels:
        return None
    present = set(card["state"])
    key = "; ".join(f"{words}: {STATES[state]}" for state, words in _WORDS.items() if state in present)
    key = f"{key}; no mark: {STATES['measured']}" if "measured" in present else key
    usual = usual_datasets(card)
    others = sorted({cell["dataset"] for cell in card.to_dicts() if elsewhere(cell, usual)})
    key = f"{key}; †: asked on {listed(others)}, unlike the rest of its column" if others else key
    key = f"{key}; ‡: {OF_SMOOTHED}" if any(map(is_smoothed, card.to_dicts())) else key
    return Chart(
        "scorecard",
        "Scorecard",
        f"A row a model, a column a question. {key[:1].upper()}{key[1:]}.",
        top_level({"vconcat": panels, "spacing": 28, "title": {"text": [key], "orient": "bottom"}}),
    )


def _panel(card: pl.DataFrame, kind: Kind) -> Spec:
    questions, models = asked_questions(card, kind), asked_models(card)
    left, models, apart = len(models[MOST_MODELS:]), models[:MOST_MODELS], not_ranked(card)
    columns, usual = {question.id: _column(question.id) for question in questions}, usual_datasets(card)
    values = [
        {
            "model": label(row["model"], longest=60) + " (not ranked)" * (row["model"] in apart),
            "question": columns[row["question"]],
            "text": value_text(row, named=False) + notes(row, usual),
            "state": row["state"],
            "tip": score_tip(row),
        }
        for row in card.to_dicts()
        if row["model"] in models
    ]
    heads = {"orient": "top", "labelAngle": -35, "labelLimit": 240, "labelColor": INK, "labelBaseline": "middle"}
    x = {"field": "question", "type": "nominal", "sort": list(columns.values()), "title": None, "axis": heads}
    y = {"field": "model", "type": "nominal", "sort": None, "title": None}
    tip = {"field": "tip", "type": "nominal", "title": " "}
    marks: list[Spec] = [
        {
            "transform": [{"filter": {"field": "state", "equal": state}}],
            "mark": {
                "type": "point", "shape": shape, "fill": None if shape == _CROSS else fill, "stroke": INK,
                "strokeWidth": 1.2, "size": 52, "xOffset": 8 - CELL_WIDTH / 2,
            },
            "encoding": {"x": x, "y": y, "tooltip": tip},
        }
        for state, shapes in MARKS.items()
        for shape, fill in shapes
    ]  # fmt: skip
    words = [
        {
            "transform": [{"filter": chosen}],
            "mark": {
                "type": "text", "align": "left", "dx": 16 - CELL_WIDTH / 2, "color": INK, "fontWeight": weight,
            },
            "encoding": {"x": x, "y": y, "text": {"field": "text", "type": "nominal"}, "tooltip": tip},
        }
        for weight, chosen in (("bold", _EVIDENT), ("normal", {"not": _EVIDENT}))
    ]  # fmt: skip
    return {
        "data": {"values": values},
        "width": CELL_WIDTH * len(questions),
        "height": CELL_HEIGHT * len(models),
        "title": {"text": [f"{_TITLES[kind]}{f'; {left} more are not drawn' if left else ''}"], "color": SOFT},
        "layer": [*marks, *words],
    }


def _column(question: str) -> str:
    entry = question_of(question)
    unit = UNITS[entry.unit].suffix
    return f"{entry.title}, {unit}" if unit not in ("", "%") else entry.title
