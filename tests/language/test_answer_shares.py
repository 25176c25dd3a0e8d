"""Shares of answers that checks look at: empty ones, scored ones, and those of one source."""

import polars as pl

from plumbline.language.tokens import answer_shares, empty_answer, leading_source, scored_shares

KEYS = [f"{key:08x}" for key in range(8)]


def answers(texts, finish_reasons):
    return pl.LazyFrame(
        {
            "row_key": KEYS[: len(texts)],
            "prompt": "pretend",
            "instruction": "none",
            "text": texts,
            "finish_reason": finish_reasons,
        }
    )


def test_an_answer_of_blanks_is_empty_and_a_refusal_is_not():
    table = answers(["words", " \n", "", ""], ["stop", "stop", "length", "refusal"])
    [row] = answer_shares(table, empty_answer()).to_dicts()
    assert row == {"prompt": "pretend", "instruction": "none", "answers": 4, "share": 0.5}


def test_of_many_answers_every_so_many_are_drawn_by_their_key():
    table = answers(["", "words", "words", "words", "", "words"], ["stop"] * 6)
    [row] = answer_shares(table, empty_answer(), every=2).to_dicts()
    assert (row["answers"], row["share"]) == (3, 2 / 3)


def test_a_score_that_is_nan_is_none_and_other_attributes_do_not_count():
    scores = pl.LazyFrame(
        {"scorer": "s", "attribute": ["toxicity", "toxicity", "threat"], "score": [0.5, float("nan"), 1.0]}
    )
    assert scored_shares(scores).rows() == [("s", "toxicity", 2, 0.5)]


def test_the_source_that_gave_most_is_named_with_its_share():
    assert leading_source({"a": 1, "b": 3}).rows() == [("b", 4, 0.75)]
    assert leading_source({}).rows() == [("none", 0, 0.0)]
