"""Bias Prompts against cases by hand, least squares, the released rule, and a planted encoder."""

import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from plumbline.catalog.word_lists import attribute_texts
from plumbline.errors import MetricError
from plumbline.mitigations.bias_prompts import (
    BiasPromptsSettings,
    bias_prompt_texts,
    calibrated,
    pair_spread,
    projection_off,
)
from plumbline.mitigations.text_mitigations import FitContext, FittedMitigation
from plumbline.statistics.seeds import generator

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "bias_prompts.json").read_text())
D = 48


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["source"])
def test_by_hand(case):
    expected = np.array([[float(Fraction(x)) for x in row] for row in case["expected"]])
    inputs = case["inputs"]
    found = calibrated(
        projection_off(np.array(inputs["directions"], dtype=float).reshape(-1, len(expected))),
        pair_spread(np.array(inputs["differences"], dtype=float)),
        inputs["calibration"],
    )
    np.testing.assert_allclose(found, expected, atol=case["tol"], rtol=0)


def embed(texts, width=D):
    """An encoder whose texts are sums of a vector a word and one of the whole text, and of a length of their own."""
    words = {word: generator(7, word).normal(size=width) for text in texts for word in (*text.split(), text)}
    rows = [sum(words[word] for word in (*text.split(), text)) for text in texts]
    lengths = [1 + len(text) / 10 for text in texts]
    return np.array([r * n / np.linalg.norm(r) for r, n in zip(rows, lengths)], dtype=np.float32)


def units(texts):
    rows = embed(texts).astype(float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fit(embed, settings, *, encoder_digest):
    encoder = SimpleNamespace(identity=SimpleNamespace(digest=encoder_digest))
    return settings.fit(FitContext(encoder, embed, rows=None, seed=0))


def apply(fit, features):
    return BiasPromptsSettings.apply(fit, None, (), features)


def fitted(**settings):
    return fit(embed, BiasPromptsSettings(**settings), encoder_digest="e")


def of(projection):
    return FittedMitigation({"method": "bias_prompts"}, {"projection": np.asarray(projection)}, "x")


@pytest.mark.parametrize("variant", ["released", "calibrated"])
def test_without_calibration_the_projection_is_symmetric_and_idempotent(variant):
    projection = fitted(variant=variant, calibration=0).parameters["projection"]
    assert projection.dtype == np.float32
    assert projection.shape == (D, D)
    np.testing.assert_allclose(projection, projection.T, atol=1e-6)
    np.testing.assert_allclose(projection @ projection, projection, atol=1e-6)


def test_attributes_with_different_means_are_removed_all_at_once():
    # The prompts of the two are far from the origin and from one another: no single mean centres both.
    projection = fitted(attributes=("gender", "race"), calibration=0).parameters["projection"]
    prompts = [*attribute_texts("gender").prompts, *attribute_texts("race").prompts]
    means = [units(attribute_texts(name).prompts).mean(axis=0) for name in ("gender", "race")]
    assert np.linalg.norm(means[0] - means[1]) > 0.3
    np.testing.assert_allclose(units(prompts) @ projection.T, 0, atol=1e-6)
    # Age was not named, and is still there.
    young, old = units(attribute_texts("age").contrast) @ projection.T
    assert np.linalg.norm(young - old) > 0.3


def test_what_is_perpendicular_to_every_prompt_stays_as_it_is():
    named = units([p for name in ("gender", "race", "age") for p in attribute_texts(name).prompts])
    free = np.linalg.svd(named)[2][len(named) :]
    features = (generator(1).normal(size=(5, len(free))) @ free * 3).astype(np.float32)
    np.testing.assert_allclose(apply(fitted(calibration=0), features), features, atol=1e-5)


@pytest.mark.parametrize("attributes", [("gender",), ("gender", "race", "age")])
def test_the_closed_form_is_the_least_squares_solution_of_its_objective(attributes):
    strength = 50.0
    found = fitted(attributes=attributes, calibration=strength).parameters["projection"]
    named = units([p for name in attributes for p in attribute_texts(name).prompts])
    plain = np.eye(D) - np.linalg.pinv(named) @ named
    rows, targets = [np.eye(D)], [plain.T]
    for name in attributes:
        pairs = attribute_texts(name).pairs
        apart = units([a for a, _ in pairs]) - units([b for _, b in pairs])
        rows.append(apart * np.sqrt(strength / len(attributes) / len(pairs)))
        targets.append(np.zeros((len(pairs), D)))
    expected = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0].T
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_little_calibration_is_the_plain_projection():
    little, none = (fitted(calibration=c).parameters["projection"] for c in (1e-9, 0))
    np.testing.assert_allclose(little, none, atol=1e-6)


def test_much_calibration_makes_pairs_coincide():
    pairs = attribute_texts("gender").pairs
    both = [embed([pair[side] for pair in pairs]) for side in (0, 1)]

    def angles(strength):
        male, female = (apply(fitted(attributes=("gender",), calibration=strength), rows) for rows in both)
        cosines = (male * female).sum(axis=1) / np.linalg.norm(male, axis=1) / np.linalg.norm(female, axis=1)
        return np.arccos(np.clip(cosines, -1, 1))

    assert angles(1e7).max() < 0.01
    assert angles(0).min() > 0.1


