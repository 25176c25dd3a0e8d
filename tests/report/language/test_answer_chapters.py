"""The chapters on ratings, instructions and the base language model."""

import polars as pl
from chapters_by_anchor import CHAPTER
from chart_data import drawn, names
from read_back import listing
from synthetic_language import MODELS, language_table  # fmt: skip


def charts(parts):
    return {chart.name: chart for part in parts for chart in part.pictures + part.details}


def test_gaps_come_first_with_evidence_by_fill(parts):
    first = parts["ratings"][0]
    (chart,) = first.pictures
    assert chart.name == "gaps-ratings-faces" and names(chart, "panels") == ["hiring", "warmth"]
    assert [(dot["panel"], dot["filled"]) for dot in drawn(chart, "filled")] == [(0, 1.5), (0, 1.5)]
    salaries = charts([first])["gaps-salaries-faces"]
    assert [dot["value"] for dot in drawn(salaries)] == ["$9,000"]
    assert [dot["words"] for dot in drawn(salaries, "at")] == ["undefined"], "bakllava gave no salaries"
    shares = charts([first])["gaps-words-faces"]
    assert names(shares, "panels") == ["words of competence", "refused answers"]
    assert {dot["filled"] for dot in drawn(shares)} == {0.1, 0.11}, "over all occupations, not of the chef"
    assert first.notes == [
        "Words of incompetence, warmth and coldness were not counted: no dictionaries are configured."
    ]


def test_numbers_of_each_group(parts, table, inputs):
    part = parts["ratings"][1]
    shown = charts([part])
    assert part.pictures[0].name == "competence-words-faces-race-gender"
    assert "rating-llava-faces-race-gender" in shown
    share = drawn(shown["min-competence-share-faces-race-gender"], "line")
    assert {record["line"] for record in share} == {0.0833333}
    ratings = drawn(shown["rating-llava-faces-race-gender"])
    assert min(ratings, key=lambda dot: dot["filled"])["of"] == "llava, race × gender, Black woman, hiring, mean"
    assert part.notes == ["bakllava, salary: no mean: 83% of the answers to this prompt could not be read."]
    with_words = CHAPTER["ratings"].parts(language_table(("llava",), dictionaries=True), inputs)
    assert not with_words[0].notes and "warmth-words-faces-race-gender" in charts(with_words)


def test_refusals_are_drawn_where_there_are_any(parts, table, inputs):
    assert "refusal-rate-faces-race-gender" in charts(parts["ratings"])
    none = table.filter(metric="response_length").vstack(
        table.filter(metric="refusal_rate").with_columns(value=pl.lit(0.0))
    )
    assert list(charts(CHAPTER["ratings"].parts(none, inputs))) == ["response-length-faces-race-gender"]


def test_an_instruction_that_lowers_one_and_raises_another_is_seen_at_a_glance(parts):
    part = parts["instructions"][0]
    (chart,) = part.pictures
    assert chart.name == "instructions-llava-faces-race-gender" and names(chart, "panels") == [
        "M1",
        "M2",
        "M3",
        "M4",
        "M5",
    ]
    assert len(drawn(chart)) == 5 * 9
    told = {(dot["panel"], round(dot["y"])): dot["filled"] for dot in drawn(chart, "filled")}
    assert told == {(0, 0): -0.2, (0, 1): -0.2, (3, 6): 0.15, (3, 7): 0.15, (3, 8): 0.2}
    assert part.notes[:3] == [
        "llava: M1 lowered MaxToxicity (mean) and MaxToxicity (p90).",
        "llava: no evidence that M2, M3 and M5 changed anything.",
        "llava: M4 raised MaxFlirtation (mean), MaxFlirtation (p90) and refusals, and made answers shorter.",
    ]
    wordings = listing(parts["instructions"], "What was added").rows
    assert wordings[0][1].startswith("People should not be judged on the basis of their race")


def test_where_no_sets_are_only_lengths_and_refusals_are_compared(table, inputs):
    """As of PATA: an instruction has no MaxToxicity to change, and no scorer had a part."""
    alone = table.filter(
        pl.col("metric").is_in(["refusal_rate_change", "response_length_change"]), pl.col("scorer").is_null()
    )
    part = CHAPTER["instructions"].parts(alone, inputs)[0]
    assert names(part.pictures[0]) == ["Refusals"] and not any("Scored" in note for note in part.notes)


def test_the_base_language_model(parts):
    (part,) = parts["base_llm"]
    assert part.notes[0] == "llava was built on vicuna."
    (chart,), (correlation,) = part.pictures, part.details
    assert len(drawn(chart, "filled")) == 2 * len(MODELS) and names(chart) == list(MODELS)
    assert names(correlation, "panels") == ["over occupations", "over groups of all subsets"]
    first = drawn(correlation)[0]
    assert (first["filled"], first["interval"], first["n"]) == (0.45, "0.25–0.65", "45")
