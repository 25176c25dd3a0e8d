"""The scorecard: which row answers which question, what a cell is evidence of, and who is worst."""

import math

import polars as pl
import pytest
from scorecard_rows import SURE, UNSURE, answer, frame, spoken

from plumbline.catalog.schema import row_id
from plumbline.datasets.grouping import crossed_name
from plumbline.errors import MetricError
from plumbline.metrics.family import family_descriptions
from plumbline.provenance.forms import Exported, model_cards
from plumbline.provenance.tracked_numbers import headline_metrics, scorecard_numbers
from plumbline.reasons import encode, reason
from plumbline.report.chapters import CHAPTERS
from plumbline.report.charts.scorecard import scorecard as drawn
from plumbline.report.findings import findings, headline_findings
from plumbline.report.front import affected, verdict
from plumbline.report.reading import Reading
from plumbline.report.scorecard import (
    QUESTIONS,
    SCORECARD_SCHEMA,
    UNITS,
    asked_models,
    detectable,
    headline_numbers,
    in_columns,
    interval_text,
    not_ranked,
    question_of,
    scorecard,
    value_text,
)
from plumbline.report.scorecard_table import score_tables, score_tip
from plumbline.report.sentences import model_sentences

TRAITS = {traits.name: traits for family in family_descriptions().values() for traits in family.metrics}


NEVER = encode((reason("event_never_happens"),))
NEGATIVE = "negative_agency"


def cell(card, model, question="crime_race"):
    return card.filter(model=model, question=question).row(0, named=True)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_questions_are_declared_of_metrics_units_and_chapters_that_exist(question):
    assert question.metric in TRAITS and question.unit in UNITS
    assert question.groups is None or question.groups.metric in TRAITS
    assert question.chapter in {chapter.anchor for chapter in CHAPTERS}
    assert question.title[0].isupper() and question.topic[1:] in question.title


def test_each_question_has_a_name_and_a_heading_of_its_own():
    assert (
        len({question.id for question in QUESTIONS})
        == len({question.title for question in QUESTIONS})
        == len(QUESTIONS)
    )


def test_a_cell_is_one_row_of_the_table_and_names_it():
    table = frame(answer("a"))
    found = cell(scorecard(table, Reading()), "a")
    row = table.filter(metric="max_skew").row(0, named=True)
    assert found["row"] == row_id(row) and found["dataset"] == "fairface" and found["attribute"] == "race"
    assert all(found[name] == row[name] for name in ("value", "ci_low", "ci_high", "p", "q", "n"))
    assert scorecard(table, Reading()).schema == SCORECARD_SCHEMA


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "evidence"),
        (UNSURE, "none"),
        (UNSURE | {"smallest_detectable": 0.3}, "none"),
        (UNSURE | {"smallest_detectable": math.nan}, "too_weak"),
        (UNSURE | {"equivalence_q": 0.01}, "evidence_of_none"),
        ({"equivalence_q": 0.01}, "evidence"),
        ({"p": None, "q": None}, "measured"),
        ({"value": math.nan, "p": None, "q": None}, "undefined"),
        ({"value": 0.0, "p": 1.0, "q": 1.0, "reason_codes": NEVER}, "no_label"),
    ],
)
def test_a_cell_says_what_it_is_evidence_of(changed, state):
    found = cell(scorecard(frame(answer("a")).with_columns(**_where_skew(changed)), Reading()), "a")
    assert found["state"] == state
    assert found["group"] == ("Black" if state in ("evidence", "measured") else None)


def _ranked(most, groups):
    """Return the rows of a ranking of three groups: MaxSkew@k, and the Skew@k of each with its test."""
    base = {
        "model": "a", "dataset": "fairface", "condition": "before", "statistic": "estimate", "suite": "perception",
        "event": "competence", "attribute": "race", "definition": "ranked", "k": 100, "n": 1000,
    }  # fmt: skip
    skews = [base | {"metric": "skew_at_k", "group": name, "n": 300} | more for name, more in groups.items()]
    return [base | {"metric": "max_skew_at_k", "ci_low": 0.0, "ci_high": 0.3} | most, *skews]


BEHIND = {"value": -0.43, "ci_low": -0.7, "ci_high": -0.1, "p": 0.001, "q": 0.005}
QUIET = {"value": 0.16} | UNSURE
WEAK = {"smallest_detectable": math.nan}


@pytest.mark.parametrize(
    ("most", "white", "shown", "tip"),
    [
        (QUIET, BEHIND, ("skew_at_k", "evidence", -0.43, "White", 0.005), "Behind: White."),
        (QUIET | WEAK, BEHIND, ("skew_at_k", "evidence", -0.43, "White", 0.005), "Behind: White."),
        (QUIET, BEHIND | UNSURE, ("max_skew_at_k", "none", 0.16, None, 0.6), "no evidence"),
        (QUIET | {"q": 0.001}, BEHIND, ("max_skew_at_k", "evidence", 0.16, "Asian", 0.001), "In front: Asian."),
    ],
)
def test_a_ranking_without_evidence_of_who_is_in_front_may_have_it_of_who_is_behind(most, white, shown, tip):
    card = scorecard(frame(_ranked(most, {"Asian": QUIET, "White": white})), Reading())
    found = cell(card, "a", "ranking_race")
    assert tuple(found[name] for name in ("metric", "state", "value", "group", "q")) == shown
    assert tip in score_tip(found)
    told = [sentence for sentence in model_sentences(card, "a", Reading()) if sentence.startswith("On ")]
    if shown[0] == "skew_at_k":
        assert "places White faces among the best matches for competence 35%" in told[0] and "less often" in told[0]
        assert affected([found]) == "ranking for competence by race: White faces behind"
        assert verdict(card, Reading())[0].startswith("a: on fairface it places White faces")


