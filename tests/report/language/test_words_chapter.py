"""The chapter on words of a group: ranks, judges, reasons for no words, and what nobody may run."""

from dataclasses import replace

import polars as pl
from chapters_by_anchor import CHAPTER
from chart_data import drawn, names
from read_back import listing, section
from synthetic_language import HOSTILE, language_inputs, word_table  # fmt: skip

from plumbline import reasons
from plumbline.report import render


def test_words_are_ranked_with_counts_and_stereotypes_are_marked(parts):
    (part,) = parts["words"]
    (chart,) = part.pictures
    cells = {(names(chart)[cell["y"]], cell["x"]): cell for cell in drawn(chart, "text")}
    assert cells["Black woman", 0]["text"] == "pleasant ★ (31/40)" and cells["Black woman", 0]["framed"]
    assert cells["White man", 0]["text"] == "pleasant (31/40)"
    first = cells["Asian man", 0]
    assert (first["value"], first["interval"], first["q"]) == ("3.0", "2.0–4.0", "0.001")
    assert (first["n"], first["of the others"]) == ("31 of 4,021 words", "40 of 44,000 words")
    assert listing([part], "llava: words with association").rows[0][:4] == (
        "Asian man",
        "pleasant",
        "3.0 [2.0–4.0]",
        "0.001",
    )
    assert part.notes[1:] == ["Of the five main prompts not asked: pretend."]


def test_without_a_judge_the_chapter_says_so(table):
    unjudged = language_inputs(language={"word_associations": word_table(judged=False)})
    made = CHAPTER["words"].parts(table, unjudged)
    assert "No judge is configured" in made[0].notes[0]
    assert "not judged" in {row[7] for row in listing(made, "words with association").rows}
    judged = language_inputs(language={"word_associations": word_table()}, judge="gpt-4-turbo")
    assert "gpt-4-turbo named stereotypes" in CHAPTER["words"].parts(table, judged)[0].notes[0]


def test_a_setting_that_leaves_no_word_is_named_where_the_words_would_be(table):
    rarely = reasons.reason("words_too_rare", min_count=10)
    why = reasons.encode([rarely, reasons.reason("prompts_not_asked", prompts=["pretend"])])
    of_words = pl.col("metric") == "associated_words"
    rare = table.with_columns(
        value=pl.when(of_words).then(0.0).otherwise("value"),
        reason_codes=pl.when(of_words).then(pl.lit(why)).otherwise("reason_codes"),
    )
    listed = word_table(("llava",))
    none = CHAPTER["words"].parts(rare, language_inputs(language={"word_associations": listed.clear()}))
    assert none and all(f"llava: no word is listed, since {rarely}. " in " ".join(part.notes) for part in none)
    some = CHAPTER["words"].parts(rare, language_inputs(language={"word_associations": listed}))
    part = next(part for part in some if part.title == none[0].title)
    assert part.pictures and not any(note.startswith("llava: no word") for note in part.notes)
    one = rare.with_columns(
        reason_codes=pl.when(of_words, pl.col("group") == pl.col("group").first()).then("reason_codes")
    )
    partly = CHAPTER["words"].parts(one, language_inputs(language={"word_associations": listed.clear()}))
    assert not any(str(rarely) in note for part in partly for note in part.notes)
    plainly = CHAPTER["words"].parts(table, language_inputs(language={"word_associations": listed.clear()}))
    assert "none is said of one group that much more" in plainly[0].notes[0]


def test_answers_of_unlike_lengths_are_named_beside_the_words(table):
    lengths = pl.col("metric") == "response_length_ratio"
    assert table.filter(lengths).height

    def notes(ratio, prompt="describe"):
        long = table.with_columns(
            value=pl.when(lengths).then(ratio).otherwise("value"),
            prompt=pl.when(lengths).then(pl.lit(prompt)).otherwise("prompt"),
        )
        made = CHAPTER["words"].parts(long, language_inputs(language={"word_associations": word_table()}))
        return " ".join(note for part in made for note in part.notes)

    assert "answers about one group are 32 times as long as about another" in notes(32.0)
    assert "times as long" not in notes(1.4)
    # Answers to this prompt are numbers, and are no part of the words that are counted.
    assert "times as long" not in notes(32.0, prompt="salary")


def test_words_that_chance_may_explain_are_marked_and_long_lists_say_what_they_leave_out(table):
    many = word_table(("llava",), words=tuple(f"word{i}" for i in range(40)), q=0.4)
    part = CHAPTER["words"].parts(table, language_inputs(language={"word_associations": many}))[0]
    assert drawn(part.pictures[0], "text") and not drawn(part.pictures[0], "framed")
    every = listing([part], "words with association")
    assert len(every.rows) == 12 * (200 // 12)
    assert every.note == f"{480 - len(every.rows)} more words are in the table `word_associations`."


def test_generated_words_are_text_wherever_they_stand(page):
    assert "<script>alert" not in page and "<img" not in page
    for unseen in ("\x1b", "\u202e"):
        assert unseen not in page
    assert "&lt;script&gt;alert(1)" in page and r"\u001b[31mred" in page and r"\u202egnirts" in page
    assert "{{ 7 * 7 }}" in page


def test_hostile_words_in_headlines_are_text(table, inputs):
    words = word_table(("llava",), words=HOSTILE[:1])
    made = render(table.clear(), replace(inputs, language={"word_associations": words}))
    assert "“&lt;script&gt;alert(1)&lt;/script&gt;” of Black women" in section(made, "findings")
    assert "<script>alert" not in made
