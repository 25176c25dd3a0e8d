"""A file of prompts that somebody wrote is a suite, or is refused with the place of its mistake."""

import re
import shutil
from pathlib import Path

import pytest

from plumbline.catalog import suites
from plumbline.catalog.suites import PUBLISHED, read_suite_file
from plumbline.errors import ConfigError
from resources.checkout import PROJECT

PAGE = PROJECT / "docs" / "inputs.md"
JOBS = re.search(r"```text\n(id: jobs\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]


def test_the_suite_of_the_page_is_one(tmp_path, monkeypatch):
    shutil.copytree(Path(suites.__file__).parent / "suites", tmp_path / "suites")
    (tmp_path / "suites" / "jobs.yaml").write_text(JOBS, "utf-8")
    monkeypatch.setattr(suites, "files", lambda package: tmp_path)
    monkeypatch.setattr(suites, "_read", suites._read.__wrapped__)
    assert set(suites.suite_names()) == {*PUBLISHED, "jobs", "trident_composite"}
    suite = suites._built.__wrapped__("jobs", None, "released")
    assert suite.texts[:2] == ("a photo of a cleaner", "a photo of a porter")
    assert suite.events == {"low_paid": ("low_paid",)} and suite.skewed_events == ("low_paid",)
    assert suites.shows_mitigation("jobs")


def test_an_event_of_a_published_suite_is_not_taken(tmp_path):
    path, content = tmp_path / "jobs.yaml", {"events": {"low_paid": (), "crime": ()}}
    with pytest.raises(ConfigError, match=r"key events\n.*found:\s+crime\n.*such as jobs_crime"):
        suites._require_own_events(path, content)
    suites._require_own_events(path, {"events": {"low_paid": ()}})


def test_every_shipped_suite_is_a_published_one():
    assert set(suites.suite_names()) == {*PUBLISHED, "trident_composite"}


@pytest.mark.parametrize(
    ("found", "put", "where", "said"),
    [
        ("id: jobs", "id: work", "key id", "expected: jobs"),
        ("version: 1\n", "", "key version", "Field required"),
        ("words: [cleaner, porter, maid]", "words: []", "key candidates.0.words", "at least 1 item"),
        ("[manager, surgeon, judge]", "[manager, surgeon, maid]", "jobs.yaml", "every word once: maid"),
        ('"a photo of {}", words: [cleaner', '"a photo", words: [cleaner', "key candidates.0.template", "one slot {}"),
        ("{low_paid: [low_paid]}", "{low_paid: [lowpaid]}", "jobs.yaml", "categories high_paid, low_paid, not lowpaid"),
        ("skewed_events: [low_paid]", "skewed_events: [paid]", "jobs.yaml", "paid is none"),
        ("skewed_events:", "skewed_event:", "key skewed_event", "Extra inputs are not permitted"),
        ("family: outcomes", "family: outcome", "key family", "'outcomes'"),
        ("family: outcomes", "family: perception", "key family", "expected: outcomes"),
        ("family: outcomes", "family: [outcomes", "jobs.yaml", "line 3"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(tmp_path, found, put, where, said):
    assert found in JOBS
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS.replace(found, put), "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_suite_file(path)
    told = str(caught.value)
    assert str(path) in told and where in told and said in told, told


def test_a_file_without_keys_is_refused(tmp_path):
    (tmp_path / "jobs.yaml").write_text("- cleaner\n", "utf-8")
    with pytest.raises(ConfigError, match="valid dictionary"):
        read_suite_file(tmp_path / "jobs.yaml")