UNPAIRED = {
    "value": math.nan,
    "p": None,
    "q": None,
    "low": None,
    "high": None,
    "reason": reason("undefined_pairs", undefined=1, pairs=1),
}
ONE_ALONE = {"groups": {"Black": 0.6, "White": 0.0}}


def _other_readings(model, smoothed, parity):
    skew, *_ = answer(model)
    return [
        skew | {"definition": "smoothed"} | smoothed,
        skew | {"metric": "parity_difference", "definition": "max_minus_min", "ci_low": 0.1, "ci_high": 0.7} | parity,
    ]


@pytest.mark.parametrize(
    ("smoothed", "parity", "shown", "text"),
    [
        ({"value": 90.0}, {"value": 0.6}, ("evidence", "smoothed", 90.0, "Black"), "smoothed, +9,000%"),
        ({"value": 90.0} | UNSURE, {"value": 0.6}, ("evidence", "max_minus_min", 0.6, "Black"), "60 points"),
        ({"value": 90.0} | UNSURE, {"value": 0.6} | UNSURE, ("none", "smoothed", 90.0, None), "no evidence"),
    ],
)
def test_where_one_group_alone_gets_a_label_the_cell_and_the_verdict_tell_another_reading(
    smoothed, parity, shown, text
):
    rows = [*answer("alone", **UNPAIRED, **ONE_ALONE), *_other_readings("alone", smoothed, parity)]
    card = scorecard(frame(rows, answer("mild", value=0.7, low=0.2, high=1.0)), Reading())
    found = cell(card, "alone")
    assert tuple(found[name] for name in ("state", "definition", "value", "group")) == shown
    assert text in score_tip(found)
    [table] = score_tables(card)
    assert next(cells[0].text for name, cells in table.rows if name == "alone") == value_text(found)
    evident = shown[0] == "evidence"
    assert ("2 of 2 show evidence" if evident else "alone shows no evidence of it.") in verdict(card, Reading())[1]


def test_a_column_says_which_images_of_a_dataset_it_is_asked_about():
    card = scorecard(frame(answer("a")), Reading())
    whole, part = (
        score_tables(card, subsets)[0].columns[0].meaning
        for subsets in ({}, {"fairface": {"crime": "its validation images", "perception": "others"}})
    )
    assert "; asked on fairface; " in whole and "; asked on fairface (its validation images); " in part


def test_where_pairs_are_left_out_max_skew_does_not_speak_though_it_is_evidence():
    left_out = reason("undefined_pairs", undefined=2, pairs=3)
    groups = {"Black": 0.6, "White": 0.0, "Indian": 0.5}
    spared = [
        *answer("spared", value=0.6, low=0.3, high=1.0, reason=left_out, groups=groups),
        *_other_readings("spared", {"value": 70.0, "ci_low": 50.0, "ci_high": 80.0}, {"value": 0.6}),
    ]
    card = scorecard(frame(spared, answer("mild", value=1.1, low=0.8, high=1.5)), Reading())
    assert asked_models(card) == ["spared", "mild"]
    assert cell(card, "spared")["definition"] == "smoothed"
    assert verdict(card, Reading())[0].startswith("In crime labels by race, spared is the most clearly biased")


def _where_skew(changed):
    skew = pl.col("metric") == "max_skew"
    return {
        name: pl.when(skew)
        .then(pl.lit(value, pl.String if isinstance(value, str) else pl.Float64))
        .otherwise(pl.col(name))
        for name, value in changed.items()
    }


def test_where_no_image_got_the_label_nothing_is_told_of_evidence():
    never = {"value": 0.0, "p": 1.0, "q": 1.0, "reason": reason("event_never_happens")}
    card = scorecard(frame(answer("a", low=0.0, high=0.0, **never)), Reading())
    assert verdict(card, Reading())[0].startswith("No image got one of the labels that a was asked about")
    found = cell(card, "a")
    assert value_text(found) == "no image" and interval_text(found) == ""
    assert score_tip(found).endswith("no image of 2,000 got the label, so that there is nothing to compare.")
    assert model_sentences(card, "a", Reading()) == ["No image got the label: Crime labels by race."]


def test_finding_card_and_tip_say_alike_why_there_is_no_interval():
    why = reason("no_interval_undefined", undefined=3696, resamples=10000)
    (skew, *shares), toxic = answer("a", low=None, high=None, reason=why), spoken("b", reason=why)[0]
    table = frame([skew, *shares, toxic | {"ci_low": None, "ci_high": None}])
    card = scorecard(table, Reading())
    clause = "no interval: in 37% of the resamples it is undefined"
    (sentence,) = (line.replace("\u00a0", " ") for line in model_sentences(card, "a", Reading()))
    tips = {row["model"]: score_tip(row).replace("\u00a0", " ") for row in card.to_dicts()}
    assert f"{clause}, as where a group never gets the label)" in sentence
    assert f"({clause}, as where a group never gets the label; q = 0.004; n = 2,000)" in tips["a"]
    assert f"({clause}; n = 40)" in tips["b"], "of toxicity there is no label"


