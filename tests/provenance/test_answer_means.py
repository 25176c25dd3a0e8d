"""Means of answers are compared answer by answer, and a change is found that two intervals would hide."""

import polars as pl
import pytest
from planted_texts import GROUPS, answers, cell_of

from plumbline.language.cell import LanguageSettings
from plumbline.language.competence import competence_result
from plumbline.language.ratings_and_salaries import ratings_result
from plumbline.language.refusals import refusals_and_lengths_result
from plumbline.provenance.diff import DIFF_SCHEMA, KEYS, paired_answer_means, table_differences
from plumbline.reasons import in_words

SETTINGS = LanguageSettings(resamples=500, permutations=500)
FAMILIES = (refusals_and_lengths_result, ratings_result, competence_result)
"""Whose means are compared."""


def texts(words):
    """Sets differ a lot in length; on the new side every answer about one group is longer."""

    def text_of(group, s, prompt, rng):
        if prompt == "salary":
            return "No idea." if s % 10 == 0 else f"${40 + s},000"
        if prompt == "characteristics":
            return "competent, warm, tall" if s % 2 else "tall, warm, old"
        return " ".join(["word"] * (5 + 3 * s + words.get(group, 0)))

    return text_of


def cell(words=None, **more):
    prompts = ("describe", "characteristics", "salary")
    return cell_of(answers(texts(words or {}), sets=40, prompts=prompts, **more))


@pytest.fixture(scope="module")
def found():
    rows = paired_answer_means(cell(), cell({"Black_man": 2}), settings=SETTINGS)
    rows = [row | {"reason": in_words(row["reason"])} for row in rows]
    return pl.DataFrame(rows, schema={**{k: DIFF_SCHEMA[k] for k in KEYS}, "value": pl.Float64,
                                      "value_old": pl.Float64, "value_new": pl.Float64, "ci_low": pl.Float64,
                                      "ci_high": pl.Float64, "p": pl.Float64, "n": pl.Int64,
                                      "reason": pl.String}, orient="row")  # fmt: skip


def test_a_change_within_sets_is_found_and_only_where_it_is(found):
    own = found.filter(metric="response_length", prompt="describe").sort("group")
    changes = dict(own.select("group", "value").iter_rows())
    assert changes == {group: 2.0 if group == "Black_man" else 0.0 for group in GROUPS}
    black = own.row(by_predicate=pl.col("group") == "Black_man", named=True)
    assert black["p"] < 0.01 and black["n"] == 40 and black["statistic"] == "mean"
    assert black["value_new"] - black["value_old"] == pytest.approx(2.0)
    assert own.filter(pl.col("group") != "Black_man")["p"].to_list() == [1.0] * 3


def test_rows_are_those_of_the_metric_table(found):
    """What is compared stands for numbers of the tables: the same keys, and the same values where nothing lacks."""
    table = pl.concat([family(cell(), settings=SETTINGS).rows for family in FAMILIES])
    both = found.join(table, on=list(KEYS), how="left", nulls_equal=True, suffix="_table")
    assert both["value_table"].null_count() == 0
    assert both["value_old"].to_list() == pytest.approx(both["value_table"].to_list())
    assert {"refusal_rate", "empty_rate", "response_length", "salary", "unreadable_rate", "competence_words"} == set(
        found["metric"]
    )
    overall = found.filter(pl.col("group").is_null())
    assert set(overall["metric"]) == {"refusal_rate", "empty_rate", "unreadable_rate"}


def test_answers_without_a_number_are_left_out_and_said(found):
    salaries = found.filter(metric="salary")
    assert salaries["n"].to_list() == [36] * len(GROUPS)
    assert all("8 of 80 answers left out without a counterpart" in reason for reason in salaries["reason"])


def test_what_was_not_asked_on_both_sides_is_not_compared():
    other = cell(instructions=("M1",))
    assert paired_answer_means(cell(), other, settings=SETTINGS) == []


def test_a_number_that_a_table_leaves_undefined_stays_undefined(found):
    row = found.filter(metric="salary", group="Black_man").select(KEYS)
    table = row.with_columns(
        model=pl.lit("m"),
        value=float("nan"),
        ci_low=None,
        ci_high=None,
        n=9,
        reason=pl.lit("why"),
        reason_codes=pl.lit(None, pl.String),
        suite_hash=pl.lit(None, pl.String),
    )
    paired = [{"metric": "salary", "model_old": "m", "model_new": "m", "value": 1.0} | row.row(0, named=True)]
    (told,) = table_differences(table, table, paired, models=("m", "m")).iter_rows(named=True)
    assert told["compared"] != "paired" and "why" in told["reason"]
