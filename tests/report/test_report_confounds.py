"""The chapters on confounds and on the text space: their marks, their lists, their sentences."""

import math
import re
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from read_back import tips

from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.reasons import reason
from plumbline.report import Reading, render
from plumbline.report.chapters import confounds, text_space
from plumbline.report.chapters.confounds import confound_findings
from plumbline.report.figures.confounds import change_figure, curves_figure, draw_curves
from plumbline.report.figures.geometry import short_name, space_figure, strip_figure

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


def test_curves_have_a_mark_a_level_and_valence(measured):
    levels = sum(map(len, LEVELS.values()))
    less = tips(curves_figure(measured, model=MODELS[0], dataset=DATASET).svg)
    raw = tips(curves_figure(measured, model=MODELS[0], dataset=DATASET, definition="raw").svg)
    assert len(less) == 2 * levels and len(raw) == 3 * levels
    assert "smiling 4, positive words: 0.016 [0.014–0.018], n = 24" in less
    assert any("no word" in tip and "[no interval]" in tip for tip in raw)


def test_intervals_are_those_of_the_shape_where_there_are_sets(measured):
    within = measured.filter(definition="less_blank").with_columns(
        definition=pl.lit("within_sets"), ci_high=pl.col("value") + 0.1
    )
    svg = curves_figure(pl.concat([measured, within]), model=MODELS[0], dataset=DATASET).svg
    plain = curves_figure(measured, model=MODELS[0], dataset=DATASET).svg
    assert len(tips(svg)) == len(tips(plain))
    assert any("–0.12]" in tip for tip in tips(svg)) and not any("–0.12]" in tip for tip in tips(plain))
    assert "shape of the line" in svg and "of the mean itself" in plain


def test_curves_rise_and_fall_as_the_numbers_do(measured):
    svg = curves_figure(measured, model=MODELS[0], dataset=DATASET).svg
    marks = re.findall(r'<use x="([\d.]+)" y="([\d.]+)"[^>]*><title>smiling ([−\d.]+), (\w+) words', svg)
    place = {(valence, level): (float(x), float(y)) for x, y, level, valence in marks}
    # Down the page is less; equal steps of the level are equal steps across.
    assert place["positive", "−2.5"][1] > place["positive", "0"][1] > place["positive", "4"][1]
    assert place["negative", "−2.5"][1] < place["negative", "0"][1] < place["negative", "4"][1]
    x = [place["positive", level][0] for level in ("−2.5", "0", "4")]
    assert (x[1] - x[0]) / (x[2] - x[1]) == pytest.approx(2.5 / 4, rel=0.01)


def test_a_very_long_interval_is_cut_off_at_the_panel(measured):
    long = measured.with_columns(ci_high=pl.when(metric="perception_by_level").then(5.0).otherwise("ci_high"))
    svg = curves_figure(long, model=MODELS[0], dataset=DATASET).svg
    plain = curves_figure(measured, model=MODELS[0], dataset=DATASET).svg
    heights = [{float(y) for y in re.findall(r'<use x="[\d.]+" y="([\d.]+)"', s)} for s in (svg, plain)]
    assert max(heights[0]) - min(heights[0]) > 0.3 * (max(heights[1]) - min(heights[1]))


def test_changes_have_a_mark_an_attribute_and_valence(measured):
    found = tips(change_figure(measured, model=MODELS[0], dataset=DATASET).svg)
    assert len(found) == 2 * 6
    assert "smiling, negative words: 0.012 [0.011–0.013], 60 pairs of faces" in found


def test_nothing_to_draw_is_none(measured, words):
    empty = measured.clear()
    assert curves_figure(empty, model=MODELS[0], dataset=DATASET) is None
    assert change_figure(empty, model=MODELS[0], dataset=DATASET) is None
    assert draw_curves(empty, Reading(), MODELS, DATASET) is None
    assert space_figure(words.clear(), model=MODELS[0]) is None
    assert strip_figure(words.clear(), model=MODELS[0]) is None
    flat = words.with_columns(y=pl.lit(math.nan))
    assert space_figure(flat, model=MODELS[0]) is None


def test_a_cell_has_a_small_picture(measured):
    picture = draw_curves(measured, Reading(), MODELS[1:], DATASET)
    assert picture.png.startswith(b"\x89PNG") and len(picture.png) < 30_000
    assert MODELS[1] in picture.title


def test_lines_are_listed_with_the_papers_fit_beside(measured):
    listing = confounds.slope_listing(measured, MODELS, DATASET)
    assert len(listing.rows) == 2 * 3 * (3 + 1 + 3 + 1)
    rows = {row[:4]: row for row in listing.rows}
    smiling = rows[MODELS[0], "smiling", "0 and below", "positive"]
    lighting = rows[MODELS[0], "lighting", "all levels", "all"]
    share = listing.heads.index("R², paper's fit")
    assert (smiling[share], lighting[share]) == ("0.90", "0.40")
    assert smiling[4] == "0.0040 [0.0030–0.0050]" and smiling[-1] == "interval from only 4 sets"
    assert all(len(row) == len(listing.heads) for row in listing.rows)