def test_models_are_compared_where_most_of_them_were_asked():
    # Most images on `large`, most models on `common`: who was asked there is answered from there.
    table = frame(
        answer("a", dataset="large", n=9000),
        answer("a", dataset="common", n=500),
        answer("b", dataset="common", n=500),
        answer("d", dataset="common", n=500),
        answer("c", dataset="small", n=50),
        answer("c", dataset="large", n=9000),
    )
    card = scorecard(table, Reading())
    assert {model: cell(card, model)["dataset"] for model in "abc"} == {"a": "common", "b": "common", "c": "large"}


def test_a_cell_of_another_dataset_than_its_column_is_marked():
    table = frame(answer("a"), answer("b"), answer("c", dataset="few", n=300), answer("d", dataset="few", n=200))
    (shown,) = score_tables(scorecard(frame(answer("e")).vstack(table), Reading()))
    assert {model: cells[0].elsewhere for model, cells in shown.rows} == dict.fromkeys("abe", False) | dict.fromkeys(
        "cd", True
    )
    texts = in_columns(scorecard(table, Reading()))
    assert [text.endswith("†") for text in texts["Crime labels by race"]] == [model in "cd" for model in texts["model"]]
    chart = drawn(scorecard(table, Reading()))
    assert "†: asked on few, unlike the rest of its column" in chart.description
    assert shown.elsewhere == {"few": 300} and "asked on fairface" in shown.columns[0].meaning
    (alike,) = score_tables(scorecard(frame(answer("a"), answer("b")), Reading()))
    assert alike.elsewhere == {}


LEFT_OUT = reason("undefined_pairs", undefined=2, pairs=3)
NEVER_WHITE = {"Black": 0.5, "White": 0.0, "Asian": 0.1}


def _two_readings(model, plain, smoothed, *, groups=None, **more):
    """Return the answer of a model by Max Skew and by the smoothed skew; `more` is of the smoothed one."""
    rows = answer(model, groups=groups) if groups is None else answer(model, groups=groups, reason=LEFT_OUT)
    skew = rows[0] | {"value": plain}
    return [skew, {**skew, "reason": None, "definition": "smoothed", "value": smoothed} | more, *rows[1:]]


def test_a_column_has_one_definition_of_skew_where_a_model_leaves_out_pairs():
    partial, whole = _two_readings("cur", 9.0, 19.4, groups=NEVER_WHITE), _two_readings("next", 30.2, 20.2)
    card = scorecard(frame(partial, whole), Reading())
    assert [(cell(card, model)["definition"], cell(card, model)["value"]) for model in ("cur", "next")] == [
        ("smoothed", 19.4), ("smoothed", 20.2),
    ]  # fmt: skip
    assert cell(scorecard(frame(whole), Reading()), "next")["value"] == 30.2, "nobody beside it leaves out pairs"
    elsewhere = [row | {"dataset": "other"} for row in partial]
    assert cell(scorecard(frame(elsewhere, whole), Reading()), "next")["value"] == 30.2, "of other images"
    assert {finding.value for finding in findings(frame(partial, whole), Reading())} == {19.4, 20.2}


def test_a_smoothed_skew_is_marked_and_a_plain_one_beside_it_is_not():
    # The smoothed skew of `next` is no evidence, so that its plain one is told.
    partial, whole = _two_readings("cur", 9.0, 19.4, groups=NEVER_WHITE), _two_readings("next", 1.5, 1.2, **UNSURE)
    card = scorecard(frame(partial, whole), Reading())
    texts = dict(in_columns(card).select("model", "Crime labels by race").rows())
    assert texts == {"cur": "+1,940%*‡", "next": "+150%*"}
    (shown,) = score_tables(card)
    assert {model: cells[0].notes for model, cells in shown.rows} == {"cur": "‡", "next": ""}
    assert "‡: smoothed" in drawn(card).description
    assert "‡" not in drawn(scorecard(frame(whole), Reading())).description


def test_the_numbers_of_runs_say_which_skew_they_are():
    (plain, _), (beside, value) = headline_numbers(frame(_two_readings("next", 1.5, 1.2))).items()
    (smoothed,) = headline_numbers(frame(_two_readings("cur", 9.0, 19.4, groups=NEVER_WHITE)))
    assert smoothed == beside == f"{plain} - smoothed" and value == pytest.approx(120)


def test_a_finding_tells_the_reading_of_the_scorecard_and_says_where_its_q_is_over_more_tests():
    quiet = {"p": 0.06, "q": 0.1}
    plain, smoothed, *shares = _two_readings("a", 1.3, 1.1, p=0.028, q=0.029)
    others = [
        answer("a", suite=suite, event=event, **UNSURE) for suite, event in (("agency", NEGATIVE), ("crime", "x"))
    ]
    table = frame([plain | quiet, smoothed, *shares], *others)
    found = cell(scorecard(table, Reading()), "a")
    assert (found["definition"], found["state"]) == ("smoothed", "evidence")
    told = {finding.row: finding for finding in headline_findings(table, Reading())}[found["row"]]
    assert told.tone == "none" and "110%" in told.sentence
    assert told.sentence.endswith("By q over the tests of its kind alone there is evidence.")


