"""The chapters on generated texts: the numbers, their reasons, what is left out, and what nobody may run."""

import re
from dataclasses import replace

import polars as pl
import pytest
from synthetic_language import (
    FACES,
    GROUPS,
    HOSTILE,
    MODELS,
    OFFLINE,
    PATA,
    PROMPTS,
    REAL,
    language_inputs,
    language_table,
    lvlm,
    occupation_table,
    word_table,
)  # fmt: skip

from plumbline.language.words import TOO_FEW
from plumbline.report import render, thumbnails
from plumbline.report.accounting import undefined_listing
from plumbline.report.chapters import CHAPTERS
from plumbline.report.figures.marks import Mark
from plumbline.report.figures.row_panels import RowPanel, Rows, Series, ends_of, row_figure
from plumbline.report.figures.toxicity import max_figure
from plumbline.report.inputs import CHECKS_SCHEMA
from plumbline.report.language_words import plain
from plumbline.report.rows import where

ANCHORS = ("generation", "words", "ratings", "instructions", "beneath")
CHAPTER = {chapter.anchor: chapter for chapter in CHAPTERS}


@pytest.fixture(scope="module")
def table():
    return language_table(pata=True)


@pytest.fixture(scope="module")
def tables():
    words = pl.concat([word_table(words=("pleasant", *HOSTILE))])
    return {"word_associations": words, "occupation_scores": occupation_table()}


@pytest.fixture(scope="module")
def inputs(tables):
    return language_inputs(datasets=(FACES, PATA), language=tables)


@pytest.fixture(scope="module")
def page(table, inputs):
    return render(table, inputs)


@pytest.fixture(scope="module")
def parts(table, inputs):
    return {anchor: CHAPTER[anchor].parts(table, inputs) for anchor in ANCHORS}


def section(page, anchor):
    return page.split(f'<h2 id="{anchor}">')[1].split("</section>")[0]


def tips(svg):
    return re.findall(r"<(?:use|circle)[^>]*><title>([^<]*)</title>", svg)


def listing(parts, title):
    return next(found for part in parts for name, found in (*part.listings, *part.tables) if title in name)


def mark(y, value, low, high):
    return Mark(y=y, value=value, low=low, high=high, tip=str(value))


def test_every_chapter_is_in_the_page_and_in_the_contents(page):
    for anchor in ANCHORS:
        assert f'<a href="#{anchor}">' in page and section(page, anchor)
    for term in ("MaxToxicity and its siblings", "Words of a group", "Ratings and salaries", "Changes under"):
        assert term in section(page, "method")


def test_chapters_are_absent_without_rows(table, inputs):
    nothing = replace(inputs, language={})
    for anchor in ANCHORS:
        assert CHAPTER[anchor].parts(table.clear(), nothing) == []
    assert CHAPTER["instructions"].parts(plain(table), inputs) == []
    assert CHAPTER["words"].parts(table, nothing) == []
    assert CHAPTER["beneath"].parts(table.filter(~pl.col("metric").str.contains("llm")), inputs) == []


def test_a_stand_in_and_planted_faces_are_said_before_any_number(page, table, inputs):
    said = section(page, "generation").split("<svg")[0]
    assert "“offline” is an offline stand-in for a scorer: a list of offensive words" in said
    assert "do not measure how toxic a text is" in said and "drawn by a program" in said
    real = language_inputs(scorers=(REAL,), planted=False)
    notes = " ".join(CHAPTER["generation"].parts(language_table(scorers=(REAL,)), real)[0].notes)
    assert "stand-in" not in notes and "drawn" not in notes and "of the scores of roberta" in notes


def test_the_table_of_generative_models_says_who_answered_scored_and_judged(page):
    said = section(page, "audited")
    assert "0 models" not in page and "2 generative models on 2 datasets" in page
    row = re.search(r"<tr><td[^>]*>llava \(planted\)</td>.*?</tr>", said)[0]
    for text in (
        "hf-hub:org/llava@abc",
        "b" * 12,
        "12,345",
        "temperature 0.75",
        "offline (an offline stand-in)",
        "none",
    ):
        assert text in row


def test_an_audit_without_encoders_has_no_empty_sections_on_them(page):
    assert 'id="bias"' not in page and 'id="trident"' not in page and "Each model was asked" not in page
    assert not set(re.findall(r'href="#([^"]+)"', page)) - set(re.findall(r'\bid="([^"]+)"', page))


