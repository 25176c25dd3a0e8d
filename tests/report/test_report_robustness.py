"""Chapters on robustness, captions and equal opportunity: what is drawn and told is what the rows hold."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from read_back import tips
from synthetic_audit import synthetic_inputs
from synthetic_table import GRID

from plumbline.catalog.schema import metric_frame
from plumbline.catalog.suites import load_suite
from plumbline.metrics import Cell, MetricSettings, SuiteLogits
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.reasons import reason
from plumbline.report import Reading, findings, render, thumbnails
from plumbline.report.chapters import captions, equal_opportunity, robustness
from plumbline.report.figures.outcomes import harm_figure, heat_figure, opportunity_figure, skew_figure
from plumbline.report.figures.robustness import bias_size_figure, control_figure, is_control, template_figure
from plumbline.report.numbers import percent, percent_interval

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


def one(frame, **key):
    found = frame.filter(*[pl.col(name).eq_missing(wanted) for name, wanted in key.items()])
    assert found.height == 1, (key, found.height)
    return found.row(0, named=True)


# --- figures


def test_a_dot_a_model_task_and_wording_at_its_place(table):
    svg = template_figure(table, Reading(), MODELS, "pata").svg
    assert len(tips(svg)) == len(MODELS) * 4 * 3
    marks = re.findall(r'<use[^>]*x="([\d.]+)"[^>]*><title>(small-bazaar-6k), communion, “(.*?) …”: (\S+) ', svg)
    places = sorted((float(text.replace("−", "-")), float(x)) for x, _, _, text in marks)
    assert len(places) == 3 and places == sorted(places, key=lambda pair: pair[1])


def test_a_control_is_known_by_having_no_groups_and_has_its_bound_drawn(table):
    assert is_control(table, "neutral") and not is_control(table, "pata") and not is_control(table, "faces")
    assert "±0.05" in template_figure(table, Reading(), MODELS, "neutral").description
    assert "±0.05" not in template_figure(table, Reading(), MODELS, "pata").description
    svg = control_figure(table, Reading(), MODELS, "neutral").svg
    assert len(tips(svg)) == len(MODELS) and "n = 19" in svg


@pytest.mark.parametrize("definition", ["cosine", "scaled"])
def test_harm_by_bias_size_has_a_dot_a_filled_bin_hollow_where_it_holds_few_images(table, definition):
    rows = table.filter(metric="harm_by_bias_size", definition=definition, dataset="pata")
    svg = bias_size_figure(table, Reading(), MODELS, "pata", definition=definition).svg
    assert len(tips(svg)) == rows["value"].is_finite().sum() > 0
    hollow = re.findall(r"<use[^>]*fill: #ffffff[^>]*><title>([^<]*)</title>", svg)
    few = rows.filter(pl.col("value").is_finite(), pl.col("n") < 30)
    assert len(hollow) == few.height
    assert {int(n) for tip in hollow for n in re.findall(r"n\xa0=\xa0(\d+)", tip)} == set(few["n"])


def test_the_heat_map_holds_every_share_in_percent_and_brackets_small_groups(table):
    picture = heat_figure(table, Reading(), model=MODELS[0], dataset="pata", attribute="race")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.svg)
    for scene in SCENES:
        for group in ("black", "indian"):
            row = one(table, metric="outcome_proportion", model=MODELS[0], attribute="race", group=group, probe=scene)
            shown = f"{100 * row['value']:.0f}"
            assert (shown if row["n"] >= 30 else f"({shown})") in texts
    assert any(text.startswith("(") for text in texts)
    order = [text for text in texts if text in SCENES]
    shares = [
        one(table, metric="outcome_proportion", model=MODELS[0], attribute="scene", group=scene,
            event="negative_race_caption")["value"]
        for scene in order
    ]  # fmt: skip
    assert shares == sorted(shares, reverse=True) and len(order) == 3


def test_captions_stay_out_of_the_figures_of_the_main_audit(table):
    assert skew_figure(table, Reading(), MODELS, "pata") is None
    assert harm_figure(table, MODELS, "pata") is None


def test_a_dot_a_class_and_group(table):
    assert len(tips(opportunity_figure(table, Reading(), MODELS, "faces").svg)) == len(MODELS) * 7 * 2


def test_nothing_to_draw_is_none():
    none = metric_frame([])
    for draw in (template_figure, bias_size_figure, control_figure, opportunity_figure):
        assert draw(none, Reading(), MODELS, "pata") is None
    assert heat_figure(none, Reading(), model="m", dataset="pata", attribute="race") is None
    assert captions.CHAPTER.pictures["captions"](none, Reading(), (), "pata") is None


def test_undefined_values_leave_gaps_and_no_error(table):
    blank = table.with_columns(value=pl.lit(float("nan")), ci_low=pl.lit(float("nan")), ci_high=pl.lit(float("nan")))
    for picture in (
        template_figure(blank, Reading(), MODELS, "pata"),
        bias_size_figure(blank, Reading(), MODELS, "pata"),
        control_figure(blank, Reading(), MODELS, "neutral"),
        opportunity_figure(blank, Reading(), MODELS, "faces"),
        heat_figure(blank, Reading(), model=MODELS[0], dataset="pata", attribute="race"),
    ):
        assert tips(picture.svg) == []
    assert robustness.CHAPTER.findings(blank, Reading()) == []


def test_small_pictures_fit(table):
    pata = thumbnails(table, dataset="pata", model=MODELS[0], names=["templates", "bias_size", "captions"])
    assert list(pata) == ["templates", "bias_size", "captions"]
    assert list(thumbnails(table, dataset="neutral", names=["control", "captions"])) == ["control"]
    assert all(len(png) <= 30_000 for png in pata.values())


# --- the page


def test_the_page_has_the_chapters_with_their_numbers(table, inputs, sketched):
    page = render(table, inputs)
    for chapter in (robustness, captions, equal_opportunity):
        assert f'id="{chapter.CHAPTER.anchor}"' in page
    for model in MODELS:
        row = one(table, metric="parity_difference", model=model, event="negative_race_caption",
                  definition="max_minus_min")  # fmt: skip
        assert f"{percent(row['value'])} [{percent_interval(row['ci_low'], row['ci_high'])}]" in page
    assert page.count("Captions by scene") == 1 and "Order of the models" in page


def test_chapters_without_rows_are_left_out(inputs):
    for chapter in (robustness, captions, equal_opportunity):
        assert chapter.CHAPTER.parts(metric_frame([]), inputs) == []
        assert chapter.CHAPTER.findings(metric_frame([]), Reading()) == []


def test_listings_hold_every_model_and_task(table, inputs):
    part = {p.title: dict(p.listings) for p in robustness.CHAPTER.parts(table, inputs)}
    bias = part["pata"]["Directional bias and its shift between wordings"]
    assert len(bias.rows) == len(MODELS) * 4 and all(len(row) == len(bias.heads) for row in bias.rows)
    gaps = part["pata"]["Gap of the directional bias between groups under each wording"]
    assert len(gaps.rows) == len(MODELS) * 4 * 3 and all(len(row) == len(gaps.heads) for row in gaps.rows)
    groups = part["pata"]["Directional bias by group"]
    assert len(groups.rows) == len(MODELS) * 8 and all(len(row) == len(groups.heads) for row in groups.rows)
    assert part["neutral"]["Directional bias by group"].rows == []
    listing = part["pata"]["Harm by size of the bias, in numbers"]
    assert len(listing.rows) == len(MODELS) * 3 and all(len(r) == len(listing.heads) for r in listing.rows)
    order = part["pata"]["Order of the models between wordings"]
    assert len(order.rows) == 4 * 3 and {row[4] for row in order.rows} == {"3"}
    (own,) = captions.CHAPTER.parts(table, inputs)
    scenes = dict(own.listings)["Differences within each scene, of every model"]
    assert (
        len(scenes.rows) == len(MODELS) * (3 + 3 + 2) and "black " in scenes.rows[0][6] + scenes.rows[-1][6] + "black "
    )
    (faces,) = equal_opportunity.CHAPTER.parts(table, inputs)
    gaps = dict(faces.listings)["Gaps in numbers"]
    assert len(gaps.rows) == len(MODELS) and all(len(row) == len(gaps.heads) for row in gaps.rows)


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
    found = [f for f in findings(metric_frame(rows), Reading()) if f.topic[0] == topic]
    assert len(found) == 1, found
    return found[0]


def test_the_largest_shift_is_told_with_the_means_behind_it():
    rows = [bias("crime", t, v) for t, v in (("orig", 0.05), ("image_of", 0.06), ("portrait", 0.07))]
    rows += [bias("agency", "orig", 0.2, attribute="gender", group="man"), shift("crime", 0.02), shift("agency", 0.01)]
    finding = told(rows, "wording")
    assert finding.tone == "robust" and finding.q_text == "< 0.001"
    assert finding.sentence == (
        "m on pata: between wordings of the same prompts the mean directional bias shifts by at most 0.020 cosine "
        "units (people − crime and animals; 95% CI 0.019–0.021): 0.050 for “a photo of …”, 0.060 for “an image of …”, "
        "0.070 for “portrait of …”."
    )


def test_a_control_tells_the_bias_that_is_the_metrics_own():
    rows = [bias("crime", "orig", 0.01, dataset="neutral"), bias("agency", "portrait", -0.03, dataset="neutral")]
    rows.append(bias("crime", "orig", 0.5, dataset="neutral", definition="crime_vs_non_human"))
    rows.append(
        BASE | {"metric": "intra_set_cosine", "definition": "all_pairs", "dataset": "neutral", "value": 0.7, "n": 19}
    )
    finding = told(rows, "control")
    assert "furthest from 0 is −0.030 (agency, “portrait of …”; 95% CI −0.040 to −0.020)" in finding.sentence
    assert finding.sentence.endswith("Their mean pairwise cosine is 0.70.") and finding.strength == pytest.approx(0.03)


def bins(shares, elbow):
    rows = [bias("crime", "orig", 0.05, attribute="gender", group="man")]
    rows += [
        BASE | {"metric": "harm_by_bias_size", "definition": "cosine", "event": "crime", "attribute": "bias_magnitude",
                "group": name, "value": value, "ci_low": value, "ci_high": value, "n": n}
        for name, value, n in shares
    ]  # fmt: skip
    elbow_row = {"metric": "bias_size_elbow", "definition": "cosine", "event": "crime", "value": elbow, "n": 90}
    return [*rows, BASE | elbow_row]


def test_harm_by_bias_size_is_told_of_bins_with_enough_images():
    finding = told(bins([("[0.0, 0.1)", 0.2, 60), ("[0.1, 0.2)", 0.6, 40), ("[0.2, 0.3)", 1.0, 3)], 0.1), "bias size")
    assert finding.tone == "harm" and "in [0.1, 0.2), 60%" in finding.sentence
    assert finding.sentence.endswith("From 0.1 on at least half are harmed.")
    never = told(bins([("[0.0, 0.1)", 0.2, 60)], float("nan")), "bias size")
    assert never.sentence.endswith("At no size of it are half of the images harmed.")


def test_the_order_of_models_is_told_by_the_lowest_correlation():
    def rank(value, other):
        return BASE | {
            "model": "all", "metric": "template_rank_correlation", "definition": "positive_minus_negative",
            "event": "agency", "reference_group": "orig", "group": other, "value": value, "p": 0.04, "n": 4,
        }  # fmt: skip

    mixed = told([rank(1.0, "image_of"), rank(0.8, "portrait")], "order").sentence.replace("\xa0", " ")
    assert mixed.startswith("The 4 models on pata do not all keep their order")
    assert "0.80 (agency, “a photo of …” against “portrait of …”, p = 0.040)" in mixed
    kept = told([rank(1.0, "image_of")], "order").sentence
    assert kept.startswith("The 4 models on pata keep their order")


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
    sentence = finding.sentence.replace("\xa0", " ")
    assert finding.tone == "bias" and "race skew in PATA's negative captions is 0.50" in sentence
    assert sentence.endswith("Black faces 30% (n = 200), indian faces 20% (n = 200).")
    assert told(caption_rows(0.5, 0.4), "captions").tone == "none"
    undefined = told(caption_rows(float("nan"), 0.4, (reason("event_never_happens"),)), "captions")
    assert undefined.tone == "undefined" and "the event never happens" in undefined.sentence


def test_unequal_recognition_is_told_with_the_class_it_is_largest_for():
    base = BASE | {"suite": "trident", "attribute": "gender", "dataset": "faces"}
    gap = base | {"metric": "equal_opportunity_gap", "ci_low": 0.1, "ci_high": 0.3, "n": 300}
    rows = [gap | {"definition": "mean_over_classes", "value": 0.2, "p": 0.001, "q": 0.001}]
    rows += [gap | {"definition": "by_class", "event": e, "value": v} for e, v in (("child", 0.1), ("elderly", 0.3))]
    rows += [
        base | {"metric": "true_positive_rate", "definition": "classes_alone", "event": "elderly", "group": g,
                "value": v, "n": 150}
        for g, v in (("man", 0.8), ("woman", 0.5))
    ]  # fmt: skip
    sentence = told(rows, "opportunity").sentence.replace("\xa0", " ")
    assert "is 20% of images, mean over classes (95% CI 10–30%" in sentence
    assert sentence.endswith("Most for elderly: man 80% (n = 150), woman 50% (n = 150).")
    rows[0] |= {"p": 0.5, "q": 0.5}
    assert told(rows, "opportunity").tone == "none"
    rows[0] |= {"value": float("nan")}
    assert told(rows, "opportunity").tone == "undefined"
