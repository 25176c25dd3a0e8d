"""The bill of materials of an audit is CycloneDX, and says what was there."""

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from plumbline.provenance.export import SPECIFICATION, Material, bill_of_materials, installed

AUDIT = {"audit_id": "a" * 64, "version": "0.6.0", "made_at": "2026-11-23T12:00:00+00:00"}
MATERIALS = [
    Material("checkpoint/clip", {"sha256": "b" * 64, "plumblineCheckpoint": "c" * 64}, {"address": "local-dir:x"}),
    Material("answers/judge", {"plumblineCheckpoint": "an endpoint's own word"}, {"decoding": {"temperature": 0}}),
    Material("dataset/faces", {"plumblineFolder": "d" * 64}, {"images": 3}),
    Material("lake/metric_table", {"sha256": "e" * 64}, {}),
]


@pytest.fixture
def bill():
    return bill_of_materials(installed(), MATERIALS, **AUDIT)


def test_it_holds_to_the_schema(bill):
    text = json.dumps(bill)
    validator = JsonStrictValidator(SchemaVersion.from_version(SPECIFICATION))
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"book"')) is not None, "the validator looks"


def test_it_names_what_is_installed_and_what_was_audited(bill):
    import numpy

    by_name = {each["name"]: each for each in bill["components"]}
    assert by_name["numpy"]["purl"] == f"pkg:pypi/numpy@{numpy.__version__}"
    assert by_name["CPython"]["type"] == "platform"
    assert by_name["clip"]["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    assert (by_name["judge"]["type"], by_name["faces"]["type"]) == ("machine-learning-model", "data")
    assert "hashes" not in by_name["judge"] and "metric_table" not in by_name
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references) and bill["dependencies"][0]["dependsOn"] == references


def test_another_build_is_told_from_the_published_one():
    bill = bill_of_materials({"CPython": "3.12.1", "torch": "2.13.0+cpu"}, [], **AUDIT)
    assert bill["components"][1]["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"
    assert bill == bill_of_materials({"CPython": "3.12.1", "torch": "2.13.0+cpu"}, [], **AUDIT)