def test_comparisons_are_listed_with_the_papers_test_beside(measured):
    listing = confounds.comparison_listing(measured, MODELS, DATASET)
    assert len(listing.rows) == 2 * 2 * 3 * 3
    rows = {row[:4]: row for row in listing.rows}
    found = rows[MODELS[0], "positive", "smiling", "age"]
    assert found[4].startswith("0.0040 [") and found[7] == "2.5"


def test_findings_tell_evidence_from_its_lack(measured):
    found = {(f.model, f.topic): f for f in confound_findings(measured, Reading())}
    assert len(found) == 2 * 5
    smiling = found[MODELS[0], ("confound", DATASET, "smiling")]
    assert smiling.tone == "difference" and "Evidence in 4 of 4 lines, by valence and direction" in smiling.sentence
    told = smiling.sentence.replace("\u00a0", " ")
    assert "0.0040 a level (95% CI 0.0030–0.0050; p = 0.005, q = 0.010; interval from only 4 sets)" in told
    assert smiling.strength == pytest.approx(0.003)
    assert found[MODELS[0], ("confound", DATASET, "age")].tone == "bias"
    assert found[MODELS[1], ("confound", DATASET, "age")].tone == "none"
    size = found[MODELS[0], ("confound size", DATASET)]
    assert size.tone == "difference" and "mean absolute changes smiling 0.012, gender 0.0080" in size.sentence
    assert "moves it more in 6, less in 0, and in 12 neither" in size.sentence
    assert found[MODELS[1], ("confound size", DATASET)].tone == "none"


def test_what_is_undefined_is_said(measured):
    nothing = dict.fromkeys(("value", "ci_low", "ci_high", "p"), math.nan)
    broken = measured.with_columns(**nothing, q=None, reason=pl.lit("one level"))
    found = confound_findings(broken, Reading())
    assert {f.tone for f in found} == {"undefined"} and all("one level" in f.sentence for f in found)
    assert all(row[4] == "undefined" for row in confounds.slope_listing(broken, MODELS, DATASET).rows)


def test_the_text_space_has_a_mark_a_word_and_a_pair(words):
    space = space_figure(words, model=MODELS[0]).svg
    assert len(tips(space)) == 2 * 12
    assert all(space.count(f">{short_name(trait, 'positive')}<") == 2 for trait in ("agency", "belief", "communion"))
    strip = tips(strip_figure(words, model=MODELS[0]).svg)
    # Per trait: one pair in each pole, four across; and the mean of each strip.
    assert len([tip for tip in strip if "–" in tip]) == 3 * (1 + 1 + 4)
    cosines = np.array(words.filter(model=MODELS[0])["cosines"].to_list())
    assert any(tip == f"word0 – word1: {cosines[0, 1]:.2f}" for tip in strip)


def test_without_a_third_axis_one_view_is_drawn(words):
    flat = space_figure(words.with_columns(z=pl.lit(math.nan)), model=MODELS[0]).svg
    assert len(tips(flat)) == 12 and "third axis" not in flat


def test_text_space_findings_count_the_poles(measured):
    some, all_, none = (
        text_space.text_space_findings(metric_frame(gap_rows("m", apart)), Reading())[0] for apart in (4, 6, 0)
    )
    assert some.tone == "difference" and some.value_text == "4 of 6"
    assert "no evidence of it for positive communion, negative communion" in some.sentence
    assert all_.tone == "difference" and "every trait apart" in all_.sentence
    assert none.tone == "none" and none.sentence.startswith("m: no evidence")
    listing = text_space.gap_listing(measured, MODELS)
    assert len(listing.rows) == 6 and all(len(row) == len(listing.heads) for row in listing.rows)


def test_the_page_has_the_chapters_only_where_there_is_something(narrow, inputs, measured, words, page, sketched):
    bare, page = page, render(pl.concat([narrow, measured]), replace(inputs, geometry=words))
    for anchor, title in (
        ("confounds", "Confounds: pose, lighting, smiling, age"),
        ("text-space", "Positive and negative words in the text space"),
    ):
        assert f'<h2 id="{anchor}">{title}</h2>' in page
    chapter = page.split('<h2 id="confounds">')[1].split("</section>")[0]
    assert "Read the intervals with care: interval from only 4 sets." in chapter
    assert f"Shown first: {MODELS[0]}. The other models are folded below." in chapter
    assert chapter.count("<figure>") == 2 * 3
    assert "table B.1) are not set beside these" in chapter
    assert 'id="confounds"' not in bare and 'id="text-space"' not in bare


def test_models_without_a_text_space_are_named(narrow, inputs, words, sketched):
    only = words.filter(model=MODELS[0])
    page = render(narrow, replace(inputs, geometry=only))
    assert f"No text space of its own, or not measured: {MODELS[1]}." in page


def test_a_geometry_frame_without_columns_is_refused(inputs):
    with pytest.raises(MetricError, match="geometry of the report lacks columns"):
        replace(inputs, geometry=pl.DataFrame({"model": ["m"]}))
