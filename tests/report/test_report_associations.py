"""The chapter on associations: its charts and its sentences."""

import math
from dataclasses import replace

import polars as pl
import pytest
from chart_data import drawn, names, records, valid

from plumbline.catalog.schema import metric_frame
from plumbline.catalog.suites import load_suite
from plumbline.report import Reading
from plumbline.report.chapters.associations import CHAPTER, association_findings
from plumbline.report.charts.perception import (
    SCALES,
    association_intervals,
    associations,
    markedness,
    scale_title,
    strongest_first,
    valence_correlations,
)

DATASET, MODELS = "fairface", ("small-bazaar-6k", "small-control-6k")
RACES = ("Black", "Indian", "White")
READING = Reading()


def rows_of(model, lean=0.5, q=0.01):
    """Return rows of one model: Black faces lie closer to the negative words of communion by `lean`."""
    base = {
        "model": model, "dataset": DATASET, "condition": "before", "statistic": "estimate", "n": 900,
        "suite": "perception",
    }  # fmt: skip
    pairs = [("gender", "man", "woman"), *(("race", race, "others") for race in RACES)]
    rows = []
    for attribute, group, reference in pairs:
        who = base | {"attribute": attribute, "group": group, "reference_group": reference}
        for scale in SCALES:
            told = (group, scale) == ("Black", "communion_negative")
            value = lean if told else -0.02
            estimate = {"value": value, "ci_low": value - 0.1, "ci_high": value + 0.1, "p": 0.4, "q": 0.6}
            estimate |= {"p": q / 2, "q": q} if told else {}
            for definition in ("paper", "two_sided"):
                rows.append(who | estimate | {"metric": "sc_weat_effect", "definition": definition, "event": scale})
        for i, word in enumerate(("warm", "poor", "liberal", "meek")):
            estimate = {"value": i / 10, "ci_low": i / 10 - 0.1, "ci_high": i / 10 + 0.1, "p": 0.5, "q": 0.5}
            rows.append(who | estimate | {"metric": "sc_weat_effect", "definition": "studentised", "probe": word})
        for dimension in ("agency", "belief", "communion"):
            estimate = {"value": -0.3, "ci_low": -0.4, "ci_high": -0.2, "p": 0.001, "q": 0.002}
            rows.append(who | estimate | {"metric": "weat_effect", "definition": "two_sided", "event": dimension})
    base |= {"suite": "markedness", "n": 300}
    for attribute, group, value in (
        ("gender", "man", 80.0), ("gender", "woman", 20.0), ("race", "Black", 30.0), ("race", "White", 90.0),
    ):  # fmt: skip
        for definition in ("photo", "mean_over_templates"):
            estimate = {"value": value, "ci_low": value - 5, "ci_high": value + 5}
            rows.append(
                base
                | estimate
                | {"metric": "markedness", "definition": definition, "attribute": attribute, "group": group}
            )
    for attribute in ("gender", "race"):
        estimate = {"value": 60.0, "ci_low": 52.0, "ci_high": 68.0, "p": q / 2, "q": q}
        rows.append(
            base | estimate | {"metric": "markedness_gap", "definition": "mean_over_templates", "attribute": attribute}
        )
    views = [(None, None), ("race", "Black"), ("gender_race", "Black_man"), ("gender_race", "White_woman")]
    for dimension, value in (("agency", 0.9), ("belief", 0.4), ("communion", -0.2)):
        for attribute, group in views:
            small = group == "White_woman"
            estimate = {"value": value, "ci_low": value - 0.1, "ci_high": value + 0.1, "n": 12 if small else 450}
            key = {"metric": "valence_correlation", "definition": "pearson", "event": dimension}
            rows.append(base | estimate | key | {"attribute": attribute, "group": group})
    return rows


@pytest.fixture(scope="module")
def measured():
    return metric_frame([*rows_of(MODELS[0]), *rows_of(MODELS[1], lean=0.1, q=0.7)])


def cells(chart):
    return {record["of"]: record for record in records(chart) if "of" in record}


def test_the_chapter_shows_one_chart_and_folds_the_others(measured, inputs, narrow):
    (part,) = CHAPTER.parts(measured, inputs)
    assert [chart.name for chart in part.pictures] == ["associations-fairface"]
    assert [chart.name for chart in part.details] == [
        f"association-intervals-{MODELS[0]}-fairface", "markedness-fairface", "valences-fairface",
    ]  # fmt: skip
    assert valid(part.pictures[0]) and len(part.pictures[0].png) < 30_000
    assert not part.listings
    assert CHAPTER.parts(narrow, inputs) == []


def test_the_words_of_the_suite_are_those_of_the_chart():
    assert tuple(load_suite("perception").scales) == SCALES
    assert scale_title("warmth") == "warmth"
    assert scale_title("agency_negative") == "agency, negative words"


