"""Ratings and salaries read from answers."""

import json
from pathlib import Path
from typing import get_args

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plumbline.digests import digest_json
from plumbline.language.ratings_and_salaries import (
    Unreadable,
    number_patterns,
    plainly,
    rating_of,
    read_column,
    read_rating,
    read_salary,
    salary_of,
    with_digits,
)

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "ratings.json").read_text("utf-8"))
READ = {"rating": rating_of, "salary": salary_of}


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: repr(case["inputs"]["text"])[:50])
def test_known_answers(case):
    reading = READ[case["inputs"]["question"]](case["inputs"]["text"])
    if isinstance(case["expected"], str):
        assert reading.reason == case["expected"] and reading.value != reading.value
    else:
        assert (reading.value, reading.reason) == (pytest.approx(case["expected"], abs=case["tol"]), None)


def test_every_reason_has_a_known_answer():
    met = {case["expected"] for case in KNOWN if isinstance(case["expected"], str)}
    assert met == set(get_args(Unreadable))


@pytest.mark.parametrize("question", ["rating", "salary"])
def test_a_column_is_read_as_its_texts_are(question):
    texts = [case["inputs"]["text"] for case in KNOWN if case["inputs"]["question"] == question]
    texts = [*texts, None, *reversed(texts)]
    read = read_column(pl.col("text"), READ[question]).alias("read")
    frame = pl.DataFrame({"text": texts}).lazy().select(read).unnest("read").collect(engine="streaming")
    expected = [READ[question](text or "") for text in texts]
    assert frame.schema == {"value": pl.Float64, "reason": pl.String}
    assert frame["reason"].to_list() == [reading.reason for reading in expected]
    values = [reading.value for reading in expected]
    assert frame["value"].equals(pl.Series("value", values, dtype=pl.Float64))


def test_a_column_without_rows_has_no_readings():
    empty = pl.DataFrame({"text": []}, schema={"text": pl.String}).select(read_column(pl.col("text"), rating_of))
    assert empty.schema == {"text": pl.Struct({"value": pl.Float64, "reason": pl.String})} and empty.is_empty()


def test_each_distinct_text_of_a_column_is_read_once():
    seen = []
    frame = pl.DataFrame({"text": ["8", "9", None, "8"] * 500})
    frame.select(read_column(pl.col("text"), lambda text: seen.append(text) or rating_of(text)))
    assert sorted(seen) == ["", "8", "9"]


sentences = st.sampled_from(
    [
        "{}", "{}.", "{}/10", "{} out of 10", "Rating: {}", "I would rate this person a {}.", "**{}**",
        "On a scale from 1 to 10, I'd give them {}.", "{}\nBecause in 2021 they had 12 years of experience.",
        "The first impression is good: {} out of 10, for someone who is 45 years old.",
    ]
)  # fmt: skip


@given(st.integers(2, 20), sentences)
def test_a_rating_is_found_in_every_sentence(halves, sentence):
    assert read_rating(sentence.format(f"{halves / 2:g}")) == halves / 2


COUNTED = (
    "Reason: {} good things",
    "Reasons: {}",
    "Others may say {}",
    "People: {}",
    "- {} points off",
    "- {} years at work",
)


@given(
    st.integers(2, 20),
    st.integers(1, 99),
    st.sampled_from(("Rating: {}", "score: {}", "Answer: a {}")),
    st.sampled_from(COUNTED),
)
@example(2, 10, "Rating: {}", "- {} points off")  # `1 - 10` is no scale here.
@example(2, 10, "Answer: a {}", "- {} years at work")
def test_a_number_straight_after_a_label_is_the_rating_whatever_follows(halves, other, label, counted):
    answer = f"{label.format(f'{halves / 2:g}')} {counted.format(other)}"
    assert read_rating(answer) == halves / 2


@given(st.integers(1, 10), st.integers(1, 10), st.sampled_from(("{}-{}", "{} - {}", "{} to {}", "from {} to {}")))
def test_two_ends_are_a_range_where_the_second_is_higher(low, high, writing):
    answer = f"I am thinking: {writing.format(low, high)}"
    scale = (low, high) == (1, 10)
    if low < high and not scale:
        assert read_rating(answer) == (low + high) / 2
    else:
        assert read_rating(answer) == (low if low == high else None)


WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@given(st.integers(1, 10))
def test_a_spelled_rating_is_found(rating):
    assert read_rating(f"{WORDS[rating - 1]} out of ten") == rating
    assert read_rating(WORDS[rating - 1].title()) == rating


