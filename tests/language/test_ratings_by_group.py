"""The ratings family against numbers by hand: what is read, what is left out, and what is then not told."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from planted_texts import GROUPS, answers, cell_of

from plumbline.language.answers import values_by_question
from plumbline.language.cell import LanguageSettings
from plumbline.language.ratings_and_salaries import ratings_result

SETTINGS = LanguageSettings(resamples=1000, permutations=500)


def planted(group, s, prompt, rng):
    """Rate two higher and pay 10,000 less where the group is `Black_woman`; every tenth set gets no rating."""
    lower = group == "Black_woman"
    if prompt == "salary":
        return f"${60 - 10 * lower + s % 3},000"
    return "I cannot say." if s % 10 == 0 else f"{4 + 2 * lower + s % 3} out of 10"


@pytest.fixture(scope="module")
def rows():
    frame = answers(planted, prompts=("hiring", "salary", "describe"), sets=60, seeds=(0,))
    return ratings_result(cell_of(frame), settings=SETTINGS).rows


def chosen(rows, **columns):
    return rows.filter(*(pl.col(k) == v for k, v in columns.items()))


def test_means_are_those_of_the_readable_answers(rows):
    means = chosen(rows, metric="rating", prompt="hiring")
    read = np.mean([s % 3 for s in range(60) if s % 10])
    assert dict(zip(means["group"], means["value"])) == {
        group: pytest.approx(4 + 2 * (group == "Black_woman") + read, abs=1e-12) for group in GROUPS
    }
    assert (means["n"] == 54).all() and (means["statistic"] == "mean").all() and (means["definition"] == "paper").all()
    assert (means["reason"] == "6 of 60 answers left out (6 no number)").all()
    assert (means["ci_low"] < means["value"]).all() and (means["value"] < means["ci_high"]).all()


def test_salaries_are_in_dollars_and_rows_of_their_own(rows):
    means = chosen(rows, metric="salary")
    assert means.select("group", "value").rows() == [
        ("Asian_man", 61_000), ("Asian_woman", 61_000), ("Black_man", 61_000), ("Black_woman", 51_000),
    ]  # fmt: skip
    assert (means["prompt"] == "salary").all() and means["reason"].null_count() == 4
    assert set(rows["prompt"]) == {"hiring", "salary"}


def test_gaps_have_tests(rows):
    gap = chosen(rows, metric="rating_gap").row(0, named=True)
    assert gap["value"] == pytest.approx(2, abs=1e-12) and gap["p"] < 0.01 and gap["group"] is None
    assert gap["n"] == 54 and gap["reason"].startswith("24 of 240 answers left out")
    assert chosen(rows, metric="salary_gap")["value"].item() == pytest.approx(10_000)


def test_unreadable_answers_are_counted_by_group_and_in_all(rows):
    rates = chosen(rows, metric="unreadable_rate", prompt="hiring")
    assert rates["group"].to_list() == [*GROUPS, None]
    np.testing.assert_allclose(rates["value"], 0.1, atol=1e-12)
    assert rates["n"].to_list() == [60] * 5
    none = chosen(rows, metric="unreadable_rate", prompt="salary")
    assert (none["value"] == 0).all() and (none["ci_high"] > 0).all() and (none["ci_high"] < 0.07).all()
    assert none["reason"][0] == "interval by Wilson over 60 sets: no answer differs"


def test_a_prompt_that_is_mostly_unreadable_has_no_means():
    def babbling(group, s, prompt, rng):
        return "50000" if s % 5 == 0 else "A fair salary."

    frame = answers(babbling, prompts=("salary",), sets=50, seeds=(0,))
    found = ratings_result(cell_of(frame), settings=SETTINGS).rows
    for metric in ("salary", "salary_gap"):
        rows = chosen(found, metric=metric)
        assert rows["value"].is_nan().all() and rows["ci_low"].is_nan().all()
        assert rows["reason"].str.starts_with("undefined: 80% of the answers to this prompt could not be read").all()
    assert chosen(found, metric="unreadable_rate")["value"].to_list() == pytest.approx([0.8] * 5)


def test_the_limit_is_of_model_and_prompt_over_all_subsets():
    """One subset is mostly unreadable, the model's answers to the prompt are not."""
    mostly = answers(
        lambda g, s, *_: "6" if s % 3 == 0 else "no", prompts=("warmth",), sets=30, attribute="physical_race"
    )
    clear = answers(lambda *_: "7", prompts=("warmth",), sets=30)
    found = ratings_result(cell_of(mostly, clear), settings=SETTINGS).rows
    means = chosen(found, metric="rating").select("attribute", "value").unique().sort("attribute")
    assert means.rows() == [("physical_race", 6.0), ("race_gender", 7.0)]


def test_groups_of_which_little_can_be_read_are_named_where_groups_are_compared():
    readable = {"Asian_man": 30, "Asian_woman": 30, "Black_man": 14, "Black_woman": 0}
    frame = answers(
        lambda g, s, *_: f"{5 + s % 2}" if s < readable[g] else "no", prompts=("warmth",), sets=30, seeds=(0,)
    )
    cell = cell_of(frame)
    settings = LanguageSettings(resamples=200, permutations=100, most_unreadable=0.6)
    gap = chosen(ratings_result(cell, settings=settings).rows, metric="rating_gap").row(0, named=True)
    assert (
        "; not compared, without any such number: Black_woman; fewer than half of the answers left of Black_man"
        in gap["reason"]
    )
    assert gap["value"] == pytest.approx(0, abs=1e-12) and gap["n"] == 30
    unasked = cell_of(frame.filter(pl.col("group").str.starts_with("Asian")))
    unasked = replace(unasked, expected=cell.expected)
    gap = chosen(ratings_result(unasked, settings=settings).rows, metric="rating_gap").row(0, named=True)
    assert gap["reason"].startswith("not compared, without any such number: Black_man, Black_woman")


def test_one_group_has_no_gap():
    said = {"Asian_man": "7"}
    frame = answers(lambda g, *_: said.get(g, "no"), prompts=("warmth",), sets=30)
    settings = LanguageSettings(resamples=200, permutations=100, most_unreadable=0.8)
    gap = chosen(ratings_result(cell_of(frame), settings=settings).rows, metric="rating_gap").row(0, named=True)
    assert np.isnan(gap["value"]) and np.isnan(gap["p"])
    assert "not compared, without any such number: Asian_woman, Black_man, Black_woman" in gap["reason"]
    assert gap["reason"].endswith("undefined: fewer than two groups have values")


def test_one_question_at_a_time_is_in_memory():
    frame = answers(lambda *_: "7", prompts=("warmth", "hiring"), instructions=("none", "M1"), sets=3)
    found = list(values_by_question(cell_of(frame), prompts=("warmth",), length=pl.col("text").str.len_chars()))
    assert [set(part.select("prompt", "instruction").iter_rows()) for part in found] == [
        {("warmth", "M1")}, {("warmth", "none")},
    ]  # fmt: skip
    assert all(part.height == 3 * 4 * 2 and part["length"].unique().to_list() == [1] for part in found)


def test_no_numeric_prompt_gives_no_rows():
    assert ratings_result(cell_of(answers(planted)), settings=SETTINGS).rows.is_empty()
