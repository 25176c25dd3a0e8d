"""Published word lists beside measured ones: overlap at k, rank-biased overlap, and what is absent."""

import polars as pl
import pytest

from plumbline.errors import MetricError
from plumbline.language.words import WORD_ASSOCIATIONS
from plumbline.report.comparison import WORD_LISTS, compare_word_lists, overlap_at
from plumbline.statistics.rankings import rank_biased_overlap

LLAVA = {"mine": "hf-hub:llava-hf/llava-1.5-7b-hf@fetched", "other": "local-dir:x"}


def measured(words, *, model="mine", group="Black_man", named=None):
    columns = {name: [None] * len(words) for name in WORD_ASSOCIATIONS} | {
        "dataset": ["faces"] * len(words), "attribute": ["race_gender"] * len(words), "group": [group] * len(words),
        "word": words, "association": [9.0 - i for i in range(len(words))],
        "stereotype": [None if named is None else word in named for word in words],
    }  # fmt: skip
    return pl.DataFrame(columns, schema=WORD_ASSOCIATIONS).select(pl.lit(model).alias("model"), pl.all())


def compared(words, **more):
    return compare_word_lists(words, addresses=LLAVA, datasets=["faces"], **more)


def only(frame, table="21"):
    found = frame.filter(table=table)
    assert found.height == 1, found
    return found.row(0, named=True)


def test_a_list_is_set_beside_the_words_that_the_judge_named():
    # The first printed are tar, streetwise, dreadlocks, inner-city, rapper.
    row = only(compared(measured(["rapper", "tall", "tar", "mohawk"], named=["rapper", "tar"])))
    assert (row["printed"], row["measured"], row["associated"]) == (20, 2, 3)
    assert row["overlap"] == pytest.approx(2 / 20) and 0 < row["rank_biased_overlap"] < 1
    assert len(row["absent"]) == 18 and "mohawk" in row["absent"] and "rapper" not in row["absent"]
    assert row["note"] is None and row["column"] == "LLaVA-7b"


def test_without_a_judge_only_the_association_is_compared_and_it_is_said():
    row = only(compared(measured(["rapper", "tall"])))
    assert (row["overlap"], row["rank_biased_overlap"], row["associated"]) == (None, None, 1)
    assert row["note"].startswith("no judge named stereotypes")


def test_other_models_datasets_and_groups_are_passed_over():
    empty = compared(measured(["rapper"], model="other"))
    assert dict(empty.schema) == WORD_LISTS
    assert empty.is_empty()
    assert compare_word_lists(measured(["rapper"]), addresses=LLAVA, datasets=[]).is_empty()
    assert compared(measured(["rapper"], group="nobody")).is_empty()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abc", "abc", 1.0),
        ("abc", "xyz", 0.0),
        # By hand, p = 0.5: X = 0, 2, so 1/2 · (0 + 2/2 · 1/4) / (1/2) + 2/2 · 1/4.
        ("ab", "ba", 0.5),
        # By hand, p = 0.5: 1 · (1/2 + 1/2 · 1/4 + 1/2 · 1/4) + 1 · 1/4.
        ("a", "ab", 1.0),
    ],
)
def test_rank_biased_overlap_by_hand(first, second, expected):
    assert rank_biased_overlap(first, second, p=0.5) == pytest.approx(expected)
    assert rank_biased_overlap(second, first, p=0.5) == pytest.approx(expected)


def test_the_top_counts_most_and_an_empty_list_has_no_overlap():
    same_top, same_end = rank_biased_overlap("abcd", "abxy"), rank_biased_overlap("cdab", "xyab")
    assert same_top > same_end
    assert rank_biased_overlap("", "ab") != rank_biased_overlap("", "ab")
    with pytest.raises(MetricError, match="each item once"):
        rank_biased_overlap("aa", "ab")
    with pytest.raises(MetricError, match="0 < p < 1"):
        rank_biased_overlap("a", "b", p=1)


def test_overlap_at_k_is_of_the_first_k():
    assert overlap_at("abcd", "bxad", k=2) == 0.5 and overlap_at("abcd", "bxad", k=4) == 0.75
    with pytest.raises(MetricError, match="k = 0"):
        overlap_at("a", "b", k=0)
