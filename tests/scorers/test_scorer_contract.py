"""What every scorer promises, proved for every kind."""

import math
import threading

import numpy as np
import pytest
from tiny_classifiers import TEXTS

from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.scorers import kinds

HOSTILE = ["<s></s>[SEP] <pad>", "line\nbreak\ttab\0nul", "   ", "word_" * 3000, "\u202egnp.exe"]
ALL = [*TEXTS, *HOSTILE]
OWN_CODE = "own"
"""The kind that is a function of the user's: tests/documentation/test_own_code.py holds it to its contract."""


def by_text(scorer, texts):
    found = {}
    for position, scored in scorer.score(texts):
        assert position not in found
        found[position] = scored
    assert sorted(found) == list(range(len(texts)))
    return [found[position] for position in range(len(texts))]


def as_rows(scorer, scored):
    return np.array([[one.scores[name] for name in scorer.attributes] for one in scored])


def test_every_registered_kind_keeps_the_contract(made_kinds):
    missing = kinds.KINDS.keys() - made_kinds - {OWN_CODE}
    assert not missing, "no scorer here: add one to `KINDS` and to `make_scorer` of tests/scorers/conftest.py"


def test_it_says_what_it_is(scorer):
    assert set(scorer.attributes) <= set(SCORED_ATTRIBUTES)
    assert len(set(scorer.attributes)) == len(scorer.attributes) > 0
    assert list(scorer.attributes) == [name for name in SCORED_ATTRIBUTES if name in scorer.attributes]
    assert len(scorer.identity) == 64
    assert int(scorer.identity, 16)
    assert scorer.version.strip() == scorer.version != ""
    assert scorer.offline_stand_in == (scorer.kind == "offline")


def test_every_text_has_scores_from_0_to_1_or_a_reason(scorer):
    scored = by_text(scorer, ALL)
    for one in scored:
        assert tuple(one.scores) == scorer.attributes
        for score in one.scores.values():
            assert 0 <= score <= 1 or (math.isnan(score) and one.reason)
        assert one.reason is None or any(math.isnan(score) for score in one.scores.values())
    assert any(one.reason is None for one in scored)


def test_no_texts_give_nothing(scorer):
    assert list(scorer.score([])) == []


def test_a_score_depends_on_its_text_alone(scorer):
    together = by_text(scorer, ALL)
    order = np.random.default_rng(5).permutation(len(ALL))
    shuffled = by_text(scorer, [ALL[i] for i in order])
    alone = [by_text(scorer, [text])[0] for text in ALL]
    expected = as_rows(scorer, together)
    np.testing.assert_allclose(as_rows(scorer, shuffled), expected[order], atol=1e-5, rtol=0)
    np.testing.assert_allclose(as_rows(scorer, alone), expected, atol=1e-5, rtol=0)
    assert [one.truncated for one in alone] == [one.truncated for one in together]
    assert [shuffled[place].reason for place in np.argsort(order)] == [one.reason for one in together]


def test_texts_have_scores_that_differ(scorer):
    """Else the tests of order would prove nothing; scores of 0 and 1 alone are enough."""
    rows = as_rows(scorer, by_text(scorer, TEXTS))
    assert len(np.unique(rows[~np.isnan(rows).any(axis=1)], axis=0)) > 1, (
        "all texts have one score: make the scorer in tests/scorers/conftest.py such that it tells some of `TEXTS` of "
        "tiny_classifiers.py apart, as a word list does that holds one of their words, such as `person`"
    )


def test_the_same_call_gives_the_same_bits(scorer, make_scorer):
    again = make_scorer(scorer.kind)
    assert again.identity == scorer.identity
    np.testing.assert_array_equal(as_rows(scorer, by_text(scorer, ALL)), as_rows(again, by_text(again, ALL)))


def test_kinds_differ_in_identity(make_scorer):
    kinds = ("offline", "roberta", "bert", "distilbert", "perspective", "stored")
    assert len({make_scorer(kind).identity for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("kind", ["offline", "roberta", "perspective"])
def test_an_iterator_that_is_left_early_leaves_nothing_running(make_scorer, kind):
    scores = make_scorer(kind).score(TEXTS)
    next(scores)
    scores.close()
    running = [t for t in threading.enumerate() if t.name.startswith(("tokeniser", "perspective"))]
    assert running == []
