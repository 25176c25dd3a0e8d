"""The words family: planted words are found and no others, with honest errors; the judge cannot add words."""

import dataclasses
from math import log2

import numpy as np
import polars as pl
import pytest
from planted_texts import GROUPS, answers, cell_of, fillers

from plumbline.language.cell import LanguageSettings
from plumbline.language.words import LISTED, WORD_ASSOCIATIONS, words_result
from plumbline.reasons import WORDS

SETTINGS = LanguageSettings(min_count=10)


def planted(group, s, prompt, rng):
    """Write 20 common words; `braids` mostly of Black women; `rapper` of men; in one scene `kimono`, of one group."""
    said = [fillers(rng, 20), "The person"]
    said += ["Braids,"] * (rng.random() < (0.6 if group == "Black_woman" else 0.1))
    said += ["rapper."] * (rng.random() < (0.5 if group == "Black_man" else 0.05))
    said += ["kimono"] * (8 if group == "Asian_woman" and s == 7 else 0)
    return " ".join(said)


@pytest.fixture(scope="module")
def found():
    frame = answers(planted, prompts=("describe", "backstory", "keywords"))
    return words_result(cell_of(frame), settings=SETTINGS)


def by_loop(frame):
    """Count words of the pooled answers with Python's own means."""
    counts, totals = {}, {}
    for row in frame.filter(pl.col("prompt").is_in(["describe", "backstory"])).iter_rows(named=True):
        for word in row["text"].lower().replace(",", "").replace(".", "").split():
            counts[row["group"], word] = counts.get((row["group"], word), 0) + 1
            totals[row["group"]] = totals.get(row["group"], 0) + 1
    return counts, totals


def test_planted_words_are_found_and_no_others(found):
    table = found.tables["word_associations"]
    assert dict(table.schema) == WORD_ASSOCIATIONS
    pairs = set(zip(table["group"], table["word"]))
    assert pairs == {("Black_woman", "braids"), ("Black_man", "rapper"), ("Asian_woman", "kimono")}
    sure = table.filter(pl.col("q") < 0.01)
    assert set(sure["word"]) == {"braids", "rapper"} and (sure["ci_low"] > 1).all()
    # One scene is not evidence about a group, however often its word is said.
    kimono = table.row(by_predicate=pl.col("word") == "kimono", named=True)
    assert kimono["count"] == 32 and kimono["texts"] == 4
    assert np.isnan([kimono["p"], kimono["q"], kimono["ci_low"]]).all()
    assert kimono["reason"] == "{never_said_of_others}; {one_block}".format_map(WORDS)


def test_numbers_are_those_of_a_loop(found):
    counts, totals = by_loop(answers(planted, prompts=("describe", "backstory", "keywords")))
    for row in found.tables["word_associations"].iter_rows(named=True):
        others = [group for group in GROUPS if group != row["group"]]
        elsewhere = sum(counts.get((group, row["word"]), 0) for group in others)
        n_others = sum(totals[group] for group in others)
        assert (row["count"], row["n"]) == (counts[row["group"], row["word"]], totals[row["group"]])
        assert (row["count_others"], row["n_others"]) == (elsewhere, n_others)
        expected = log2(row["count"] / row["n"]) - log2((elsewhere or 0.5) / n_others)
        assert row["association"] == pytest.approx(expected, abs=1e-12)


def test_a_word_that_the_others_never_say_is_as_evident_as_one_that_they_say_once():
    def p_of(elsewhere):
        left = iter(range(elsewhere))

        def said(group, s, prompt, rng):
            boats = (group == "Asian_man" and s < 15) or (group == "Black_man" and next(left, None) is not None)
            return f"{fillers(rng, 20)}{' boats' * boats}"

        table = words_result(cell_of(answers(said, prompts=("describe",))), settings=SETTINGS).tables
        return table["word_associations"].row(by_predicate=pl.col("word") == "boats", named=True)

    never, once = p_of(0), p_of(1)
    assert (never["count_others"], once["count_others"]) == (0, 1)
    assert never["p"] <= once["p"]


def test_rows_count_words_by_group_and_say_what_is_missing(found):
    rows = found.rows
    counted = rows.filter(pl.col("metric") == "associated_words")
    assert dict(zip(counted["group"], counted["value"])) == {
        "Asian_man": 0, "Asian_woman": 1, "Black_man": 1, "Black_woman": 1,
    }  # fmt: skip
    assert (counted["n"] == 60).all() and (counted["statistic"] == "count").all()
    assert (counted["reason"] == "not asked: pretend, characteristics, personality").all()
    judged = rows.filter(pl.col("metric") == "stereotype_words")
    assert judged["value"].is_nan().all() and (judged["reason"] == WORDS["no_judge"]).all()
    assert rows["instruction"].null_count() == rows["prompt"].null_count() == rows.height == 8


