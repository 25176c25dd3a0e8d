"""The chapter on rankings: its marks, its lists, its sentences."""

import math
import re
from dataclasses import replace

import polars as pl
import pytest

from plumbline.catalog.schema import metric_frame
from plumbline.reasons import reason
from plumbline.report import Reading, render
from plumbline.report.chapters import CHAPTERS
from plumbline.report.chapters.rankings import CHAPTER, group_listing, ranking_findings, spread_listing, word_listing
from plumbline.report.figures.associations import SCALES
from plumbline.report.figures.rankings import (
    EQUAL,
    RANKED,
    most_skewed_first,
    skew_at_k_figure,
    small_ranking_figure,
    small_spread_figure,
    spread_figure,
)

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


def tips(picture):
    return [t.replace("\u00a0", " ") for t in re.findall(r"<title>([^<]*)</title>", picture.svg)]


def test_the_chapter_is_in_the_report_and_left_out_without_rows(rankings, inputs, narrow, page, sketched):
    assert CHAPTER in CHAPTERS
    made = render(pl.concat([narrow, rankings]), inputs)
    assert 'id="rankings"' in made and "Whole rankings, by scale, fairface" in made
    assert 'id="rankings"' not in page
    assert CHAPTER.parts(narrow, inputs) == []


def test_dots_tell_scale_group_interval_and_evidence(rankings):
    picture = skew_at_k_figure(rankings, READING, model=MODELS[0], dataset=DATASET)
    shown = tips(picture)
    assert len(shown) == len(GROUPS) * len(SCALES)
    assert [tip for tip in shown if "Black, communion, negative words: 0.69" in tip] == [
        f"{MODELS[0]}, race, Black, communion, negative words: 0.69 [0.59–0.79], p = 0.005, q = 0.010, n = 900"
    ]
    other = skew_at_k_figure(rankings, READING, model=MODELS[1], dataset=DATASET)
    # One in the legend, and the one for which there is evidence.
    assert [drawn.svg.count("fill: #0072b2") for drawn in (picture, other)] == [2, 1]
    assert "the 1,000 best" in picture.description and len(picture.png) < 30_000


def test_an_absent_group_is_an_arrow_at_the_edge(rankings):
    absent = (pl.col("group") == "Indian") & (pl.col("event") == "warmth")
    gone = rankings.with_columns(
        value=pl.when(absent).then(-math.inf).otherwise("value"),
        ci_low=pl.when(absent).then(math.nan).otherwise("ci_low"),
        ci_high=pl.when(absent).then(math.nan).otherwise("ci_high"),
    )
    before, after = (skew_at_k_figure(frame, READING, model=MODELS[0], dataset=DATASET) for frame in (rankings, gone))
    assert len(tips(after)) == len(tips(before)) - 1, "no dot where the value is not finite"
    arrows = [
        [line for axes in drawn.figure.axes for line in axes.lines if line.get_marker() == "<"]
        for drawn in (before, after)
    ]
    assert [len(found) for found in arrows] == [0, 1]
    listed = group_listing(gone, READING, MODELS, DATASET, EQUAL).rows[1]
    assert listed[2] == "Indian" and listed[3] == "−∞"


@pytest.mark.parametrize("metric", ["max_skew_at_k", "ndkl"])
@pytest.mark.parametrize("definition", [EQUAL, RANKED])
def test_spreads_show_what_chance_gives(rankings, metric, definition):
    picture = spread_figure(rankings, READING, MODELS, DATASET, metric, definition)
    assert len(tips(picture)) == 2 * len(MODELS) * len(SCALES)
    assert "what random rankings give" in picture.svg
    without = rankings.filter(statistic="estimate")
    bare = spread_figure(without, READING, MODELS, DATASET, metric, definition)
    # A stroke and a pale bar for every model, attribute and scale.
    assert picture.svg.count("#d9dce1") - bare.svg.count("#d9dce1") >= 2 * len(MODELS) * len(SCALES)
    assert len(picture.png) < 30_000


