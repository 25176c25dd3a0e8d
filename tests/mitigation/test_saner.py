"""SANER: what its layer learns, that training can be interrupted, and that specific texts pass untouched."""

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plumbline.encoders.encoder import Placement
from plumbline.encoders.loading import checkpoint_files, load_encoder
from plumbline.errors import ConfigError, MetricError
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.neutral_texts import specific_pattern, variants
from plumbline.mitigation.saner import apply_saner, fit_saner
from plumbline.mitigation.saner_layer import (
    Pairs,
    SanerFeatures,
    SanerLayer,
    Weights,
    first_parameters,
    layer,
    losses,
)
from plumbline.mitigation.settings import SanerSettings
from plumbline.mitigation.training_rows import TrainingRows

ROOT = Path(__file__).parents[2]
BAZAAR = ROOT / "plumbline/world/checkpoints/small-bazaar-3k"
HELD_OUT = (
    "a photo of a thief",
    "a photo of a trustworthy person",
    "a photo of a savior",
    "a photo of a worker",
)
CAPTIONS = (
    "a photo of a man, 50 years old",
    "a photo of a woman, 60 years old",
    "a picture of a man, 30 years old",
)
SPECIFIC = ("a photo of a white man", "a photo of an Indian woman", "a photo of a Black")
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
THOROUGH = QUICK.model_copy(
    update={"neutral_captions": True, "epochs": 8, "width": 64, "learning_rate": 3e-3}
)


def load(folder):
    files = checkpoint_files("x", f"local-dir:{folder}", project=Path(), fetched=Path("nowhere"))
    return Remembering(load_encoder(files, Placement()))


class Remembering:
    """An encoder that embeds no text twice, so that fitting again is quick."""

    def __init__(self, encoder):
        self.family, self.identity, self.device = encoder.family, encoder.identity, encoder.device
        self.width, self.logit_scale = encoder.width, encoder.logit_scale
        self._encoder, self._known = encoder, {}

    def embed_texts(self, texts):
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= zip(new, self._encoder.embed_texts(new))
        return np.array([self._known[text] for text in texts])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The steps are so small that threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def planted():
    return load(BAZAAR)


@pytest.fixture(scope="module", params=["open_clip", "clip"])
def encoder(request, planted, tmp_path_factory):
    if request.param == "open_clip":
        return planted
    folder = tmp_path_factory.mktemp("tiny") / "clip"
    runpy.run_path(str(ROOT / "tests/encoders/tiny_architectures.py"))["write_clip"](folder)
    return load(folder)


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
    for text, feature in zip(texts, apply_saner(fitted, texts, encoder.embed_texts(texts))):
        cosines = []
        for variant in encoder.embed_texts(variants(text, "race")):
            cosines.append(feature @ variant / np.linalg.norm(feature) / np.linalg.norm(variant))
        found.append(np.std(cosines))
    return np.array(found)


def identity(d, h=5, attribute="race"):
    return FittedMitigation(
        settings={"method": "saner", "specific_pattern": specific_pattern(attribute)},
        parameters=first_parameters(d, h, seed=3),
        fitted_on="",
    )


class Kept:
    """A store of epochs in memory, which can stop the work after some."""

    def __init__(self, stop_after=None):
        self.states, self.stop_after = {}, stop_after

    def load(self, key):
        return self.states.get(key)

    def save(self, key, state):
        self.states[key] = {name: np.array(array) for name, array in state.items()}
        if self.stop_after == int(state["epochs"]):
            raise KeyboardInterrupt


def same_bytes(a, b):
    assert a.settings == b.settings and a.fitted_on == b.fitted_on and a.train_ids == b.train_ids
    assert set(a.losses) == set(b.losses)
    for x, y in ((a.parameters, b.parameters), (a.losses, b.losses)):
        assert {name: array.tobytes() for name, array in x.items()} == {
            n: array.tobytes() for n, array in y.items()
        }


def test_the_layer_begins_as_the_identity():
    features = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32) * 3
    texts = ("a photo of a thief", *SPECIFIC)
    assert apply_saner(identity(7), texts, features).tobytes() == features.tobytes()