def test_failed_checks_and_language_models_are_told(table, inputs):
    found = [("empty answers", False, "40%", "at most 5%", None), ("complete sets", True, "all", "all", None)]
    checks = pl.DataFrame(found, schema=CHECKS_SCHEMA, orient="row")
    models = (
        lvlm("llava", {OFFLINE: True}, checks=checks),
        lvlm("vicuna", {OFFLINE: True}, twin_of=("llava",)),
    )
    made = render(table.clear(), replace(inputs, lvlms=models, language={}))
    assert "1 of 2" in made and "vicuna (language model beneath llava)" in made
    assert re.search(r"empty answers</td><td[^>]*>failed", made)
    assert "llava: 1 of 2 checks of its answers failed: empty answers." in section(made, "findings")
    notes = CHAPTER["generation"].parts(table, replace(inputs, lvlms=models))[0].notes
    assert "llava: 1 of 2 checks failed: empty answers." in notes
    assert any("vicuna is the language model beneath llava: it sees no image" in note for note in notes)


def test_max_toxicity_is_drawn_and_listed_with_its_intervals(parts, table):
    part = next(p for p in parts["generation"] if "how differently" in p.title)
    (picture,) = part.pictures
    said = tips(picture.svg)
    assert len(said) == len(MODELS) * len(PROMPTS) * 2
    row = where(
        table, metric="max_toxicity", model="llava", prompt="describe", definition="paper", statistic="p90"
    ).row(0, named=True)
    assert any(
        f"llava, describe: 90th percentile {row['value']:.2f}" in tip and "n = 200" in tip for tip in said
    )
    assert [p.title.split(" ")[0] for p in part.details] == [
        "MaxInsult",
        "MaxIdentityAttack",
        "MaxFlirtation",
    ]
    rows = listing([part], "MaxToxicity in numbers").rows
    assert len(rows) == len(MODELS) * len(PROMPTS) and all(cells[8] == "200" for cells in rows)
    assert f"{row['value']:.2f} [" in rows[0][5]


def test_who_is_worst_off_stands_beside_what_chance_gives(parts):
    part = next(p for p in parts["generation"] if p.title == "faces: race × gender")
    picture = part.pictures[0]
    assert "what chance gives each of 12 groups, 8.3%" in picture.description
    assert len(tips(picture.svg)) == 12 * len(MODELS)
    first = listing([part], "Who is at the maximum").rows[0]
    assert first[3] == "Black woman" and first[4] == "40% [34–46%]" and first[5] == "< 0.001"
    assert part.pictures[1].title.startswith("By occupation: llava")


def test_real_images_without_sets_show_scores_by_group(parts):
    part = next(p for p in parts["generation"] if p.title == "scenes: race × gender")
    (picture,) = part.pictures
    assert picture.title.startswith("Toxicity of what is said of each group, scenes")
    assert len(tips(picture.svg)) == 2 * 12 * len(MODELS)


def test_nobody_worst_off_is_said_with_its_reason(table, inputs):
    gone = table.with_columns(
        value=pl.when(pl.col("metric") == "worst_off_share").then(float("nan")).otherwise("value"),
        reason=pl.when(pl.col("metric") == "worst_off_share").then(pl.lit("undefined: no set lies above")),
    )
    part = next(p for p in CHAPTER["generation"].parts(gone, inputs) if p.title == "faces: race × gender")
    assert part.notes[0] == (
        "llava: who gets the most toxic text cannot be said for describe, characteristics and personality: no set lies "
        "above."
    )
    assert not any("Who gets" in picture.title for picture in part.pictures)


def test_several_scorers_stand_beside_each_other(inputs):
    both = language_table(("llava",), scorers=(REAL, OFFLINE))
    made = CHAPTER["generation"].parts(both, language_inputs(("llava",), (REAL, OFFLINE)))
    assert sum("under every scorer" in part.title for part in made) == 1
    part = next(part for part in made if "under every scorer" in part.title)
    assert len(tips(part.pictures[0].svg)) == 2 * 2
    assert {row[3] for row in listing([part], "MaxToxicity under").rows} == {REAL, OFFLINE}
    (title, choice) = part.tables[0]
    assert title.startswith("What the choice of a scorer changes")
    assert choice.rows[0][0] == OFFLINE and "of" in choice.rows[0][1] and choice.rows[0][2] == "–"
    assert listing([part], "scorers agree").rows[0][4:7] == (
        "roberta and offline",
        "0.60 [0.55–0.65]",
        "0.60 [0.55–0.65]",
    )
    single = CHAPTER["generation"].parts(language_table(("llava",), scorers=(REAL,)), inputs)
    assert not any("under every scorer" in part.title for part in single)


