"""What annotators get: drawn by a seed, balanced over bands, safe to open."""

import io
import re

import numpy as np
import polars as pl
import pytest

from orchestration.annotation_files import write_sheets
from plumbline.catalog.schema import SCORE_SCHEMA
from plumbline.errors import ConfigError
from plumbline.language.annotation_sheets import (
    BANDS,
    KEY_COLUMNS,
    SHEET_COLUMNS,
    annotation_sheets,
    cells_to_fill,
    judged_words,
    names_black_person,
)
from plumbline.language.user_files import read_annotations

GROUPS = {"race_gender": ("Black_woman", "White_man"), "physical_gender": ("obese_man", "old_woman")}


def generations():
    """Return answers to two prompts, with and without an instruction; every fifth is empty."""
    rows = [
        (f"{i:05d}", "llava", prompt, instruction, f"A Black woman and text {i}" if i % 5 else " ", attribute, group)
        for i, (prompt, instruction, attribute, group, _) in enumerate(
            (prompt, instruction, attribute, group, repeat)
            for prompt in ("personality", "describe", "story")
            for instruction in ("none", "M1")
            for attribute, groups in GROUPS.items()
            for group in groups
            for repeat in range(100)
        )
    ]
    columns = ["row_key", "model", "prompt", "instruction", "text", "attribute", "group"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def scores_of(frame):
    """Return toxicity over the whole range, another scorer and another attribute that must not count."""
    value = pl.col("row_key").cast(pl.Int64).mul(37).mod(101) / 100
    own = frame.select("row_key", score=value)
    named = [
        own.with_columns(scorer=pl.lit(scorer), attribute=pl.lit(attribute), score=score)
        for scorer, attribute, score in (
            ("tiny", "toxicity", pl.when(pl.col("row_key").str.ends_with("7")).then(np.nan).otherwise("score")),
            ("tiny", "insult", pl.lit(0.9)),
            ("other", "toxicity", pl.lit(0.1)),
        )
    ]
    return pl.concat(
        [
            part.with_columns(truncated=pl.lit(False), reason=pl.lit(None, dtype=pl.String)).select(list(SCORE_SCHEMA))
            for part in named
        ]
    )


def associations(groups=8, words=60):
    rows = [
        ("race_gender", f"g_{group}", f"word{word:03d}", float(word % 7 + word / 100), model)
        for group in range(groups)
        for word in range(words)
        for model in ("a", "b")
    ]
    return pl.DataFrame(rows, schema=["attribute", "group", "word", "association", "model"], orient="row")


def drawn(seed=1, frame=None, scores=None, words=None):
    frame = generations() if frame is None else frame
    scores = scores_of(frame) if scores is None else scores
    return annotation_sheets(
        frame.lazy(), scores.lazy(), associations() if words is None else words, scorer="tiny", seed=seed
    )


@pytest.fixture(scope="module")
def sheets():
    return drawn()


def test_five_texts_a_subset_and_band(sheets):
    sheet = sheets.sheets["personality"]
    assert tuple(sheet.columns) == SHEET_COLUMNS and sheet.height == 50 and sheets.messages == ()
    assert set(sheet["group"]) == {""}, "whom it shows is not for the annotators"
    key = sheets.key.filter(pl.col("sheet") == "personality")
    assert tuple(key.columns) == KEY_COLUMNS and key["text_id"].to_list() == sheet["text_id"].to_list()
    counts = key.group_by("attribute", "band").len()
    assert counts.height == 10 and set(counts["len"]) == {5} and set(counts["band"]) == set(BANDS)
    assert set(key["prompt"]) == {"personality"} and set(key["scorer"]) == {"tiny"}
    for score, band in key.select("score", "band").iter_rows():
        low, high = map(float, band.split("-"))
        assert low <= score < high or score == high == 1


def test_only_answers_as_they_are_and_with_words_are_drawn(sheets):
    asked = generations()
    for name in ("personality", "black_subject"):
        rows = sheets.sheets[name].join(asked, left_on="text_id", right_on="row_key", how="left")
        assert set(rows["instruction"]) == {"none"} and rows["text_right"].to_list() == rows["text"].to_list()
        assert not rows["text"].str.strip_chars().eq("").any()


def test_ten_texts_a_band_name_a_black_subject(sheets):
    key = sheets.key.filter(pl.col("sheet") == "black_subject")
    assert set(key["group"]) == {"Black_woman"} and set(key["prompt"]) == {"personality", "describe"}
    counts = key.group_by("band").len()
    assert counts.height == 5 and set(counts["len"]) == {10}


def test_a_text_that_does_not_name_the_race_is_not_drawn():
    frame = generations().with_columns(text=pl.lit("a chef in a black apron"))
    found = drawn(frame=frame)
    assert found.sheets["black_subject"].is_empty() and found.sheets["personality"].height == 50
    assert found.short["black_subject"] == tuple(f"black_subject, score {band}: 0 of 10" for band in BANDS)


def test_fifty_words_of_six_groups(sheets):
    sheet = sheets.sheets["judge"]
    assert tuple(sheet.columns) == SHEET_COLUMNS and sheet.height == 300
    assert set(sheet["group"].value_counts()["count"]) == {50} and sheet["group"].n_unique() == 6
    # The ten weakest of sixty words are left out, those of both models are one item.
    strongest = associations().unique("word").sort("association", descending=True)["word"][:50]
    assert set(sheet["text"]) == set(strongest) and not sheet["text_id"].is_duplicated().any()
    assert sheet["text_id"][0] == f"race_gender/{sheet['group'][0].replace(' ', '_')}/{sheet['text'][0]}"


def test_equal_seeds_give_equal_sheets_in_whatever_order_rows_come(sheets):
    frame = generations()
    again = drawn(
        frame=frame.sample(fraction=1, shuffle=True, seed=4),
        scores=scores_of(frame).sample(fraction=1, shuffle=True, seed=5),
        words=associations().sample(fraction=1, shuffle=True, seed=6),
    )
    assert again.key.equals(sheets.key)
    assert all(again.sheets[name].equals(sheet) for name, sheet in sheets.sheets.items())
    other = drawn(seed=2)
    assert not other.key.equals(sheets.key) and not other.sheets["judge"].equals(sheets.sheets["judge"])


def test_every_text_of_a_band_is_drawn_as_often_as_another():
    frame = generations().filter(pl.col("prompt") == "personality", pl.col("instruction") == "none")
    toxicity = scores_of(frame).filter(pl.col("scorer") == "tiny", pl.col("attribute") == "toxicity")
    there = toxicity.filter(pl.col("score") < 0.2)
    subset = frame.filter(pl.col("attribute") == "race_gender", pl.col("text") != " ")
    subset = subset.join(there, on="row_key", how="semi")
    seen = pl.concat(
        [
            drawn(seed=seed, frame=frame, words=associations(0)).key.filter(
                pl.col("sheet") == "personality", pl.col("band") == BANDS[0], pl.col("attribute") == "race_gender"
            )
            for seed in range(60)
        ]
    )
    counts = subset.join(seen.group_by("text_id").len(), left_on="row_key", right_on="text_id", how="left")["len"]
    assert seen.height == 300
    expected = 300 / subset.height
    assert counts.null_count() == 0 and counts.min() > expected / 4 and counts.max() < expected * 2.5


def test_what_there_is_too_little_of_is_said():
    frame = generations()
    scores = scores_of(frame).filter((pl.col("score") < 0.8) | (pl.col("row_key").str.ends_with("01")))
    found = drawn(frame=frame, scores=scores, words=associations(4, 55).filter(pl.col("group") != "g_2").vstack(
        associations(3, 20).filter(pl.col("group") == "g_2")))  # fmt: skip
    short = [line for line in found.messages if "judge" not in line]
    assert short and all("score 0.8-1" in line and " of " in line for line in short)
    assert found.messages[-2:] == ("judge: 4 of 6 groups", "judge, g_2: 20 of 50 words")
    assert found.sheets["judge"].height == 3 * 50 + 20


def test_no_words_are_said_to_be_none():
    nothing = associations(0)
    with_reason = pl.DataFrame({"attribute": ["a"], "group": ["g"], "word": [None], "association": [np.nan]})
    for frame in (nothing, with_reason):
        found = judged_words(frame, seed=1)
        assert found.rows.is_empty() and found.shortfalls == ("judge: 0 of 6 groups",)


def test_an_answer_that_belongs_to_two_images_is_one_text():
    frame = generations()
    twice = pl.concat([frame, frame.with_columns(group=pl.lit("Black_man"))])
    found = drawn(frame=twice, scores=scores_of(frame))
    assert not found.sheets["personality"]["text_id"].is_duplicated().any()
    assert found.sheets["personality"].height == 50


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_cell_that_a_spreadsheet_would_run_begins_with_an_apostrophe(cell):
    rows = cells_to_fill(pl.DataFrame({"text": [cell, "a=b", " =1", "\x1b[31mred\x00"]}))
    begun = re.sub(r"[\r\t]", r"\g<0>'", cell)  # a line break begins a row there, and a tab a cell
    assert rows["text"].to_list() == [f"'{begun}", "a=b", "' =1", "\ufffd[31mred\ufffd"]
    assert rows.select("annotator", "label").unique().rows() == [("", "")]


def test_a_filled_sheet_can_be_read_back(sheets, tmp_path):
    filled = io.StringIO()
    for annotator in ("anna", "ben"):
        for sheet in sheets.sheets.values():
            # As they are, headers and all: every sheet has the same columns.
            filled.write("\ufeff" if annotator == "ben" else "")
            filled.write(sheet.with_columns(annotator=pl.lit(annotator), label=pl.lit("1")).write_csv())
    path = tmp_path / "annotations.csv"
    path.write_text(filled.getvalue(), "utf-8")
    read = read_annotations(path)
    assert read.height == 2 * (50 + 50 + 300)
    assert set(read.filter(pl.col("sheet") == "personality")["text_id"]) == set(sheets.sheets["personality"]["text_id"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("…a black woman wearing a police uniform", True),
        ("A Black male doctor.", True),
        ("an African-American man", True),
        ("a young Black, or so it seems", False),
        ("a black young woman", True),
        ("I am Black and proud", True),
        ("the woman is black", True),
        ("a woman in a black dress", False),
        ("her hair is black", False),
        ("a black and white photo of a man", False),
        ("a white man with a black eye", False),
        ("Afro-American chef", True),
        (None, False),
        ("", False),
    ],
)
def test_which_texts_name_a_black_subject(text, expected):
    assert pl.select(names_black_person(pl.lit(text, dtype=pl.String))).item() is expected


def test_a_sheet_that_would_be_empty_is_not_written_and_said_with_what_it_needs(tmp_path):
    found = drawn(frame=generations().with_columns(text=pl.lit("a chef")), words=associations(0))
    written, said = write_sheets(found, tmp_path)
    assert [path.name for path in written] == ["personality.csv", "key.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.csv", "personality.csv"]
    assert [line.partition(":")[0] for line in said] == ["black_subject", "judge"]
    assert "min_count" in said[1]
    only_words = drawn(frame=generations().clear())
    assert [path.name for path in write_sheets(only_words, tmp_path / "words")[0]] == ["judge.csv"]


def test_what_is_short_is_said_of_groups_whose_names_hold_marks_too(tmp_path):
    few = associations(1, 20).with_columns(group=pl.lit("black_subject: a, b"))
    found = drawn(frame=generations().with_columns(text=pl.lit("a chef")), words=few)
    _, said = write_sheets(found, tmp_path)
    assert [line.partition(":")[0] for line in said] == ["black_subject", "judge", "judge, black_subject"]
    assert said[1:] == ("judge: 1 of 6 groups", "judge, black_subject: a, b: 20 of 50 words")
    assert "black_subject: a, b" in pl.read_csv(tmp_path / "judge.csv")["text_id"][0]


def test_where_nothing_can_be_drawn_no_file_is_written(tmp_path):
    nothing = drawn(frame=generations().filter(pl.col("instruction") != "none"), words=associations(0))
    with pytest.raises(ConfigError) as said:
        write_sheets(nothing, tmp_path / "annotations")
    assert all(f"{name}: nothing to draw from" in str(said.value) for name in nothing.sheets)
    assert not (tmp_path / "annotations").exists()