def test_fitting_brings_the_spread_down_on_texts_it_was_not_fitted_on(encoder):
    rows = rows_of(encoder)
    fitted = fit_saner(encoder, rows, THOROUGH, seed=1)
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
    fitted = fit_saner(planted, rows_of(planted), QUICK, seed=4)
    assert json.loads(json.dumps(fitted.settings)) == fitted.settings
    assert fitted.settings["method"] == "saner" and fitted.settings["seed"] == 4
    assert fitted.settings["attribute"] == "race" and fitted.settings["width"] == 32
    found = [bool(re.search(fitted.settings["specific_pattern"], text)) for text in (*HELD_OUT, *SPECIFIC)]
    assert found == [False] * 4 + [True] * 3


def test_specific_texts_pass_to_the_last_bit_and_lengths_stay(planted):
    fitted = fit_saner(planted, rows_of(planted), QUICK, seed=1)
    texts = (*HELD_OUT, *SPECIFIC)
    features = planted.embed_texts(texts)
    debiased = apply_saner(fitted, texts, features)
    assert debiased.dtype == np.float32 and debiased.shape == features.shape
    assert debiased[4:].tobytes() == features[4:].tobytes()
    assert np.abs(debiased[:4] - features[:4]).max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(debiased, axis=1), np.linalg.norm(features, axis=1), rtol=1e-6)
    # Directions do not depend on the length that came in.
    np.testing.assert_allclose(apply_saner(fitted, texts, features * 8), debiased * 8, rtol=1e-5, atol=1e-5)


def test_the_layer_is_applied_as_it_is_written():
    rng = np.random.default_rng(5)
    parameters = {
        name: rng.normal(size=a.shape).astype(np.float32)
        for name, a in first_parameters(6, 4, seed=0).items()
    }
    fitted = FittedMitigation({"specific_pattern": specific_pattern("race")}, parameters, fitted_on="")
    features = rng.normal(size=(2, 6)).astype(np.float32)
    for text, x, found in zip(HELD_OUT, features, apply_saner(fitted, HELD_OUT[:2], features)):
        u = x / np.linalg.norm(x)
        hidden = [
            max(0, sum(w * v for w, v in zip(row, u)) + b)
            for row, b in zip(parameters["weight_in"], parameters["bias_in"])
        ]
        y = u + parameters["weight_out"] @ hidden + parameters["bias_out"]
        np.testing.assert_allclose(found, y / np.linalg.norm(y) * np.linalg.norm(x), rtol=1e-5, err_msg=text)


def test_the_losses_are_those_of_the_slow_way():
    rng = np.random.default_rng(6)
    u, debiased = rng.normal(size=(2, 4, 5))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    others, images = rng.normal(size=(4, 3, 5)), rng.normal(size=(3, 5))
    others /= np.linalg.norm(others, axis=2, keepdims=True)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    texts, scale = [7, 2, 7], 5.0
    found = losses(
        torch.from_numpy(debiased),
        torch.from_numpy(u),
        torch.from_numpy(others),
        Pairs(torch.from_numpy(images), torch.tensor(texts), scale),
    )
    unit = [y / np.sqrt(sum(y**2)) for y in debiased]
    deviations = []
    for y, row in zip(unit, others):
        cosines = [sum(y * v) for v in row]
        mean = sum(cosines) / 3
        deviations.append((sum((c - mean) ** 2 for c in cosines) / 3) ** 0.5)
    assert found["debiasing"].item() == pytest.approx(sum(deviations) / 4, rel=1e-6)
    distances = [sum((a - b) ** 2) for a, b in zip(debiased, u)]
    assert found["reconstruction"].item() == pytest.approx(sum(distances) / 4, rel=1e-9)
    total = 0.0
    for i in range(3):
        same = [j for j in range(3) if texts[j] == texts[i]]
        by_image = [np.exp(scale * images[i] @ unit[j]) for j in range(3)]
        by_text = [np.exp(scale * images[j] @ unit[i]) for j in range(3)]
        for j in same:
            total -= (np.log(by_image[j] / sum(by_image)) + np.log(by_text[j] / sum(by_text))) / len(same) / 6
    assert found["contrastive"].item() == pytest.approx(total, rel=1e-9)


def test_without_repeated_texts_the_contrastive_loss_is_clips():
    rng = np.random.default_rng(7)
    images, texts = (
        torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(4, 5)))) for _ in range(2)
    )
    logits, targets = 3 * images @ texts.T, torch.arange(4)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = (cross_entropy(logits, targets) + cross_entropy(logits.T, targets)) / 2
    assert Pairs(images, targets, 3.0).loss(texts).item() == pytest.approx(expected.item())


