"""Texts that name no label of an attribute: whole words, right articles, and never a `woperson`."""

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.catalog.suites import load_suite
from plumbline.catalog.word_lists import attribute_words, neutral_captions, person_words
from plumbline.errors import ConfigError, MetricError
from plumbline.mitigations.saner import is_neutral, neutralised, specific_pattern, variants

ATTRIBUTES = ("gender", "race", "age")

NEUTRALISED = [
    ("gender", "a photo of a woman", "a photo of a person"),
    ("gender", "a photo of an Indian woman", "a photo of an Indian person"),
    ("gender", "two men and three women", "two people and three people"),
    ("gender", "a woman's hat, the women\u2019s hats", "a person's hat, the people\u2019s hats"),
    ("gender", "A MAN and A Woman.", "A PERSON and A person."),
    ("gender", "Woman reading. Men talking.", "Person reading. People talking."),
    ("gender", "a policewoman and a salesman", "a police officer and a salesperson"),
    ("gender", "an actress and a hostess", "an actor and a host"),
    ("gender", "a girl with an aunt", "a child with a relative"),
    ("gender", "a female doctor", "a doctor"),
    ("gender", "a male engineer", "an engineer"),
    ("gender", "a woman doctor", "a doctor"),
    ("gender", "a photo of a female", "a photo of a person"),
    ("gender", "a female in a red dress", "a person in a red dress"),
    ("gender", "Female officer", "Officer"),
    ("gender", "two females", "two people"),
    ("gender", "She is riding her bike; it is hers.", "The person is riding their bike; it is theirs."),
    ("gender", "a man with his friend", "a person with their friend"),
    ("gender", "a photo of a doctor_woman", "a photo of a doctor_person"),
    ("gender", "a woman, man, and child", "a person, person, and child"),
    ("gender", "a lady-in-waiting and a lady", "a lady-in-waiting and a person"),
    ("race", "a photo of an Indian woman", "a photo of a woman"),
    ("race", "a photo of a Black individual", "a photo of an individual"),
    ("race", "a photo of a Latino or Hispanic man, 20-29 years old", "a photo of a man, 20-29 years old"),
    ("race", "a photo of a Latino_Hispanic_woman", "a photo of a woman"),
    ("race", "a photo of a East Asian", "a photo of a person"),
    ("race", "a photo of a White", "a photo of a person"),
    ("race", "an African-American actor and Asians", "an actor and people"),
    ("race", "a tall black police officer in a black coat", "a tall police officer in a black coat"),
    ("race", "Middle Eastern men", "Men"),
    ("age", "a photo of a Black woman, 20-29 years old", "a photo of a Black woman"),
    ("age", "a photo of an Indian man, 30-39 years old, doctor", "a photo of an Indian man, doctor"),
    ("age", "a photo of a man, over 70", "a photo of a man"),
    ("age", "a photo of a woman, middle-aged", "a photo of a woman"),
    ("age", "a photo of a man, child", "a photo of a man"),
    ("age", "a photo of an elderly woman", "a photo of a woman"),
    ("age", "an old man and an old actor", "a man and an actor"),
    ("age", "an 8-year-old boy with a girl", "a man with a woman"),
    ("age", "a 20-year-old in a hat", "a person in a hat"),
    ("age", "a woman in her 30s, smiling", "a woman, smiling"),
    ("age", "A photo of a young adult person.", "A photo of a person."),
    ("age", "a photo of a young_adult_woman", "a photo of a woman"),
    ("age", "children", "people"),
]

NEUTRAL = [
    ("gender", "human"), ("gender", "Womanizer"), ("gender", "mankind"), ("gender", "a man-made lake"),
    ("gender", "a manager in Manhattan"), ("gender", "the shell"), ("gender", ""), ("gender", "   "),
    ("gender", "a photo of a thief"), ("gender", "un caf\u00e9, w\u00f6man, \u5973\u4eba \U0001f469"),
    ("gender", "non\u2011man"), ("gender", "theme, hero, usher"), ("race", "a man in a black suit with a white dog"),
    ("race", "a white, fluffy cat"), ("race", "black and white photo of a person"), ("race", "a black-haired person"),
    ("race", "Indiana, Caucasus, Africana"), ("race", "a photo of a suspicious person"),
    ("age", "an old building and a young oak"), ("age", "over 70 people"), ("age", "a woman of the world, 30 of them"),
    ("age", "a photo of a thief"), ("age", "childlike boyish kidney"),
]  # fmt: skip


@pytest.mark.parametrize(("attribute", "text", "expected"), NEUTRALISED)
def test_a_text_that_names_a_label_is_neutralised(attribute, text, expected):
    assert not is_neutral(text, attribute)
    assert neutralised(text, attribute) == expected
    assert is_neutral(expected, attribute)


@pytest.mark.parametrize(("attribute", "text"), NEUTRAL)
def test_a_text_without_a_label_is_left_alone(attribute, text):
    assert is_neutral(text, attribute)
    assert neutralised(text, attribute) == text


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_every_word_is_found_whole_in_any_case_and_only_whole(attribute):
    words = attribute_words(attribute)
    for word in (*words.nouns, *words.pronouns, *words.modifiers, *words.before_persons):
        text = f"it was {word} person" if word in words.before_persons else f"it was {word} again"
        for written in (text, text.upper(), text.replace(word, word.replace(" ", "-")), text.title()):
            assert not is_neutral(written, attribute), written
        for inside in (f"x{word}", f"{word}x", f"{word}\u00e9", f"pre-{word}", f"{word}-like", f"{word}2"):
            assert is_neutral(text.replace(word, inside), attribute) or " " in word, inside


