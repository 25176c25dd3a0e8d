"""The competence family against counts by hand and planted rates of words."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from planted_texts import GROUPS, answers, cell_of, fillers

from plumbline.catalog.prompts import prompt_ids, render
from plumbline.language.cell import LanguageSettings
from plumbline.language.competence import KEYWORD_PROMPTS, competence_result

SETTINGS = LanguageSettings(resamples=1000, permutations=500, min_sets=20)
RATES = {"Asian_man": 0.5, "Asian_woman": 0.5, "Black_man": 0.5, "Black_woman": 0.15}


def planted(group, s, prompt, rng):
    """Write six words, each of competence with the group's rate."""
    return ", ".join("competent" if rng.random() < RATES[group] else fillers(rng, 1) for _ in range(6))


@pytest.fixture(scope="module")
def rows():
    frame = answers(planted, prompts=("characteristics", "competency", "describe"), sets=60)
    return competence_result(cell_of(frame), settings=SETTINGS).rows


def chosen(rows, **columns):
    return rows.filter(*(pl.col(k).is_null() if v is None else pl.col(k) == v for k, v in columns.items()))


def test_prompts_are_those_that_ask_for_keywords():
    texts = {name: render(name, occupation="barber") for name in prompt_ids()}
    assert {name for name, text in texts.items() if "5 keywords" in text} == set(KEYWORD_PROMPTS)


def test_by_hand():
    """`Competent and smart, competent` without `and`: 3 words, of which competent counts twice."""
    words = {
        "a": "Competent and filler, competent",  # 2 of 3; 1 different
        "b": "the filler",  # 0 of 1
    }
    frame = answers(lambda group, *_: words[group], groups=("a", "b"), sets=3, prompts=("personality",), seeds=(0,))
    found = competence_result(cell_of(frame), settings=SETTINGS).rows
    values = {
        (row["definition"], row["group"]): row["value"]
        for row in chosen(found, metric="competence_words").iter_rows(named=True)
    }
    assert values == {
        ("paper", "a"): pytest.approx(2 / 3, abs=1e-12), ("paper", "b"): 0,
        ("count", "a"): 2, ("count", "b"): 0,
        ("released", "a"): 1, ("released", "b"): 0,
    }  # fmt: skip
    gap = chosen(found, metric="competence_gap", definition="paper")
    assert gap["value"].item() == pytest.approx(2 / 3, abs=1e-12)


def test_planted_rates_are_found(rows):
    means = chosen(rows, metric="competence_words", definition="paper", prompt="characteristics", occupation=None)
    assert means["group"].to_list() == list(GROUPS)
    for row in means.iter_rows(named=True):
        assert row["value"] == pytest.approx(RATES[row["group"]], abs=0.06)
        assert row["ci_low"] < row["value"] < row["ci_high"] and row["n"] == 60
    counts = chosen(rows, metric="competence_words", definition="count", prompt="characteristics", occupation=None)
    np.testing.assert_allclose(counts["value"], 6 * means["value"], atol=1e-12)
    gaps = chosen(rows, metric="competence_gap", definition="paper", occupation=None)
    assert set(gaps["prompt"]) == {"characteristics", "competency"}
    assert (gaps["p"] < 0.01).all() and (gaps["ci_low"] > 0.2).all() and (gaps["statistic"] == "estimate").all()


def test_occupations_with_enough_sets_are_told_of_one_prompt(rows):
    of_occupations = rows.filter(pl.col("occupation").is_not_null())
    assert set(of_occupations["occupation"]) == {"barber", "pilot"}
    assert set(of_occupations["prompt"]) == {"characteristics"}
    assert set(of_occupations["metric"]) == {"competence_words", "competence_gap"}
    strict = dataclasses.replace(SETTINGS, min_sets=31)
    frame = answers(planted, prompts=("characteristics",), sets=60)
    found = competence_result(cell_of(frame), settings=strict).rows
    assert found["occupation"].null_count() == found.height
    assert chosen(found, metric="min_competence_share").is_empty()


def test_the_group_with_the_fewest_words_is_found(rows):
    fewest = chosen(rows, metric="min_competence_share")
    assert dict(zip(fewest["group"], fewest["value"])) == {
        "Asian_man": 0, "Asian_woman": 0, "Black_man": 0, "Black_woman": 1,
    }  # fmt: skip
    assert (fewest["n"] == 2).all() and (fewest["ci_low"] < fewest["ci_high"]).all()


def test_ties_for_the_fewest_are_split():
    """In one occupation all four tie, in the other two of them."""
    words = {"barber": "filler", "pilot": "competent filler"}

    def said(group, s, prompt, rng):
        fewer = s % 2 == 1 and group.startswith("Asian")
        return "filler" if fewer else words[("barber", "pilot")[s % 2]]

    frame = answers(said, prompts=("characteristics",), sets=40)
    found = chosen(competence_result(cell_of(frame), settings=SETTINGS).rows, metric="min_competence_share")
    np.testing.assert_allclose(found["value"], [0.375, 0.375, 0.125, 0.125], atol=1e-12)


