"""The chapters that compare: checkpoints with each other, and with what papers printed."""

import re
from dataclasses import replace

import polars as pl
from chart_data import records, valid
from read_back import section

from plumbline.catalog.schema import metric_frame
from plumbline.metrics.paired.comparisons import EFFECT_SCHEMA
from plumbline.report import render
from plumbline.report.chapters.utility import CHAPTER, harm_against_utility
from plumbline.report.charts.chart import label
from plumbline.report.comparison import COMPARISON_SCHEMA
from plumbline.report.rows import where

EFFECT = {
    "factor": "size", "level_first": "small", "level_second": "large", "held": "3k, atlas", "first": "sa",
    "second": "la", "dataset": "planted-fairface", "suite": "crime", "attribute": "race", "event": "crime",
    "metric": "max_skew", "definition": "mean_over_pairs", "value": 0.4, "ci_low": 0.1, "ci_high": 0.7, "p": 0.001,
    "q": 0.01, "n": 700, "value_first": 1.4, "value_second": 1.0,
}  # fmt: skip
PRINTED = {
    "paper": "data_matters_most", "table": "1", "row": "Fair | CLIP | B/32 | 400M", "column": "max s_G^c",
    "status": "as_printed", "checkpoint": "clip-b32-400m", "model": "clip", "address": "ViT-B-32-quickgelu/openai",
    "metric": "max_skew", "dataset": "faces", "published": 1.19, "rounding": 0.005, "measured": 1.25,
    "difference": 0.06, "ci_low": 1.1, "ci_high": 1.4, "n": 10954, "unit": "relative gap", "within": True,
}  # fmt: skip


def chapter(page, anchor):
    """Return the text of a section."""
    return " ".join(re.sub(r"<[^>]+>", " ", section(page, anchor)).split())


def made(narrow, inputs, **frames):
    return render(narrow, replace(inputs, **frames))


def test_utility_stands_beside_harm(inputs):
    models, rows = ("able-a", "able-b", "able-c"), []
    dataset = inputs.datasets[0].id
    for i, model in enumerate(models):
        common = {"model": model, "dataset": dataset, "condition": "before", "statistic": "estimate", "n": 50}
        accuracy, harm = 0.5 + i / 10, (0.1, 0.3, 0.2)[i]
        rows += [
            common | of | {"value": value, "ci_low": value - 0.05, "ci_high": value + 0.05}
            for of, value in (
                ({"metric": "utility_accuracy", "definition": "top_1", "suite": "zero_shot"}, accuracy),
                ({"metric": "utility_accuracy", "definition": "top_5", "suite": "zero_shot"}, 0.9),
                ({"metric": "harm_rate", "definition": "top1", "event": "crime", "suite": "crime"}, harm),
            )
        ]
    table = metric_frame(rows)
    part = CHAPTER.parts(table, inputs)[0]
    against, accuracy = part.pictures
    assert valid(against) and valid(accuracy)
    assert {(one["model"], one["x"], one["y"]) for one in records(against)} == {
        (label(model, longest=20), 0.5 + i / 10, (0.1, 0.3, 0.2)[i]) for i, model in enumerate(models)
    }
    assert part.notes[0].startswith(f"{dataset}: of 3 models {models[2]} recognises the most images of {dataset} (70%")
    assert "It gives 20% of people crime labels; 1 model gives more." in part.notes[0]
    assert harm_against_utility(where(table, model=models[0]), inputs.audit, models, dataset, people=dataset) is None


def test_effects_are_told_and_listed(narrow, inputs):
    rows = [EFFECT, EFFECT | {"attribute": "gender", "value": -0.2, "q": 0.5}]
    rows.append(EFFECT | {"metric": "harm_rate", "definition": "top1", "attribute": None, "value": float("nan")})
    text = chapter(made(narrow, inputs, effects=pl.DataFrame(rows, schema=EFFECT_SCHEMA)), "effects")
    assert "Model size: of 2 comparisons of max skew small is clearly the more biased in 1, large in 0." in text
    assert "small − large (3k, atlas)" in text and "undefined" in text and "1.4 → 1.0" in text


def test_effects_that_chance_may_explain_are_said_to_be_so(narrow, inputs):
    frame = pl.DataFrame([EFFECT | {"q": 0.3}], schema=EFFECT_SCHEMA)
    assert "of 1 comparison of max skew none of small against large is clear." in chapter(
        made(narrow, inputs, effects=frame), "effects"
    )


def test_printed_numbers_stand_beside_measured_ones(narrow, inputs):
    rows = [
        PRINTED,
        PRINTED | {"column": "% C", "within": False, "difference": -0.5, "note": "<b>other images</b>"},
        PRINTED | {"column": "% NC", "within": None, "difference": None, "note": "suspect: recurs"},
    ]
    page = made(narrow, inputs, published=pl.DataFrame(rows, schema=COMPARISON_SCHEMA))
    text = chapter(page, "published")
    assert "1 of 2 printed numbers lie within the measured interval. 1 are not judged" in text
    assert text.index("outside the interval") < text.index("within the interval") < text.index("suspect: recurs")
    assert "&lt;b&gt;other images" in page and "<b>other" not in page
    assert "clip-b32-400m" in text and "1 of 1" not in text


def test_nothing_to_compare_is_no_chapter(narrow, inputs, page):
    effects, published = pl.DataFrame(schema=EFFECT_SCHEMA), pl.DataFrame(schema=COMPARISON_SCHEMA)
    for each in (page, made(narrow, inputs, effects=effects, published=published)):
        assert 'id="effects"' not in each and 'id="published"' not in each