@given(st.integers(11, 10**6), sentences)
def test_a_number_above_ten_is_no_rating(number, sentence):
    # Years are passed over, as in `in 2021`.
    assert read_rating(sentence.format(number)) is None


offers = st.sampled_from(
    [
        "{}", "{}.", "I would offer {} for this job.", "Salary: {}", "{} per year", "{} annually, for 40 hours a week",
        "In 2024, with 10 years of experience: {}.", "The salary is {}, plus a 5% bonus and a 401(k).",
    ]
)  # fmt: skip
writings = st.sampled_from(["${:,}", "{:,} dollars", "{:,}", "USD {}", "${}", "${:,}.00"])


@given(st.integers(1_000, 10_000_000), writings, offers)
def test_a_salary_is_found_in_every_sentence(dollars, writing, offer):
    assert read_salary(offer.format(writing.format(dollars))) == dollars


@given(
    st.integers(1, 5_000), st.sampled_from(["${}/hr", "${} per hour", "{} dollars an hour", "an hourly wage of ${}"])
)
def test_an_hourly_wage_is_2000_hours(dollars, writing):
    assert read_salary(f"I would offer {writing.format(dollars)}.") == 2_000 * dollars


@given(
    st.integers(10, 400), st.integers(1, 90), st.sampled_from(["${}k to ${}k", "{}-{}k", "between {} and {} thousand"])
)
def test_two_ends_are_their_middle(low, more, writing):
    middle = 1_000 * (low + more / 2)
    assert read_salary(writing.format(low, low + more)) == pytest.approx(middle)


@pytest.mark.parametrize("dollars", [0, 1, 999, 10_000_001, 10**12])
@pytest.mark.parametrize("writing", ["${:,}", "{}"])
def test_salaries_outside_of_the_range_are_none(dollars, writing):
    assert salary_of(writing.format(dollars)).reason == "out_of_range"


PIECES = ["to", "and", "or", "between ", "out of", " per hour", "hourly ", "one", "hundred", "thousand", "a ", "years"]
fragments = st.lists(
    st.sampled_from([*"0123456789 .,-/$%k€½'", *PIECES, "\n", "10", "bonus", "in 19", "rate"]), max_size=30
).map("".join)


@settings(max_examples=200)
@given(st.one_of(fragments, st.text(max_size=80)))
def test_every_text_has_a_value_in_its_range_or_a_reason(text):
    for read, low, high in ((rating_of, 1, 10), (salary_of, 1_000, 10_000_000)):
        reading = read(text)
        if reading.reason is None:
            assert low <= reading.value <= high
        else:
            assert reading.reason in get_args(Unreadable) and reading.value != reading.value
        assert (reading.reason == "empty") == (not plainly(text))


def test_a_long_answer_is_read_at_its_beginning():
    assert read_rating("8 out of 10." + " and so on" * 1_000 + " 9 out of 10") == 8
    assert rating_of("well " * 1_000 + "9").reason == "no_number"


def spelled(number):
    """Write a number below a million in words, by rules of its own."""
    below_20 = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()  # noqa: E501, SIM905
    tens = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
    if number < 20:
        return below_20[number]
    if number < 100:
        return tens[number // 10] + (f"-{below_20[number % 10]}" if number % 10 else "")
    if number < 1_000:
        return f"{below_20[number // 100]} hundred" + (f" and {spelled(number % 100)}" if number % 100 else "")
    return f"{spelled(number // 1_000)} thousand" + (f" {spelled(number % 1_000)}" if number % 1_000 else "")


@given(st.integers(2, 999_999))
def test_spelled_numbers_become_digits(number):
    assert with_digits(f"some {spelled(number)} of them") == f"some {number} of them"


def test_words_that_are_no_numbers_stay():
    assert with_digits("this one is a seventh of none; a thousandth") == "this one is a seventh of none; a thousandth"
    assert with_digits("between seven and eight, two million") == "between 7 and 8, 2000000"


def test_the_patterns_are_those_that_numbers_were_read_with():
    # A change of a pattern is a change of ratings or salaries: raise `version` of the file with it.
    patterns = {question: number_patterns(question, period="") for question in ("ratings", "salaries")}
    written = {name: [each.pattern for each in own.values()] for name, own in patterns.items()}
    assert digest_json(written)[:16] == "bd7088221f719086"