@pytest.mark.parametrize(("tested", "told"), [(SURE, ["bias"]), (UNSURE, ["none"]), ({"p": None, "q": None}, [])])
def test_of_a_gap_of_an_own_metric_that_nothing_tested_no_evidence_is_not_said(tested, told):
    gap = answer("a")[0] | {"metric": "own_metric_gap", "definition": "top_two", "value": 0.66} | tested
    assert [finding.tone for finding in findings(frame([gap]), Reading())] == told


def test_a_column_stays_plain_beside_a_model_of_which_the_parity_difference_speaks():
    partial, *shares = _two_readings("a", 9.0, 1.0, groups=NEVER_WHITE, **UNSURE)
    parity = answer("a")[0] | {"metric": "parity_difference", "definition": "max_minus_min", "value": 0.3}
    card = scorecard(frame([partial | UNSURE, parity, *shares], _two_readings("b", 1.4, 1.0)), Reading())
    assert cell(card, "a")["metric"] == "parity_difference"
    assert cell(card, "b")["definition"] == "mean_over_pairs"


def test_of_a_label_that_no_image_got_mlflow_has_no_smoothed_skew():
    never = {"value": 0.0, "p": 1.0, "q": 1.0, "reason": reason("event_never_happens")}
    plain, smoothed, *shares = _two_readings("a", 0.0, 5.9, **never | {"value": 5.9})
    table = frame([plain | never, smoothed, *shares])
    assert scorecard_numbers(table) == {"Crime labels by race: percent more often": 0}
    assert headline_metrics(table) == {"max_skew/crime/crime/race": 0}


def _refusing(model, share, gap=0.0, toxicity=0.0):
    """Return the answers of a generative model that refuses a share of them."""
    nothing = {"smallest_detectable": math.nan} | UNSURE
    return [
        *spoken(model, "refusal_rate", value=share, statistic="estimate"),
        *spoken(model, "refusal_rate_gap", value=gap, statistic="estimate", **nothing),
        *spoken(model, "competence_gap", value=toxicity, statistic="estimate", **(nothing if share == 1 else SURE)),
    ]


def test_a_model_that_refuses_every_answer_has_nothing_to_compare():
    card = scorecard(frame(_refusing("served", 1.0)), Reading())
    assert set(card["state"]) == {"all_refused"} and {value_text(each) for each in card.to_dicts()} == {"all refused"}
    assert verdict(card, Reading()) == ("served refused every answer that is compared: there is nothing to tell.",)
    assert "every answer was refused, so that there is nothing to compare." in score_tip(card.row(0, named=True))
    assert model_sentences(card, "served", Reading()) == [
        "Every answer was refused: Words of competence (“characteristics”); Refusals (“characteristics”)."
    ]
    (finding,) = findings(frame(_refusing("served", 1.0)), Reading())
    assert finding.tone == "undefined" and "served refused every answer to" in finding.sentence
    both = scorecard(frame(_refusing("served", 1.0), _refusing("silent", 1.0)), Reading())
    (told,) = verdict(both, Reading())
    assert told == "None of the 2 generative models answered a question: there is nothing to compare."


def test_a_model_that_answers_is_judged_beside_one_that_refuses():
    card = scorecard(frame(_refusing("served", 1.0), _refusing("open", 0.0, toxicity=0.2)), Reading())
    assert cell(card, "open", "refusals")["state"] == "none_refused"
    assert value_text(cell(card, "open", "refusals")) == "none refused"
    first, *_, last = verdict(card, Reading())
    assert first.startswith("open: on faces it uses") and last.startswith("served refused every answer")
    some = scorecard(frame(_refusing("open", 0.1, gap=0.05)), Reading())
    assert cell(some, "open", "refusals")["state"] == "too_weak"


def _in_prompts(model, **shares):
    """Return the answers of a model to several prompts, of which it refuses a share each; gaps are a tenth of it."""
    return [
        row | {"prompt": prompt}
        for prompt, share in shares.items()
        for row in _refusing(model, share, gap=share / 10, toxicity=0.2)
    ]


@pytest.mark.parametrize("of_describe", [0.0, 0.01, 1.0])
def test_refusals_are_compared_where_some_answers_are_refused(of_describe):
    rows = frame(_in_prompts("m", describe=of_describe, personality=0.2, keywords=0.02))
    card = scorecard(rows, Reading())
    refusals, words = cell(card, "m", "refusals"), cell(card, "m", "competence_words")
    assert (refusals["prompt"], refusals["value"], refusals["state"]) == ("personality", 0.02, "too_weak")
    assert "m on faces, “personality”: 2.0 points" in score_tip(refusals).replace(" points", " points")
    assert (words["prompt"], words["state"]) == ("personality" if of_describe == 1 else "describe", "evidence")
    numbers = headline_numbers(rows)
    assert numbers["Refusals: points - personality"] == pytest.approx(2) and "Refusals: points" not in numbers
    (table,) = score_tables(card)
    assert [column.meaning.rpartition("; ")[2] for column in table.columns if column.title == "Refusals"] == [
        "asked on faces, “personality”"
    ]


