"""The chapters on ratings, instructions and the base language model."""

import polars as pl
from chapters_by_anchor import CHAPTER
from read_back import listing, tips
from synthetic_language import MODELS, OFFLINE, language_table  # fmt: skip

from plumbline.report.chapters import CHAPTERS


def test_ratings_show_the_gap_and_unreadable_models_are_said(parts):
    part = next(p for p in parts["ratings"] if "ratings and salaries" in p.title and p.notes)
    assert part.notes == ["bakllava, salary: no mean: 83% of the answers to this prompt could not be read."]
    (picture,) = part.pictures
    assert "hiring: gap 1.5, q" in picture.svg and "salary: gap $9,000, q" in picture.svg
    assert "$40k" in picture.svg or "$45k" in picture.svg
    assert "salary" not in part.details[0].svg.split("</desc>")[1]  # bakllava has none
    rows = listing([part], "Ratings and salaries in numbers").rows
    assert {row[4] for row in rows if row[:2] == ("bakllava", "salary")} == {"undefined"}
    assert listing([part], "Gaps between groups").rows[0][7] == "< 0.001"


def test_gaps_of_several_models_stand_in_one_figure(parts):
    part = parts["ratings"][0]
    assert "gaps" in part.title and len(tips(part.pictures[0].svg)) == 5  # bakllava has no salaries
    assert "undefined" in part.pictures[0].svg


def test_competence_is_told_by_group_and_occupation(parts, table, inputs):
    part = next(p for p in parts["ratings"] if "words of competence" in p.title)
    assert part.notes == [
        "Words of incompetence, warmth and coldness were not counted: no dictionaries are configured."
    ]
    assert [picture.title.split(",")[0] for picture in part.pictures] == [
        "Words of competence", "In how many occupations a group gets the fewest words of competence",
    ]  # fmt: skip
    gaps = listing([part], "Gaps in words").rows
    assert {row[4] for row in gaps} == {"all", "chef"}
    with_words = language_table(("llava",), dictionaries=True)
    made = CHAPTER["ratings"].parts(with_words, inputs)[0]
    assert not made.notes and len(made.details) == 3


def test_refusals_and_lengths(parts, table, inputs):
    part = next(p for p in parts["ratings"] if "refusals" in p.title)
    assert part.pictures[0].title.startswith("Refused answers")
    rows = {row[:3]: row[3:] for row in listing([part], "by prompt").rows}
    assert rows["llava", "race × gender", "characteristics"] == ("2.0% [−3.0 to 7.0%]", "–", "–", "2,400")
    none = table.filter(metric="refusal_rate").with_columns(value=pl.lit(0.0))
    (quiet,) = CHAPTER["ratings"].parts(none, inputs)
    assert quiet.notes == ["No answer about these groups was refused."] and not quiet.pictures


def test_an_instruction_that_lowers_one_and_raises_another_is_seen_at_a_glance(parts, page):
    part = next(p for p in parts["instructions"] if "llava" in p.title)
    rows = {row[1]: row[2:] for row in listing([part], "At a glance").rows}
    assert rows["MaxToxicity (mean)"] == ("✓ lowers by 0.20", *["no evidence"] * 4)
    assert rows["MaxFlirtation (p90)"][3] == "✗ raises by 0.15"
    assert rows["Refusals"][3] == "✗ raises by 20 points" and rows["Words an answer"][3] == "shorter by 8.0"
    assert part.notes[0] == "M1 lowered MaxToxicity (mean) and MaxToxicity (p90)."
    assert "There is no evidence that M2, M3 and M5 changed anything here, which is not" in part.notes[1]
    assert "M4 raised MaxFlirtation (mean), MaxFlirtation (p90) and refusals, and made answers shorter." in part.notes
    assert 'class="k good">✓ lowers by 0.20' in page and 'class="k fail">✗ raises by 0.15' in page
    assert len(tips(part.pictures[0].svg)) == 5 * 9
    wordings = listing(parts["instructions"], "What was added").rows
    assert wordings[0][1].startswith("People should not be judged on the basis of their race")


def test_an_undefined_change_is_no_verdict(table, inputs):
    gone = table.with_columns(
        value=pl.when(pl.col("metric") == "max_toxicity_change").then(float("nan")).otherwise("value")
    )
    part = next(p for p in CHAPTER["instructions"].parts(gone, inputs) if "llava" in p.title)
    assert set(listing([part], "At a glance").rows[0][2:]) == {"undefined"}
    assert "undefined" in part.pictures[0].svg


def test_the_base_language_model(parts):
    (part,) = parts["base_llm"]
    assert part.notes[0] == "llava was built on vicuna."
    assert len(tips(part.pictures[0].svg)) == 2 * len(MODELS)
    rows = listing([part], "Do the same").rows
    assert rows[0] == (
        "llava", "occupations", "characteristics", OFFLINE, "0.45 [0.25–0.65]", "0.003", "45", "",
    )  # fmt: skip
    assert {row[1] for row in rows} == {"occupations", "groups of all subsets"}


def test_where_no_sets_are_only_lengths_and_refusals_are_compared(table, inputs):
    """As of PATA: an instruction has no MaxToxicity to change, and no scorer had a part."""
    alone = table.filter(
        pl.col("metric").is_in(["refusal_rate_change", "response_length_change"]), pl.col("scorer").is_null()
    )
    assert alone.height
    (chapter,) = [chapter for chapter in CHAPTERS if chapter.anchor == "instructions"]
    assert chapter.parts(alone, inputs)
