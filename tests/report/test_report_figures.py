"""Figures hold the data: as many marks as values, at their places, the same bytes every time."""

import itertools
import re

import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from read_back import tips
from synthetic_table import AGES, GRID, RACES, planted_truth

from plumbline.report import Reading, thumbnails
from plumbline.report.figures.canvas import blank, drawing
from plumbline.report.figures.labels import balance_figure, label_error_figure
from plumbline.report.figures.mitigations import adjustment_figure, adjustments
from plumbline.report.figures.outcomes import harm_figure, proportions_figure, skew_figure
from plumbline.report.figures.panels import fit_grid, percent_scale
from plumbline.report.figures.trident import bubble_figure, gap_figure

MODELS = (GRID[0][0], GRID[6][0])
FAIRFACE, UTKFACE = "planted-fairface", "planted-utkface"


@pytest.mark.parametrize(("suite", "dataset", "classes"), [
    ("trident", FAIRFACE, len(RACES)), ("trident_mixed", FAIRFACE, 2 * len(RACES)), ("trident", UTKFACE, len(AGES)),
])  # fmt: skip
def test_bubble_chart_has_one_bubble_a_class_and_probe(table, suite, dataset, classes):
    svg = bubble_figure(table, model=MODELS[0], dataset=dataset, suite=suite).svg
    assert len(tips(svg)) == 15 * classes


def test_bubble_area_is_accuracy_and_order_is_by_valence(table):
    chosen = table.with_columns(
        value=pl.when(metric="accuracy", probe="thief").then(0.25)
        .when(metric="accuracy", probe="hero").then(1.0)
        .otherwise("value")
    )  # fmt: skip
    svg = bubble_figure(chosen, model=MODELS[0], dataset=FAIRFACE, suite="trident").svg
    marks = re.findall(r'cx="([\d.]+)" cy="[\d.]+" r="([\d.]+)"><title>[^<]*→ (\w+):', svg)
    place = {word: float(x) for x, _, word in marks}
    radius = {word: float(r) for _, r, word in marks}
    assert radius["hero"] == pytest.approx(2 * radius["thief"], abs=0.02)
    assert place["thief"] < place["failure"] < place["person"] < place["individual"] < place["hero"] < place["winner"]


def test_bubbles_darken_with_the_normalised_probability(table):
    svg = bubble_figure(table, model=MODELS[0], dataset=FAIRFACE, suite="trident").svg
    found = re.findall(r"<circle[^>]*fill: #([0-9a-f]{6})[^>]*><title>[^<]*normalised ([\d.]+),", svg)
    light = {float(n): sum(int(c[i : i + 2], 16) for i in (0, 2, 4)) for c, n in found}
    assert light[100.0] < light[0.0] / 3


def test_undefined_normalised_value_is_still_a_bubble(table):
    blank = table.with_columns(
        value=pl.when(pl.col("metric") == "probe_rate_normalised").then(float("nan")).otherwise("value")
    )
    svg = bubble_figure(blank, model=MODELS[0], dataset=FAIRFACE, suite="trident").svg
    assert len(tips(svg)) == 15 * len(RACES)
    assert "normalised undefined" in svg


def test_skew_figure_has_a_mark_a_model_event_and_attribute(table):
    svg = skew_figure(table, Reading(), MODELS, FAIRFACE).svg
    assert len(tips(svg)) == len(MODELS) * 4 * 2


def test_skew_is_hollow_where_chance_may_explain_it(table):
    everything = skew_figure(table.with_columns(q=pl.lit(0.9)), Reading(), MODELS, FAIRFACE).svg
    marks = re.findall(r"<use[^>]*style=\"([^\"]*)\"[^>]*><title>", everything)
    assert marks
    assert all("fill: #ffffff" in style for style in marks)


def test_an_undefined_skew_is_said_in_words(table):
    where = (pl.col("metric") == "max_skew") & (pl.col("event") == "crime") & (pl.col("model") == MODELS[0])
    blank = table.with_columns(value=pl.when(where).then(float("nan")).otherwise("value"))
    svg = skew_figure(blank, Reading(), MODELS, FAIRFACE).svg
    assert svg.count("> undefined<") == 2
    assert len(tips(svg)) == len(MODELS) * 4 * 2 - 2


def test_interval_beyond_the_scale_ends_in_an_arrow(table):
    wide = table.with_columns(
        ci_high=pl.when((pl.col("metric") == "max_skew") & (pl.col("model") == MODELS[0]))
        .then(1e6)
        .otherwise("ci_high")
    )
    ends = [float(x) for x in re.findall(r"L ([\d.]+) [\d.]+\"", skew_figure(wide, Reading(), MODELS, FAIRFACE).svg)]
    assert max(ends) < 960


