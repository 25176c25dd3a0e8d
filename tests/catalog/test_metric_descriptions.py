"""The table of metrics: what it describes is what is computed, and a mistake in it is refused with its place."""

import re
from itertools import chain

import pytest
import yaml
from pydantic import RootModel

from plumbline.catalog.files import checked_yaml
from plumbline.errors import ConfigError
from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.metrics.family import Description, family_descriptions
from plumbline.metrics.registry import FAMILIES, TEXT_SPACE

ENTRY = yaml.safe_load("""
title: Near misses
description: How often a description is the second best match.
metrics:
  - {name: first, meaning: One., formula: a / b, source: by hand, bounds: [0, 1], when_identical: equal}
  - {name: second, meaning: Two., formula: b / a, source: by hand, bounds: [0, .inf], when_identical: .nan, unit: words}
""")


def test_every_family_is_described_and_every_description_is_a_family():
    assert set(family_descriptions()) == {*FAMILIES, TEXT_SPACE, *LANGUAGE_FAMILIES}
    names = [traits.name for about in family_descriptions().values() for traits in about.metrics]
    assert len(names) == len(set(names)) > 80


def test_an_image_metric_declares_its_function_and_a_language_metric_its_unit():
    image = chain(*(family_descriptions()[name].metrics for name in (*FAMILIES, TEXT_SPACE)))
    assert all(traits.function and traits.shape and traits.empty_group for traits in image)
    assert all(traits.unit for family in LANGUAGE_FAMILIES.values() for traits in family.about.metrics)


def read(folder, entry):
    (folder / "metrics.yaml").write_text(yaml.safe_dump({"near_misses": entry}))
    return checked_yaml(folder / "metrics.yaml", RootModel[dict[str, Description]], "the table of metrics").root


def test_an_entry_is_read_as_it_stands(tmp_path):
    first, second = read(tmp_path, ENTRY)["near_misses"].metrics
    assert (first.name, first.bounds, first.when_identical, first.ties) == (
        "first",
        (0, 1),
        "equal",
        "lower index wins",
    )
    assert second.bounds[1] == float("inf") and second.when_identical != second.when_identical


@pytest.mark.parametrize(
    ("change", "place", "found", "expected"),
    [
        ({"colour": "red"}, "second.colour", "red", "Unexpected keyword argument"),
        ({"formula": ...}, "second.formula", None, "Field required"),
        ({"bounds": [0, "1"]}, "second.bounds.1", "1", "valid number"),
        ({"bounds": [0]}, "second.bounds.1", None, "Field required"),
        ({"when_identical": True}, "second.when_identical", "True", "valid number"),
        ({"shape": "round"}, "second.shape", "round", "'scalar' or 'by_group'"),
        ({"name": 3}, "3.name", "3", "valid string"),
    ],
)
def test_a_mistake_is_refused_with_file_metric_and_what_was_found_and_expected(
    change, place, found, expected, tmp_path
):
    wrong = {key: value for key, value in (ENTRY["metrics"][1] | change).items() if value is not ...}
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, ENTRY | {"metrics": [ENTRY["metrics"][0], wrong]})
    said = str(raised.value)
    assert f"metrics.yaml, key near_misses.metrics.{place}" in said
    assert found is None or re.search(rf"found: .*{re.escape(found)}", said)
    assert re.search(rf"expected: .*{re.escape(expected)}", said)
