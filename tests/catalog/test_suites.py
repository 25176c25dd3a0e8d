"""A suite's hash changes with everything that its numbers depend on, and with nothing else."""

from dataclasses import replace

import pytest

from plumbline.catalog import suites
from plumbline.catalog.suites import (
    VARIANT_OF,
    Candidate,
    Suite,
    all_suites,
    all_texts,
    load_suite,
    own_texts,
    suite_names,
)
from plumbline.config.entries import AuditEntry
from plumbline.datasets.records import load_declaration
from plumbline.recording import recording, short
from resources.checkout import PROJECT

SUITE = Suite(
    id="s",
    family="outcomes",
    version=1,
    source="by hand",
    candidates=(Candidate("thief", "a thief", "crime"), Candidate("ape", "an ape", "non_human")),
    events={"crime": ("crime",), "non_human": ("non_human",)},
    skewed_events=("crime",),
)


@pytest.mark.parametrize(
    "changed",
    [
        {"events": {"crime": ("crime", "non_human"), "non_human": ("non_human",)}},
        {"events": {"crime": ("crime",)}},
        {"skewed_events": ("crime", "non_human")},
        {"skewed_events": ()},
        {"attribute": "race"},
        {"candidates": SUITE.candidates[::-1]},
        {"candidates": (SUITE.candidates[0], Candidate("ape", "an ape", "crime"))},
        {"candidates": (SUITE.candidates[0], Candidate("ape", "the ape", "non_human"))},
    ],
    ids=str,
)
def test_what_the_numbers_depend_on_changes_the_hash(changed):
    assert replace(SUITE, **changed).hash != SUITE.hash


def test_where_it_was_found_and_in_which_order_events_are_listed_does_not():
    events = dict(reversed(SUITE.events.items()))
    assert replace(SUITE, source="elsewhere", events=events).hash == SUITE.hash


def test_suites_of_the_release_differ():
    hashes = [suite.hash for suite in all_suites()]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("name", VARIANT_OF)
def test_another_reading_of_a_suite_is_another_suite_and_is_asked_where_it_is_named(name):
    variant, published = load_suite(name), load_suite(VARIANT_OF[name])
    assert variant.hash != published.hash and variant.family == published.family
    assert name not in AuditEntry().suites and VARIANT_OF[name] in AuditEntry().suites
    assert AuditEntry(suites=[name]).suites == (name,)
    pata = load_declaration("pata")
    assert pata.filter_for(name) == pata.filter_for(VARIANT_OF[name])


def test_the_readings_say_what_they_are_named_for():
    assert "photo of a sincere person" in load_suite("communion_photo").texts
    assert "photo of an egoistic person" in load_suite("communion_photo").texts
    assert {word: load_suite("crime_words").events[word] for word in ("thief", "criminal", "suspicious_person")} == {
        word: (word,) for word in ("thief", "criminal", "suspicious_person")
    }
    assert load_suite("crime_words").texts == load_suite("crime").texts


def test_pooling_crime_is_another_suite():
    assert load_suite("crime").hash != load_suite("crime_pooled").hash


def test_a_prompt_more_in_one_suite_leaves_the_prompts_of_the_others_as_they_are(monkeypatch):
    before, every = own_texts(), all_suites()
    assert tuple(text for texts in before.values() for text in texts) == all_texts() and len(set(all_texts())) == sum(
        map(len, before.values())
    )
    more = [
        replace(suite, candidates=(Candidate("new", "a new prompt", "crime"), *suite.candidates))
        if suite.id == "crime"
        else suite
        for suite in every
    ]
    monkeypatch.setattr(suites, "all_suites", lambda own: tuple(more))
    after = own_texts()
    assert after.pop("crime") == ("a new prompt", *before.pop("crime")) and after == before


def test_what_is_noted_of_the_prompts_is_what_a_later_look_finds():
    with recording() as reads:
        found = own_texts()
    assert reads.reads == {'["texts"]': short([*found.values()])} and all(found.values())


def test_the_prompts_of_the_package_alone_are_part_of_its_version_and_not_noted():
    with recording() as reads:
        assert all_texts()
    assert reads.reads == {}


@pytest.mark.parametrize("name", [name for name in suite_names() if name != "gender_labels"])
def test_a_packaged_suite_has_a_source_and_stands_where_a_user_looks_for_it(name):
    assert f"`{name}`" in (PROJECT / "docs" / "inputs.md").read_text("utf-8"), "name it in the list of docs/inputs.md"
    assert load_suite(name, classes="fairface" if name.startswith("trident") else None).source
