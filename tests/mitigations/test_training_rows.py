"""What may be trained on: the training split alone, and captions made of its labels."""

import numpy as np
import polars as pl
import pytest

from plumbline.errors import MetricError
from plumbline.mitigations.training_rows import is_training_row, label_captions, training_rows


def records(**changes):
    columns = {
        "image_id": [f"{i:064x}" for i in range(6)],
        "split": ["train", "val", "train", None, "train", "test"],
        "race": ["Black", "White", "White", "Black", None, "White"],
        "gender": ["man", "woman", "woman", "man", "man", "man"],
        "age": ["20-29", "3-9", "more than 70", None, "30-39", "60-69"],
        "age_group": pl.Series([None] * 6, dtype=pl.String),
        "occupation": ["doctor", None, None, None, None, None],
        "caption": [None, None, None, None, None, None],
    }
    return pl.DataFrame(columns | changes)


IMAGES = np.arange(12, dtype=np.float32).reshape(6, 2)


def test_only_labelled_rows_of_the_training_split_are_chosen():
    rows = training_rows(records(), IMAGES, attribute="race")
    assert rows.image_ids == (f"{0:064x}", f"{2:064x}")
    np.testing.assert_array_equal(rows.images, IMAGES[[0, 2]])
    assert rows.groups == ("Black", "White") and rows.labels.tolist() == [0, 1]
    assert rows.captions == ("a photo of a Black man, 20-29 years old, doctor", "a photo of a White woman, over 70")
    assert is_training_row(records()).tolist() == [True, False, True, False, True, False]


def test_age_is_the_group_or_else_the_age():
    assert training_rows(records(), IMAGES, attribute="age").groups == ("20-29", "30-39", "more than 70")
    grouped = records(age_group=["child", "child", "elderly", "child", "child", "child"])
    assert training_rows(grouped, IMAGES, attribute="age").groups == ("child", "elderly")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"split": ["val"] * 6}, "0 training rows"),
        ({"split": ["train"] * 6}, "every image is a training image"),
        ({"split": pl.Series([None] * 6, dtype=pl.String)}, "whose split is `train`"),
        ({"race": pl.Series([None] * 6, dtype=pl.String)}, "no labels of race"),
        ({"race": ["White"] * 6}, "fewer than two groups"),
    ],
)
def test_a_dataset_with_nothing_to_train_on_is_refused(changes, said):
    with pytest.raises(MetricError, match=said):
        training_rows(records(**changes), IMAGES, attribute="race")


def test_captions_say_the_labels_that_there_are():
    assert label_captions(records()) == (
        "a photo of a Black man, 20-29 years old, doctor",
        "a photo of a White woman, 3-9 years old",
        "a photo of a White woman, over 70",
        "a photo of a Black man",
        "a photo of a man, 30-39 years old",
        "a photo of a White man, 60-69 years old",
    )
    nothing = pl.DataFrame({"image_id": ["a"], "race": pl.Series([None], dtype=pl.String)})
    assert label_captions(nothing) == ("a photo of a person",)
    own = pl.DataFrame({"image_id": ["a", "b"], "race": ["Indian", "Latino_Hispanic"], "caption": ["two cats", None]})
    assert label_captions(own) == ("two cats", "a photo of a Latino or Hispanic person")
    groups = pl.DataFrame({"race": ["Indian", "Indian"], "age_group": ["young_adult", "20"]})
    assert label_captions(groups) == (
        "a photo of an Indian person, young adult",
        "a photo of an Indian person, 20 years old",
    )


def test_what_is_judged_elsewhere_may_be_trained_on_every_image_and_captions_need_no_label():
    everything = records(split=["train"] * 6)
    assert training_rows(everything, IMAGES, attribute="race", judged_elsewhere=True).labels.tolist() == [0, 1, 1, 0, 1]
    without_split = records(split=pl.Series([None] * 6, dtype=pl.String))
    assert len(training_rows(without_split, IMAGES, attribute="race", judged_elsewhere=True).labels) == 5
    bare = records(race=pl.Series([None] * 6, dtype=pl.String), caption=["a cat"] * 6)
    rows = training_rows(bare, IMAGES, attribute="race", labelled=False)
    assert rows.captions == ("a cat",) * 3 and rows.groups == ("all",) and rows.labels.tolist() == [0, 0, 0]
    # Where there are labels, those are what counts, with or without being asked for.
    same = training_rows(records(), IMAGES, attribute="race", labelled=False)
    assert same.image_ids == training_rows(records(), IMAGES, attribute="race").image_ids