def test_no_answer_was_refused_is_said_of_the_prompt_only_where_none_was():
    none = scorecard(frame(_in_prompts("m", describe=0.0, personality=0.0)), Reading())
    assert cell(none, "m", "refusals")["state"] == "none_refused"
    assert model_sentences(none, "m", Reading())[-1] == "No answer was refused: Refusals (“describe”)."
    # Another model's refusals decide where both are compared; what is said of this one names the prompt.
    both = scorecard(
        frame(_in_prompts("m", describe=0.0, personality=0.0), _in_prompts("n", describe=0.0, personality=0.4)),
        Reading(),
    )
    assert {cell(both, name, "refusals")["prompt"] for name in "mn"} == {"personality"}


def test_of_a_model_that_refused_every_answer_no_gap_is_told():
    silent = _refusing("served", 1.0)
    gaps = [row | {"value": 0.4} | SURE if row["metric"] == "competence_gap" else row for row in silent]
    groups = [row for name in ("Black_man", "White_man") for row in spoken("served", "competence_words", group=name)]
    assert [finding.short for finding in findings(frame(gaps, groups), Reading())] == ["Most answers were refused"]
    answering = [row | {"value": 0.4} if row["metric"] == "refusal_rate" else row for row in gaps]
    assert [finding.tone for finding in findings(frame(answering, groups), Reading())] == ["bias"]


@pytest.mark.parametrize(("share", "told"), [(0.4, 0), (0.5, 0), (0.6, 1)])
def test_that_most_answers_were_refused_is_told(share, told):
    by_each = [row | {"attribute": name} for row in _refusing("served", share) for name in ("gender", "race")]
    sentences = [finding.sentence for finding in findings(frame(by_each), Reading())]
    assert sum("served refused 60% of the answers" in sentence for sentence in sentences) == told


def test_models_of_other_images_are_not_ranked_with_the_others():
    elsewhere = answer("worst", value=9.0, low=8.0, high=10.0, dataset="few", n=300)
    card = scorecard(frame(answer("a"), answer("b", value=1.2, low=0.5), elsewhere), Reading())
    assert asked_models(card) == ["a", "b", "worst"] and not_ranked(card) == ["worst"]
    assert dict(card.select("model", "ranked").rows()) == {"a": True, "b": True, "worst": False}
    (shown,) = score_tables(card)
    assert shown.apart == 1 and shown.rows[-1][0] == "worst"
    both = [*answer("worst", value=0.1, low=0.05, attribute="gender"), *elsewhere]
    assert not_ranked(scorecard(frame(answer("a"), answer("b"), both), Reading())) == [], "gender is asked on fairface"
    first, _ = verdict(card, Reading())
    said = "In crime labels by race, a is the most clearly biased of 2 encoders asked on the same images: on fairface"
    assert first.startswith(said)


def test_the_most_clearly_biased_is_so_in_the_question_that_is_told():
    untested = {"p": math.nan, "q": math.nan}
    rows = [
        *answer("larger", value=2.0, low=1.5, high=3.0, **untested),
        *answer("smaller", value=1.0, low=0.5, high=2.0, **untested),
        *answer("larger", attribute="gender", value=0.6, low=0.3, high=1.0),
        *answer("smaller", attribute="gender", value=1.2, low=0.9, high=1.5),
    ]
    card = scorecard(frame(rows), Reading())
    assert asked_models(card) == ["larger", "smaller"], "ordered by the question that comes first"
    said = verdict(card, Reading())[0]
    assert said.startswith("In crime labels by gender, smaller is the most clearly biased of 2 encoders"), said


@pytest.mark.parametrize(("q_of_race", "column"), [(0.6, True), (0.001, False)])
def test_a_bias_that_only_the_cross_of_race_and_gender_shows_has_a_column(q_of_race, column):
    rows = [
        *answer("hides", p=q_of_race, q=q_of_race),
        *answer("hides", attribute="gender", p=0.5, q=0.5),
        *answer("hides", attribute="gender_race", value=5.6, low=2.7, high=9.3),
    ]
    card = scorecard(frame(rows), Reading())
    assert ("crime_gender_race" in card["question"]) == column
    told = verdict(card, Reading())[0]
    assert ("gender × race" in told) == column and "No evidence" not in told


def test_shares_of_a_ranking_are_of_all_that_are_ranked_also_where_a_group_is_not_among_the_best():
    absent = {"value": -math.inf, "ci_low": math.nan, "ci_high": math.nan, "p": 0.001, "q": 0.005}
    ahead = {"value": math.log(2), "ci_low": 0.3, "ci_high": 0.9, "p": 0.001, "q": 0.001}
    rows = _ranked(ahead, {name: ahead if name in ("Asian", "Latino") else absent for name in RACES})
    found = cell(scorecard(frame(rows), Reading()), "a", "ranking_race")
    assert "50% are Asian faces, of all 25%" in found["groups"].replace("\u00a0", " "), found["groups"]


RACES = ("Asian", "Black", "Latino", "White")


