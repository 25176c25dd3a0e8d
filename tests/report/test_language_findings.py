"""Findings about generated texts: told with evidence only, in plain words, never of answers to an instruction."""

import math

import polars as pl
import pytest
from synthetic_language import FACES, FAIR, MODELS, OFFLINE, REAL, language_table, word_table

from plumbline.report import Reading, findings, findings_table
from plumbline.report.finding import headlines
from plumbline.report.language import word_findings
from plumbline.report.language_words import people
from plumbline.report.sentences import in_sentences

READING = Reading(scorers=(OFFLINE,), stand_ins=(OFFLINE,))
BIASED = ("toxicity", "rating", "competence")


@pytest.fixture(scope="module")
def table():
    return language_table((*MODELS, FAIR))


def told(table, reading=READING):
    return {(f.topic, f.model): f for f in findings(table, reading)}


def plain_spaces(text):
    return text.replace("\u00a0", " ")


def test_the_worst_off_group_is_told_with_share_and_interval(table):
    finding = told(table)[("toxicity", FACES, "race_gender", "Black_woman"), "llava"]
    assert finding.tone == "bias" and finding.short == "Most toxic texts are about Black women"
    assert (finding.value_text, finding.interval_text, finding.q_text) == ("40%", "34–46%", "< 0.001")


def test_a_model_without_evidence_only_counts(table):
    found = told(table)
    assert {f.tone for (_, model), f in found.items() if model == FAIR} == {"none"}
    for kind in BIASED:
        assert {f.tone for (topic, model), f in found.items() if topic[0] == kind and model == MODELS[0]} == {"bias"}
    (line,) = [f for f in headlines(list(found.values())) if f.topic[0] == "toxicity"]
    assert line.company[:3] == (2, 3, 0)


@pytest.mark.parametrize(
    ("changed", "column"), [(0.05, "q"), (math.nan, "value"), (None, "value")], ids=["no evidence", "nan", "null"]
)
def test_nothing_is_told_where_no_model_has_evidence(table, changed, column):
    number = pl.when(pl.col(column).is_not_null()).then(pl.lit(changed, pl.Float64))
    assert findings(table.with_columns(number.alias(column), pl.lit(None, pl.Float64).alias("p")), READING) == []


@pytest.mark.parametrize("q", [1e-4, 0.7])
def test_words_of_competence_are_told_with_the_refusals_that_count_among_them(table, q):
    refusals = (pl.col("metric") == "refusal_rate_gap") & pl.col("instruction").is_null()
    sure = table.with_columns(pl.when(refusals).then(q).otherwise(name).alias(name) for name in ("p", "q"))
    reading = Reading(scorers=(OFFLINE,))
    found = [one for one in in_sentences(findings(sure, reading), sure, sure, reading) if one.topic[0] == "competence"]
    found = [one for one in found if one.model == MODELS[0]]
    assert found
    for finding in found:
        assert ("about Black women, 1.0% about" in plain_spaces(finding.sentence)) == (q < 0.05), finding.sentence
        assert ("Refused answers count among them" in finding.sentence) == (q < 0.05)


def test_answers_to_an_instruction_are_no_findings(table):
    instructed = table.filter(pl.col("instruction").is_not_null())
    assert not instructed.filter(pl.col("q") < 0.05).is_empty()
    assert findings(instructed, READING) == []
    assert not any("90%" in f.value_text for f in findings(table, READING) if f.topic[0] == "refusal")


def test_gaps_are_told_of_ratings_pay_words_and_refusals(table):
    found = {topic: f for (topic, model), f in told(table).items() if model == "llava"}
    subset = (FACES, "race_gender")
    assert found["rating", *subset, "rating_gap", "hiring"].value_text == "1.5"
    assert found["rating", *subset, "salary_gap", "salary"].value_text == "$9,000"
    # Over all occupations, not of the chef.
    assert found["competence", *subset, "competence_gap", ""].value_text == "10%"
    assert found["refusal", *subset, "refusal_rate_gap", ""].tone == "difference"
    assert "rating" not in {topic[0] for topic in found if topic[-1] == "warmth"}


def test_unreadable_answers_are_no_gap(table):
    assert (("rating", FACES, "race_gender", "salary_gap", "salary"), "bakllava") not in told(table)


def test_the_base_language_model(table):
    finding = told(table)[("base_llm", FACES, "race_gender"), "llava"]
    assert finding.tone == "difference" and finding.value_text == "0.080"
    assert finding.short == "MaxToxicity above the base language model"


def test_the_short_table_goes_by_the_first_scorer_of_the_audit_file():
    both = language_table(("llava",), scorers=(REAL, OFFLINE))
    mark = pl.col("metric") == "max_score_share"
    marked = both.with_columns(
        value=pl.when(mark & (pl.col("scorer") == REAL)).then(pl.col("value") * 1.5).otherwise("value")
    )
    shown = {
        first: findings_table(marked, Reading(scorers=(first,)), limit=100).filter(
            pl.col("finding").str.contains("ost toxic texts are about")
        )
        for first in (REAL, OFFLINE)
    }
    assert "60%" in shown[REAL]["value"].to_list() and "60%" not in shown[OFFLINE]["value"].to_list()
    assert "40%" in shown[OFFLINE]["value"].to_list() and "40%" not in shown[REAL]["value"].to_list()


def test_a_word_is_told_stereotypes_first():
    (finding, _) = word_findings(word_table(), READING)
    assert finding.tone == "bias"
    assert "says “pleasant” of Black women, a word that the judge names a stereotype" in finding.sentence
    assert "31 times in 4,021 words, against 40 times in 44,000 words about others" in finding.sentence
    (finding, _) = word_findings(word_table(judged=False), READING)
    assert finding.tone == "difference" and "the word most their own" in finding.sentence


def test_a_word_that_another_group_shares_is_told_so():
    row = word_table().filter(pl.col("word") == "pleasant").head(1)
    other = row.with_columns(group=pl.lit("Black_man"), q=1.0, count=row["count_others"])
    some = other.with_columns(count=pl.lit(25, dtype=other.schema["count"]))
    few = other.with_columns(count=pl.lit(19, dtype=other.schema["count"]))
    said = [word_findings(pl.concat([row, each]), READING)[0].sentence for each in (other, some, few)]
    assert "words about others, all of these about Black men (log₂" in said[0]
    assert "words about others, 25 of these about Black men (log₂" in said[1]
    assert "words about others (log₂" in said[2]


def test_words_need_evidence():
    assert word_findings(word_table(q=0.05), READING) == []
    assert word_findings(None, READING) == [] and word_findings(word_table().clear(), READING) == []


@pytest.mark.parametrize(
    ("group", "words"),
    [("Black_woman", "Black women"), ("obese_man", "obese men"), ("obese_Latino", "obese Latino people"),
     ("Middle Eastern_man", "Middle Eastern men")],
)  # fmt: skip
def test_groups_are_people(group, words):
    assert people(group) == words
