"""Selection rates and impact ratios, worked by hand."""

import math
from dataclasses import replace

import pytest

from plumbline.catalog.schema import metric_frame, row_ids
from plumbline.catalog.suites import load_suite
from plumbline.provenance.export import IMPACT_SCHEMA, impact_ratio_page, impact_ratio_table
from plumbline.reasons import joined, reason

SUITES = {"crime": load_suite("crime")}


def share(group, hits, n, *, attribute="race", **changes):
    value = hits / n if n else math.nan
    return {
        "metric": "outcome_proportion", "definition": "top1", "model": "clip", "dataset": "faces", "suite": "crime",
        "attribute": attribute, "group": group, "event": "crime", "condition": "before", "statistic": "estimate",
        "value": value, "ci_low": value - 0.05, "ci_high": value + 0.05, "n": n,
    } | changes  # fmt: skip


# 10%, 40% and 0% of the images are given a crime label: 90%, 60% and 100% are not.
ROWS = [share("White", 10, 100), share("Black", 40, 100), share("Other", 0, 3)]
EVERYONE = [share(None, 55, 210, attribute=None, metric="harm_rate")]


def by_category(table):
    return {row["category"]: row for row in table.to_dicts()}


def test_rates_and_ratios_are_those_of_the_arithmetic():
    table = impact_ratio_table(metric_frame(ROWS + EVERYONE), SUITES)
    assert dict(table.schema) == IMPACT_SCHEMA
    found = by_category(table)
    assert found["White"]["selected"] == 90 and found["Black"]["selected"] == 60
    assert found["White"]["selection_rate"] == pytest.approx(0.9, abs=1e-12)
    assert found["White"]["impact_ratio"] == 1.0 and found["White"]["note"] is None
    assert found["Black"]["impact_ratio"] == pytest.approx(60 / 90, abs=1e-12)
    assert found["Black"]["note"] == "below four fifths"
    assert (found["Black"]["ci_low"], found["Black"]["ci_high"]) == pytest.approx((0.55, 0.65), abs=1e-12)
    assert found["Black"]["categories"] == "race/ethnicity" and found["Black"]["unlabelled"] == 210 - 203


def test_a_category_under_two_percent_is_neither_compared_nor_the_best():
    other = by_category(impact_ratio_table(metric_frame(ROWS + EVERYONE), SUITES))["Other"]
    assert other["selection_rate"] == 1.0 and other["share_of_images"] == pytest.approx(3 / 203)
    assert math.isnan(other["impact_ratio"]) and "5-301(d)" in other["note"]


def test_ratios_of_a_model_at_chance_are_said_to_be_too_weak_to_interpret():
    blind = share(None, 30, 210, metric="zero_shot_accuracy", event=None) | {
        "reason": joined(reason("at_chance", chance=1 / 7))
    }
    seeing = [row | {"model": "large"} for row in ROWS + EVERYONE]
    table = impact_ratio_table(metric_frame([*ROWS, *EVERYONE, blind, *seeing]), SUITES)
    notes = {(row["model"], row["category"]): row["note"] for row in table.to_dicts()}
    assert notes["clip", "White"] == "model no better than chance here: too weak to interpret"
    assert notes["clip", "Black"].startswith("below four fifths; model no better than chance")
    assert "5-301(d)" in notes["clip", "Other"]
    assert notes["large", "White"] is None and notes["large", "Black"] == "below four fifths"


def test_rows_name_the_metric_rows_that_they_come_from():
    rows = metric_frame(ROWS + EVERYONE)
    table = impact_ratio_table(rows, SUITES)
    assert set(table["row"]) == set(row_ids(rows.filter(metric="outcome_proportion")))


def test_only_what_the_model_does_unmitigated_and_by_sex_and_race_is_told():
    rows = [
        share("White", 10, 100, condition="saner"),
        share("young", 10, 100, attribute="age_group"),
        share("White", 10, 100, event="another"),
    ]
    assert impact_ratio_table(metric_frame(rows), SUITES).is_empty()


def test_where_everyone_is_given_the_label_there_is_no_ratio():
    rows = metric_frame([share("White", 50, 50), share("Black", 50, 50), share("None", 0, 0)])
    found = by_category(impact_ratio_table(rows, SUITES))
    assert math.isnan(found["White"]["impact_ratio"]) and found["White"]["note"] == "no category was ever selected"
    assert found["None"]["note"] == "no images"


def test_the_page_says_what_it_is_not_and_escapes_names():
    rows = metric_frame([share("a|b_<x>", 10, 100), share("Black", 40, 100)])
    page = impact_ratio_page(impact_ratio_table(rows, SUITES))
    assert "It is not a bias audit of an automated employment decision tool" in page
    assert (
        "a\\|b\\_\\<x\\>" in page and "| Black | 100 | 60 | 0.600 | 0.550 – 0.650 | 0.667 | below four fifths |" in page
    )
    named = {"event": "a`<img src=x>[b](c)", "model": "<b>_x_"}
    hostile = metric_frame([share("White", 10, 100, **named), share("Black", 40, 100, **named)])
    suites = {"crime": replace(SUITES["crime"], events={named["event"]: ("crime",)})}
    page = impact_ratio_page(impact_ratio_table(hostile, suites))
    assert "## \\<b\\>\\_x\\_ on faces: not given a\\`\\<img src=x\\>\\[b\\](c) (crime), by race" in page
    assert "No outcome suite" in impact_ratio_page(impact_ratio_table(rows.clear(), SUITES))