def test_the_released_variant_is_three_differences_and_nothing_else():
    def unit_difference(one, other):
        apart = np.subtract(*units([f"a photo of a {one}", f"a photo of {other}"]))
        return apart / np.linalg.norm(apart)

    b = np.stack(
        [
            unit_difference("man", "a woman"),
            unit_difference("young person", "an old person"),
            unit_difference("White person", "a Black person"),
        ],
        axis=1,
    )
    expected = np.eye(D) - b @ np.linalg.inv(b.T @ b) @ b.T
    found = fitted(variant="released", calibration=1000)
    np.testing.assert_allclose(found.parameters["projection"], expected, atol=1e-6)
    assert len(bias_prompt_texts(BiasPromptsSettings(variant="released"))) == 6


@pytest.mark.parametrize("settings", [{}, {"variant": "released"}, {"attributes": ("race",)}], ids=str)
def test_rows_keep_their_norms(settings):
    features = embed(["a photo of a thief", "a photo of a kind person", "a hero"])
    found = apply(fitted(**settings), features)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(features, axis=1), rtol=1e-6)
    assert np.abs(found - features).max() > 0.01


def test_length_has_no_part_in_where_a_feature_is_projected_to():
    features = embed(["a photo of a thief", "a hero"])
    longer = apply(fitted(), features * np.array([[8], [0.25]], dtype=np.float32))
    np.testing.assert_array_equal(longer, apply(fitted(), features) * [[8], [0.25]])


def test_the_identity_changes_not_one_bit():
    features = generator(2).normal(size=(200, D)).astype(np.float32) * 7
    np.testing.assert_array_equal(apply(of(np.eye(D)), features), features)


def test_a_feature_of_which_nothing_is_left_is_zero_and_not_rounding_made_large():
    prompt, other = embed(["a photo of a woman", "a photo of a thief"])
    moved = prompt * (1 + generator(3).normal(size=D).astype(np.float32) * 1e-7)
    found = apply(fitted(calibration=0), [prompt, moved, other, 0 * other])
    np.testing.assert_array_equal(found[[0, 1, 3]], 0)
    assert np.linalg.norm(found[2]) == pytest.approx(np.linalg.norm(other))


def test_equal_prompts_are_one_direction_though_their_last_bits_differ():
    row = generator(4).normal(size=D)
    noisy = row * (1 + generator(5).normal(size=(6, D)) * 3e-8)
    assert np.trace(projection_off(noisy)) == pytest.approx(D - 1)


@pytest.mark.parametrize("width", [1, 5])
def test_prompts_that_span_the_whole_space_are_refused(width):
    with pytest.raises(MetricError, match=rf"(?s)whole space.*in {width} dimensions.*released"):
        fit(lambda texts: embed(texts, width), BiasPromptsSettings(), encoder_digest="e")


def test_a_contrast_that_the_encoder_does_not_see_is_refused():
    def blind(texts):
        return embed([text.replace("woman", "man") for text in texts])

    with pytest.raises(MetricError, match=r"(?s)no difference.*gender.*a photo of a woman"):
        fit(blind, BiasPromptsSettings(variant="released"), encoder_digest="e")


def test_what_it_was_fitted_on_is_the_encoder_and_the_settings():
    settings = BiasPromptsSettings()
    calls = []

    def counted(texts):
        calls.append(tuple(texts))
        return embed(texts)

    one = fit(counted, settings, encoder_digest="e")
    assert calls == [bias_prompt_texts(settings)]
    assert one.settings == settings.model_dump(mode="json")
    assert one.train_ids == ()
    keys = {
        one.fitted_on,
        fit(embed, settings, encoder_digest="f").fitted_on,
        fitted(calibration=1).fitted_on,
        fitted(variant="released").fitted_on,
        fitted(attributes=("gender", "race")).fitted_on,
    }
    assert len(keys) == 5
    assert fitted().fitted_on == one.fitted_on


def gaps(before, after, images):
    """Return the (n,) cosines between images and the difference of two texts' directions, before and after."""
    return [images @ (np.subtract(*(rows / np.linalg.norm(rows, axis=1, keepdims=True)))) for rows in (before, after)]


def test_on_a_planted_encoder_the_difference_of_the_gender_prompts_is_gone_for_every_image(planted):
    projected = fit(
        planted.embed_texts, BiasPromptsSettings(variant="released"), encoder_digest=planted.identity.digest
    )
    texts = planted.embed_texts(["a photo of a man", "a photo of a woman"])
    images = generator(6).normal(size=(50, planted.width))
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    before, after = gaps(texts, apply(projected, texts), images)
    assert np.abs(before).max() > 0.2
    np.testing.assert_allclose(after, 0, atol=1e-5)


def test_on_a_planted_encoder_calibration_draws_men_and_women_of_a_race_together(planted):
    projected = fit(planted.embed_texts, BiasPromptsSettings(), encoder_digest=planted.identity.digest)
    races = ("black", "white", "indian", "latino")
    both = [planted.embed_texts([f"a photo of a {race} {noun}" for race in races]) for noun in ("man", "woman")]

    def cosines(one, other):
        return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)

    after = cosines(*(apply(projected, rows) for rows in both))
    assert (after > cosines(*both)).all()
