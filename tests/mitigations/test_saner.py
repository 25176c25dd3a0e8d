"""SANER: what it learns, that training can be interrupted, and that specific texts pass untouched."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from kept_in_memory import Kept, assert_same_fit
from small_encoders import Remembering, fit
from untrained_saner import HELD_OUT, SPECIFIC, identity

from plumbline.errors import ConfigError, MetricError
from plumbline.mitigations.saner import SanerSettings, variants
from plumbline.mitigations.training_rows import TrainingRows

# The steps are so small that threads wait for each other longer than they work.
pytestmark = pytest.mark.usefixtures("one_thread")


CAPTIONS = ("a photo of a man, 50 years old", "a photo of a woman, 60 years old", "a picture of a man, 30 years old")
NAMES = ("weight_in", "bias_in", "weight_out", "bias_out")
QUICK = SanerSettings(
    attribute="race",
    width=32,
    batch=16,
    epochs=3,
    learning_rate=1e-2,
    debiasing=3.0,
    reconstruction=0.5,
    contrastive=0.1,
    neutral_captions=False,
)
THOROUGH = QUICK.model_copy(update={"neutral_captions": True, "epochs": 8, "width": 64, "learning_rate": 3e-3})


@pytest.fixture(scope="module")
def planted(planted):
    return Remembering(planted)


@pytest.fixture(scope="module")
def encoder(encoder):
    return Remembering(encoder)


def rows_of(encoder, n=50, *, seed=0):
    """Images near the text of their labels."""
    rng = np.random.default_rng(seed)
    people = [f"{race} {noun}" for race in ("Black", "White", "Indian") for noun in ("man", "woman")]
    captions = [f"a photo of a {people[i]}, {rng.integers(2, 5)}0 years old" for i in rng.integers(0, 6, n)]
    near = encoder.embed_texts(captions)
    images = near + 0.3 * near.std() * rng.normal(size=near.shape)
    return TrainingRows(
        images=images.astype(np.float32),
        groups=("Black", "Indian", "White"),
        labels=np.zeros(n, dtype=np.int64),
        captions=tuple(captions),
        image_ids=tuple(f"{i:03}" for i in range(n)),
    )


def spread(fitted, encoder, texts=HELD_OUT):
    """Return the standard deviation of each text's cosines to its variants, written out."""
    found = []
    for text, feature in zip(texts, SanerSettings.apply(fitted, None, texts, encoder.embed_texts(texts))):
        cosines = []
        for variant in encoder.embed_texts(variants(text, "race")):
            cosines.append(feature @ variant / np.linalg.norm(feature) / np.linalg.norm(variant))
        found.append(np.std(cosines))
    return np.array(found)


def test_fitting_brings_the_spread_down_on_texts_it_was_not_fitted_on(encoder):
    rows = rows_of(encoder)
    fitted = fit(encoder, rows, THOROUGH, seed=1)
    d = encoder.width
    assert [fitted.parameters[name].shape for name in NAMES] == [(64, d), (64,), (d, 64), (d,)]
    assert set(fitted.parameters) == set(NAMES)
    assert all(array.dtype == np.float32 for array in fitted.parameters.values())
    before, after = (spread(some, encoder, CAPTIONS) for some in (identity(encoder.width), fitted))
    assert (after < 0.8 * before).all()
    if encoder.family == "open_clip":
        # One that has learnt what texts mean: prompts of the audit too, though none was trained on.
        assert spread(fitted, encoder).mean() < 0.8 * spread(identity(encoder.width), encoder).mean()
    for name, share in (("debiasing", 0.6), ("total", 0.95)):
        assert fitted.losses[name].shape == (24,) and fitted.losses[name][-1] < share * fitted.losses[name][0]
    # The last layer is zero at first: nothing is reconstructed wrongly yet.
    assert fitted.losses["reconstruction"][0] < 1e-12
    assert fitted.train_ids == rows.image_ids


