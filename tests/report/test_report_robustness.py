"""Chapters on robustness, captions and equal opportunity: what is drawn and told is what the rows hold."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from chart_data import drawn, names, records, values
from synthetic_audit import synthetic_inputs
from synthetic_table import GRID

from plumbline.catalog.schema import metric_frame
from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.reasons import reason
from plumbline.report import Reading, findings
from plumbline.report.chapters import captions, equal_opportunity, robustness
from plumbline.report.chapters.robustness import control_similarity, harm_by_bias_size, is_control, wordings
from plumbline.report.charts.outcomes import captions_by_scene, opportunity
from plumbline.report.rows import where

READING = Reading()
MODELS = ("small-bazaar-6k", "large-bazaar-6k", "small-archive-6k")
QUICK = MetricSettings(resamples=100, permutations=100, min_group=30)
SCENES = ("office", "gym", "kitchen")


def small_cells(model, rng):
    """Draw one model on a PATA of three scenes, on neutral portraits, and on faces with classes."""
    n = 300
    records = pl.DataFrame(
        {
            "image_id": [f"{i:04}" for i in range(n)],
            "scene": rng.choice(SCENES, n),
            "race": rng.choice(["black", "indian"], n, p=[0.8, 0.2]),
            "gender": rng.choice(["man", "woman"], n),
            "age": rng.choice(["old", "young"], n),
        }
    )

    def logits(suite, rows):
        cosine = rng.normal(scale=0.15, size=(rows, len(suite.candidates))).astype(np.float32)
        return SuiteLogits(suite, cosine, cosine, 100.0)

    templates, asked = load_suite("templates"), load_suite("pata_captions")
    pata = Cell(model, "pata", records, {s.id: logits(s, n) for s in (templates, asked)}, {})
    portraits = pl.DataFrame({"image_id": [f"{i}" for i in range(19)]})
    images = rng.normal(size=(19, 8)).astype(np.float32) + 1
    neutral = Cell(model, "neutral", portraits, {"templates": logits(templates, 19)}, {}, images=images)
    trident = load_suite("trident", classes="fairface")
    races = records.with_columns(race=pl.Series(rng.choice(trident.class_labels, n)))
    faces = Cell(model, "faces", races, {"trident": logits(trident, n)}, {})
    return pata, neutral, faces


@pytest.fixture(scope="module")
def table():
    frames, rng = [], np.random.default_rng(0)
    for model in MODELS:
        pata, neutral, faces = small_cells(model, rng)
        frames += [FAMILIES["outcome_metrics"].compute(pata, settings=QUICK)]
        frames += [FAMILIES["robustness_metrics"].compute(cell, settings=QUICK) for cell in (pata, neutral)]
        opportunity = FAMILIES["trident_metrics"].compute(faces, settings=QUICK)
        frames += [opportunity.filter(pl.col("metric").is_in(["true_positive_rate", "equal_opportunity_gap"]))]
    return metric_table(frames, audit_id="a")


@pytest.fixture(scope="module")
def inputs():
    found = synthetic_inputs((GRID[0],))
    own = [replace(found.datasets[0], id=name) for name in ("pata", "neutral", "faces")]
    encoders = tuple(replace(found.encoders[0], id=name) for name in MODELS)
    return replace(found, datasets=tuple(own), encoders=encoders)


CHAPTERS = [chapter.CHAPTER for chapter in (robustness, captions, equal_opportunity)]


def test_every_part_shows_one_chart(table, inputs):
    parts = [part for chapter in CHAPTERS for part in chapter.parts(table, inputs)]
    assert [part.title for part in parts] == ["pata", "neutral", "pata", "faces"]
    assert [len(part.pictures) for part in parts] == [1, 1, 1, 1]
    charts = [chart for part in parts for chart in part.pictures + part.details]
    assert len({chart.name for chart in charts}) == len(charts)


def test_chapters_without_rows_are_left_out(inputs):
    for chapter in CHAPTERS:
        assert chapter.parts(metric_frame([]), inputs) == []
        assert chapter.findings(metric_frame([]), READING) == []
        for draw in chapter.pictures.values():
            assert draw(metric_frame([]), READING, MODELS, "pata") is None


def test_a_dot_a_model_task_and_wording(table):
    chart = wordings(table, READING, MODELS, "pata")
    assert len(drawn(chart)) == len(MODELS) * 4 * 3 and names(chart) == list(MODELS)
    row = where(table, metric="directional_bias", event="communion", probe="portrait", group=None, model=MODELS[0],
                dataset="pata", statistic="estimate").row(0, named=True)  # fmt: skip
    shown = {(dot["of"], dot["panel"], dot["series"]): dot["filled"] for dot in drawn(chart)}
    assert shown[f"{MODELS[0]}, communion", 2, "“portrait of …”"] == pytest.approx(row["value"], rel=1e-4)


def test_a_control_is_known_by_having_no_groups_and_has_its_bound_drawn(table):
    assert [is_control(table, name) for name in ("neutral", "pata", "faces")] == [True, False, False]
    assert "±0.05" in wordings(table, READING, MODELS, "neutral").description
    assert "±0.05" not in wordings(table, READING, MODELS, "pata").description
    alike = drawn(control_similarity(table, READING, MODELS, "neutral"))
    assert len(alike) == len(MODELS) and {dot["n"] for dot in alike} == {"19"}
    assert all(dot["from"] < dot["filled"] < dot["to"] for dot in alike)


@pytest.mark.parametrize("definition", ["cosine", "scaled"])
def test_a_cell_a_filled_bin_in_brackets_where_it_holds_few_images(table, definition):
    rows = table.filter(pl.col("value").is_finite(), metric="harm_by_bias_size", definition=definition, dataset="pata")
    cells = [
        r for r in records(harm_by_bias_size(table, READING, MODELS, "pata", definition=definition)) if "text" in r
    ]
    assert len(cells) == rows.height > 0
    assert sum(cell["text"].startswith("(") for cell in cells) == rows.filter(pl.col("n") < 30).height
    assert sorted(cell["shade"] for cell in cells) == pytest.approx(sorted(rows["value"]), abs=1e-4)


def test_a_scene_has_a_percentage_a_group_in_brackets_where_few(table):
    chart = captions_by_scene(table, READING, model=MODELS[0], dataset="pata", attribute="race")
    shares = table.filter(
        pl.col("attribute").is_in(["race", "scene"]), metric="outcome_proportion", model=MODELS[0],
        suite="pata_captions", event="negative_race_caption", condition="before",
    )  # fmt: skip
    scenes, groups = shares.filter(attribute="scene"), shares.filter(pl.col("attribute") == "race").drop_nulls("probe")
    cells = [record for record in records(chart) if "text" in record]
    assert len(cells) == scenes.height + groups.height > 0
    assert (
        sum(cell["text"].startswith("(") for cell in cells)
        == pl.concat([scenes, groups]).filter(pl.col("n") < 30).height
    )
    order = dict(scenes.select("group", "value").iter_rows())
    assert [order[name.replace(" ", "_")] for name in names(chart)] == sorted(order.values(), reverse=True)


def test_a_class_has_a_dot_a_group_and_a_number_where_groups_are_many(table):
    rates = table.filter(metric="true_positive_rate", dataset="faces", attribute="gender")
    chart = opportunity(table, READING, MODELS, "faces")
    assert sorted(values(chart, "filled")) == pytest.approx(sorted(rates["value"]), rel=1e-4)
    many = pl.concat([rates, rates.with_columns(group=pl.col("group") + "_2")])
    cells = [record for record in records(opportunity(many, READING, MODELS, "faces")) if "text" in record]
    assert sorted(cell["shade"] for cell in cells) == pytest.approx(sorted(many["value"]), abs=1e-4)


def test_undefined_values_leave_gaps_and_no_error(table, inputs):
    blank = table.with_columns(value=pl.lit(float("nan")), ci_low=pl.lit(float("nan")), ci_high=pl.lit(float("nan")))
    for chapter in CHAPTERS:
        assert all(not drawn(c) for part in chapter.parts(blank, inputs) for c in part.pictures + part.details)
    assert robustness.CHAPTER.findings(blank, READING) == []


# --- findings

BASE = {"model": "m", "dataset": "pata", "condition": "before", "statistic": "estimate", "suite": "templates"}


def bias(event, template, value, **columns):
    return BASE | {
        "metric": "directional_bias", "definition": "positive_minus_negative", "event": event, "probe": template,
        "value": value, "ci_low": value - 0.01, "ci_high": value + 0.01, "n": 400,
    } | columns  # fmt: skip


def shift(event, value, **columns):
    return BASE | {
        "metric": "template_shift", "definition": "positive_minus_negative", "event": event, "value": value,
        "ci_low": value - 0.001, "ci_high": value + 0.001, "p": 0.0001, "q": 0.0002, "n": 400,
    } | columns  # fmt: skip


def told(rows, topic):
    found = [f for f in findings(metric_frame(rows), READING) if f.topic[0] == topic]
    assert len(found) == 1, found
    return found[0]


def test_the_largest_shift_is_told():
    rows = [bias("crime", t, v) for t, v in (("orig", 0.05), ("image_of", 0.06), ("portrait", 0.07))]
    rows += [bias("agency", "orig", 0.2, attribute="gender", group="man"), shift("crime", 0.02), shift("agency", 0.01)]
    finding = told(rows, "wording")
    assert finding.tone == "robust" and finding.q_text == "< 0.001"
    assert finding.short == "Largest shift of the mean directional bias between wordings (people − crime and animals)"
    assert (finding.value_text, finding.interval_text) == ("0.020", "0.019–0.021")


def test_a_control_tells_the_bias_that_is_the_metrics_own():
    rows = [bias("crime", "orig", 0.01, dataset="neutral"), bias("agency", "portrait", -0.03, dataset="neutral")]
    rows.append(bias("crime", "orig", 0.5, dataset="neutral", definition="crime_vs_non_human"))
    rows.append(
        BASE | {"metric": "intra_set_cosine", "definition": "all_pairs", "dataset": "neutral", "value": 0.7, "n": 19}
    )
    finding = told(rows, "control")
    assert finding.short.endswith("of images that show no group (agency)")
    assert (finding.value_text, finding.interval_text) == ("−0.030", "−0.040 to −0.020")
    assert finding.strength == pytest.approx(0.03)


def bins(shares):
    rows = [bias("crime", "orig", 0.05, attribute="gender", group="man")]
    rows += [
        BASE | {"metric": "harm_by_bias_size", "definition": "cosine", "event": "crime", "attribute": "bias_magnitude",
                "group": name, "value": value, "ci_low": value, "ci_high": value, "n": n}
        for name, value, n in shares
    ]  # fmt: skip
    return rows


def test_harm_by_bias_size_is_told_of_bins_with_enough_images():
    finding = told(bins([("[0.0, 0.1)", 0.2, 60), ("[0.1, 0.2)", 0.6, 40), ("[0.2, 0.3)", 1.0, 3)]), "bias size")
    assert finding.short.endswith("size of the crime bias, 0.1 to 0.2")
    assert (finding.tone, finding.value_text) == ("harm", "60%")


def test_the_order_of_models_is_told_by_the_lowest_correlation():
    def rank(value, other):
        return BASE | {
            "model": "all", "metric": "template_rank_correlation", "definition": "positive_minus_negative",
            "event": "agency", "reference_group": "orig", "group": other, "value": value, "p": 0.04, "n": 4,
        }  # fmt: skip

    mixed = told([rank(1.0, "image_of"), rank(0.8, "portrait")], "order")
    assert mixed.short.endswith("(agency, “a photo of …” against “portrait of …”)") and mixed.value_text == "0.80"


def caption_rows(value, q, reason=None):
    base = BASE | {"suite": "pata_captions", "event": "negative_race_caption", "attribute": "race"}
    skew = {"metric": "max_skew", "definition": "mean_over_pairs", "value": value, "ci_low": 0.1, "ci_high": 0.9}
    rows = [
        base | {"metric": "outcome_proportion", "definition": "top1", "group": g, "value": v, "n": 200}
        for g, v in (("black", 0.3), ("indian", 0.2))
    ]
    rows.append(base | {"metric": "outcome_proportion", "definition": "top1", "group": "black", "value": 0.9, "n": 20,
                        "probe": "gym"})  # fmt: skip
    return [*rows, base | skew | {"p": q, "q": q, "n": 400, "reason": reason}]


def test_captions_are_told_by_group_over_all_scenes():
    finding = told(caption_rows(0.5, 0.001), "captions")
    assert (finding.tone, finding.value_text) == ("bias", "0.50")
    assert finding.short == "Race skew in PATA's negative captions"
    assert told(caption_rows(0.5, 0.4), "captions").tone == "none"
    undefined = told(caption_rows(float("nan"), 0.4, (reason("event_never_happens"),)), "captions")
    assert undefined.tone == "undefined"


def test_unequal_recognition_is_told():
    base = BASE | {"suite": "trident", "attribute": "gender", "dataset": "faces"}
    gap = base | {"metric": "equal_opportunity_gap", "ci_low": 0.1, "ci_high": 0.3, "n": 300}
    rows = [gap | {"definition": "mean_over_classes", "value": 0.2, "p": 0.001, "q": 0.001}]
    finding = told(rows, "opportunity")
    assert (finding.tone, finding.value_text, finding.interval_text) == ("bias", "20%", "10–30%")
    rows[0] |= {"p": 0.5, "q": 0.5}
    assert told(rows, "opportunity").tone == "none"
    rows[0] |= {"value": float("nan")}
    assert told(rows, "opportunity").tone == "undefined"
