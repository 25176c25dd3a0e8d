"""The chapter on rankings: its charts and its sentences."""

import math

import polars as pl
import pytest
from chart_data import drawn, records

from plumbline.catalog.schema import metric_frame
from plumbline.reasons import reason
from plumbline.report import Reading
from plumbline.report.chapters.rankings import CHAPTER, ranking_findings
from plumbline.report.charts.perception import EQUAL, RANKED, SCALES, ranking_spread, skew_at_k

DATASET, MODELS = "fairface", ("small-bazaar-6k", "small-control-6k")
GROUPS = (("gender", "man"), ("gender", "woman"), ("race", "Black"), ("race", "Indian"), ("race", "White"))
READING = Reading()
LEAN = math.log(2)


def rows_of(model, lean=LEAN, q=0.01, k=1000):
    """Return rows of one model: Black faces are skewed by `lean` among those that fit negative communion best."""
    base = {
        "model": model, "dataset": DATASET, "condition": "before", "statistic": "estimate", "suite": "perception",
        "n": 900,
    }  # fmt: skip
    rows = []
    for attribute, group in GROUPS:
        who = base | {"metric": "skew_at_k", "attribute": attribute, "group": group, "k": k}
        for scale in SCALES:
            told = (group, scale) == ("Black", "communion_negative")
            value = lean if told else -0.02
            estimate = {"value": value, "ci_low": value - 0.1, "ci_high": value + 0.1, "p": 0.4, "q": 0.6}
            estimate |= {"p": q / 2, "q": q} if told else {}
            rows += [who | estimate | {"definition": d, "event": scale} for d in (EQUAL, RANKED)]
        for i, word in enumerate(("warm", "poor", "liberal", "meek")):
            value = i / 10 if i < 3 else -math.inf
            estimate = {"value": value, "ci_low": value, "ci_high": 0.5, "p": 0.01, "q": 0.02 if i == 2 else 0.5}
            rows.append(who | estimate | {"definition": EQUAL, "probe": word})
    for attribute in ("gender", "race"):
        for definition in (EQUAL, RANKED):
            for metric, value, low in (("max_skew_at_k", abs(lean), 0.04), ("ndkl", 0.02, 0.011)):
                each = base | {"metric": metric, "definition": definition, "attribute": attribute}
                each |= {"k": k} if metric == "max_skew_at_k" else {}
                estimate = {"value": value, "ci_low": value / 2, "ci_high": value * 1.5, "p": q / 2, "q": q}
                rows += [each | estimate | {"event": scale} for scale in SCALES]
                chance = {"statistic": "chance", "value": low, "ci_low": low / 2, "ci_high": low * 2}
                rows.append(each | chance | {"reason": reason("random_rankings")})
    return rows


@pytest.fixture(scope="module")
def rankings():
    return metric_frame([*rows_of(MODELS[1], lean=0.1, q=0.7), *rows_of(MODELS[0])])


def cells(chart):
    return {record["of"]: record for record in records(chart) if "of" in record}


def test_the_chapter_shows_one_chart_and_folds_the_others(rankings, inputs, narrow):
    (part,) = CHAPTER.parts(rankings, inputs)
    assert [chart.name for chart in part.pictures] == ["rankings-ranked-fairface"]
    assert len(part.details) == 3 and not part.notes
    (short,) = CHAPTER.parts(metric_frame(rows_of(MODELS[0], k=350)), inputs)
    assert short.notes == ["With fewer than 2,000 labelled faces, k is half of them instead of 1,000: here 350."]
    assert CHAPTER.parts(narrow, inputs) == []
    for chart in (skew_at_k, ranking_spread):
        assert chart(narrow, READING, MODELS, DATASET) is None


def test_cells_tell_scale_group_interval_and_evidence(rankings):
    shown = cells(skew_at_k(rankings, READING, MODELS, DATASET))
    assert len(shown) == 2 * len(GROUPS) * len(SCALES)
    told = shown[f"{MODELS[0]}, race, Black, communion, negative words"]
    assert (told["text"], told["interval"], told["q"]) == ("0.69*", "0.59–0.79", "0.010")
    assert [of for of, cell in shown.items() if cell.get("framed")] == [told["of"]]


def test_an_absent_group_is_as_dark_as_the_largest_skew(rankings):
    absent = (pl.col("group") == "Indian") & (pl.col("event") == "warmth")
    gone = rankings.with_columns(value=pl.when(absent).then(-math.inf).otherwise("value"))
    shown = cells(skew_at_k(gone, READING, MODELS, DATASET))[f"{MODELS[0]}, race, Indian, warmth"]
    assert shown["text"] == "−∞" and shown["dark"] and shown["shade"] == pytest.approx(LEAN, abs=1e-4)


@pytest.mark.parametrize("metric", ["ndkl", "max_skew_at_k"])
def test_random_rankings_stand_behind_each_dot(rankings, metric):
    dots = drawn(ranking_spread(rankings, READING, MODELS, DATASET, metric=metric))
    assert len(dots) == 2 * 2 * len(SCALES)
    low = {"ndkl": 0.011, "max_skew_at_k": 0.04}[metric]
    assert {(dot["second"], dot["from"], dot["to"]) for dot in dots} == {(low, low / 2, 2 * low)}
    assert len([dot for dot in dots if "filled" in dot]) == len(dots) / 2


def only(frame, attribute):
    (finding,) = [f for f in ranking_findings(frame, READING) if f.topic == ("ranking", DATASET, attribute)]
    return finding


def test_the_strongest_skew_is_told_by_model_and_attribute(rankings):
    assert len(ranking_findings(rankings, READING)) == 4
    race = only(metric_frame(rows_of(MODELS[0])), "race")
    assert race.tone == "bias"
    assert race.short == "Race: ranked unequally by communion, negative words"
    assert (race.value_text, race.q_text) == ("0.69", "0.010") and race.strength == pytest.approx(LEAN - 0.1)
    assert only(metric_frame(rows_of(MODELS[0])), "gender").tone == "none"
    assert only(metric_frame(rows_of(MODELS[1], q=0.7)), "race").tone == "none"


def test_first_for_warm_words_is_a_difference_and_absence_is_told(rankings):
    swapped = pl.col("event").replace({"communion_negative": "warmth", "warmth": "communion_negative"})
    warm = metric_frame(rows_of(MODELS[0])).with_columns(event=swapped)
    assert only(warm, "race").tone == "difference"
    told = (pl.col("group") == "Black") & (pl.col("event") == "communion_negative")
    gone = metric_frame(rows_of(MODELS[0])).with_columns(
        value=pl.when(told).then(-math.inf).otherwise("value"),
        ci_low=pl.when(told).then(math.nan).otherwise("ci_low"),
        ci_high=pl.when(told).then(math.nan).otherwise("ci_high"),
    )
    finding = only(gone, "race")
    assert finding.value_text == "−∞"
    assert math.isfinite(finding.value) and math.isfinite(finding.strength)
    undefined = metric_frame(rows_of(MODELS[0])).with_columns(value=pl.lit(math.nan))
    assert ranking_findings(undefined, READING) == []