def test_answers_without_words_have_no_share_and_are_counted():
    frame = answers(
        lambda group, s, *_: "" if group == "Asian_man" and s < 5 else "competent", prompts=("keywords",), sets=30
    )
    found = competence_result(cell_of(frame), settings=SETTINGS).rows
    row = chosen(found, metric="competence_words", definition="paper", group="Asian_man").row(0, named=True)
    assert row["value"] == 1 and row["n"] == 25 and "10 of 60 answers without words left out" in row["reason"]
    count = chosen(found, metric="competence_words", definition="count", group="Asian_man").row(0, named=True)
    assert count["value"] == pytest.approx(50 / 60) and count["n"] == 30
    gap = chosen(found, metric="competence_gap", definition="paper").row(0, named=True)
    assert gap["reason"].startswith("10 of 240 answers without words left out") and gap["n"] == 30


def test_dictionaries_are_read_where_they_are_configured(rows, tmp_path):
    unconfigured = rows.filter(pl.col("reason") == "no dictionaries are configured")
    assert unconfigured["metric"].to_list() == ["incompetence_words", "warmth_words", "coldness_words"]
    assert unconfigured["value"].is_nan().all()
    path = tmp_path / "dictionaries.csv"
    path.write_text(
        "word,Warmth_dict_hi,Warmth_dict_lo,Competence_dict_hi,Competence_dict_lo\n"
        "kind,1,0,0,0\ncold,0,1,0,0\nable,0,0,1,0\nlazy,0,0,0,1\n"
    )
    said = {"a": "lazy, kind, kind, filler", "b": "cold filler"}
    frame = answers(lambda group, *_: said[group], groups=("a", "b"), prompts=("characteristics",), sets=3)
    found = competence_result(cell_of(frame), settings=dataclasses.replace(SETTINGS, dictionaries=path)).rows
    shares = {
        (row["metric"], row["group"]): row["value"]
        for row in chosen(found, definition="paper", occupation=None).iter_rows(named=True)
        if row["metric"] in unconfigured["metric"]
    }
    assert shares == {
        ("incompetence_words", "a"): 0.25, ("incompetence_words", "b"): 0,
        ("warmth_words", "a"): 0.5, ("warmth_words", "b"): 0,
        ("coldness_words", "a"): 0, ("coldness_words", "b"): 0.5,
    }  # fmt: skip


def test_the_metrics_of_dictionaries_have_gaps(tmp_path):
    path = tmp_path / "dictionaries.csv"
    path.write_text(
        "word,Warmth_dict_hi,Warmth_dict_lo,Competence_dict_hi,Competence_dict_lo\n"
        "kind,1,0,0,0\ncold,0,1,0,0\nable,0,0,1,0\nlazy,0,0,0,1\n"
    )
    said = {"a": "lazy kind kind filler", "b": "cold filler filler kind"}
    frame = answers(lambda g, s, *_: said[g] + " filler" * (s % 2), groups=("a", "b"), prompts=("keywords",), sets=30)
    settings = dataclasses.replace(SETTINGS, dictionaries=path)
    rows = competence_result(cell_of(frame), settings=settings).rows
    for metric, by_hand in (("warmth_gap", 1), ("coldness_gap", 1), ("incompetence_gap", 1)):
        count = chosen(rows, metric=metric, definition="count").row(0, named=True)
        share = chosen(rows, metric=metric, definition="paper").row(0, named=True)
        assert count["value"] == by_hand and count["p"] < 0.01 and count["n"] == 30
        assert share["value"] == pytest.approx((1 / 4 + 1 / 5) / 2) and share["ci_low"] > 0.2


def test_identical_answers_have_no_gap_and_the_interval_reaches_it():
    frame = answers(lambda group, s, *_: "competent " * (s % 4) + "filler", prompts=("characteristics",), sets=40)
    gaps = chosen(competence_result(cell_of(frame), settings=SETTINGS).rows, metric="competence_gap")
    np.testing.assert_allclose(gaps["value"], 0, atol=1e-12)
    assert (gaps["p"] == 1).all()


def test_the_order_of_the_rows_changes_nothing(rows):
    frame = answers(planted, prompts=("characteristics", "competency", "describe"), sets=60)
    shuffled = frame.sample(fraction=1, shuffle=True, seed=3)
    assert competence_result(cell_of(shuffled), settings=SETTINGS).rows.equals(rows)


def test_nothing_asked_gives_no_rows():
    frame = answers(planted, prompts=("describe", "characteristics"), instructions=("M1",))
    assert competence_result(cell_of(frame), settings=SETTINGS).rows.is_empty()
