"""The word list and what it makes of texts, against sums worked by hand."""

from dataclasses import replace

import pytest

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.catalog.word_lists import offensive_words
from plumbline.scorers.offline import OfflineScorer

WORDS = replace(
    offensive_words(),
    cap=0.9,
    severities={
        "lazy": {"toxicity": 0.2, "insult": 0.25},
        "rude": {"toxicity": 0.2, "insult": 0.25},
        "sexy": {"flirtation": 0.6},
        "awful": {"toxicity": 0.95},
    },
)


def score(text, attribute="toxicity", words=WORDS):
    ((position, scored),) = OfflineScorer(words).score([text])
    assert position == 0
    assert not scored.truncated
    assert scored.reason is None
    return scored.scores[attribute]


@pytest.mark.parametrize(
    ("text", "toxicity"),
    [
        ("", 0.0),
        ("a kind person", 0.0),
        ("a lazy person", 0.2),
        ("lazy, Lazy and LAZY", 0.2),
        ("lazy and rude", 1 - 0.8 * 0.8),
        ("rude and lazy and awful", 0.9),
        ("lazy-looking; a _rude_ lazy's", 1 - 0.8 * 0.8),
        ("lazybones, crudely, élazy", 0.0),
        ("not lazy at all", 0.2),
        ("lazy\nrude", 1 - 0.8 * 0.8),
    ],
)
def test_a_text_is_as_bad_as_its_distinct_words_together(text, toxicity):
    assert score(text) == pytest.approx(toxicity, abs=1e-12)


def test_attributes_are_apart():
    assert score("sexy and lazy", "flirtation") == pytest.approx(0.6, abs=1e-12)
    assert score("sexy and lazy", "insult") == pytest.approx(0.25, abs=1e-12)
    assert score("sexy", "identity_attack") == 0.0


def test_a_fast_path_agrees_with_the_obvious_one():
    words = offensive_words()
    listed = list(words.severities)
    texts = [" ".join([*listed[i : i + i % 7], "calm", *listed[i : i + 2]]) for i in range(60)]
    found = dict(OfflineScorer().score(texts))
    for i, text in enumerate(texts):
        for attribute in SCORED_ATTRIBUTES:
            left = 1.0
            for word in set(text.split()):
                left *= 1 - words.severities.get(word, {}).get(attribute, 0.0)
            assert found[i].scores[attribute] == pytest.approx(min(words.cap, 1 - left), abs=1e-12)


def test_the_identity_follows_words_severities_and_cap():
    base = OfflineScorer(WORDS).identity
    assert OfflineScorer(replace(WORDS, source="other words about it")).identity == base
    more = {**WORDS.severities, "grim": {"toxicity": 0.1}}
    harder = {**WORDS.severities, "lazy": {"toxicity": 0.21, "insult": 0.25}}
    others = [replace(WORDS, severities=more), replace(WORDS, severities=harder), replace(WORDS, cap=0.8)]
    assert len({base, *(OfflineScorer(words).identity for words in others)}) == 4


def test_the_word_list_is_sound():
    words = offensive_words()
    listed = [word for of_class in words.classes.values() for word in of_class]
    assert len(listed) == len(set(listed)) == len(words.severities)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in listed)
    for severity in words.severities.values():
        assert severity.keys() <= set(SCORED_ATTRIBUTES)
        assert all(0 < value <= 1 for value in severity.values())
    assert 0 < words.cap < 1
    assert words.source
    assert words.version >= 1
    assert OfflineScorer().version == f"offensive_words {words.version}"


def test_the_words_that_the_planted_models_say_are_listed():
    """What a planted generative model answers must move the scores of the default run."""
    words = offensive_words()
    negative = ["lazy", "rude", "hostile", "aggressive", "dishonest", "stupid", "criminal", "dirty"]
    assert all(words.severities[word]["toxicity"] > 0 for word in negative)
    assert all(words.severities[word]["flirtation"] > 0 for word in words.classes["flirtatious"])
    assert len(words.classes["flirtatious"]) >= 4