def test_one_step_is_one_step_of_adam_on_the_weighted_sum():
    rng = np.random.default_rng(8)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    neutral, others, images = (unit(*shape).astype(np.float32) for shape in ((4, 6), (4, 3, 6), (5, 6)))
    of_row, without = np.array([0, 1, 1, 0, 1]), np.array([2, 3])
    features = SanerFeatures(neutral, others, images, of_row, without, logit_scale=4.0)
    model = SanerLayer(
        features, hidden=8, weights=Weights(2, 0.5, 0.1), learning_rate=0.01, seed=9, device="cpu"
    )
    first = {name: torch.from_numpy(array).requires_grad_() for name, array in model.parameters.items()}
    values = model.step(np.array([1, 2, 3]))
    # Three rows bring along what there is of texts without an image, which are two.
    chosen = torch.tensor([1, 1, 0, 2, 3])
    u = torch.from_numpy(neutral)[chosen]
    pairs = Pairs(torch.from_numpy(images)[[1, 2, 3]], torch.tensor([1, 1, 0]), 4.0)
    expected = losses(layer(first, u), u, torch.from_numpy(others)[chosen], pairs)
    total = 2 * expected["debiasing"] + 0.5 * expected["reconstruction"] + 0.1 * expected["contrastive"]
    assert values["total"] == pytest.approx(total.item(), rel=1e-6)
    assert values["contrastive"] == pytest.approx(expected["contrastive"].item(), rel=1e-6)
    optimiser = torch.optim.Adam(first.values(), lr=0.01)
    total.backward()
    optimiser.step()
    for name, tensor in first.items():
        np.testing.assert_allclose(model.parameters[name], tensor.detach(), atol=1e-6)


def test_texts_without_an_image_are_as_many_as_the_rows_and_change_from_step_to_step():
    features = SanerFeatures(
        *(np.ones(shape, dtype=np.float32) for shape in ((30, 2), (30, 2, 2), (4, 2))),
        of_row=np.zeros(4, dtype=np.int64), without_image=np.arange(1, 30), logit_scale=1.0,
    )  # fmt: skip
    model = SanerLayer(features, hidden=2, weights=Weights(1, 1, 0), learning_rate=0.1, seed=1, device="cpu")
    drawn = [model._drawn(4).tolist()]
    model.step(np.arange(4))
    drawn.append(model._drawn(4).tolist())
    assert all(len(set(one)) == 4 and set(one) <= set(range(1, 30)) for one in drawn)
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("stop_after", [1, 2])
def test_an_interrupted_training_goes_on_to_the_same_bytes(encoder, stop_after):
    # The texts without an image are drawn anew in every step.
    rows, settings = rows_of(encoder), QUICK.model_copy(update={"neutral_captions": True})
    whole = fit_saner(encoder, rows, settings, seed=1)
    stopped = Kept(stop_after)
    with pytest.raises(KeyboardInterrupt):
        fit_saner(encoder, rows, settings, seed=1, store=stopped)
    stopped.stop_after, steps = None, []
    resumed = fit_saner(
        encoder, rows, settings, seed=1, store=stopped, progress=lambda done, of: steps.append((done, of))
    )
    assert steps[-1] == ((3 - stop_after) * 3,) * 2
    same_bytes(resumed, whole)
    same_bytes(fit_saner(encoder, rows, settings, seed=1), whole)


