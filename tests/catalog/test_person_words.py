"""The words that name a gender, a race or an age, and the captions that name none."""

import re
from collections import Counter

import pytest

from plumbline.catalog.suites import load_suite
from plumbline.catalog.word_lists import attribute_words, neutral_captions, person_words
from plumbline.errors import ConfigError

ATTRIBUTES = ("gender", "race", "age")


def words_of(attribute):
    words = attribute_words(attribute)
    return [*words.nouns, *words.pronouns, *words.modifiers, *words.before_persons]


def test_the_files_say_what_they_are():
    for file in (person_words(), neutral_captions()):
        assert file.id in ("person_words", "neutral_captions") and file.version == 1 and file.source
    assert tuple(person_words().attributes) == ATTRIBUTES


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_no_word_stands_twice_and_all_are_as_they_are_looked_up(attribute):
    words = words_of(attribute)
    assert [word for word, count in Counter(words).items() if count > 1] == []
    for word in (*words, *person_words().persons, *person_words().no_nouns, *person_words().pictures):
        # YAML reads an unquoted `on` or `no` as a truth value.
        assert isinstance(word, str) and word == " ".join(word.lower().split()) and "-" not in word


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_what_is_left_of_a_word_names_no_label(attribute):
    words = attribute_words(attribute)
    named = set(words_of(attribute))
    for neutral in (*words.nouns.values(), *words.pronouns.values()):
        assert not named.intersection({neutral.lower(), *neutral.lower().split()}), neutral


def test_what_is_left_of_a_noun_is_a_person_that_a_variant_can_name():
    known = {*person_words().persons, *(n for a in ATTRIBUTES for n in attribute_words(a).nouns), *words_of("race")}
    for attribute in ATTRIBUTES:
        for neutral in attribute_words(attribute).nouns.values():
            parts = neutral.lower().split()
            assert neutral.lower() in known or known.issuperset(parts), neutral


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_phrases_are_regular_expressions_without_names_of_their_own(attribute):
    for phrase in attribute_words(attribute).phrases:
        assert re.compile(phrase, re.IGNORECASE).groupindex == {}


def test_the_races_are_those_of_fairface():
    assert set(attribute_words("race").variants) == set(load_suite("trident", classes="fairface").class_labels)
    assert tuple(attribute_words("gender").variants) == ("man", "woman")
    assert tuple(attribute_words("age").variants) == ("young", "old")


def test_an_unknown_attribute_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"height(.|\n)*gender, race, age"):
        attribute_words("height")


def test_neutral_captions_are_distinct_sentences_with_the_right_article():
    texts = neutral_captions().texts
    assert len(set(texts)) == len(texts) > 100
    assert "a picture of an actor" in texts and "a close-up photo of a calm person" in texts
    assert not [text for text in texts if re.search(r"\ba [aeiou]|\ban [^aeiou]|[{}]|  ", text)]
