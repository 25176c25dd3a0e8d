"""Automatic gender labels: their margins, composites, and the table of their errors."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.proportion import proportion_confint

from plumbline.catalog.suites import load_suite
from plumbline.datasets.extended import composite_labels, extend_records, label_error_table, label_probabilities
from plumbline.datasets.records import EXTENDED_SCHEMA, RECORD_SCHEMA
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

ROWS = [
    # true gender, race, age group, p(man)
    ("man", "White", "child", 0.9),
    ("man", "White", "elderly", 0.2),
    ("woman", "White", "elderly", 0.1),
    ("woman", "Black", "child", 0.75),
    ("woman", "Black", None, 0.75),
    ("woman", "Black", None, 0.0),
    (None, "Black", "child", 0.6),
    (None, "Others", "child", 1.0),
]


def extended() -> pl.DataFrame:
    columns = [{"gender": g, "race": r, "age_group": a} for g, r, a, _ in ROWS]
    man = np.array([p for *_, p in ROWS])
    return extend_records(pl.DataFrame(columns, schema=RECORD_SCHEMA), np.stack([man, 1 - man], axis=1))


def test_probabilities_are_a_softmax_over_scaled_cosines_whatever_the_lengths() -> None:
    """By hand: cosines 1 and 0, scaled by log 3, are odds of 3 to 1; where they are equal, even odds."""
    images, texts = np.array([[2.0, 0.0], [0.0, 5.0], [1.0, 1.0]]), np.array([[3.0, 0.0], [0.0, 1.0]])
    probabilities = label_probabilities(images, texts, logit_scale=float(np.log(3)))
    np.testing.assert_allclose(probabilities, [[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]], rtol=1e-12)


def test_label_probability_and_margin() -> None:
    frame = extended()
    assert dict(frame.schema) == EXTENDED_SCHEMA
    assert frame["auto_gender"].to_list() == ["man", "woman", "woman", "man", "man", "woman", "man", "man"]
    np.testing.assert_allclose(frame["auto_gender_probability"], [0.9, 0.8, 0.9, 0.75, 0.75, 1, 0.6, 1], atol=1e-15)
    np.testing.assert_allclose(frame["auto_gender_margin"], [0.8, 0.6, 0.8, 0.5, 0.5, 1, 0.2, 1], atol=1e-15)


def test_an_exact_tie_is_man_with_no_margin_and_an_earlier_label_is_replaced() -> None:
    frame = extend_records(extended(), np.full((len(ROWS), 2), 0.5))
    assert set(frame["auto_gender"]) == {"man"}
    assert frame["auto_gender_margin"].to_list() == [0.0] * len(ROWS)
    assert dict(frame.schema) == EXTENDED_SCHEMA


def test_no_records_give_no_labels() -> None:
    frame = extend_records(pl.DataFrame(schema=RECORD_SCHEMA), np.empty((0, 2)))
    assert frame.height == 0 and dict(frame.schema) == EXTENDED_SCHEMA


@pytest.mark.parametrize(
    "probabilities",
    [
        np.full((3, 2), 0.5),
        np.full(len(ROWS), 0.5),
        np.full((len(ROWS), 2), 0.6),
        np.tile([1.5, -0.5], (len(ROWS), 1)),
        np.full((len(ROWS), 2), np.nan),
    ],
)
def test_what_is_no_probability_of_these_records_is_an_error(probabilities: np.ndarray) -> None:
    with pytest.raises(DatasetError):
        extend_records(extended(), probabilities)


@pytest.mark.parametrize(("reader", "labels"), [("utkface", 10), ("fairface", 14), ("idenprof", 20)])
def test_extended_datasets_have_the_composite_labels_of_the_study(reader: str, labels: int) -> None:
    declared = reader_for(reader).declaration
    suite = load_suite("trident", classes=declared.class_set)
    rows = [{declared.base_attribute: label} for label in (*suite.class_labels, None) for _ in range(2)]
    records = pl.DataFrame(rows, schema=RECORD_SCHEMA)
    man = np.arange(records.height) % 2
    frame = extend_records(records, np.stack([man, 1 - man], axis=1), classes=declared.base_attribute)
    composites = frame["composite"].drop_nulls()
    assert len(composites) == labels and frame["composite"].null_count() == 2
    assert set(composites) == set(load_suite("trident_composite", classes=declared.class_set).class_labels)


def test_classes_that_are_genders_make_no_composite() -> None:
    frame = extend_records(extended(), np.full((len(ROWS), 2), 0.5), classes="gender")
    assert frame["composite"].null_count() == len(ROWS)


def test_composite_labels_join_base_and_gender() -> None:
    labels = composite_labels(pl.Series(["Indian", None, "East Asian"]), pl.Series(["woman", "man", "man"]))
    assert labels.to_list() == ["Indian_woman", None, "East Asian_man"]
    assert composite_labels([], []).dtype == pl.String
    with pytest.raises(DatasetError):
        composite_labels(["Indian"], [])


def test_errors_are_counted_overall_and_by_group_against_the_known_gender() -> None:
    table = label_error_table(extended())
    counts = table.select("attribute", "group", "n", "errors").rows()
    assert counts == [
        ("overall", None, 6, 3),
        ("race", "Black", 3, 2),
        ("race", "Others", 0, 0),
        ("race", "White", 3, 1),
        ("age_group", "child", 2, 1),
        ("age_group", "elderly", 2, 1),
    ]
    overall = table.row(0, named=True)
    assert [overall[c] for c in ("man_as_man", "man_as_woman", "woman_as_man", "woman_as_woman")] == [1, 1, 2, 2]
    for row in table.iter_rows(named=True):
        if row["n"]:
            interval = proportion_confint(row["errors"], row["n"], method="wilson")
            np.testing.assert_allclose(
                [row["rate"], row["ci_low"], row["ci_high"]], [row["errors"] / row["n"], *interval]
            )
            assert row["reason"] is None
        else:
            assert np.isnan([row["rate"], row["ci_low"], row["ci_high"]]).all()
            assert row["reason"] == "no image has a gender of its own"


def test_without_any_known_gender_the_rate_is_undefined_with_a_reason() -> None:
    table = label_error_table(extended().with_columns(pl.lit(None, dtype=pl.String).alias("gender")), by=())
    row = table.row(0, named=True)
    assert (row["attribute"], row["n"]) == ("overall", 0)
    assert np.isnan(row["rate"]) and row["reason"]


def test_group_counts_add_up_to_the_overall_row() -> None:
    rng = np.random.default_rng(5)
    n = 500
    frame = pl.DataFrame(
        {
            "gender": rng.choice(["man", "woman"], n),
            "race": rng.choice(["a", "b", "c"], n),
            "auto_gender": rng.choice(["man", "woman"], n),
        }
    )
    table = label_error_table(frame, by=("race",))
    assert table.filter(pl.col("attribute") == "race")["errors"].sum() == table["errors"][0]
    assert table["errors"][0] == (frame["gender"] != frame["auto_gender"]).sum()
