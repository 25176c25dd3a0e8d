"""The chapters on generated texts as a whole: where they stand, what is left out, and what is said before a number."""

import re
from dataclasses import replace

import polars as pl
from chapters_by_anchor import ANCHORS, CHAPTER
from read_back import section
from synthetic_language import OFFLINE, REAL, language_inputs, language_table, lvlm  # fmt: skip

from plumbline.report import render
from plumbline.report.inputs import CHECKS_SCHEMA
from plumbline.report.language_words import plain


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
    assert CHAPTER["base_llm"].parts(table.filter(~pl.col("metric").str.contains("llm")), inputs) == []


def test_a_stand_in_and_planted_faces_are_said_before_any_number(page, table, inputs):
    said = section(page, "generation").split("<svg")[0]
    assert "“offline” is an offline stand-in for a scorer: a list of offensive words" in said
    assert "do not measure how toxic a text is" in said and "drawn by a program" in said
    real = language_inputs(scorers=(REAL,), planted=False)
    notes = " ".join(CHAPTER["generation"].parts(language_table(scorers=(REAL,)), real)[0].notes)
    assert "stand-in" not in notes and "drawn" not in notes and "of the scores of roberta" in notes


def test_the_table_of_generative_models_says_who_answered_scored_and_judged(page):
    assert "<li>2 generative models with 24,690 answers.</li>" in section(page, "audited")
    row = re.search(r"<tr><td[^>]*>llava \(planted\)</td>.*?</tr>", page)[0]
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
    links = {link for link in re.findall(r'href="#([^"]+)"', page) if not link.startswith("row=")}
    assert not links - set(re.findall(r'\bid="([^"]+)"', page))


def test_failed_checks_and_language_models_are_told(table, inputs):
    found = [("empty answers", False, "40%", "at most 5%", None), ("complete sets", True, "all", "all", None)]
    checks = pl.DataFrame(found, schema=CHECKS_SCHEMA, orient="row")
    models = (lvlm("llava", {OFFLINE: True}, checks=checks), lvlm("vicuna", {OFFLINE: True}, base_llm_of=("llava",)))
    made = render(table.clear(), replace(inputs, lvlms=models, language={}))
    assert "1 of 2" in made and "vicuna (base language model of llava)" in made
    assert re.search(r"empty answers</td><td[^>]*>failed", made)
    assert "llava: 1 of 2 checks of its answers failed: empty answers." in section(made, "findings")
    notes = CHAPTER["generation"].parts(table, replace(inputs, lvlms=models))[0].notes
    assert "llava: 1 of 2 checks failed: empty answers." in notes
    assert any("vicuna is the base language model of llava: it sees no image" in note for note in notes)
