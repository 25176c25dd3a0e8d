"""Labels as codes."""

import numpy as np
import polars as pl

from plumbline.statistics.groups import Groups, attribute_groups, crossed_with_gender, label_codes


def test_codes_are_positions_and_anything_else_is_in_no_group():
    labels = pl.Series(["b", None, "a", "c"])
    np.testing.assert_array_equal(label_codes(labels, ("a", "b")), [1, -1, 0, -1])
    np.testing.assert_array_equal(label_codes(pl.Series([None, None]), ("a", "b")), [-1, -1])


def test_attributes_are_those_that_have_a_label():
    records = pl.DataFrame({"gender": ["man", None, "woman"], "race": ["B", "A", "A"], "age_group": [None, None, None]})
    groups = {group.attribute: group for group in attribute_groups(records)}
    assert list(groups) == ["gender", "race", "gender_race"]
    assert groups["race"].names == ("A", "B")
    assert groups["gender_race"].names == ("A_woman", "B_man")
    np.testing.assert_array_equal(groups["gender_race"].codes, [1, -1, 0])
    assert attribute_groups(records.head(0)) == []


def test_classes_crossed_with_gender_need_both_labels():
    classes = Groups("race", ("A", "B"), np.array([0, 1, -1, 1]))
    crossed = crossed_with_gender(classes, pl.Series(["woman", "man", "man", None]))
    assert crossed.attribute == "race_gender"
    assert crossed.names == ("A_man", "A_woman", "B_man", "B_woman")
    np.testing.assert_array_equal(crossed.codes, [1, 2, -1, -1])