@pytest.mark.parametrize(
    ("attribute", "text", "expected"),
    [
        ("gender", "a photo of a person", ["a photo of a male person", "a photo of a female person"]),
        ("gender", "an individual and people", ["a male individual and male people",
                                                "a female individual and female people"]),
        ("gender", "an Indian person", ["an Indian male person", "an Indian female person"]),
        ("gender", "a police officer", ["a male police officer", "a female police officer"]),
        ("age", "a photo of a thief", ["a photo of a young thief", "a photo of an old thief"]),
        ("age", "A person.", ["A young person.", "An old person."]),
        # No person is known: after the article of what is shown, else before the first word.
        ("gender", "a photo of a zookeeper at a zoo", ["a photo of a male zookeeper at a zoo",
                                                       "a photo of a female zookeeper at a zoo"]),
        ("gender", "photo of zookeepers", ["photo of male zookeepers", "photo of female zookeepers"]),
        ("gender", "zookeeper", ["male zookeeper", "female zookeeper"]),
        ("gender", "", ["male", "female"]),
    ],
)  # fmt: skip
def test_variants_name_each_label(attribute, text, expected):
    assert variants(text, attribute) == tuple(expected)


def test_there_are_seven_variants_of_race():
    assert variants("a photo of an individual", "race") == (
        "a photo of a White individual",
        "a photo of a Black individual",
        "a photo of an East Asian individual",
        "a photo of a Southeast Asian individual",
        "a photo of an Indian individual",
        "a photo of a Middle Eastern individual",
        "a photo of a Latino individual",
    )


@pytest.mark.parametrize(("word", "article"), [("European", "a"), ("unicyclist", "a"), ("one-armed", "a"),
                                               ("heir", "an"), ("honest", "an"), ("uninvited", "an")])  # fmt: skip
def test_articles_follow_the_sound(word, article):
    assert neutralised(f"a female {word} worker", "gender") == f"{article} {word} worker"


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_variants_of_captions_are_specific_and_neutralise_back(attribute):
    for text in neutral_captions().texts:
        assert is_neutral(text, attribute), text
        made = variants(text, attribute)
        assert len(set(made)) == len(attribute_words(attribute).variants)
        assert {neutralised(variant, attribute) for variant in made} == {text}


def test_a_specific_text_has_no_variants():
    with pytest.raises(MetricError, match="a photo of a man"):
        variants("a photo of a man", "gender")


@pytest.mark.parametrize("ask", [is_neutral, neutralised, variants])
def test_an_attribute_without_words_is_refused(ask):
    with pytest.raises(ConfigError, match="height"):
        ask("a photo of a person", "height")


def test_who_a_suite_asks_for_is_specific_and_what_it_asks_is_neutral():
    for candidate in load_suite("crime").candidates:
        specific = candidate.category == "demographic"
        assert is_neutral(candidate.text, "gender") is is_neutral(candidate.text, "race") is not specific
        assert is_neutral(candidate.text, "age")
    for name, attribute in (("fairface", "race"), ("utkface", "age"), ("celeba", "gender")):
        for wording in ("released", "readable", "align"):
            for candidate in load_suite("trident", classes=name, wording=wording).candidates:
                assert is_neutral(candidate.text, attribute) is (candidate.category != "class"), candidate.text
    for candidate in load_suite("markedness").candidates:
        marked = {"age_group": "age"}.get(candidate.category, candidate.category)
        for attribute in ATTRIBUTES:
            assert is_neutral(candidate.text, attribute) is (marked != attribute), candidate.text
    for name in ("communion", "agency", "perception"):
        assert all(is_neutral(text, attribute) for text in load_suite(name).texts for attribute in ATTRIBUTES)


def test_the_pattern_is_complete_in_itself():
    for attribute in ATTRIBUTES:
        pattern = specific_pattern(attribute)
        assert isinstance(pattern, str) and pattern.startswith("(?i)")
        for _, text, _ in NEUTRALISED:
            assert (re.search(pattern, text) is None) is is_neutral(text, attribute)


WORDS = sorted(
    {
        word
        for attribute in ATTRIBUTES
        for kind in ("nouns", "pronouns", "modifiers", "before_persons")
        for word in getattr(attribute_words(attribute), kind)
    }
    | {"a", "an", "the", "person", "dog", "in", "and", ",", ".", "smiling", "20-29 years old", "over 70", "mr."}
    | set(person_words().persons[:20])
)


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(WORDS), max_size=8),
    st.sampled_from([" ", "  ", "_", " , "]),
    st.sampled_from(ATTRIBUTES),
    st.sampled_from([str.lower, str.upper, str.title, str.capitalize]),
)
def test_whatever_is_neutralised_is_neutral_and_stays(words, joint, attribute, case):
    text = neutralised(case(joint.join(words)), attribute)
    assert is_neutral(text, attribute)
    assert neutralised(text, attribute) == text
    for variant in variants(text, attribute):
        assert len(variant) > len(text.strip())


@settings(max_examples=150)
@given(st.text(max_size=40), st.sampled_from(ATTRIBUTES))
def test_any_text_can_be_asked(text, attribute):
    assert is_neutral(neutralised(text, attribute), attribute)


def test_a_pattern_is_the_same_in_every_process():
    """A fit is found again by what it was fitted with, its pattern among it; sets have another order each time."""
    said = "from plumbline.mitigations.saner import specific_pattern as p; print(p('race'), p('gender'))"
    patterns = {
        subprocess.run(
            [sys.executable, "-c", said],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    # The process of the tests is the third.
    patterns.add(f"{specific_pattern('race')} {specific_pattern('gender')}\n")
    assert len(patterns) == 1
