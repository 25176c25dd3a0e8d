"""What counts as a list of words in a judge's reply, and what as a word at all."""

from __future__ import annotations

import pytest

from plumbline.generators.judge import LONGEST_WORD, plain_word, read_word_list

KNOWN = ("lazy", "well-known", "don't", "é")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('["lazy", "Don\\u2019t"]', ["lazy", "don't"]),
        ('```json\n["lazy"]\n```', ["lazy"]),
        ("```\nlazy\n```", ["lazy"]),
        ("[]", []),
        (" [ ] ", []),
        ("\u2018\u2018[]\u2019\u2019", []),
        ("[lazy, 'well-known']", ["lazy", "well-known"]),
        ("[lazy]", ["lazy"]),
        ("lazy, well-known.", ["lazy", "well-known"]),
        ("lazy\nwell-known\n", ["lazy", "well-known"]),
        ("- lazy\n- well-known", ["lazy", "well-known"]),
        ("* lazy\n* **well-known**", ["lazy", "well-known"]),
        ("1. lazy\n2) well-known", ["lazy", "well-known"]),
        ('"lazy", "well-known"', ["lazy", "well-known"]),
        ("LAZY, almond eyes", ["lazy", "almond eyes"]),
        ("e\u0301", ["é"]),
        ("[invented]", ["invented"]),
    ],
)
def test_lists_are_read(reply, expected):
    assert read_word_list(reply, KNOWN) == expected


def test_a_reply_that_opens_a_fence_and_never_closes_it_is_read_at_once():
    assert read_word_list("```" + "\n" * 300_000 + "x", KNOWN) is None
    assert read_word_list("```" + " " * 300_000 + "x```", KNOWN) is None


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "I found no words that are stereotypes of this group.",
        "I'm sorry, but I can't help with that.",
        "Sorry, no.",
        "None",
        "Here are the words: lazy, well-known",
        '{"words": ["lazy"]}',
        '["lazy", 3]',
        '["lazy", ["well-known"]]',
        '"lazy"["',
        "[lazy] and [well-known]",
        "lazy, <b>well-known</b>",
        '["lazy", "the words of a long sentence"]',
        "[" * 50_000,
        "lazy, " + "x" * (LONGEST_WORD + 1),
    ],
)
def test_anything_else_is_no_list(reply):
    assert read_word_list(reply, KNOWN) is None


@pytest.mark.parametrize(
    "word", ["", "two words", "a,b", "-a", "a-", "a--b", "a_b", "4x4", "<b>", "a\nb", "a\u202eb", "x" * 41, "\u0301"]
)
def test_what_is_not_shaped_like_a_word(word):
    assert plain_word(word) is None


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        ("Lazy", "lazy"),
        ("Mother-in-law", "mother-in-law"),
        ("isn\u2019t", "isn't"),
        ("ÉLAN", "élan"),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_words_in_one_writing(word, plain):
    assert plain_word(word) == plain
