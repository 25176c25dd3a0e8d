"""Named row filters and the declarations that use them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

from plumbline.catalog.suites import load_suite, suite_names, trident_class_sets
from plumbline.datasets.filters import filter_names, row_filter
from plumbline.datasets.records import LABEL_COLUMNS, RECORD_SCHEMA, load_declaration
from plumbline.datasets.registry import reader_for, reader_names
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError
from plumbline.statistics.groups import attribute_groups

CHECKSUMS = {
    "declarations/causalface.yaml": "0108bf0103e0f9b463c48916440cb8e051da9383ab3f8fbc0aca7fb7b67366e1",
    "declarations/celeba.yaml": "19aa3b97b37ec6d23866f000f4f5828389a9e35177bd0d77b70edbaa6a0d5bf6",
    "declarations/fairface.yaml": "e65213e22f11f9a55f855fc83f8db6d9dbcfb3760f821222121c4a95ec3f8e27",
    "declarations/idenprof.yaml": "32e2e8a1fd28ee81c9df674a75daf392a310fd4f21d88d69a75ed8d6d38e6c30",
    "declarations/image_folder.yaml": "fb969abc3a9420ea2eea78d2c145fd7cf1c97595107fe24fabbb400c31ba5088",
    "declarations/neutral.yaml": "da90e528f9b3b3caf26093e8506ad04f946f6a44f4b94124b40a80deea0571bf",
    "declarations/pata.yaml": "28fb9f09cbdb7abf8e7154295afb7a937df6aebf5a78f5d48f2991fdcece8717",
    "declarations/socialcounterfactuals.yaml": "23567cb475ea4f8f101366ec450b8162a176e8516398c9b9a11ab911947c1368",
    "declarations/utkface.yaml": "6a79deefa0299693448ef6d26eb13a9102ad224d5ed36bd18f4a6291d2e57d46",
    "declarations/coco.yaml": "cc0d326a0b21a90796a14a4fa38f67e99c7e87c2c4a4998370a6eddaa092afca",
    "declarations/img2dataset.yaml": "24c4f433acf1272857cba4364b3268445cd3bd52f4825266ece7eaefa305ce13",
    "filters.yaml": "ce9e912dcf161f7c4676cc006013f5c033ba8b6089d396078354e2bd8953aa1b",
}

# Its declaration is the user's column map.
MAPPED = ("folder", "listing", "counts")


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


PATA = records(
    [
        {"scene": "office", "race": "eastasian", "age": "old"},
        {"scene": "gun_range", "race": "caucasian", "age": "young"},
        {"scene": "office", "race": None, "age": "old"},
        {"scene": "bench", "race": "indian", "age": None},
    ]
)
IDENPROF = records([{"split": "train"}, {"split": "test"}, {"split": None}])


@pytest.mark.parametrize(
    ("name", "frame", "kept"),
    [
        ("all", FAIRFACE, [0, 1, 2, 3, 4, 5, 6]),
        ("fairface-val", FAIRFACE, [0]),
        ("fairface-train", FAIRFACE, [1, 2, 3, 4, 5]),
        ("fairface-train-val", FAIRFACE, [0, 1, 2, 3, 4, 5]),
        ("idenprof-train-test", IDENPROF, [0, 1]),
        ("pata-as-listed", PATA, [0, 1, 3]),
        ("pata-both-ages", PATA, [0, 2]),
        ("lvlm-pata", PATA, [0, 1, 3]),
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


ASIAN = ["White", "White", "Indian", "Asian", "Asian", "Black", "Black"]


@pytest.mark.parametrize(
    ("name", "frame", "races"),
    [
        ("social-perception-fairface", FAIRFACE, ASIAN),
        ("lvlm-pata", PATA, ["Asian", "White", None, "indian"]),
        ("pata-as-listed", PATA, ["eastasian", "caucasian", None, "indian"]),
        ("all", UTKFACE, UTKFACE["race"].to_list()),
    ],
)
def test_relabelling_merges_groups_and_touches_nothing_else(
    name: str, frame: pl.DataFrame, races: list[str | None]
) -> None:
    relabelled = row_filter(name).relabelled(frame)
    assert relabelled["race"].to_list() == races
    assert relabelled.schema == frame.schema
    assert relabelled.drop("race").equals(frame.drop("race"))


def test_relabelling_takes_an_empty_table() -> None:
    for name in filter_names():
        empty = FAIRFACE.head(0)
        assert row_filter(name).relabelled(empty).select(empty.columns).equals(empty)


def test_the_merged_subset_of_the_social_perception_study_has_its_three_groups() -> None:
    chosen = row_filter("social-perception-fairface")
    kept = chosen.relabelled(FAIRFACE.filter(chosen(FAIRFACE)))
    assert kept["race"].to_list() == ["White", "Asian"]


@pytest.mark.parametrize("name", filter_names())
def test_relabelling_names_values_that_the_conditions_keep(name: str) -> None:
    """A word that no kept row can have would be a misspelling that changes nothing in silence."""
    chosen = row_filter(name)
    for column, words in chosen.relabel.items():
        assert set(words) <= set(chosen.conditions[column]["values"])


@pytest.mark.parametrize("name", [name for name in reader_names() if name not in MAPPED])
def test_a_declaration_agrees_with_suites_and_filters(name: str) -> None:
    declaration = reader_for(name).declaration
    assert declaration.id == name
    assert {rule.column for rule in declaration.rules} <= set(LABEL_COLUMNS)
    assert set(declaration.filters) <= {*suite_names(), "generation"}
    assert {declaration.default_filter, *declaration.filters.values()} <= set(filter_names())
    rules = {rule.column: rule for rule in declaration.rules}
    # A base attribute without a rule has an open vocabulary, as the occupations of SocialCounterfactuals.
    assert declaration.base_attribute in (*LABEL_COLUMNS, None)
    if declaration.class_set is not None:
        suite = load_suite("trident", classes=declaration.class_set)
        assert suite.attribute == declaration.base_attribute
        rule = rules[suite.attribute]
        assert set(suite.class_labels) == {*rule.values.values(), *rule.groups}


def test_every_class_set_of_the_trident_suites_has_its_dataset() -> None:
    names = [Path(name).stem for name in CHECKSUMS if name.startswith("declarations/")]
    assert set(trident_class_sets()) <= {load_declaration(name).class_set for name in names}


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("pata-as-listed", "pata"),
        ("pata-both-ages", "pata"),
        ("lvlm-pata", "pata"),
        ("social-perception-fairface", "fairface"),
        ("social-perception-utkface", "utkface"),
    ],
)
def test_filters_name_only_values_that_their_dataset_has(name: str, dataset: str) -> None:
    rules = {rule.column: rule for rule in load_declaration(dataset).rules}
    conditions = row_filter(name).conditions.items()
    named = {column: told["values"] for column, told in conditions if column in rules and "values" in told}
    assert named, "a filter that names no value shows nothing here"
    for column, values in named.items():
        assert set(values) <= set(rules[column].values.values())


def test_default_filters_are_those_of_the_studies() -> None:
    fairface, utkface, pata = (load_declaration(name) for name in ("fairface", "utkface", "pata"))
    for suite in ("crime", "crime_pooled", "communion", "agency"):
        assert (fairface.filter_for(suite), utkface.filter_for(suite)) == ("fairface-val", "all")
        assert pata.filter_for(suite) == "pata-as-listed"
    assert fairface.filter_for("trident") == load_declaration("idenprof").filter_for("trident") == "all"


@pytest.mark.parametrize("name", [name for name in reader_names() if name not in MAPPED])
def test_age_groups_cover_every_age_once(name: str) -> None:
    grouped = [rule for rule in reader_for(name).declaration.rules if rule.groups and rule.years]
    for rule in grouped:
        ages = [age for first, last in rule.groups.values() for age in range(first, last + 1)]
        assert ages == list(range(rule.years[0], rule.years[1] + 1))
    assert [rule.column for rule in grouped] == (["age_group"] if name == "utkface" else [])


def test_an_undeclared_dataset_is_an_error() -> None:
    with pytest.raises(ConfigError):
        load_declaration("nowhere")


@pytest.mark.parametrize("name", CHECKSUMS)
def test_the_data_files_are_those_that_were_checked(name: str) -> None:
    """A vocabulary, a default or a filter changes results, so that a change of one has to be meant."""
    assert digest_bytes((files("plumbline.datasets") / name).read_bytes()) == CHECKSUMS[name]


def test_every_data_file_was_checked() -> None:
    folder = files("plumbline.datasets") / "declarations"
    there = {f"declarations/{item.name}" for item in folder.iterdir()} | {"filters.yaml"}
    assert there == set(CHECKSUMS), "a new declaration goes into CHECKSUMS above, with the sha256 of its file"


def test_ages_form_groups_where_a_filter_says_so() -> None:
    ages = records([{"age": age, "race": "White", "scene": "gym", "split": "val"} for age in ("young", "old", None)])
    chosen = row_filter("pata-ages")
    assert chosen(ages).tolist() == [True, True, False]
    groups = {each.attribute: each.names for each in attribute_groups(chosen.relabelled(ages))}
    assert groups == {"race": ("White",), "age_band": ("old", "young")}
    assert "age_band" not in {each.attribute for each in attribute_groups(row_filter("all").relabelled(ages))}
    assert row_filter("fairface-val-ages").changes_labels and not row_filter("fairface-val").changes_labels
