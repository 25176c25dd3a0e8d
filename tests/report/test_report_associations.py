"""The chapter on associations: its marks, its lists, its sentences."""

import math
import re
from dataclasses import replace

import polars as pl
import pytest

from plumbline.catalog.schema import metric_frame
from plumbline.catalog.suites import load_suite
from plumbline.report import Reading, render
from plumbline.report.chapters import CHAPTERS
from plumbline.report.chapters.associations import (
    CHAPTER,
    association_findings,
    correlation_listing,
    gap_listing,
    markedness_listing,
    scale_listing,
    weat_listing,
    word_listing,
)
from plumbline.report.figures.associations import (
    SCALES,
    association_figure,
    correlation_figure,
    markedness_figure,
    scale_title,
    small_association_figure,
    strongest_first,
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
def associations():
    return metric_frame([*rows_of(MODELS[0]), *rows_of(MODELS[1], lean=0.1, q=0.7)])


def tips(picture):
    return re.findall(r"<title>([^<]*)</title>", picture.svg)


def test_the_chapter_is_in_the_report_and_left_out_without_rows(associations, inputs, narrow, page, sketched):
    assert CHAPTER in CHAPTERS
    made = render(pl.concat([narrow, associations]), inputs)
    assert 'id="associations"' in made and "Who has to be named, fairface" in made
    assert "r = −0.20 to 0.90" in made
    assert 'id="associations"' not in page
    assert CHAPTER.parts(narrow, inputs) == []


def test_the_words_of_the_suite_are_those_of_the_figure():
    assert tuple(load_suite("perception").scales) == SCALES
    assert scale_title("warmth") == "warmth"
    assert scale_title("agency_negative") == "agency, negative words"


def test_dots_tell_scale_group_interval_and_evidence(associations):
    picture = association_figure(associations, READING, model=MODELS[0], dataset=DATASET)
    shown = [tip.replace("\u00a0", " ") for tip in tips(picture)]
    assert len(shown) == 4 * len(SCALES)
    told = [tip for tip in shown if "Black, communion, negative words: 0.50" in tip]
    assert told == ["race, Black, communion, negative words: 0.50 [0.40–0.60], p = 0.005, q = 0.010, n = 900"]
    assert sum("gender, man − woman" in tip for tip in shown) == len(SCALES)
    other = association_figure(associations, READING, model=MODELS[1], dataset=DATASET)
    # One in the legend, and the one for which there is evidence.
    assert [drawn.svg.count("fill: #0072b2") for drawn in (picture, other)] == [2, 1]
    assert len(picture.png) < 30_000


def test_the_model_with_the_largest_effect_comes_first(associations, inputs):
    swapped = tuple(reversed(MODELS))
    assert strongest_first(associations, swapped, DATASET) == list(MODELS)
    small = small_association_figure(associations, READING, swapped, DATASET)
    assert small.name == f"associations-{MODELS[0]}-{DATASET}"
    (part,) = CHAPTER.parts(associations, inputs)
    assert [p.name for p in part.pictures] == [small.name, f"markedness-{DATASET}", f"valences-{DATASET}"]
    assert [p.name for p in part.details] == [f"associations-{MODELS[1]}-{DATASET}"]
    assert len(part.listings) == 6 and len(part.notes) == 2


def test_bars_and_heat_maps_tell_their_numbers(associations):
    bars = markedness_figure(associations, READING, MODELS, DATASET)
    assert "White: 90% (n = 300) [85–95%]" in [tip.replace("\u00a0", " ") for tip in tips(bars)]
    assert len(tips(bars)) == 8
    heat = correlation_figure(associations, READING, MODELS, DATASET).svg
    assert heat.count(">0.90<") == 2 * 2 and heat.count(">(0.90)<") == 2, "small groups are bracketed"
    assert ">−0.20<" in heat and "all images" in heat
    assert ">Black<" not in heat, "single attributes only where there is no crossing"


def test_nothing_to_draw(table):
    assert association_figure(table, READING, model=MODELS[0], dataset=DATASET) is None
    for figure in (small_association_figure, markedness_figure, correlation_figure):
        assert figure(table, READING, MODELS, DATASET) is None


def test_undefined_and_empty_groups_are_drawn_and_listed(associations):
    nothing = {"value": math.nan, "ci_low": math.nan, "ci_high": math.nan, "p": math.nan, "q": math.nan}
    bare = associations.with_columns(
        *(pl.lit(value).alias(name) for name, value in nothing.items()), reason=pl.lit("the cosines do not vary")
    )
    assert "undefined" in association_figure(bare, READING, model=MODELS[0], dataset=DATASET).svg
    assert markedness_figure(bare, READING, MODELS, DATASET) is None
    assert ">0.90<" not in correlation_figure(bare, READING, MODELS, DATASET).svg
    assert association_findings(bare, READING) == []
    listing = scale_listing(bare, READING, MODELS, DATASET)
    assert "undefined" in listing.rows[0] and "the cosines do not vary" in listing.rows[0]


def test_listings_hold_every_comparison(associations):
    scales = scale_listing(associations, READING, MODELS, DATASET)
    assert [row[:3] for row in scales.rows[:2]] == [(MODELS[0], "gender", "man − woman"), (MODELS[0], "race", "Black")]
    assert len(scales.rows) == 8 and all(len(row) == len(scales.heads) for row in scales.rows)
    black = dict(zip(scales.heads, scales.rows[1]))
    assert black["communion, negative words"] == "0.50* [0.40–0.60]" and black["Smallest q"] == "0.010"
    assert black["warmth"] == "−0.020 [−0.120 to 0.080]"
    words = word_listing(associations, MODELS, DATASET, shown=2)
    assert words.rows[0][3:5] == ("meek 0.30; liberal 0.20", "warm 0; poor 0.10")
    weat = weat_listing(associations, READING, MODELS, DATASET)
    assert weat.rows[0][3] == "−0.30* [−0.40 to −0.20]" and len(weat.rows) == 8
    marked = markedness_listing(associations, MODELS, DATASET)
    assert len(marked.rows) == 8 and marked.rows[0][3] == "80% [75–85%]"
    gaps = gap_listing(associations, MODELS, DATASET)
    assert gaps.rows[0][:3] == (MODELS[0], "gender", "+60 points")
    correlations = correlation_listing(associations, MODELS, DATASET)
    assert len(correlations.rows) == 8 and correlations.rows[0][2:4] == ("all images", "0.90 [0.8–1.0]")
    for listing in (scales, words, weat, marked, gaps, correlations):
        assert all(len(row) == len(listing.heads) for row in listing.rows)


def test_findings_tell_the_strongest_association_and_the_gap(associations):
    found = {(f.topic, f.model): f for f in association_findings(associations, READING)}
    assert len(found) == 8
    strongest = found[("association", DATASET, "race"), MODELS[0]]
    assert strongest.tone == "bias" and strongest.value_text == "0.50 sd" and strongest.strength == 0.4
    assert (
        "Black faces lie 0.50 standard deviations closer to the words of communion (negative) than all others"
        in strongest.sentence
    )
    assert "strongest of 1 associations by race for which there is evidence, of 24 tested" in strongest.sentence
    nothing = found[("association", DATASET, "gender"), MODELS[0]]
    assert nothing.tone == "none" and nothing.strength == 0
    assert "further from" in nothing.sentence and "than faces of women" in nothing.sentence
    gap = found[("markedness", DATASET, "race"), MODELS[0]]
    assert gap.tone == "difference" and gap.value_text == "60 points"
    assert re.search(r"90% \(n.=.300\) of White faces and 30% \(n.=.300\) of Black faces", gap.sentence)
    assert found[("markedness", DATASET, "race"), MODELS[1]].tone == "none"


def test_an_effect_and_its_interval_stand_on_the_side_that_is_named():
    rows = [row for row in rows_of(MODELS[0], lean=-0.5) if row["metric"] == "sc_weat_effect"]
    (found,) = (f for f in association_findings(metric_frame(rows), READING) if f.topic[2] == "race")
    assert "0.50 standard deviations further from" in found.sentence
    assert (found.value, found.value_text, found.interval_text) == (0.5, "0.50 sd", "0.40–0.60")
    assert found.interval_text in found.sentence and "−0.6" not in found.sentence


def test_closer_to_warm_words_is_a_difference_not_yet_a_bias(associations):
    warm = associations.with_columns(
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


def test_evidence_goes_by_the_test_that_respects_sets(associations):
    of_sets = associations.filter(definition="two_sided").with_columns(
        definition=pl.lit("cluster_t"), q=pl.lit(0.7), p=pl.lit(0.6)
    )
    both = pl.concat([associations, of_sets])
    tones = {f.tone for f in association_findings(both, READING) if f.topic[0] == "association"}
    assert tones == {"none"}
    listing = scale_listing(both, READING, MODELS, DATASET)
    assert len(listing.rows) == 8 and not any("*" in cell for row in listing.rows for cell in row)
    assert not any("*" in cell for row in weat_listing(both, READING, MODELS, DATASET).rows for cell in row)