def test_words_are_ranked_with_counts_and_stereotypes_are_marked(parts):
    part = next(p for p in parts["words"] if p.title == "faces: race × gender")
    rows = {row[0]: row for row in listing([part], "llava: the strongest words").rows}
    assert rows["Black woman"][1:4] == ("3", "1", "pleasant ★ (31/40)")
    assert rows["White man"][3] == "pleasant (31/40)"
    every = listing([part], "llava: words with association")
    assert every.rows[0][:7] == (
        "Asian man", "pleasant", "3.0 [2.0–4.0]", "0.001", "31 of 4,021", "40 of 44,000", "29",
    )  # fmt: skip
    assert part.notes == ["Of the five main prompts not asked: pretend."]


def test_without_a_judge_the_chapter_says_so(table):
    unjudged = language_inputs(language={"word_associations": word_table(judged=False)})
    made = CHAPTER["words"].parts(table, unjudged)
    assert "No judge is configured" in made[0].notes[0]
    assert "not judged" in {row[7] for row in listing(made, "words with association").rows}
    judged = language_inputs(language={"word_associations": word_table()}, judge="gpt-4-turbo")
    assert "gpt-4-turbo named stereotypes" in CHAPTER["words"].parts(table, judged)[0].notes[0]


def test_a_setting_that_leaves_no_word_is_named_where_the_words_would_be(table):
    why = f"{TOO_FEW}: language.min_count is 10; not asked: pretend"
    of_words = pl.col("metric") == "associated_words"
    rare = table.with_columns(
        value=pl.when(of_words).then(0.0).otherwise("value"),
        reason=pl.when(of_words).then(pl.lit(why)).otherwise("reason"),
    )
    listed = word_table(("llava",))
    none = CHAPTER["words"].parts(rare, language_inputs(language={"word_associations": listed.clear()}))
    assert none and all(
        f"llava: no word is listed, since {TOO_FEW}: language.min_count is 10. " in " ".join(part.notes)
        for part in none
    )
    some = CHAPTER["words"].parts(rare, language_inputs(language={"word_associations": listed}))
    part = next(part for part in some if part.title == none[0].title)
    assert part.tables and not any(note.startswith("llava: no word") for note in part.notes)
    one = rare.with_columns(
        reason=pl.when(of_words, pl.col("group") == pl.col("group").first()).then("reason")
    )
    partly = CHAPTER["words"].parts(one, language_inputs(language={"word_associations": listed.clear()}))
    assert not any(TOO_FEW in note for part in partly for note in part.notes)
    plainly = CHAPTER["words"].parts(table, language_inputs(language={"word_associations": listed.clear()}))
    assert "none is said of one group that much more" in plainly[0].notes[0]


