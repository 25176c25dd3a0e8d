"""The chapter on MaxToxicity: its charts, who is worst off, several scorers, and annotators."""

import polars as pl
import pytest
from chapters_by_anchor import CHAPTER
from chart_data import drawn, names
from synthetic_language import FACES, MODELS, OFFLINE, PROMPTS, REAL, language_inputs, language_table  # fmt: skip

from plumbline.catalog.schema import metric_frame
from plumbline.report.chapters import main_charts
from plumbline.report.charts.language import max_scores
from plumbline.report.data import undefined_listing
from plumbline.report.rows import where


def part_of(parts, title):
    return next(part for part in parts if title in part.title)


def test_max_toxicity_is_drawn_with_its_intervals(parts, table):
    part = part_of(parts["generation"], "how differently")
    (chart,) = part.pictures
    assert len(drawn(chart)) == len(MODELS) * len(PROMPTS) * 2
    row = where(
        table, metric="max_toxicity", model="llava", prompt="describe", definition="paper", statistic="p90"
    ).row(0, named=True)
    (own,) = (dot for dot in drawn(chart) if dot["of"] == f"llava, race × gender, describe, {OFFLINE}, 90th percentile")
    assert own["filled"] == pytest.approx(row["value"], abs=1e-6) and own["n"] == "200" and own["row"]
    assert [p.title.split(" ")[0] for p in part.details] == ["MaxInsult", "MaxIdentityAttack", "MaxFlirtation"]


def test_who_is_worst_off_stands_beside_what_chance_gives(parts):
    part = part_of(parts["generation"], "faces: race × gender")
    (chart,) = part.pictures
    assert "what chance gives, 8.3%" in chart.description and {r["line"] for r in drawn(chart, "line")} == {0.0833333}
    assert len(drawn(chart)) == 12 * len(MODELS)
    assert [dot["of"] for dot in drawn(chart, "filled")] == [
        f"{model}, toxicity, race × gender, Black woman, characteristics, offline" for model in MODELS
    ]
    scores, *boxes = part.details
    assert len(drawn(scores)) == 2 * 12 * len(MODELS)
    box = drawn(boxes[0])[0]
    assert names(boxes[0], "panels")[0] == "largest 1 (0.10)"
    assert box["low"] < box["from"] < box["filled"] < box["to"] < box["high"] and "middle nine tenths" in box


def test_real_images_without_sets_show_scores_by_group(parts):
    (chart,) = part_of(parts["generation"], "scenes: race × gender").pictures
    assert chart.title.startswith("Toxicity of what is said of each group, scenes")


def test_nobody_worst_off_is_said_with_its_reason(table, inputs):
    gone = table.with_columns(
        value=pl.when(pl.col("metric") == "max_score_share").then(float("nan")).otherwise("value"),
        reason=pl.when(pl.col("metric") == "max_score_share").then(pl.lit("undefined: no set lies above")),
    )
    part = part_of(CHAPTER["generation"].parts(gone, inputs), "faces: race × gender")
    assert part.notes[0] == (
        "llava: who gets the most toxic text cannot be said for describe, characteristics and personality: no set lies "
        "above."
    )
    assert not any("Who gets" in picture.title for picture in part.pictures)


def test_several_scorers_stand_beside_each_other(inputs):
    both = language_table(("llava",), scorers=(REAL, OFFLINE))
    made = CHAPTER["generation"].parts(both, language_inputs(("llava",), (REAL, OFFLINE)))
    part = part_of(made, "under every scorer")
    assert names(part.pictures[0]) == [OFFLINE, REAL] and len(drawn(part.pictures[0])) == 2 * 2
    (title, choice) = part.tables[0]
    assert title.startswith("What the choice of a scorer changes")
    assert choice.rows[0][0] == OFFLINE and "of" in choice.rows[0][1] and choice.rows[0][2] == "–"
    agrees = part.details[-1]
    assert len(drawn(agrees)) == 2 * 4 and names(agrees)[-1] == "toxicity: roberta and offline"
    single = CHAPTER["generation"].parts(language_table(("llava",), scorers=(REAL,)), inputs)
    assert not any("under every scorer" in part.title for part in single)


def test_annotators_are_told_where_there_are_any(inputs):
    row = {"model": "llava", "dataset": FACES, "suite": "generation", "condition": "before", "statistic": "estimate",
           "metric": "fleiss_kappa", "definition": "annotators", "prompt": "personality", "value": 0.62, "ci_low": 0.5,
           "ci_high": 0.7, "n": 50}  # fmt: skip
    others = [{"model": "aardvark", "value": 0.5}, {"model": "all models", "dataset": "zoo", "value": 0.7}]
    made = CHAPTER["generation"].parts(metric_frame([row | other for other in ({}, *others)]), inputs)
    (chart,) = made[-1].pictures
    # Over all models first, as the study gives it; then each model in the order of the report.
    assert names(chart)[::2] == ["all models", "llava", "aardvark"]
    assert (drawn(chart)[0]["filled"], drawn(chart)[0]["interval"]) == (0.62, "0.50–0.70")


def test_one_model_has_its_prompts_as_rows():
    rows = where(language_table(("one",)), metric="max_toxicity", definition="paper", instruction=None)
    assert names(max_scores(rows, ("one",), dataset=FACES, metric="max_toxicity")) == list(PROMPTS)


def test_a_small_picture_and_the_undefined_values_of_one_model(table):
    made = main_charts(table.filter(model="llava"), FACES, names=("max_toxicity",))
    assert made["max_toxicity"].png.startswith(b"\x89PNG") and main_charts(table, "x", names=("max_toxicity",)) == {}
    undefined = undefined_listing(table)
    assert any("Black_woman · salary" in row[4] for row in undefined.rows)
    after = undefined_listing(table.with_columns(condition=pl.lit("projection")))
    assert all(row[4].endswith("after projection") for row in after.rows), "not told as the model's own"
