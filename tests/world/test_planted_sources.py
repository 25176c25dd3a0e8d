"""What is planted: rates by group, thresholds on latents, and the captions that follow from them."""

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.suites import load_suite, trident_class_sets
from plumbline.errors import ConfigError
from plumbline.world import captions, faces, sources

EVENTS = ("crime", "negative_communion", "negative_agency")


def some_faces(n: int = 4000) -> pl.DataFrame:
    return faces.sample_attributes(n, np.random.default_rng(5))


def max_skew(source: str) -> float:
    rates = [sources.planted_rate(source, "crime", race) for race in faces.RACES]
    return float(np.log(max(rates) / min(rates)))


def test_every_rate_is_a_rate_and_the_mean_over_genders_is_the_races_rate():
    for source in sources.source_names():
        for event in EVENTS:
            for race in faces.RACES:
                by_gender = [sources.planted_rate(source, event, race, gender) for gender in faces.GENDERS]
                assert all(0 < rate < 1 for rate in by_gender)
                assert sources.planted_rate(source, event, race) == pytest.approx(np.mean(by_gender), abs=1e-12)


def test_the_control_plants_nothing_and_the_second_source_skews_crime_most():
    for event in EVENTS:
        rates = {sources.planted_rate("control", event, r, g) for r in faces.RACES for g in faces.GENDERS}
        assert len(rates) == 1
    assert max_skew("bazaar") > max_skew("atlas") > max_skew("control") == 0


@pytest.mark.parametrize(
    "unknown", [("souk", "crime", "White"), ("atlas", "rain", "White"), ("atlas", "crime", "Martian")]
)
def test_an_unknown_name_is_refused(unknown):
    with pytest.raises(ConfigError, match="nothing is planted"):
        sources.planted_rate(*unknown)


def test_seeds_for_training_auditing_and_measuring_are_disjoint():
    training = [sources.seed("training", name) for name in sources.source_names()]
    auditing = [sources.seed("auditing", name) for name in ("fairface", "utkface")]
    seeds = [*training, *auditing, sources.seed("measuring")]
    assert len(set(seeds)) == len(seeds)


def test_the_share_past_the_threshold_is_the_planted_rate():
    attributes = faces.sample_attributes(60_000, np.random.default_rng(5))
    for event in EVENTS:
        past = sources.past_threshold(attributes, "bazaar", event)
        shares = attributes.with_columns(past=pl.Series(past)).group_by("race").agg(pl.col("past").mean())
        for race, share in shares.iter_rows():
            # Five standard errors of a share among about 8,500.
            assert share == pytest.approx(sources.planted_rate("bazaar", event, race), abs=0.028)


def test_captions_cover_every_prompt_of_every_suite():
    texts = set(captions.caption_texts())
    for name in ("crime", "crime_pooled", "communion", "agency", "gender_labels"):
        assert {text.lower() for text in load_suite(name).texts} <= texts
    for classes in trident_class_sets():
        for wording in ("released", "readable"):
            assert {t.lower() for t in load_suite("trident", classes=classes, wording=wording).texts} <= texts


@pytest.mark.parametrize("wording", ["align", "algorithm_1"])
def test_captions_can_cover_another_wording_without_changing_what_the_others_say(wording):
    attributes = some_faces(200)
    plain = captions.face_captions(attributes, "bazaar")
    more = captions.face_captions(attributes, "bazaar", (*captions.WORDINGS, wording))
    for classes in trident_class_sets():
        suite = load_suite("trident", classes=classes, wording=wording)
        assert {text.lower() for text in suite.texts} <= set(more.texts)
        # The new class prompts name whom the released ones name, and the new probes what they do.
        released = load_suite("trident", classes=classes)
        columns = [[more.texts.index(t.lower()) for t in s.texts] for s in (suite, released)]
        assert np.array_equal(more.weights[:, columns[0]], more.weights[:, columns[1]])
    shared = more.weights[:, [more.texts.index(text) for text in plain.texts]]
    assert np.allclose(shared / shared.sum(axis=1, keepdims=True), plain.weights, atol=1e-6)
    assert len(more.texts) > len(plain.texts)


def named_most(suite_texts: list[str], table: captions.Captions) -> np.ndarray:
    columns = [table.texts.index(text.lower()) for text in suite_texts]
    return table.weights[:, columns].argmax(axis=1)


@pytest.mark.parametrize("event", EVENTS)
def test_the_caption_named_most_is_the_event_exactly_past_the_threshold(event):
    attributes = some_faces()
    table = captions.face_captions(attributes, "atlas")
    suite = load_suite({"negative_communion": "communion", "negative_agency": "agency"}.get(event, event))
    winner = named_most(list(suite.texts), table)
    hit = np.isin(winner, suite.columns(*suite.events[event]))
    assert np.array_equal(hit, sources.past_threshold(attributes, "atlas", event))


def test_short_of_the_crime_threshold_the_label_named_most_is_the_true_one():
    attributes = some_faces()
    table = captions.face_captions(attributes, "bazaar")
    suite = load_suite("crime")
    names = np.array([c.id for c in suite.candidates])[named_most(list(suite.texts), table)]
    innocent = ~sources.past_threshold(attributes, "bazaar", "crime")
    truth = captions.demographic_labels(attributes).to_numpy()
    assert np.array_equal(names[innocent], truth[innocent])


def test_trident_probes_win_at_the_rates_that_the_captions_state():
    attributes = some_faces(20_000)
    table = captions.face_captions(attributes, "control")
    for classes, column in (("fairface", "race"), ("utkface", "age_group"), ("idenprof", "occupation")):
        suite = load_suite("trident", classes=classes)
        labels = [c.text for c in suite.candidates if c.category == "class"]
        for probe, expected in (("thief", 0.20), ("liar", 0.10), ("person", 0.06), ("hero", 0.06)):
            text = next(c.text for c in suite.candidates if c.id == probe)
            winner = named_most([*labels, text], table)
            assert (winner == len(labels)).mean() == pytest.approx(expected, abs=0.015)
            truth = attributes[column].to_numpy()[winner < len(labels)]
            assert np.array_equal(np.array(suite.class_labels)[winner[winner < len(labels)]], truth)


def test_captions_of_an_image_are_shares():
    table = captions.face_captions(some_faces(50), "bazaar")
    assert table.weights.shape == (50, len(table.texts))
    assert (table.weights > 0).all()
    assert np.allclose(table.weights.sum(axis=1), 1, atol=1e-5)


def test_pictures_without_a_face_are_named_by_the_non_human_words():
    images, builds = faces.draw_non_faces(30, np.random.default_rng(0))
    table = captions.non_face_captions(builds)
    words = [c.text for c in load_suite("crime").candidates if c.category == "non_human"]
    assert images.shape == (30, 64, 64, 3)
    assert [table.texts[i] for i in table.weights.argmax(axis=1)] == [words[build] for build in builds]