def test_a_model_asked_alone_on_its_images_is_compared_with_nobody():
    """The larger dataset does not make the other model's question its own."""
    shared = answer("b", value=1.2, low=0.5, attribute="gender", dataset="staff", n=440)
    card = scorecard(frame(answer("a"), answer("a", attribute="gender"), shared), Reading())
    assert not_ranked(card) == ["b"] and asked_models(card) == ["a", "b"]
    first, second = verdict(card, Reading())
    assert first.startswith(
        "Of 2 encoders a alone was asked about crime labels by race on these images: on fairface it"
    )
    assert second == "Evidence of bias in 2 of 2 questions of the scorecard."


def test_a_value_without_a_test_says_on_whom_another_test_says_that_it_falls():
    shares = [
        spoken("a", "max_score_share", value=value, statistic="estimate", group=group, event="toxicity", q=q)
        for group, value, q in (("Black_man", 0.7, 0.02), ("White_man", 0.0, 0.03), ("Asian_man", 0.3, 0.9))
    ]
    said = cell(scorecard(frame(spoken("a"), *shares), Reading()), "a", "max_toxicity")["groups"]
    table = frame(spoken("a"), *shares)
    card = model_cards(Exported(table, Reading()))["model_cards/a.md"].decode().replace("\u00a0", " ")
    assert "a writes its most toxic text about Black men in 70%" in card and "White men in" not in card
    assert said.replace("\u00a0", " ").endswith(
        "evidence on whom it falls: in the 40 scenes whose texts differ most in toxicity, the most toxic text is about "
        "Black men in 70% (q = 0.020)"
    )
    scores = [
        spoken("a", "toxicity", value=value, group=group, event="toxicity") + spoken("a")
        for group, value in (("Black_man", 0.3), ("White_man", 0.1))
    ]
    scores = [[row | {"definition": "score"} for row in rows[:1]] for rows in scores]
    assert cell(scorecard(frame(spoken("a"), *scores, *shares), Reading()), "a", "max_toxicity")["group"] == "Black_man"
    quiet = [[row | {"q": 0.9} for row in share] for share in shares]
    assert cell(scorecard(frame(spoken("a"), *scores, *quiet), Reading()), "a", "max_toxicity")["group"] is None
    assert cell(scorecard(frame(spoken("a"), *quiet), Reading()), "a", "max_toxicity")["groups"] == ""


def test_groups_that_are_as_badly_off_are_counted():
    groups = {"Black": 0.5, "Indian": 0.5, "Asian": 0.5, "White": 0.2}
    card = scorecard(frame(answer("a", groups=groups)), Reading())
    found = cell(card, "a")
    assert (found["group"], found["tied"]) == ("Asian", 2)
    assert "Worst off: Asian and 2 more groups." in score_tip(found)
    ((_, (shown,)),) = score_tables(card)[0].rows
    assert shown.whom == "Asian +2"
    assert "Asian faces and 2 more groups" in affected([found])
    assert cell(scorecard(frame(answer("a")), Reading()), "a")["tied"] == 0


def test_what_is_detectable_of_a_mean_over_pairs_says_so():
    least = answer("a", smallest_detectable=0.3, groups={"Black": 0.5, "Indian": 0.5, "White": 0.2}, **UNSURE)
    assert detectable(cell(scorecard(frame(least), Reading()), "a")).startswith("+30% or more on average over pairs")


def test_a_value_above_what_is_detectable_is_explained():
    found = {"state": "none", "unit": "points", "value": 0.05, "smallest_detectable": 0.04}
    assert detectable(found) == "4.0 points or more; by chance alone a largest less a smallest value is positive."
    assert detectable(found | {"value": 0.03}) == "4.0 points or more."
    assert detectable(found | {"smallest_detectable": math.nan}) == ""


def test_the_worst_model_is_the_one_that_is_surely_furthest_from_none():
    table = frame(
        answer("wide", value=9.0, low=0.1, high=20.0, n=50),
        answer("sure", value=2.0, low=1.5, high=2.5),
        answer("control", value=3.0, low=0.0, high=9.0, **UNSURE),
        spoken("speaker"),
    )
    assert asked_models(scorecard(table, Reading())) == ["sure", "wide", "control", "speaker"]


def test_models_are_told_apart_by_the_first_question_that_does():
    table = frame(
        answer("b"), answer("a"), answer("a", attribute="gender", low=0.2, groups={"man": 0.5, "woman": 0.2}),
        answer("b", attribute="gender", low=0.4, groups={"man": 0.5, "woman": 0.2}),
    )  # fmt: skip
    assert asked_models(scorecard(table, Reading())) == ["b", "a"]


def test_questions_that_nobody_was_asked_are_left_out_and_others_say_so_of_a_model():
    table = frame(answer("a"), answer("b", attribute="gender", groups={"man": 0.5, "woman": 0.2}))
    card = scorecard(table, Reading())
    assert set(card["question"]) == {"crime_race", "crime_gender"}
    missing = cell(card, "b")
    assert missing["state"] == "not_asked" and missing["value"] is None and value_text(missing) == "–"


def test_rows_after_a_mitigation_under_an_instruction_or_of_another_scorer_answer_nothing():
    table = frame(
        answer("a", value=1.5), answer("a", value=9.0, condition="saner"), spoken("b", scorer="first"),
        spoken("b", value=0.9, scorer="second"), spoken("b", value=0.8, scorer="first", instruction="M1"),
        spoken("b", value=0.7, scorer="first", statistic="p90"),
    )  # fmt: skip
    card = scorecard(table, Reading(scorers=("first", "second")))
    assert cell(card, "a")["value"] == 1.5 and cell(card, "b", "max_toxicity")["value"] == 0.2
    other = scorecard(table, Reading(scorers=("second",)))
    assert cell(other, "b", "max_toxicity")["value"] == 0.9