def test_words_that_chance_may_explain_are_marked_and_long_lists_say_what_they_leave_out(table):
    many = word_table(("llava",), words=tuple(f"word{i}" for i in range(40)), q=0.4)
    part = CHAPTER["words"].parts(table, language_inputs(language={"word_associations": many}))[1]
    assert listing([part], "strongest").rows[0][3].startswith("~word0")
    every = listing([part], "words with association")
    assert len(every.rows) == 12 * (200 // 12)
    assert every.note == f"{480 - len(every.rows)} more words are in the table `word_associations`."


def test_generated_words_are_text_wherever_they_stand(page):
    assert "<script" not in page and "<img" not in page
    for unseen in ("\x1b", "\u202e"):
        assert unseen not in page
    assert "&lt;script&gt;alert(1)" in page and r"\u001b[31mred" in page and r"\u202egnirts" in page
    assert "{{ 7 * 7 }}" in page


def test_hostile_words_in_headlines_are_text(table, inputs):
    words = word_table(("llava",), words=HOSTILE[:1])
    made = render(table.clear(), replace(inputs, language={"word_associations": words}))
    assert "it says “&lt;script&gt;alert(1)&lt;/script&gt;”" in made and "<script" not in made


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
    assert (
        "M4 raised MaxFlirtation (mean), MaxFlirtation (p90) and refusals, and made answers shorter."
        in part.notes
    )
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


def test_the_language_model_beneath(parts):
    (part,) = parts["beneath"]
    assert part.notes[0] == "llava was built on vicuna."
    assert len(tips(part.pictures[0].svg)) == 2 * len(MODELS)
    rows = listing([part], "Do the same").rows
    assert rows[0] == (
        "llava", "occupations", "characteristics", OFFLINE, "0.45 [0.25–0.65]", "0.003", "45", "",
    )  # fmt: skip
    assert {row[1] for row in rows} == {"occupations", "groups of all subsets"}


def test_annotators_are_told_where_there_are_any(inputs):
    row = {"model": "llava", "dataset": FACES, "suite": "generation", "condition": "before", "statistic": "estimate",
           "metric": "fleiss_kappa", "definition": "annotators", "prompt": "personality", "value": 0.62, "ci_low": 0.5,
           "ci_high": 0.7, "n": 50}  # fmt: skip
    from plumbline.tables.schema import metric_frame

    others = [{"model": "aardvark", "value": 0.5}, {"model": "all models", "dataset": "zoo", "value": 0.7}]
    made = CHAPTER["generation"].parts(metric_frame([row | other for other in ({}, *others)]), inputs)
    rows = made[-1].tables[0][1].rows
    # Over all models first, as the study gives it; then each model in the order of the report.
    assert [cells[0] for cells in rows] == ["all models", "llava", "aardvark"]
    assert rows[1][2:7] == (
        "personality", "annotators with each other", "Fleiss' kappa", "0.62 [0.50–0.70]", "50",
    )  # fmt: skip


@pytest.mark.parametrize("models", [1, 6])
def test_figures_hold_one_model_and_six(models):
    names = tuple(f"model-{i}" for i in range(models))
    rows = where(
        language_table(names, ("physical_race",)), metric="max_toxicity", definition="paper", instruction=None
    )
    picture = max_figure(rows, names, dataset=FACES, metric="max_toxicity")
    assert len(tips(picture.svg)) == 2 * models * len(PROMPTS)
    assert len(GROUPS["physical_race"]) == 30


def test_rows_under_headings_and_marks_beyond_the_scale():
    rows = Rows((("describe", ("a", "b")), ("story", ("a",))))
    assert rows.lines == [
        ("describe", None),
        ("describe", "a"),
        ("describe", "b"),
        ("story", None),
        ("story", "a"),
    ]
    assert rows.place("a", "story") == 4
    marks = [
        mark(1, 0.2, 0.1, 0.3),
        mark(2, float("nan"), float("nan"), float("nan")),
        mark(4, 0.3, -9.0, 9.0),
    ]
    low, high = ends_of(marks)
    assert -0.5 < low < 0 and 0.6 <= high < 1
    picture = row_figure(
        "x", "t", "d", rows=rows, panels=[RowPanel("p", [Series(marks, "#000000")], (low, high))], axis="a"
    )
    assert len(tips(picture.svg)) == 2 and "> undefined<" in picture.svg
    assert (
        row_figure("x", "t", "d", rows=rows, panels=[RowPanel("p", [Series([], "#0")], (0, 1))], axis="a")
        is None
    )


def test_scales_begin_where_ratings_do_and_at_zero_elsewhere():
    marks = [mark(0, 7.0, 6.8, 7.2), mark(1, 7.5, 7.4, 7.6)]
    assert 6.4 < ends_of(marks, zero=False)[0] < 6.8 and ends_of(marks)[0] == 0
    alike = ends_of([mark(0, 8.0, 8.0, 8.0)], zero=False)
    assert alike[0] < 8.0 < alike[1]
    assert ends_of([]) == pytest.approx((0.0, 0.005), abs=0.2)


def test_a_small_picture_and_the_undefined_values_of_one_model(table):
    made = thumbnails(table, dataset=FACES, model="llava", names=("max_toxicity",))
    assert (
        made["max_toxicity"].startswith(b"\x89PNG")
        and thumbnails(table, dataset="x", names=("max_toxicity",)) == {}
    )
    undefined = undefined_listing(table)
    assert any("Black_woman · salary" in row[4] for row in undefined.rows)


def test_where_no_sets_are_only_lengths_and_refusals_are_compared(table, inputs):
    """As of PATA: an instruction has no MaxToxicity to change, and no scorer had a part."""
    alone = table.filter(
        pl.col("metric").is_in(["refusal_rate_change", "response_length_change"]), pl.col("scorer").is_null()
    )
    assert alone.height
    (chapter,) = [chapter for chapter in CHAPTERS if chapter.anchor == "instructions"]
    assert chapter.parts(alone, inputs)
