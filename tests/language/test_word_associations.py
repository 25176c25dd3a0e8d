"""Word associations against fractions worked by hand and the obvious loop over dicts."""

import json
from fractions import Fraction
from math import inf, log
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.language.tokens import count_words
from plumbline.language.words import word_associations
from plumbline.reasons import encode, reason

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "word_associations.json").read_text())


HALF_REASON, EMPTY_REASON, ALONE_REASON = (
    encode([reason(code)]) for code in ("never_said_of_others", "no_words_of_group", "no_words_of_others")
)


def frame(counts):
    """Return nested dicts as the frame that `word_associations` takes."""
    rows = [(group, word, n) for group, words in counts.items() for word, n in words.items()]
    return pl.DataFrame(rows, schema={"group": pl.String, "word": pl.String, "count": pl.Int64}, orient="row")


def by_loops(counts, *, min_count=10, threshold=1.0, log_base=2.0):
    """Write the definition down, word by word, with exact ratios."""
    totals = {group: sum(words.values()) for group, words in counts.items()}
    found = {}
    for group, words in counts.items():
        others = [other for other in counts if other != group]
        n_others = sum(totals[other] for other in others)
        for word, count in words.items():
            if count < min_count or not n_others:
                continue
            elsewhere = sum(counts[other].get(word, 0) for other in others) or Fraction(1, 2)
            ratio = Fraction(count, totals[group]) / (elsewhere / Fraction(n_others))
            if threshold == -inf or ratio > Fraction(log_base) ** int(threshold):
                found[group, word] = log(ratio, log_base)
    return found


def found_in(table):
    return {(row["group"], row["word"]): row["association"] for row in table.iter_rows(named=True)}


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["source"])
def test_by_hand(case):
    inputs = dict(case["inputs"])
    table = word_associations(frame(inputs.pop("counts")), **inputs)
    base = inputs.get("log_base", 2)
    expected = {(group, word): answer for group, words in case["expected"].items() for word, answer in words.items()}
    assert table.height == len(expected)
    for row in table.iter_rows(named=True):
        ratio, n, elsewhere, n_others, halved = expected[row["group"], row["word"]]
        assert row["association"] == pytest.approx(log(Fraction(ratio), base), abs=case["tol"])
        assert row["count"] == case["inputs"]["counts"][row["group"]][row["word"]]
        assert (row["n"], row["count_others"], row["n_others"]) == (n, elsewhere, n_others)
        assert row["reason_codes"] == (HALF_REASON if halved else None)


dicts = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(st.sampled_from(["of", "kind", "café", "well-known", "x"]), st.integers(1, 40)),
    min_size=1,
)


@settings(max_examples=150)
@given(dicts, st.sampled_from([1, 3, 10]), st.sampled_from([-inf, 0.0, 1.0, 2.0]))
def test_agrees_with_the_obvious_loop(counts, min_count, threshold):
    table = word_associations(frame(counts), min_count=min_count, threshold=threshold)
    slow = by_loops(counts, min_count=min_count, threshold=threshold)
    fast = found_in(table.filter(pl.col("word").is_not_null()))
    assert fast.keys() == slow.keys()
    assert fast == {key: pytest.approx(value, abs=1e-12) for key, value in slow.items()}


def test_an_exact_multiple_does_not_slip_over_the_threshold():
    # Two separate logarithms of these give a difference some 1e-16 above 1.
    for n in range(30, 3000, 7):
        counts = {"a": {"x": 20, "y": n}, "b": {"x": 10, "y": n + 10}}
        assert word_associations(frame(counts)).is_empty()


def test_strongest_first_within_each_group():
    counts = {"b": {"p": 50, "q": 12, "z": 40, "m": 12}, "a": {"r": 60, "p": 10, "q": 3, "z": 9, "m": 3}}
    table = word_associations(frame(counts))
    assert list(zip(table["group"], table["word"])) == [("a", "r"), ("b", "p"), ("b", "z"), ("b", "m"), ("b", "q")]


def test_counts_of_several_partitions_are_added():
    whole = {"a": {"x": 20, "the": 80}, "b": {"x": 9, "the": 91}}
    parts = [{"a": {"x": 13}, "b": {"the": 91}}, {"a": {"x": 7, "the": 80}, "b": {"x": 9}}]
    together = word_associations(pl.concat([frame(part) for part in parts]))
    assert together.equals(word_associations(frame(whole))) and together.height == 1


def test_a_group_without_words_is_not_a_group_without_associations():
    counts = count_words(
        [pl.DataFrame({"group": ["a"] * 12 + ["b"] * 12 + ["c"], "text": ["kind"] * 12 + ["rude"] * 12 + ["..."]})]
    )
    rows = word_associations(counts).rows(named=True)
    assert [(row["group"], row["word"]) for row in rows] == [("a", "kind"), ("b", "rude"), ("c", None)]
    assert rows[2]["association"] != rows[2]["association"]
    assert (rows[2]["n"], rows[2]["n_others"], rows[2]["reason_codes"]) == (0, 24, EMPTY_REASON)


def test_a_group_beside_no_other_is_undefined():
    row = word_associations(frame({"a": {"x": 50, "the": 50}})).row(0, named=True)
    assert row["word"] is None and np.isnan(row["association"])
    assert (row["n"], row["n_others"], row["reason_codes"]) == (100, 0, ALONE_REASON)


def test_the_only_group_with_words_is_undefined_too():
    table = word_associations(frame({"a": {"x": 50}, "b": {"x": 0}}))
    assert table["reason_codes"].to_list() == [ALONE_REASON, EMPTY_REASON]
    assert table["association"].is_nan().all()


def test_nothing_counted_gives_an_empty_table():
    table = word_associations(frame({}))
    assert table.is_empty() and table.columns[:3] == ["group", "word", "association"]
