"""The figure of factor effects: a mark an effect, at its side of the line, with its words."""

import itertools
import re

import polars as pl
import pytest

from plumbline.metrics.paired.factors import EFFECT_SCHEMA
from plumbline.report import Reading
from plumbline.report.figures.effects import effects_figure

EVENTS = (("crime", "crime"), ("communion", "negative_communion"), ("outcomes", "mean_of_tasks"))
PAIRS = (
    ("size", "small", "large", "3k, atlas", "sa", "la"),
    ("size", "small", "large", "6k, atlas", "sb", "lb"),
    ("data_source", "atlas", "bazaar", "small, 3k", "sa", "sz"),
)


@pytest.fixture(scope="module")
def effects():
    names = ("factor", "level_first", "level_second", "held", "first", "second")
    rows = [
        dict(zip(names, pair), dataset="faces", suite=suite, event=event, attribute=attribute, metric="max_skew",
             definition="mean_over_pairs", value=0.1 * (i - 2), ci_low=0.1 * (i - 4), ci_high=0.1 * i, p=0.01, q=0.02,
             n=700, value_first=1.0, value_second=1.2 - 0.1 * i)
        for i, (pair, (suite, event), attribute) in enumerate(itertools.product(PAIRS, EVENTS, ("race", "gender")))
    ]  # fmt: skip
    other = [
        rows[0] | change
        for change in (
            {"attribute": "gender_race"}, {"suite": "crime_pooled"}, {"definition": "smoothed"}, {"dataset": "x"},
            {"metric": "harm_rate", "definition": "top1", "attribute": None},
        )
    ]  # fmt: skip
    return pl.DataFrame(rows + other, schema=EFFECT_SCHEMA)


def marks(svg):
    return re.findall(r'<(?:use|circle)[^>]*?x="([\d.]+)"[^>]*><title>([^<]*)</title>', svg)


def test_one_mark_a_pair_event_and_single_attribute(effects):
    found = marks(effects_figure(effects, Reading(), "faces").svg)
    assert len(found) == len(PAIRS) * len(EVENTS) * 2
    assert found[0][1].startswith("sa − la, ") and "1.0 against 1.2" in " ".join(tip for _, tip in found)


def test_a_more_biased_first_stands_right_of_the_line(effects):
    found = dict.fromkeys([0.3, -0.3])
    for value in found:
        chosen = effects.with_columns(value=pl.lit(value), ci_low=pl.lit(-0.4), ci_high=pl.lit(0.4))
        found[value] = [float(x) for x, _ in marks(effects_figure(chosen, Reading(), "faces").svg)]
    middle = [float(x) for x, _ in marks(
        effects_figure(effects.with_columns(value=pl.lit(0.0), ci_low=pl.lit(-0.4), ci_high=pl.lit(0.4)),
                       Reading(), "faces").svg)]  # fmt: skip
    for left, line, right in zip(found[-0.3], middle, found[0.3]):
        assert left < line < right
        assert line - left == pytest.approx(right - line, abs=0.05)


def test_pairs_stand_under_their_factor_with_what_is_held(effects):
    svg = effects_figure(effects, Reading(), "faces").svg
    words = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    chosen = [w for w in words if ("−" in w and "(" in w) or w in ("model size", "data source")]
    assert chosen == [
        "model size", "small − large (3k, atlas)", "small − large (6k, atlas)",
        "data source", "atlas − bazaar (small, 3k)",
    ]  # fmt: skip


def test_what_chance_may_explain_is_hollow(effects):
    svg = effects_figure(effects.with_columns(q=pl.lit(0.4)), Reading(), "faces").svg
    styles = re.findall(r"<use[^>]*style=\"([^\"]*)\"[^>]*><title>", svg)
    assert styles and all("fill: #ffffff" in style for style in styles)


def test_intervals_beyond_the_scale_end_inside_it_on_both_sides(effects):
    wide = effects.with_columns(ci_low=pl.lit(-1e6), ci_high=pl.lit(1e6))
    svg = effects_figure(wide, Reading(), "faces").svg
    lines = re.findall(r'd="M (-?[\d.]+) [\d.]+ L (-?[\d.]+) [\d.]+"', svg)
    assert all(0 <= float(x) < 960 for line in lines for x in line) and len(lines) > 18
    # Arrows to both sides: one more mark left, one more right, for each effect.
    narrow = effects_figure(effects, Reading(), "faces").svg
    assert svg.count("<use") >= narrow.count("<use") + len(PAIRS) * len(EVENTS) * 2


def test_an_undefined_effect_is_said_in_words(effects):
    crime = (pl.col("event") == "crime") & (pl.col("first") == "sb")
    gone = effects.with_columns(value=pl.when(crime).then(float("nan")).otherwise("value"))
    svg = effects_figure(gone, Reading(), "faces").svg
    assert svg.count("> undefined<") == 2


def test_nothing_to_draw_is_none_and_drawing_repeats(effects):
    assert effects_figure(effects.clear(), Reading(), "faces") is None
    assert effects_figure(effects, Reading(), "elsewhere") is None
    picture = effects_figure(effects, Reading(), "faces")
    assert picture.svg == effects_figure(effects, Reading(), "faces").svg


def test_hostile_levels_stay_text(effects):
    svg = effects_figure(effects.with_columns(held=pl.lit("<script>")), Reading(), "faces").svg
    assert "<script" not in svg and "&lt;script&gt;" in svg