def test_proportions_have_a_mark_a_group_and_model_and_planted_truth(table):
    truth = planted_truth((GRID[0], GRID[6]))
    svg = proportions_figure(table, truth, MODELS, dataset=FAIRFACE, suite="crime", event="crime").svg
    plain = proportions_figure(table, None, MODELS, dataset=FAIRFACE, suite="crime", event="crime").svg
    assert len(tips(svg)) == len(MODELS) * (len(RACES) + 2)
    assert "planted truth" in svg
    assert "planted truth" not in plain
    assert svg.count("<use") == plain.count("<use") + len(MODELS) * len(RACES) + 1  # and one in the legend


@pytest.mark.parametrize("cap", [1.0, 1.003, 0.6, 0.504, 0.2])
def test_tick_labels_of_neighbouring_panels_keep_apart(cap):
    grid = fit_grid(7, width=960, left=140, top=20, height=40)
    with drawing():
        figure = blank(960, 100)
        panels = [grid.place(figure, index) for index in range(7)]
        for axes in panels:
            percent_scale(axes, cap)
        renderer = FigureCanvasAgg(figure).get_renderer()
        texts = [text for axes in panels for text in axes.get_xticklabels()]
        boxes = [text.get_window_extent(renderer) for text in texts]
    assert len(boxes) > len(panels)
    assert min(after.x0 - before.x1 for before, after in itertools.pairwise(boxes)) >= 5


def test_planted_mark_stands_where_the_equal_estimate_stands(table):
    rates = table.filter(metric="outcome_proportion", suite="crime", event="crime", attribute="race", model=MODELS[0])
    truth = rates.select("model", "dataset", "suite", "event", "attribute", "group", planted="value")
    svg = proportions_figure(table, truth, MODELS[:1], dataset=FAIRFACE, suite="crime", event="crime").svg
    estimates = set(re.findall(r'<use x="([\d.]+)"[^>]*><title>' + MODELS[0], svg))
    marks = re.findall(r'<use x="([\d.]+)"[^>]*/>', svg)
    assert len(set(marks) & estimates) >= 3


def test_harm_and_gap_and_adjustment_marks(table):
    assert len(tips(harm_figure(table, MODELS, FAIRFACE).svg)) == len(MODELS) * 4
    assert len(tips(gap_figure(table, Reading(), MODELS, FAIRFACE).svg)) == len(MODELS) * 2 * 3
    ids = adjustments(table, FAIRFACE, "trident", leaking=("logit_adjustment",))
    assert ids == ["logit_adjustment_released", "logit_adjustment"]
    for name in ids:
        drawn = adjustment_figure(table, MODELS, FAIRFACE, "trident", condition=name)
        assert len(tips(drawn.svg)) == len(MODELS) * 15 and name in drawn.title


def test_label_figures(inputs):
    dataset = inputs.datasets[0]
    assert len(tips(label_error_figure(dataset).svg)) == dataset.label_errors.height
    bars = balance_figure(dataset).svg
    assert bars.count("fill: #d55e00") >= 1  # men are more than declared
    assert bars.count("%</text>") >= dataset.label_shares.height


def test_nothing_to_draw_is_none(table):
    empty = table.clear()
    assert skew_figure(empty, Reading(), (), FAIRFACE) is None
    assert harm_figure(empty, (), FAIRFACE) is None
    assert gap_figure(empty, Reading(), (), FAIRFACE) is None
    assert adjustment_figure(empty, (), FAIRFACE, "trident", condition="logit_adjustment") is None
    assert bubble_figure(empty, model="x", dataset=FAIRFACE, suite="trident") is None
    assert thumbnails(empty, dataset=FAIRFACE) == {}


def test_svg_is_accessible_stands_alone_and_repeats(table):
    first = skew_figure(table, Reading(), MODELS, FAIRFACE)
    svg = first.svg
    assert svg == skew_figure(table, Reading(), MODELS, FAIRFACE).svg
    assert svg.startswith('<svg class="figure" role="img" aria-labelledby=')
    assert "<title id=" in svg
    assert "<desc id=" in svg
    assert not re.search(r"http|<style|<script|xmlns|<metadata|\bon\w+=", svg)


def test_hostile_labels_stay_text(table):
    evil = "<script>$x^2$\u202e\x07"
    renamed = table.with_columns(pl.col("model").replace(MODELS[0], evil))
    svg = skew_figure(renamed, Reading(), (evil, MODELS[1]), FAIRFACE).svg
    assert "<script" not in svg
    assert "&lt;script&gt;$x^2$\\u202e\\u0007" in svg


def test_thumbnails_are_small_pngs_and_repeat(table):
    made = thumbnails(table, dataset=FAIRFACE, model=MODELS[0])
    assert list(made) == ["skew", "harm", "crime_by_group", "trident", "trident_mixed", "gap", "adjustment"]
    assert all(image.startswith(b"\x89PNG") and len(image) < 30_000 for image in made.values())
    assert thumbnails(table.filter(pl.col("metric") == "harm_rate"), dataset=FAIRFACE, model=MODELS[0]) == {
        "harm": made["harm"]
    }
