"""The table that the balance checks judge."""

import polars as pl
import pytest

from plumbline.datasets.extended import label_shares
from plumbline.datasets.records import load_declaration

RACES = ["White", "Black", "East Asian", "Indian", "Middle Eastern", "Latino_Hispanic", "Southeast Asian"]


def shares_of(frame, *, composite, **balance):
    return label_shares(frame, load_declaration("fairface"), balance, composite=composite)


def test_a_group_that_is_missing_altogether_has_a_share_of_zero():
    frame = pl.DataFrame({"race": RACES[:-1] * 5})
    shares = shares_of(frame, race=(0.1, 0.2), composite=False)
    assert shares.height == 7
    missing = shares.filter(pl.col("label") == "Southeast Asian").row(0, named=True)
    assert (missing["n"], missing["share"]) == (0, 0.0)
    assert shares["share"].sum() == pytest.approx(1)


def test_a_column_without_any_label_does_not_pass_in_silence():
    frame = pl.DataFrame({"occupation": [None, None]}, schema={"occupation": pl.String})
    shares = shares_of(frame, occupation=(0.1, 1.0), composite=False)
    assert shares["share"].to_list() == [0.0]


def test_composite_labels_are_all_crossed_with_both_genders():
    frame = pl.DataFrame({"race": RACES, "auto_gender": ["man"] * 7})
    shares = shares_of(frame, race=(0, 1), race_gender=(0.05, 0.2), composite=True)
    assert shares.height == 14 and set(shares["attribute"]) == {"race_gender"}
    assert shares.filter(pl.col("label") == "Black_woman")["n"].item() == 0


def test_plain_and_composite_columns_are_told_apart():
    frame = pl.DataFrame({"race": RACES, "gender": ["man"] * 7, "auto_gender": ["man"] * 7})
    declared = {"gender": (0, 1), "race_gender": (0, 1)}
    assert set(shares_of(frame, composite=False, **declared)["attribute"]) == {"gender"}
    assert set(shares_of(frame, composite=True, **declared)["attribute"]) == {"race_gender"}
