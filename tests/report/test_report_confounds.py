"""The chapters on confounds and on the text space: their charts and their sentences."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from chart_data import drawn, names, records, valid

from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.reasons import reason
from plumbline.report import Reading
from plumbline.report.chapters import confounds, text_space
from plumbline.report.chapters.confounds import changes, confound_findings, curves, slopes
from plumbline.report.chapters.text_space import valence_gaps, word_space
from plumbline.report.sentences import in_sentences

READING = Reading()
DATASET, MODELS = "planted-utkface", ("small-bazaar-6k", "small-control-6k")
LEVELS = {"pose": (-3.0, 0.0, 3.0), "lighting": (-1.0, 2.0), "smiling": (-2.5, 0.0, 4.0), "age": (0.8, 2.0, 4.4)}
PROTECTED = ("gender", "race", "age")


SIGN = {"positive": 1.0, "negative": -1.0}


def rows_of(model, lean=0.004, q=0.01):
    """Return rows of one model whose outcome follows every confound by `lean` a level."""
    base = {
        "model": model, "dataset": DATASET, "condition": "before", "statistic": "estimate", "suite": "perception",
        "reason": reason("few_clusters", clusters=4),
    }  # fmt: skip
    rows = []
    for confound in LEVELS:
        rows += level_rows(base, confound, lean) + slope_rows(base, confound, lean, q)
    for event, definition in product(SIGN, ("ttest", "cluster")):
        rows += change_rows(base | {"event": event, "definition": definition}, q)
    return rows


def around(value, half):
    return {"value": value, "ci_low": value - half, "ci_high": value + half}


def level_rows(base, confound, lean):
    """Return the outcome at every level of a confound, as it is and less that of a blank image."""
    rows = []
    for event, level in product((*SIGN, "blank"), LEVELS[confound]):
        value = lean * level * SIGN.get(event, 0.0)
        each = base | {
            "metric": "perception_by_level", "attribute": confound, "group": f"{level:g}", "n": 24, "event": event,
        }  # fmt: skip
        rows.append(each | {"definition": "raw", "value": value + 0.2, "ci_low": math.nan, "ci_high": math.nan})
        if event != "blank":
            rows.append(each | {"definition": "less_blank", **around(value, 0.002)})
    return rows


def slope_rows(base, confound, lean, q):
    """Return the slopes on a confound: three fits of each event, with their error and share of variance."""
    rows = []
    shares = {"ols": 0.4, "cluster": 0.5, "level_means": 0.9}
    parts = ("all", "below", "above") if confound in ("pose", "smiling") else ("all",)
    for part, event, definition in product(parts, (None, *SIGN), shares):
        key = base | {"attribute": confound, "group": part, "event": event, "definition": definition, "n": 90}
        slope = key | {"metric": "confound_slope"}
        rows.append(slope | around(lean * SIGN.get(event, 0.0), 0.001) | {"p": q / 2, "q": q})
        rows.append(slope | {"statistic": "standard_error", "value": 0.0005})
        share = {"value": shares[definition], "ci_low": 0.3, "ci_high": 0.95}
        rows.append(key | {"metric": "confound_r_squared"} | share)
    return rows


def change_rows(key, q):
    """Return by how much each attribute changes the outcome; of the confounds, smiling does so the most."""
    rows = []
    for name in (*LEVELS, "gender", "race"):
        size = 0.012 if name == "smiling" else 0.008
        rows.append(key | around(size, 1e-3) | {"n": 60, "metric": "attribute_change", "attribute": name})
    for confound, protected in product(("pose", "lighting", "smiling"), PROTECTED):
        more = 0.004 if confound == "smiling" else 0.0
        pair = key | {"metric": "confound_vs_protected", "attribute": confound, "reference_group": protected}
        test = {"n": 90, "p": q / 2 if more else 0.8, "q": q if more else 0.9}
        rows.append(pair | around(more, 2e-3) | test)
        rows.append(pair | {"statistic": "t", "value": 2.5 if more else 0.1})
    return rows


def gap_rows(model, apart):
    """Return text-space rows in which the first `apart` of six poles are told from the other."""
    base = {"model": model, "dataset": "text", "condition": "before", "statistic": "estimate", "suite": "perception"}
    rows = []
    for index, (trait, pole) in enumerate(product(("agency", "belief", "communion"), ("positive", "negative"))):
        q = 0.01 if index < apart else 0.6
        value = 0.1 if index < apart else 0.01
        for definition in ("ttest", "permutation", "per_template"):
            gap = {"metric": "valence_gap", "attribute": trait, "group": pole, "reference_group": "cross", "n": 12}
            gap |= {"value": value, "ci_low": value - 0.05, "ci_high": value + 0.05, "p": q / 2, "q": q}
            rows.append(base | gap | {"definition": definition})
        for group in (pole, "cross"):
            mean = {"metric": "valence_cosine", "definition": "template_mean", "attribute": trait, "group": group}
            rows.append(base | mean | {"value": 0.8, "n": 6})
    return rows


@pytest.fixture(scope="module")
def measured():
    return metric_frame([*rows_of(MODELS[0]), *rows_of(MODELS[1], lean=0.0, q=0.9), *gap_rows(MODELS[0], 4)])


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(0)
    frames = []
    for model in MODELS:
        vectors = rng.normal(size=(12, 6)) + 2
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        columns = {
            "model": [model] * 12,
            "word": [f"word{i}" for i in range(12)],
            "dimension": ["agency"] * 4 + ["belief"] * 4 + ["communion"] * 4,
            "valence": ["positive", "positive", "negative", "negative"] * 3,
            **{axis: unit[:, i] - unit[:, i].mean() for i, axis in enumerate("xyz")},
            **{f"share_{axis}": [0.2] * 12 for axis in "xyz"},
            "cosines": (unit @ unit.T).tolist(),
        }
        frames.append(pl.DataFrame(columns, schema=GEOMETRY_SCHEMA))
    return pl.concat(frames)


def points(chart):
    return {record["of"]: record for record in drawn(chart, "mean")}


def test_one_chart_is_shown_and_the_others_are_folded(measured, words, inputs, narrow):
    (part,) = confounds.CHAPTER.parts(measured, inputs)
    assert [chart.name for chart in part.pictures] == [f"slopes-{DATASET}"]
    assert [chart.name for chart in part.details] == [
        f"changes-{DATASET}", f"curves-{MODELS[0]}-{DATASET}", f"curves-{MODELS[1]}-{DATASET}",
    ]  # fmt: skip
    assert part.notes == ["Read the intervals with care: interval from only 4 sets."]
    (text,) = text_space.CHAPTER.parts(measured, replace(inputs, geometry=words.filter(model=MODELS[0])))
    assert [chart.name for chart in text.pictures + text.details] == ["valence-gaps", f"words-{MODELS[0]}"]
    assert text.notes == [f"No text space of its own, or not measured: {MODELS[1]}."]
    assert valid(part.details[1]) and valid(text.details[0])
    assert confounds.CHAPTER.parts(narrow, inputs) == text_space.CHAPTER.parts(narrow, inputs) == []


def test_slopes_have_a_line_a_confound_and_are_filled_where_there_is_evidence(measured):
    chart = slopes(measured, READING, MODELS, DATASET)
    assert names(chart) == [
        "pose (0 and below)", "pose (0 and above)", "lighting", "smiling (0 and below)", "smiling (0 and above)", "age",
    ]  # fmt: skip
    assert names(chart, "panels") == list(MODELS)
    assert {(dot["panel"], dot["filled"]) for dot in drawn(chart, "filled")} == {(0, 0.004), (0, -0.004)}
    assert len(drawn(chart, "filled")) == len(drawn(chart, "hollow")) == 2 * 6


def test_changes_stand_under_confounds_and_protected_attributes(measured):
    chart = changes(measured, READING, MODELS, DATASET)
    assert names(chart) == ["confound", "pose", "lighting", "smiling", "protected", "age", "gender", "race"]
    assert len(drawn(chart)) == 2 * 2 * 6
    smiling = next(dot for dot in drawn(chart) if "smiling" in dot["of"])
    assert (smiling["filled"], smiling["low"], smiling["interval"]) == (0.012, 0.011, "0.011–0.013")


def test_curves_have_a_point_a_level_and_valence(measured):
    shown = points(curves(measured, READING, MODELS, DATASET))
    assert len(shown) == 2 * sum(map(len, LEVELS.values()))
    smile = shown["smiling 4, positive words"]
    assert (smile["level"], smile["mean"], smile["low"]) == (4, 0.016, 0.014)
    within = measured.filter(definition="less_blank").with_columns(
        definition=pl.lit("within_sets"), ci_high=pl.col("value") + 0.1
    )
    of_shape = curves(pl.concat([measured, within]), READING, MODELS, DATASET)
    assert points(of_shape)["smiling 4, positive words"]["high"] == pytest.approx(0.116)
    assert "shape of the line" in of_shape.description


def test_a_very_long_interval_is_cut_off_rather_than_the_curve_flattened(measured):
    long = measured.with_columns(ci_high=pl.when(metric="perception_by_level").then(5.0).otherwise("ci_high"))
    layer = curves(long, READING, MODELS, DATASET).spec["spec"]["layer"][0]
    low, high = layer["encoding"]["y"]["scale"]["domain"]
    assert -0.1 < low < high < 0.1


def test_gaps_and_words_of_the_text_space(measured, words):
    chart = valence_gaps(measured, READING, MODELS)
    assert names(chart) == [MODELS[0]] and names(chart, "panels") == ["agency", "belief", "communion"]
    assert len(drawn(chart, "filled")) == 4 and len(drawn(chart, "hollow")) == 2
    shown = {record["word"]: record for record in records(word_space(words, model=MODELS[0]))}
    assert len(shown) == 12 and shown["word0"]["cx"] == pytest.approx(
        (shown["word0"]["x"] + shown["word1"]["x"]) / 2, abs=1e-4
    )
    assert word_space(words.with_columns(y=pl.lit(math.nan)), model=MODELS[0]) is None


def test_findings_tell_evidence_from_its_lack(measured):
    found = {(f.model, f.topic): f for f in confound_findings(measured, Reading())}
    assert len(found) == 2 * 5
    smiling = found[MODELS[0], ("confound", DATASET, "smiling")]
    assert smiling.tone == "difference" and smiling.short.startswith("Slope of ")
    assert (smiling.value_text, smiling.interval_text) == ("0.0040", "0.0030–0.0050")
    assert smiling.strength == pytest.approx(0.003)
    assert found[MODELS[0], ("confound", DATASET, "age")].tone == "bias"
    assert found[MODELS[1], ("confound", DATASET, "age")].tone == "none"
    size = found[MODELS[0], ("confound size", DATASET)]
    assert size.tone == "difference" and "moves" in size.short
    assert found[MODELS[1], ("confound size", DATASET)].tone == "none"


def test_what_is_undefined_is_said(measured):
    nothing = dict.fromkeys(("value", "ci_low", "ci_high", "p"), math.nan)
    broken = measured.with_columns(**nothing, q=None, reason=pl.lit("one level"))
    found = confound_findings(broken, Reading())
    assert {f.tone for f in found} == {"undefined"}
    assert all("one level" in f.sentence for f in in_sentences(found, broken, broken, Reading()))
    assert {record["words"] for record in drawn(slopes(broken, READING, MODELS, DATASET), "at")} == {"undefined"}


def test_text_space_findings_count_the_poles():
    some, all_, none = (
        text_space.text_space_findings(metric_frame(gap_rows("m", apart)), Reading())[0] for apart in (4, 6, 0)
    )
    assert some.tone == "difference" and some.value_text == "4 of 6"
    assert "in 4 of 6 traits and poles" in some.sentence
    assert (all_.tone, all_.value_text, none.tone, none.value_text) == ("difference", "6 of 6", "none", "0 of 6")


def test_a_geometry_frame_without_columns_is_refused(inputs):
    with pytest.raises(MetricError, match="geometry of the report lacks columns"):
        replace(inputs, geometry=pl.DataFrame({"model": ["m"]}))