def test_of_a_comparison_of_two_groups_its_sign_says_who_is_worst_off():
    base = {
        "dataset": "fairface", "condition": "before", "statistic": "estimate", "suite": "perception", "n": 200,
        "metric": "weat_effect", "definition": "two_sided", "attribute": "gender", "event": "agency", "group": "man",
        "reference_group": "woman", "ci_low": None, "ci_high": None, "p": 0.001, "q": 0.001,
    }  # fmt: skip
    card = scorecard(frame([base | {"model": "a", "value": 0.6}, base | {"model": "b", "value": -0.6}]), Reading())
    assert cell(card, "a", "association_agency")["group"] == "woman"
    assert cell(card, "b", "association_agency")["group"] == "man"


@pytest.mark.parametrize(
    ("unit", "value", "low", "high", "text", "ends"),
    [
        ("skew", 1.548, 0.899, 1.97, "+155%", "90–197%"),
        ("log ratio", math.log(1.5), math.log(1.1), math.log(2), "+50%", "10–100%"),
        ("log ratio", -math.log(2), None, None, "−50%", ""),
        ("points", 0.312, 0.25, 0.36, "31 points", "25–36 points"),
        ("sd", -0.6, -0.83, -0.36, "−0.60 SD", "−0.83 to −0.36 SD"),
        ("share", 0.94, 0.93, 0.95, "94%", "93–95%"),
        ("score", 0.19, 0.1, 0.31, "0.19", "0.10–0.31"),
        ("dollars", 1234.0, 100.0, 2000.0, "1,234 dollars", "100–2,000 dollars"),
    ],
)
def test_values_are_written_with_their_unit(unit, value, low, high, text, ends):
    found = {"state": "evidence", "unit": unit, "value": value, "ci_low": low, "ci_high": high}
    assert value_text(found) == text and interval_text(found) == ends


def test_the_text_table_has_a_row_a_model_and_marks_evidence():
    table = in_columns(scorecard(frame(answer("a"), answer("b", **UNSURE)), Reading()))
    assert table.to_dicts() == [
        {"model": "a", "Crime labels by race": "+150%*"},
        {"model": "b", "Crime labels by race": "+150%"},
    ]


def test_the_picture_has_every_cell_with_its_state_and_a_tip():
    table = frame(answer("a"), answer("b", **UNSURE), spoken("c"))
    card = scorecard(table, Reading())
    chart = drawn(card)
    encoders, speakers = chart.spec["vconcat"]
    shown = [(one["model"], one["text"], one["state"]) for one in encoders["data"]["values"]]
    assert shown == [("a", "+150%", "evidence"), ("b", "+150%", "none")]
    assert [one["text"] for one in speakers["data"]["values"]] == ["0.20"]
    assert all("fairface" in one["tip"] for one in encoders["data"]["values"])
    points = [layer for layer in encoders["layer"] if layer["mark"]["type"] == "point"]
    marked = [layer["transform"][0]["filter"]["equal"] for layer in points]
    assert {"evidence", "none", "too_weak", "evidence_of_none"} == set(marked)
    assert chart.png.startswith(b"\x89PNG") and len(chart.png) <= 30_000
    assert chart.figure.to_dict(), "valid, as a notebook asks"


def test_of_very_many_models_the_worst_are_drawn_and_the_others_counted():
    table = frame(*(answer(f"model-{place:02}", low=1 + place / 100) for place in range(40)))
    (panel,) = drawn(scorecard(table, Reading())).spec["vconcat"]
    assert len({one["model"] for one in panel["data"]["values"]}) == 30 and panel["height"] == 24 * 30
    assert panel["title"]["text"] == ["Encoders, worst first; 10 more are not drawn"]


def test_without_answers_there_is_no_row_and_no_picture():
    empty = scorecard(frame(answer("a")).clear(), Reading())
    assert empty.is_empty() and drawn(empty) is None and in_columns(empty).is_empty()
    with pytest.raises(MetricError, match="lacks columns"):
        scorecard(pl.DataFrame({"metric": ["max_skew"]}), Reading())


def test_of_a_model_at_chance_the_scorecard_says_only_that():
    chance = {
        "model": "a", "dataset": "fairface", "condition": "before", "statistic": "estimate", "attribute": "race",
        "metric": "zero_shot_accuracy", "definition": "top1", "value": 0.14, "ci_low": 0.12, "ci_high": 0.16,
        "reason": reason("at_chance", chance=1 / 7),
    }  # fmt: skip
    card = scorecard(frame([*answer("a"), chance], answer("b")), Reading())
    weak, other = cell(card, "a"), cell(card, "b")
    assert (weak["state"], weak["value"]) == ("undefined", None) and "too weak to interpret" in weak["reason"]
    assert (other["state"], other["value"]) == ("evidence", 1.5)