def test_cells_tell_scale_group_interval_and_evidence(measured):
    chart = associations(measured, READING, MODELS, DATASET)
    shown = cells(chart)
    assert len(shown) == 2 * 4 * (len(SCALES) + 3)
    told = shown[f"{MODELS[0]}, race, Black, communion, negative words"]
    assert (told["text"], told["interval"], told["q"], told["n"]) == ("0.50*", "0.40–0.60", "0.010", "900")
    assert told["framed"] and told["dark"] and told["row"]
    framed = [of for of, cell in shown.items() if cell.get("framed") and "words" in of]
    assert framed == [f"{MODELS[0]}, race, Black, communion, negative words"]
    weat = shown[f"{MODELS[0]}, gender, man − woman, belief"]
    assert weat["framed"] and (weat["text"], weat["shade"]) == ("−0.30*", 0.3), "darker to either side"
    assert names(chart)[:5] == [MODELS[0], "man − woman", *RACES]


def test_intervals_of_the_model_with_the_largest_effect(measured):
    assert strongest_first(measured, tuple(reversed(MODELS)), DATASET) == list(MODELS)
    chart = association_intervals(measured, READING, MODELS, DATASET, model=MODELS[0])
    (evident,) = drawn(chart, "filled")
    assert (evident["filled"], evident["low"], evident["high"]) == (0.5, 0.4, 0.6)
    assert len(drawn(chart, "hollow")) == 4 * len(SCALES) - 1


def test_markedness_and_correlations_hold_every_group(measured):
    marked = drawn(markedness(measured, READING, MODELS, DATASET))
    assert len(marked) == 2 * 4
    assert {(m["filled"], m["low"], m["interval"]) for m in marked if "White" in m["of"]} == {(0.9, 0.85, "85–95%")}
    chart = valence_correlations(measured, READING, MODELS, DATASET)
    assert [record["text"] for record in cells(chart).values()].count("(0.90)") == 2, "small groups are bracketed"
    assert names(chart) == ["all images", "Black man", "White woman"], "single attributes only without a crossing"


def test_undefined_values_are_not_coloured_and_nothing_is_none(measured, narrow):
    nothing = {"value": math.nan, "ci_low": math.nan, "ci_high": math.nan, "p": math.nan, "q": math.nan}
    bare = measured.with_columns(*(pl.lit(value).alias(name) for name, value in nothing.items()))
    assert not drawn(associations(bare, READING, MODELS, DATASET), "shade")
    assert {r["words"] for r in drawn(markedness(bare, READING, MODELS, DATASET), "at")} == {"undefined"}
    assert valence_correlations(bare, READING, MODELS, DATASET) is None
    assert association_findings(bare, READING) == []
    for chart in (associations, markedness, valence_correlations):
        assert chart(narrow, READING, MODELS, DATASET) is None


def test_findings_tell_the_strongest_association_and_the_gap(measured):
    found = {(f.topic, f.model): f for f in association_findings(measured, READING)}
    assert len(found) == 8
    strongest = found[("association", DATASET, "race"), MODELS[0]]
    assert strongest.tone == "bias" and strongest.value_text == "0.50 sd" and strongest.strength == 0.4
    assert strongest.short == "Race: associated unequally with communion, negative words"
    nothing = found[("association", DATASET, "gender"), MODELS[0]]
    assert nothing.tone == "none" and nothing.strength == 0
    gap = found[("markedness", DATASET, "race"), MODELS[0]]
    assert gap.tone == "difference" and gap.value_text == "60 points"
    assert found[("markedness", DATASET, "race"), MODELS[1]].tone == "none"


def test_an_effect_and_its_interval_stand_on_the_side_that_is_named():
    rows = [row for row in rows_of(MODELS[0], lean=-0.5) if row["metric"] == "sc_weat_effect"]
    (found,) = (f for f in association_findings(metric_frame(rows), READING) if f.topic[2] == "race")
    assert (found.value, found.value_text, found.interval_text) == (0.5, "0.50 sd", "0.40–0.60")


def test_closer_to_warm_words_is_a_difference_not_yet_a_bias(measured):
    warm = measured.with_columns(
        event=pl.when(event="communion_negative")
        .then(pl.lit("warmth"))
        .when(event="warmth")
        .then(pl.lit("communion_negative"))
        .otherwise("event")
    )
    found = {(f.topic[0], f.topic[2], f.model): f for f in association_findings(warm, READING)}
    assert found["association", "race", MODELS[0]].tone == "difference"
    strict = replace(READING, significance=0.001)
    assert {f.tone for f in association_findings(warm, strict)} == {"none"}


def test_evidence_goes_by_the_test_that_respects_clusters(measured):
    of_clusters = measured.filter(definition="two_sided").with_columns(
        definition=pl.lit("cluster_t"), q=pl.lit(0.7), p=pl.lit(0.6)
    )
    both = pl.concat([measured, of_clusters])
    assert {f.tone for f in association_findings(both, READING) if f.topic[0] == "association"} == {"none"}
    shown = cells(associations(both, READING, MODELS, DATASET))
    assert len(shown) == 2 * 4 * (len(SCALES) + 3) and not any(cell.get("framed") for cell in shown.values())