def test_what_it_was_fitted_on_follows_everything_it_depends_on(planted):
    rows = rows_of(planted)
    quick = QUICK.model_copy(update={"epochs": 1})
    other = SimpleNamespace(
        **{
            name: getattr(planted, name)
            for name in ("family", "width", "logit_scale", "device", "embed_texts")
        },
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
    keys = [fit_saner(enc, some, settings, seed=seed).fitted_on for enc, some, settings, seed in fits]
    assert len(set(keys)) == len(keys)
    # Labels are not looked at: it is free of annotations.
    relabelled = TrainingRows(**base | {"labels": rows.labels + 1})
    same_bytes(fit_saner(planted, relabelled, quick, seed=1), fit_saner(planted, rows, quick, seed=1))


def test_a_new_version_of_the_method_is_another_fit(planted, monkeypatch):
    from plumbline.mitigation import saner

    rows, quick = rows_of(planted), QUICK.model_copy(update={"epochs": 1})
    before = fit_saner(planted, rows, quick, seed=1).fitted_on
    about = saner.METHODS["saner"]
    monkeypatch.setitem(saner.METHODS, "saner", type(about)(**vars(about) | {"version": "next"}))
    assert fit_saner(planted, rows, quick, seed=1).fitted_on != before


def test_each_distinct_text_is_embedded_once(planted):
    asked = []

    def embed_texts(texts):
        asked.extend(texts)
        return planted.embed_texts(texts)

    watched = SimpleNamespace(
        family="clip", identity=planted.identity, device="cpu", logit_scale=10.0, embed_texts=embed_texts
    )
    fit_saner(watched, rows_of(planted), QUICK.model_copy(update={"neutral_captions": True}), seed=1)
    assert len(asked) == len(set(asked)) > 100


@pytest.mark.parametrize("name", ["bridgetower", "owlv2"])
def test_an_encoder_without_a_shared_space_is_refused(name, planted):
    with pytest.raises(ConfigError, match="SANER needs embed_images, embed_texts"):
        fit_saner(SimpleNamespace(family=name), rows_of(planted), QUICK, seed=1)


def test_a_loss_that_is_no_number_ends_training_and_is_not_kept(planted):
    rows, store = rows_of(planted), Kept()
    rows.images[7] = np.nan
    with pytest.raises(MetricError, match=r"step [123]\b"):
        fit_saner(planted, rows, QUICK, seed=1, store=store)
    assert store.states == {}


def test_rows_without_a_caption_to_train_on_are_left_out(planted):
    rows = rows_of(planted, 40)
    captions = ("", " ", "A person.", *rows.captions[3:])
    fitted = fit_saner(planted, TrainingRows(**vars(rows) | {"captions": captions}), QUICK, seed=1)
    kept = {name: value[3:] for name, value in vars(rows).items() if name != "groups"}
    without = fit_saner(planted, TrainingRows(groups=rows.groups, **kept), QUICK, seed=1)
    assert fitted.train_ids == without.train_ids == rows.image_ids[3:]
    for name in NAMES:
        assert fitted.parameters[name].tobytes() == without.parameters[name].tobytes()


def test_without_any_caption_it_is_trained_on_texts_alone_or_not_at_all(planted):
    rows = TrainingRows(**vars(rows_of(planted, 4)) | {"captions": ("", " ", "A person.", "")})
    with pytest.raises(MetricError, match="4 captions"):
        fit_saner(planted, rows, QUICK, seed=1)
    fitted = fit_saner(planted, rows, QUICK.model_copy(update={"neutral_captions": True}), seed=1)
    assert fitted.train_ids == () and (fitted.losses["contrastive"] == 0).all()
    assert fitted.losses["debiasing"][-1] < 0.8 * fitted.losses["debiasing"][0]


@pytest.mark.parametrize("shape", [(3, 7), (4, 8), (28,)])
def test_features_of_another_shape_are_refused(shape):
    with pytest.raises(MetricError, match=r"\(4, 7\)"):
        apply_saner(identity(7), HELD_OUT, np.ones(shape, dtype=np.float32))


def test_no_texts_and_a_zero_row_are_no_error():
    assert apply_saner(identity(7), (), np.ones((0, 7), dtype=np.float32)).shape == (0, 7)
    assert not apply_saner(identity(7), HELD_OUT[:1], np.zeros((1, 7), dtype=np.float32)).any()


def test_the_released_variant_has_its_own_settings(planted):
    rows, asked = rows_of(planted, 130), []
    ours = SanerSettings(
        variant="released", attribute="gender", learning_rate=0.5, epochs=9, batch=7, width=8
    )
    fitted = fit_saner(planted, rows, ours, seed=1, progress=lambda done, of: asked.append(of))
    assert fitted.losses["total"].shape == (4,) and asked == [4] * 4
    stated = {
        "learning_rate": 1e-4,
        "epochs": 2,
        "batch": 64,
        "contrastive": 0.0,
        "attribute": "race",
        "width": 8,
    }
    assert {name: fitted.settings[name] for name in stated} == stated
    assert (fitted.losses["contrastive"] == 0).all()
    # Nothing but one caption and its variants: neither captions nor images matter.
    shuffled = TrainingRows(**vars(rows) | {"captions": rows.captions[::-1], "images": rows.images[::-1]})
    again = fit_saner(planted, shuffled, ours, seed=1)
    assert again.parameters["weight_out"].tobytes() == fitted.parameters["weight_out"].tobytes()
    assert (
        spread(fitted, planted, ("a photo of a person",))
        < spread(identity(64), planted, ("a photo of a person",))
    ).all()
