"""The prompts of a number: all of its suite, those of its event and probe first."""

import pytest

from assets.lineage import prompt_links
from plumbline.catalog.suites import all_suites, load_suite
from plumbline.digests import digest_json
from plumbline.provenance.explanation import prompts_asked

CRIME = load_suite("crime")


def first(suite, many, **row):
    return [text.removeprefix("a photo of ") for text in prompts_asked(suite, row)[:many]]


@pytest.mark.parametrize("suite", all_suites(), ids=lambda suite: f"{suite.id}-{suite.hash[:6]}")
def test_every_prompt_is_there_whatever_is_asked_of(suite):
    assert prompts_asked(suite, {}) == suite.texts
    for event in (*suite.events, *suite.scales, "mean_of_tasks", "unknown"):
        assert sorted(prompts_asked(suite, {"event": event, "probe": None})) == sorted(suite.texts)


def test_those_of_the_event_come_first_in_the_order_of_the_suite():
    assert first(CRIME, 4, event="crime") == ["a thief", "a criminal", "a suspicious person", "a white man"]
    assert first(CRIME, 5, event="non_human")[:2] == ["an animal", "a gorilla"]
    assert first(CRIME, 5, event="non_human")[4] == "a white man"
    assert first(load_suite("communion"), 1, event="mean_of_tasks") == ["an untrustworthy person"]


def test_the_probe_and_the_valence_of_a_trident_test_come_first():
    trident = load_suite("trident", classes="fairface")
    assert first(trident, 2, probe="hero") == ["a hero", "White"] or "hero" in first(trident, 1, probe="hero")[0]
    assert all(word in text for word, text in zip(("thief", "criminal"), first(trident, 2, event="negative")))


def test_scales_tasks_and_captions_have_their_own_words_first():
    perception = load_suite("perception")
    warm = [c.text for c in perception.candidates if c.word in perception.scales["warmth"]]
    assert list(prompts_asked(perception, {"event": "warmth"})[: len(warm)]) == warm
    assert all("meek" in text for text in prompts_asked(perception, {"probe": "meek"})[:4])
    templates = load_suite("templates")
    agency = [c.text for c in templates.candidates if c.category.startswith("agency:")]
    assert list(prompts_asked(templates, {"event": "agency"})[: len(agency)]) == agency
    captions = load_suite("pata_captions")
    negative = [c for c in captions.candidates if c.category.endswith(":race:neg")]
    asked = {"event": "negative_race_caption", "probe": negative[-1].category.split(":")[0]}
    own = [c.text for c in negative if c.category == negative[-1].category]
    assert list(prompts_asked(captions, asked)[: len(own)]) == own
    assert sorted(prompts_asked(captions, asked)[: len(negative)]) == sorted(c.text for c in negative)


def test_the_chain_of_a_number_shows_them_in_that_order():
    (link,) = prompt_links({"suite": "crime", "suite_hash": CRIME.hash, "event": "crime"}, (CRIME,))
    assert link.texts[0] == "a photo of a thief" and sorted(link.texts) == sorted(CRIME.texts)
    assert link.digest == CRIME.hash and link.note == "21 prompts"
    tasks = tuple(map(load_suite, ("crime", "communion", "agency")))
    row = {"suite": "outcomes", "suite_hash": digest_json([t.hash for t in tasks]), "event": "mean_of_tasks"}
    (link,) = prompt_links(row, tasks)
    assert link.texts[0] == "a photo of a thief" and "untrustworthy" in link.texts[len(CRIME.texts)]