def test_what_is_fitted_carries_all_that_applying_takes(planted):
    fitted = fit(planted, rows_of(planted), QUICK, seed=4)
    assert json.loads(json.dumps(fitted.settings)) == fitted.settings
    assert fitted.settings["method"] == "saner" and fitted.settings["seed"] == 4
    assert fitted.settings["attribute"] == "race" and fitted.settings["width"] == 32
    found = [bool(re.search(fitted.settings["specific_pattern"], text)) for text in (*HELD_OUT, *SPECIFIC)]
    assert found == [False] * 4 + [True] * 3


def test_specific_texts_pass_to_the_last_bit_and_lengths_stay(planted):
    fitted = fit(planted, rows_of(planted), QUICK, seed=1)
    texts = (*HELD_OUT, *SPECIFIC)
    features = planted.embed_texts(texts)
    debiased = SanerSettings.apply(fitted, None, texts, features)
    assert debiased.dtype == np.float32 and debiased.shape == features.shape
    assert debiased[4:].tobytes() == features[4:].tobytes()
    assert np.abs(debiased[:4] - features[:4]).max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(debiased, axis=1), np.linalg.norm(features, axis=1), rtol=1e-6)
    # Directions do not depend on the length that came in.
    np.testing.assert_allclose(
        SanerSettings.apply(fitted, None, texts, features * 8), debiased * 8, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("stop_after", [1, 2])
def test_an_interrupted_training_goes_on_to_the_same_fit(encoder, stop_after):
    # The texts without an image are drawn anew in every step.
    rows, settings = rows_of(encoder), QUICK.model_copy(update={"neutral_captions": True})
    whole = fit(encoder, rows, settings, seed=1)
    stopped = Kept(stop_after)
    with pytest.raises(KeyboardInterrupt):
        fit(encoder, rows, settings, seed=1, store=stopped)
    stopped.stop_after, steps = None, []
    resumed = fit(encoder, rows, settings, seed=1, store=stopped, progress=lambda done, of: steps.append((done, of)))
    assert steps[-1] == ((3 - stop_after) * 3,) * 2
    assert_same_fit(resumed, whole)
    assert_same_fit(fit(encoder, rows, settings, seed=1), whole)


def test_what_it_was_fitted_on_follows_everything_it_depends_on(planted):
    rows = rows_of(planted)
    quick = QUICK.model_copy(update={"epochs": 1})
    other = SimpleNamespace(
        **{name: getattr(planted, name) for name in ("family", "width", "logit_scale", "device", "embed_texts")},
        identity=SimpleNamespace(digest="another"),
    )
    base = vars(rows)
    fits = [
        (planted, rows, quick, 1), (planted, rows, quick, 2), (other, rows, quick, 1),
        (planted, TrainingRows(**base | {"images": rows.images + 1}), quick, 1),
        (planted, TrainingRows(**base | {"image_ids": rows.image_ids[::-1]}), quick, 1),
        (planted, TrainingRows(**base | {"captions": rows.captions[::-1]}), quick, 1),
        *((planted, rows, quick.model_copy(update=changed), 1) for changed in (
            {"neutral_captions": True}, {"debiasing": 2.0}, {"width": 8}, {"attribute": "gender"})),
    ]  # fmt: skip
    keys = [fit(enc, some, settings, seed=seed).fitted_on for enc, some, settings, seed in fits]
    assert len(set(keys)) == len(keys)
    # Labels are not looked at: it is free of annotations.
    relabelled = TrainingRows(**base | {"labels": rows.labels + 1})
    assert_same_fit(fit(planted, relabelled, quick, seed=1), fit(planted, rows, quick, seed=1))


def test_a_new_version_of_the_method_is_another_fit(planted, monkeypatch):
    from plumbline.mitigations import saner

    rows, quick = rows_of(planted), QUICK.model_copy(update={"epochs": 1})
    before = fit(planted, rows, quick, seed=1).fitted_on
    about = saner.METHODS["saner"]
    monkeypatch.setitem(saner.METHODS, "saner", type(about)(**vars(about) | {"version": "next"}))
    assert fit(planted, rows, quick, seed=1).fitted_on != before


def test_each_distinct_text_is_embedded_once(planted):
    asked = []

    def embed_texts(texts):
        asked.extend(texts)
        return planted.embed_texts(texts)

    watched = SimpleNamespace(
        family="clip", identity=planted.identity, device="cpu", logit_scale=10.0, embed_texts=embed_texts
    )
    fit(watched, rows_of(planted), QUICK.model_copy(update={"neutral_captions": True}), seed=1)
    assert len(asked) == len(set(asked)) > 100


@pytest.mark.parametrize("name", ["bridgetower", "owlv2"])
def test_an_encoder_without_a_shared_space_is_refused(name, planted):
    with pytest.raises(ConfigError, match="SANER needs embed_images, embed_texts"):
        fit(SimpleNamespace(family=name), rows_of(planted), QUICK, seed=1)


def test_a_loss_that_is_no_number_ends_training_and_is_not_kept(planted):
    rows, store = rows_of(planted), Kept()
    rows.images[7] = np.nan
    with pytest.raises(MetricError, match=r"step [123]\b"):
        fit(planted, rows, QUICK, seed=1, store=store)
    assert store.states == {}


def test_rows_without_a_caption_to_train_on_are_left_out(planted):
    rows = rows_of(planted, 40)
    captions = ("", " ", "A person.", *rows.captions[3:])
    fitted = fit(planted, TrainingRows(**vars(rows) | {"captions": captions}), QUICK, seed=1)
    kept = {name: value[3:] for name, value in vars(rows).items() if name != "groups"}
    without = fit(planted, TrainingRows(groups=rows.groups, **kept), QUICK, seed=1)
    assert fitted.train_ids == without.train_ids == rows.image_ids[3:]
    for name in NAMES:
        assert fitted.parameters[name].tobytes() == without.parameters[name].tobytes()


def test_without_any_caption_it_is_trained_on_texts_alone_or_not_at_all(planted):
    rows = TrainingRows(**vars(rows_of(planted, 4)) | {"captions": ("", " ", "A person.", "")})
    with pytest.raises(MetricError, match="4 captions"):
        fit(planted, rows, QUICK, seed=1)
    fitted = fit(planted, rows, QUICK.model_copy(update={"neutral_captions": True}), seed=1)
    assert fitted.train_ids == () and (fitted.losses["contrastive"] == 0).all()
    assert fitted.losses["debiasing"][-1] < 0.8 * fitted.losses["debiasing"][0]


def test_the_released_variant_has_its_own_settings(planted):
    rows, asked = rows_of(planted, 130), []
    ours = SanerSettings(variant="released", attribute="gender", learning_rate=0.5, epochs=9, batch=7, width=8)
    fitted = fit(planted, rows, ours, seed=1, progress=lambda done, of: asked.append(of))
    assert fitted.losses["total"].shape == (4,) and asked == [4] * 4
    stated = {"learning_rate": 1e-4, "epochs": 2, "batch": 64, "contrastive": 0.0, "attribute": "race", "width": 8}
    assert {name: fitted.settings[name] for name in stated} == stated
    assert (fitted.losses["contrastive"] == 0).all()
    # Nothing but one caption and its variants: neither captions nor images matter.
    shuffled = TrainingRows(**vars(rows) | {"captions": rows.captions[::-1], "images": rows.images[::-1]})
    again = fit(planted, shuffled, ours, seed=1)
    assert again.parameters["weight_out"].tobytes() == fitted.parameters["weight_out"].tobytes()
    assert (
        spread(fitted, planted, ("a photo of a person",)) < spread(identity(64), planted, ("a photo of a person",))
    ).all()
