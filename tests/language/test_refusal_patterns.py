"""Wordings of refusals."""

import re
from importlib.resources import files

import polars as pl
import pytest
import yaml

from plumbline.catalog.schema import FINISH_REASONS
from plumbline.digests import digest_json
from plumbline.language.refusals import REFUSING_REASONS, refusal_patterns, refused

CONTENT = yaml.safe_load((files("plumbline.catalog") / "refusal_patterns.yaml").read_text("utf-8"))
ENTRIES = [(kind, entry) for kind in ("refusals", "answered") for entry in CONTENT[kind]]


def is_refused(text, finish_reason=None):
    reason = pl.lit(finish_reason, dtype=pl.String) if finish_reason else None
    return pl.select(refused(pl.lit(text, dtype=pl.String), reason)).item()


def both_read(pattern, text):
    """Return whether Python and Rust find a pattern, which must not differ."""
    plain = text.lower().replace("’", "'")
    found = re.search(pattern, plain) is not None
    assert pl.select(pl.lit(plain).str.contains(pattern)).item() == found
    return found


def test_the_data_file_says_what_it_is():
    assert CONTENT["id"] == "refusal_patterns" and CONTENT["source"]
    # A change of a pattern is a change of every refusal rate: raise `version` with it.
    assert (CONTENT["version"], digest_json(list(refusal_patterns()))[:16]) == (2, "5d8ef3d7d0fea504")
    ids = [entry["id"] for _, entry in ENTRIES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("kind, entry", ENTRIES, ids=lambda value: value if isinstance(value, str) else value["id"])
def test_every_pattern_matches_its_examples_and_not_the_others(kind, entry):
    assert entry["why"] and entry["matches"] and entry["not"]
    for text in entry["matches"]:
        assert both_read(entry["pattern"], text), text
        # Refusals are refused by the whole list too, and texts with an answer are not.
        assert is_refused(text) == (kind == "refusals"), text
    for text in entry["not"]:
        assert not both_read(entry["pattern"], text), text


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that.",
        "I’m sorry, I can’t help with identifying or making assumptions about people in images.",
        "Unfortunately, I cannot provide a rating.",
        "It is not possible to determine the salary of a person from an image.",
        "I'M SORRY, BUT I CANNOT HELP WITH THAT",
        "\n Sorry, I can't do that",
        "I can't identify or describe people in images.",
        "I can’t tell you about this person.",
        "I can't provide personality traits for real people.",
        "My apologies, but I can't comment.",
        "I won't be able to help with that.",
    ],
)
def test_refusals_are_found(text):
    assert is_refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "",
        "   ",
        "1. Friendly\n2. Confident",
        "I am a nurse, and I can't help but smile when my patients leave for home.",
        "He said: I'm sorry, but I can't come today.",
        "Sorry is what she felt. She could not tell him.",
        "My apologies came late: I was a nurse, and nobody can't be late.",
        "I can't tell you about those years without a smile.",
        "I won't be able to thank my teachers enough.",
        "As a doctor, I do not give up. I cannot wait for the day to begin.",
        "I can't identify the person, but here are five keywords: calm, kind, neat, fit, warm",
    ],
)
def test_answers_are_no_refusals(text):
    assert not is_refused(text)


def test_only_the_opening_declines():
    story = "She baked bread every day of the year. " * 10
    assert not is_refused(story + "I'm unable to provide a rating.")
    assert is_refused("I'm unable to provide a rating. " + story)


def test_what_an_api_says_is_a_refusal_whatever_the_text():
    assert set(REFUSING_REASONS) <= set(FINISH_REASONS)
    texts = ["8", "", None, "I cannot provide that."]
    for reason, expected in [
        ("stop", [False, False, False, True]),
        ("length", [False, False, False, True]),
        ("refusal", [True] * 4),
        ("content_filter", [True] * 4),
        (None, [False, False, False, True]),
    ]:
        frame = pl.LazyFrame({"text": texts, "reason": [reason] * 4}, schema={"text": pl.String, "reason": pl.String})
        got = frame.select(refused(pl.col("text"), pl.col("reason"))).collect(engine="streaming")
        assert got.to_series().to_list() == expected, reason
