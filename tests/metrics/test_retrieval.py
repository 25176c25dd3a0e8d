"""Retrieval: cases by hand, ties, and agreement with a sort for every image and caption."""

import numpy as np
import pytest

from plumbline.errors import MetricError
from plumbline.metrics.paired import comparisons as retrieval
from plumbline.metrics.paired.comparisons import HITS, caption_hits, retrieval_hits


def at(*degrees):
    """Return unit vectors of the plane."""
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def hits(images, captions, caption_of):
    return {name: each.tolist() for name, each in retrieval_hits(images, captions, np.array(caption_of)).items()}


def test_known_answers():
    """Captions at 0 and 90 degrees. The image at 50 is nearer to the second, but belongs to the first; of the first's
    two nearest images one is a stranger."""
    found = hits(at(10, 50, 40, 80), at(0, 90), [0, 0, 1, 1])
    assert found["image_to_text@1"] == [True, False, False, True]
    assert found["image_to_text@5"] == [True] * 4
    assert found["text_to_image_r_precision"] == [True, False, False, True]
    assert found.keys() == HITS.keys()


def test_five_captions_may_be_looked_at_and_no_sixth():
    captions = at(0, 10, 20, 30, 40, 50, 60)
    found = hits(at(0, 0, 0), captions, [0, 4, 5])
    assert found["image_to_text@1"] == [True, False, False]
    assert found["image_to_text@5"] == [True, True, False]


def test_ties_take_the_lower_caption_and_the_earlier_image():
    """Two captions alike and four images alike: the first caption is found by all, and finds the two first images."""
    found = hits(at(0, 0, 0, 0), at(0, 0, 90), [1, 0, 1, 0])
    assert found["image_to_text@1"] == [False, True, False, True]
    assert found["text_to_image_r_precision"] == [True, True, False, False]


def test_of_a_tie_as_many_are_found_as_there_is_room_for():
    """The first image, of the other caption, is the nearest to the first caption: one of two that tie has room."""
    found = hits(at(0, 10, 10, 90), at(0, 90), [1, 0, 0, 1])
    assert found["text_to_image_r_precision"] == [False, True, False, True]


def test_a_caption_that_no_image_has_is_a_distractor_only():
    found = hits(at(0, 90), at(90, 0, 1), [2, 0])
    assert found["image_to_text@1"] == [False, True]
    assert found["text_to_image_r_precision"] == [True, True]


def obvious(images, captions, caption_of):
    scores = images @ captions.T
    place = [int(np.flatnonzero(np.argsort(-row, kind="stable") == own)[0]) for row, own in zip(scores, caption_of)]
    found = np.zeros(len(images), dtype=bool)
    for caption in set(caption_of.tolist()):
        own = caption_of == caption
        best = np.argsort(-scores[:, caption], kind="stable")[: own.sum()]
        found |= own & np.isin(np.arange(len(images)), best)
    return {
        "image_to_text@1": np.array(place) < 1,
        "image_to_text@5": np.array(place) < 5,
        "text_to_image_r_precision": found,
    }


@pytest.mark.parametrize("at_once", [1, 130, 10**6])
def test_it_equals_sorting_everything_however_it_is_cut(monkeypatch, at_once):
    """Vectors of few whole coordinates, so that ties abound and products are exact."""
    monkeypatch.setattr(retrieval, "_AT_ONCE", at_once)
    rng = np.random.default_rng(2)
    images, captions = (np.eye(8, dtype=np.float32)[rng.integers(0, 8, size)] for size in (90, 21))
    caption_of = rng.integers(0, 21, 90)
    found = retrieval_hits(images, captions, caption_of)
    for name, expected in obvious(images, captions, caption_of).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
        assert 0 < expected.sum() < 90


def test_no_images_give_no_hits():
    found = retrieval_hits(at()[:0], at(0, 90), np.empty(0, dtype=np.int64))
    assert all(each.shape == (0,) for each in found.values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((at(0, 1), at(0), np.array([0])), "one space"),
        ((at(0, 1), at(0), np.array([0, 1])), "none of the captions"),
        ((at(0, 1), at(0), np.array([-1, 0])), "none of the captions"),
        ((2 * at(0), at(0), np.array([0])), "image vectors must be of unit norm"),
        ((at(0), at(0) * np.float32(np.nan), np.array([0])), "caption vectors must be of unit norm"),
    ],
)
def test_what_is_no_retrieval_is_refused(arguments, words):
    with pytest.raises(MetricError, match=words):
        retrieval_hits(*arguments)


def test_hits_among_some_images_are_those_of_these_alone_and_false_elsewhere():
    rng = np.random.default_rng(3)
    images, features = (rng.normal(size=(n, 5)).astype(np.float32) for n in (12, 4))
    rows, texts = np.arange(12) % 3 > 0, ["a", "b", "c", "d"]
    captions = [texts[i] for i in rng.integers(1, 4, rows.sum())]
    found = caption_hits(images, captions, texts, features, rows=rows)
    unit = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (images[rows], features)]
    expected = retrieval_hits(*unit, np.array([texts.index(caption) for caption in captions]))
    assert found.keys() == expected.keys() == set(HITS)
    # Captions that no image has are left out of the ranking, so that a hit can only be likelier.
    assert (found["text_to_image_r_precision"][rows] == expected["text_to_image_r_precision"]).all()
    assert not any(hits[~rows].any() for hits in found.values())
    assert (found["image_to_text@1"][rows] >= expected["image_to_text@1"]).all()