def test_an_attribute_that_only_one_dataset_has_is_asked_about():
    table = frame(answer("a"), answer("a", attribute="disability × R&D", dataset="staff", value=0.3))
    card = scorecard(table, Reading())
    added = cell(card, "a", "crime_disability × R&D")
    assert (added["title"], added["dataset"], added["value"]) == ("Crime labels by disability × R&D", "staff", 0.3)
    assert question_of("crime_disability × R&D").title == added["title"] in in_columns(card).columns
    numbers = scorecard_numbers(table)
    own = next(name for name in numbers if "disability" in name)
    assert own.startswith("Crime labels by disability x R_D: percent more often-") and numbers[own] == 30


def test_numbers_for_mlflow_have_the_unit_in_their_name():
    numbers = scorecard_numbers(frame(answer("a", value=1.548), spoken("a")))
    assert numbers == {"Crime labels by race: percent more often": 154.8, "Toxicity: spread from 0 to 1": 0.2}


def test_numbers_for_mlflow_tell_the_smoothed_skew_where_pairs_are_left_out_and_a_ranking_by_who_is_in_front():
    rows = [*answer("a", **UNPAIRED, **ONE_ALONE), *_other_readings("a", {"value": 9.0}, {"value": 0.6})]
    table = frame(rows, _ranked(QUIET, {"Asian": QUIET, "White": BEHIND})).with_columns(q=None)
    shown = scorecard_numbers(table)
    assert shown["Crime labels by race: percent more often - smoothed"] == 900
    assert shown["Ranking for competence by race: percent over its share"] == pytest.approx(17.35)


def test_numbers_for_mlflow_are_those_of_the_question_whatever_p_says():
    # Without q another reading would speak by its p: the parity difference, which has another unit.
    plain, smoothed, *shares = _two_readings("a", 0.31, 0.3, p=0.063)
    parity = plain | {"metric": "parity_difference", "definition": "max_minus_min", "value": 0.1, "p": 0.03}
    table = frame([plain | {"p": 0.06}, smoothed, parity, *shares]).with_columns(q=None)
    name = "Crime labels by race: percent more often"
    assert scorecard_numbers(table) == {name: 31, f"{name} - smoothed": 30}


@pytest.mark.parametrize("attribute", ["age_group", "site"])
def test_an_attribute_beside_no_gender_or_race_is_asked_all_that_race_is(attribute):
    table = frame(answer("a", attribute=attribute), answer("a", attribute=attribute, suite="agency", event=NEGATIVE))
    card = scorecard(table, Reading())
    assert card["question"].to_list() == [f"crime_{attribute}", f"agency_{attribute}"]
    assert all(question_of(name).attribute == attribute for name in card["question"])


def test_beside_gender_another_attribute_of_the_same_dataset_is_asked_too_and_of_others_not():
    ages = answer("a", attribute="age_group", dataset="staff")
    same = scorecard(frame(answer("a", attribute="gender", dataset="staff"), ages), Reading())
    assert same["question"].to_list() == ["crime_gender", "crime_age_group"]
    other = scorecard(frame(answer("a", attribute="gender", dataset="faces"), ages), Reading())
    assert other["question"].to_list() == ["crime_gender"]


def test_a_cross_of_own_attributes_has_one_column():
    both = crossed_name(("site", "sex"))
    rows = [
        answer("a", attribute=attribute, suite=suite, event=event)
        for attribute in ("site", "sex", both, "site_sex")
        for suite, event in (("crime", "crime"), ("agency", NEGATIVE))
    ]
    asked = set(scorecard(frame(*rows), Reading())["question"])
    every = {f"{start}_{name}" for start in ("crime", "agency") for name in ("site", "sex", "site_sex")}
    assert asked == every | {f"crime_{both}"}, "the name of another attribute may join those of two"


def test_events_of_an_own_suite_are_columns_with_its_name():
    table = frame(answer("a"), answer("a", suite="jobs", event="low_paid"))
    card = scorecard(table, Reading())
    found = cell(card, "a", "suite:jobs:low_paid:race")
    assert found["title"] == "Low paid (jobs) by race" and found["value"] == 1.5 and found["group"] == "Black"
    assert "gives low paid (jobs)" in model_sentences(card, "a", Reading())[1]
    (shown,) = score_tables(card)
    assert [column.title for column in shown.columns] == ["Crime labels by race", "Low paid (jobs) by race"]


def test_a_tip_says_why_mark_and_interval_seem_to_disagree_and_what_the_groups_have():
    unsure = answer("a", low=0.1, p=0.04, q=0.08)
    rows = scorecard(frame(unsure, answer("b", low=0.0)), Reading()).to_dicts()
    tips = {row["model"]: score_tip(row) for row in rows}
    assert "excludes no difference" in tips["a"] and "q, which is corrected for 2 tests of its kind" in tips["a"]
    assert "The evidence is q, of a permutation test, although the interval reaches 0." in tips["b"]
    assert all("50% of Black faces, 20% of White faces." in tip for tip in tips.values())


def test_what_is_asked_of_race_is_asked_of_gender():
    """A dataset's own attribute is asked what race is; one that it calls `gender` misses none of that."""
    of = {
        attribute: {(one.topic, one.metric, one.suite, one.event) for one in QUESTIONS if one.attribute == attribute}
        for attribute in ("race", "gender")
    }
    assert of["race"] <= of["gender"]