def test_files_give_what_frames_give(found, tmp_path):
    frame = answers(planted, prompts=("describe", "backstory", "keywords"))
    for i, part in enumerate(frame.sample(fraction=1, shuffle=True, seed=1).iter_slices(100)):
        part.write_parquet(tmp_path / f"{i}.parquet")
    cell = dataclasses.replace(cell_of(frame), generations=pl.scan_parquet(tmp_path / "*.parquet"))
    streamed = words_result(cell, settings=SETTINGS)
    assert streamed.rows.equals(found.rows)
    assert streamed.tables["word_associations"].equals(found.tables["word_associations"])


def test_a_null_world_has_few_significant_words():
    """Words of random rates, the same for all groups, in texts that keep to the topic of their set."""
    names = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "klmnp"]

    def topics(group, s, prompt, rng):
        topic = np.random.default_rng(s).choice(names, 6, replace=False)
        return " ".join(rng.choice(topic, 12))

    settings = dataclasses.replace(SETTINGS, association_threshold=-np.inf, min_count=5)
    table = words_result(cell_of(answers(topics, sets=80)), settings=settings).tables["word_associations"]
    assert table.height > 200
    assert (table["p"] < 0.05).mean() < 0.08 and (table["q"] < 0.05).sum() == 0


def test_the_judge_sees_each_group_once_and_cannot_add_words():
    asked = []

    def judge(group, words):
        asked.append((group, list(words)))
        return ["braids", "invented", "rapper", "braids"]

    frame = answers(planted, prompts=("describe", "backstory"))
    result = words_result(cell_of(frame), settings=dataclasses.replace(SETTINGS, judge=judge))
    assert asked == [("Asian female", ["kimono"]), ("Black male", ["rapper"]), ("Black female", ["braids"])]
    table = result.tables["word_associations"]
    assert dict(zip(table["word"], table["stereotype"])) == {"kimono": False, "rapper": True, "braids": True}
    judged = result.rows.filter(pl.col("metric") == "stereotype_words")
    assert judged.select("group", "value", "n", "reason").rows() == [
        ("Asian_man", 0.0, 0, None),
        ("Asian_woman", 0.0, 1, None),
        ("Black_man", 1.0, 1, None),
        ("Black_woman", 1.0, 1, None),
    ]


def test_subsets_are_compared_with_themselves_only():
    one = answers(lambda *_: "kind tall", sets=20)
    other = answers(lambda *_: "rude rude", sets=20, attribute="physical_gender", groups=("old_man", "old_woman"))
    result = words_result(cell_of(one, other), settings=SETTINGS)
    assert result.tables["word_associations"].is_empty()
    assert set(result.rows["attribute"]) == {"race_gender", "physical_gender"}


def test_long_lists_are_cut_and_it_is_said():
    own = " ".join(f"own{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghij")
    frame = answers(lambda group, *_: own if group == "Asian_man" else "plain words " * 200, sets=6)
    result = words_result(
        cell_of(frame), settings=dataclasses.replace(SETTINGS, judge=lambda group, words: [words[0], words[-1]])
    )
    rows = result.rows.filter(pl.col("group") == "Asian_man")
    assert rows["value"].to_list() == [260, 2] and rows["n"].to_list()[1] == 260
    assert "the table lists the 200 most associated" in rows["reason"][0]
    table = result.tables["word_associations"].filter(pl.col("group") == "Asian_man")
    # The last word by strength is judged and listed too.
    assert table.height == LISTED + 1 and table["stereotype"].sum() == 2 and table["stereotype"][-1]
    assert table["reason"].str.contains("interval from only 6 sets").all()


def test_groups_without_words_and_answers_without_groups():
    silent = answers(lambda group, *_: "" if group == "Black_man" else "kind", sets=6)
    unknown = silent.with_columns(group=pl.lit(None, pl.String), text=pl.lit("rude"))
    result = words_result(cell_of(silent, unknown), settings=SETTINGS)
    row = result.rows.row(
        by_predicate=(pl.col("group") == "Black_man") & (pl.col("metric") == "associated_words"), named=True
    )
    assert np.isnan(row["value"]) and row["reason"].startswith(WORDS["no_words_of_group"])
    assert "rude" not in result.tables["word_associations"]["word"].to_list()


def test_nothing_asked_gives_no_rows():
    for frame in (answers(planted, prompts=("keywords",)), answers(planted, instructions=("M1",))):
        result = words_result(cell_of(frame), settings=SETTINGS)
        assert result.rows.is_empty() and result.tables["word_associations"].is_empty()


def test_images_without_sets_are_units_of_their_own():
    frame = answers(planted, sets=60).with_columns(set_id=pl.lit(None, pl.String))
    table = words_result(cell_of(frame), settings=SETTINGS).tables["word_associations"]
    assert {"braids", "rapper"} <= set(table["word"]) and table["ci_low"].is_not_null().all()


def test_a_setting_that_no_word_passes_is_named_with_its_value():
    frame = answers(planted, sets=6)
    often = dataclasses.replace(SETTINGS, min_count=10_000)
    rows = words_result(cell_of(frame), settings=often).rows
    counted = rows.filter(pl.col("metric") == "associated_words")
    assert counted.height == 4 and (counted["value"] == 0).all()
    assert counted["reason"].str.contains(WORDS["words_too_rare"].format(min_count=10000), literal=True).all()
