"""Named row filters and the declarations that use them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import polars as pl
import pytest

from plumbline.datasets import (
    RECORD_SCHEMA,
    filter_names,
    load_declaration,
    reader_for,
    reader_names,
    row_filter,
)
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError
from plumbline.tables.suites import load_suite, suite_names

CHECKSUMS = {
    "declarations/fairface.yaml": "d3e59dcfae7d21701e90edb24fc338dc81444040e5a71341b6d5f32a63633f93",
    "declarations/utkface.yaml": "86f7ea5479fcaf552f62951e0045eeafad8c893e9bd426bc465c1e0b55c326b6",
    "filters.yaml": "2cc73a0a456a693334662d89a97ffb71a2df3e1c4929e45fe5d89e9032e8ef86",
}


def records(rows: list[Mapping[str, str | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=RECORD_SCHEMA)


FAIRFACE = records(
    [
        {"split": "val", "race": "White", "age": "20-29"},
        {"split": "train", "race": "White", "age": "20-29"},
        {"split": "train", "race": "Indian", "age": "30-39"},
        {"split": "train", "race": "East Asian", "age": "more than 70"},
        {"split": "train", "race": "Southeast Asian", "age": "10-19"},
        {"split": "train", "race": "Black", "age": None},
        {"split": None, "race": "Black", "age": "60-69"},
    ]
)
UTKFACE = records(
    [
        {"race": "White", "age": "20"},
        {"race": "White", "age": "19"},
        {"race": "Others", "age": "50"},
        {"race": "Asian", "age": "100"},
        {"race": "Black", "age": None},
        {"race": "Black", "age": "20-29"},
    ]
)


@pytest.mark.parametrize(
    ("name", "frame", "kept"),
    [
        ("all", FAIRFACE, [0, 1, 2, 3, 4, 5, 6]),
        ("fairface-val", FAIRFACE, [0]),
        ("fairface-train", FAIRFACE, [1, 2, 3, 4, 5]),
        ("social-perception-fairface", FAIRFACE, [1, 3]),
        ("social-perception-utkface", UTKFACE, [0, 3]),
        ("fairface-val", UTKFACE, []),
    ],
)
def test_a_filter_keeps_its_rows(name: str, frame: pl.DataFrame, kept: list[int]) -> None:
    mask = row_filter(name)(frame)
    assert mask.dtype == bool and mask.shape == (frame.height,)
    assert mask.nonzero()[0].tolist() == kept


@pytest.mark.parametrize("name", filter_names())
def test_every_filter_takes_an_empty_table_and_says_where_it_is_from(name: str) -> None:
    assert row_filter(name)(FAIRFACE.head(0)).shape == (0,)
    assert row_filter(name).source


def test_an_unknown_filter_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="fairface-val"):
        row_filter("val")


@pytest.mark.parametrize("name", reader_names())
def test_a_declaration_agrees_with_suites_and_filters(name: str) -> None:
    declaration = reader_for(name).declaration
    suite = load_suite("trident", classes=declaration.class_set)
    assert suite.attribute == declaration.base_attribute
    (rule,) = [rule for rule in declaration.rules if rule.column == declaration.base_attribute]
    assert set(suite.class_labels) == {*rule.values.values(), *rule.groups}
    assert set(declaration.filters) <= set(suite_names())
    assert {declaration.default_filter, *declaration.filters.values()} <= set(filter_names())


def test_default_filters_are_those_of_the_studies() -> None:
    fairface, utkface = (reader_for(name).declaration for name in ("fairface", "utkface"))
    for suite in ("crime", "crime_pooled", "communion", "agency"):
        assert (fairface.filter_for(suite), utkface.filter_for(suite)) == ("fairface-val", "all")
    assert fairface.filter_for("trident") == "all"


@pytest.mark.parametrize("name", reader_names())
def test_age_groups_cover_every_age_once(name: str) -> None:
    for rule in load_declaration(name).rules:
        if rule.groups and rule.years:
            ages = [age for first, last in rule.groups.values() for age in range(first, last + 1)]
            assert ages == list(range(rule.years[0], rule.years[1] + 1))


def test_an_undeclared_dataset_is_an_error() -> None:
    with pytest.raises(ConfigError):
        load_declaration("nowhere")


@pytest.mark.parametrize("name", CHECKSUMS)
def test_the_data_files_are_those_that_were_checked(name: str) -> None:
    """A vocabulary, a default or a filter changes results, so that a change of one has to be meant."""
    assert digest_bytes((files("plumbline.datasets") / name).read_bytes()) == CHECKSUMS[name]