def test_the_model_with_the_largest_skew_comes_first(rankings, inputs):
    swapped = tuple(reversed(MODELS))
    assert most_skewed_first(rankings, swapped, DATASET) == list(MODELS)
    small = small_ranking_figure(rankings, READING, swapped, DATASET)
    assert small.name == f"rankings-ranked-{MODELS[0]}-{DATASET}"
    (part,) = CHAPTER.parts(rankings, inputs)
    assert [p.name for p in part.pictures] == [
        small.name, f"max-skew-at-k-ranked-{DATASET}", f"ndkl-ranked-{DATASET}",
    ]  # fmt: skip
    names = [p.name for p in (*part.pictures, *part.details)]
    assert len(names) == len(set(names)) == 7
    assert len(part.listings) == 5 and len(part.notes) == 1


def test_a_shorter_top_is_said(inputs):
    (part,) = CHAPTER.parts(metric_frame(rows_of(MODELS[0], k=350)), inputs)
    assert part.notes == ["With fewer than 2,000 labelled faces, k is half of them instead of 1,000: here 350."]


def test_nothing_to_draw(table):
    assert skew_at_k_figure(table, READING, model=MODELS[0], dataset=DATASET) is None
    for figure in (small_ranking_figure, small_spread_figure):
        assert figure(table, READING, MODELS, DATASET) is None


def test_listings_hold_every_group_scale_and_word(rankings):
    groups = group_listing(rankings, READING, MODELS, DATASET, RANKED)
    assert len(groups.rows) == 2 * len(GROUPS)
    black = dict(zip(groups.heads, groups.rows[0]))
    assert black["Group"] == "Black" and black["communion, negative words"] == "0.69* [0.59–0.79]"
    assert black["warmth"] == "−0.020 [−0.120 to 0.080]" and black["k"] == "1,000"
    spread = spread_listing(rankings, READING, MODELS, DATASET, RANKED)
    assert len(spread.rows) == 2 * 2 * len(SCALES)
    assert spread.rows[0][3:11] == (
        "0.69 [0.3–1.0]", "0.040", "0.005", "0.010", "0.020 [0.010–0.030]", "0.011", "0.005", "0.010",
    )  # fmt: skip
    words = word_listing(rankings, READING, MODELS, DATASET, shown=2)
    assert words.rows[0][3:] == ("liberal 0.20*; poor 0.10", "meek −∞; warm 0")
    for listing in (groups, spread, words):
        assert all(len(row) == len(listing.heads) for row in listing.rows)


def only(frame, attribute):
    (finding,) = [f for f in ranking_findings(frame, READING) if f.topic == ("ranking", DATASET, attribute)]
    return replace(finding, sentence=finding.sentence.replace("\u00a0", " "))


def test_the_strongest_skew_is_told_by_model_and_attribute(rankings):
    assert len(ranking_findings(rankings, READING)) == 4
    race = only(metric_frame(rows_of(MODELS[0])), "race")
    assert race.tone == "bias"
    assert race.sentence == (
        "small-bazaar-6k on fairface: among the 1,000 faces that best fit the words of communion (negative), Black "
        "faces are 2.0 times as frequent as among all (skew@k 0.69; 95% CI 0.59–0.79; p = 0.005, q = 0.010; n = 900). "
        "It is the strongest of 1 such skews by race for which there is evidence, of 24 tested."
    )
    assert (race.value_text, race.q_text) == ("0.69", "0.010") and race.strength == pytest.approx(LEAN - 0.1)
    assert only(metric_frame(rows_of(MODELS[0])), "gender").tone == "none"
    assert "This does not show" in only(metric_frame(rows_of(MODELS[1], q=0.7)), "race").sentence


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
    assert "there are no Black faces (skew@k −∞; no interval" in finding.sentence
    assert math.isfinite(finding.value) and math.isfinite(finding.strength)
    undefined = metric_frame(rows_of(MODELS[0])).with_columns(value=pl.lit(math.nan))
    assert ranking_findings(undefined, READING) == []


def test_a_finding_from_few_sets_says_so():
    few = (reason("few_clusters", clusters=4), reason("few_relabellings", least=0.125))
    (found,) = ranking_findings(metric_frame([row | {"reason": few} for row in rows_of(MODELS[0])]), READING)[:1]
    assert found.sentence.endswith(
        " Interval from only 4 sets. Too few sets to test: no difference, however large, gives a p below 0.12."
    )


def test_a_finding_about_a_small_group_says_so():
    small = {"reason": reason("small_group", n=12, min_group=30)}
    found = ranking_findings(metric_frame([row | small for row in rows_of(MODELS[0])]), READING)
    assert found and all("n = 900, small group)" in finding.sentence for finding in found)
