"""Prompt Array: what is trained, on what, and that an interrupted training is as one that was not."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from kept_in_memory import Kept, assert_same_training
from small_encoders import fit

from plumbline.catalog.word_lists import load_sensitive_queries
from plumbline.errors import ConfigError, EncodingError, MetricError
from plumbline.mitigations.prompt_array import LearnedTokens, PromptArraySettings, initial_tokens, new_adversary
from plumbline.mitigations.text_mitigations import FittedMitigation
from plumbline.mitigations.training_rows import TrainingRows

# For matrices this small, sharing them out takes longer than they do.
pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ("a photo of a thief", "a photo of a friendly person", "a photo of a white man")
QUICK = PromptArraySettings(
    attribute="race", learning_rate=1e-2, adversary_learning_rate=1e-2, batch=16, epochs=2, alternate=2
)


def rows_of(encoder, n=48, *, seed=0):
    """Images near one direction or its opposite, which is their group."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    towards = encoder.embed_texts(["a photo of a black man", "a photo of a white woman"])
    images = (towards[labels] + 0.3 * towards.std() * rng.normal(size=(n, encoder.width))).astype(np.float32)
    for array in (images, labels):
        # As arrays of a mapped file are.
        array.flags.writeable = False
    return TrainingRows(
        images=images,
        groups=("Black", "White"),
        labels=labels,
        captions=tuple(f"a photo of a {'black man' if label == 0 else 'white woman'}" for label in labels),
        image_ids=tuple(f"{seed}-{i}" for i in range(n)),
    )


def test_tokens_are_trained_and_the_backbone_is_not(encoder):
    before = {name: tensor.clone() for name, tensor in encoder._model.state_dict().items()}
    fitted = fit(encoder, rows_of(encoder), QUICK, seed=1)
    after = encoder._model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert all(parameter.grad is None for parameter in encoder._model.parameters())
    first = initial_tokens(encoder, 2).numpy()
    assert fitted.parameters["tokens"].shape == first.shape and fitted.parameters["tokens"].dtype == np.float32
    assert np.abs(fitted.parameters["tokens"] - first).max() > 1e-3


def test_turns_alternate_and_the_adversary_has_the_first(planted):
    learned = LearnedTokens(planted, rows_of(planted), QUICK, load_sensitive_queries().texts, seed=1)
    whose = []
    for number in range(6):
        tokens, adversary = learned.tokens.values()["tokens"], learned.adversary.values()["adversary.0.weight"]
        losses = learned.step(np.arange(16), number)
        moved = not np.array_equal(tokens, learned.tokens.values()["tokens"])
        assert moved != (not np.array_equal(adversary, learned.adversary.values()["adversary.0.weight"]))
        assert set(losses) == ({"tokens", "guessing", "contrastive"} if moved else {"adversary"})
        whose.append("tokens" if moved else "adversary")
    assert whose == ["adversary"] * 2 + ["tokens"] * 2 + ["adversary"] * 2


def test_the_losses_are_those_of_the_formulas(planted):
    rows, settings = rows_of(planted), QUICK.model_copy(update={"alternate": 1, "contrastive": 0.3})
    queries = load_sensitive_queries().texts
    learned = LearnedTokens(planted, rows, settings, queries, seed=1)
    batch = np.arange(10, 26)
    learned.step(batch, 0)
    state = learned.tokens.values() | learned.adversary.values()
    losses = learned.step(batch, 1)
    texts = [*queries, *(rows.captions[i] for i in batch)]
    with torch.no_grad():
        features = planted.differentiable_texts(texts, torch.from_numpy(state["tokens"])).double().numpy()
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    images = rows.images[batch].astype(float)
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    hidden = 5 * images @ features[: len(queries)].T
    for layer in (0, 2, 4, 6):
        weight, bias = state[f"adversary.{layer}.weight"], state[f"adversary.{layer}.bias"]
        hidden = (np.maximum(hidden, 0) if layer else hidden) @ weight.T + bias
    guessing = np.mean([log_sum_exp(row) - row[k] for row, k in zip(hidden, rows.labels[batch], strict=True)])
    logits = planted.logit_scale * images @ features[len(queries) :].T
    contrastive = np.mean([log_sum_exp(m[i]) - m[i, i] for m in (logits, logits.T) for i in range(16)])
    assert losses["guessing"] == pytest.approx(guessing, rel=1e-4)
    assert losses["contrastive"] == pytest.approx(contrastive, rel=1e-4)
    assert losses["tokens"] == pytest.approx(-guessing + 0.3 * contrastive, rel=1e-4)


def log_sum_exp(row):
    return math.log(sum(math.exp(value) for value in row))


def test_each_loss_falls_while_it_is_trained(encoder):
    settings = QUICK.model_copy(update={"epochs": 34, "batch": 48, "alternate": 30})
    losses = fit(encoder, rows_of(encoder), settings, seed=1).losses
    assert len(losses["adversary"]) == 30 and losses["adversary"][-1] < 0.8 * losses["adversary"][0]
    assert len(losses["tokens"]) == 4 and losses["tokens"][-1] < losses["tokens"][0]


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_training_that_would_never_come_to_the_tokens_is_a_clear_error(planted, epochs):
    settings = QUICK.model_copy(update={"epochs": epochs, "alternate": 6})
    with pytest.raises(MetricError, match=rf"before its tokens[\s\S]*{3 * epochs} batches in all"):
        fit(planted, rows_of(planted), settings, seed=1)


def test_tokens_hide_from_the_adversary_what_it_could_guess_of_unseen_images(planted):
    rows, unseen, queries = (rows_of(planted, 32), rows_of(planted, 200, seed=1), load_sensitive_queries().texts)
    settings = QUICK.model_copy(update={"alternate": 30, "contrastive": 0.0})
    learned = LearnedTokens(planted, rows, settings, queries, seed=1)

    def right():
        with torch.no_grad():
            texts = planted.differentiable_texts(list(queries), torch.from_numpy(learned.tokens.values()["tokens"]))
            images = torch.nn.functional.normalize(torch.tensor(unseen.images))
            similarities = 5 * images @ torch.nn.functional.normalize(texts).T
            return float((learned._adversary(similarities).argmax(1).numpy() == unseen.labels).mean())

    for number in range(30):
        learned.step(np.arange(32), number)
    guessed = right()
    for number in range(30, 50):
        learned.step(np.arange(32), number)
    assert guessed > 0.9
    assert right() < 0.7


@pytest.mark.parametrize("stop_after", [1, 2])
def test_an_interrupted_training_goes_on_to_the_same_bytes(encoder, stop_after):
    rows, settings = rows_of(encoder), QUICK.model_copy(update={"epochs": 3, "alternate": 4})
    whole = fit(encoder, rows, settings, seed=3)
    store = Kept(stop_after)
    with pytest.raises(KeyboardInterrupt):
        fit(encoder, rows, settings, seed=3, store=store)
    done = []
    resumed = fit(encoder, rows, settings, seed=3, store=store, progress=lambda *step: done.append(step))
    assert_same_training(whole, resumed)
    assert whole.fitted_on == resumed.fitted_on
    assert done[-1] == (3 * (3 - stop_after),) * 2


@pytest.mark.parametrize("variant", ["adversarial", "released"])
def test_a_finished_training_is_not_done_again(planted, variant):
    rows, settings, store, steps = rows_of(planted), QUICK.model_copy(update={"variant": variant}), Kept(), []
    first, again = (
        fit(planted, rows, settings, seed=3, store=store, progress=lambda *step: steps.append(step)) for _ in range(2)
    )
    assert_same_training(first, again)
    assert len(steps) == (7 if variant == "released" else 6)


def test_a_seed_decides_everything(planted):
    rows = rows_of(planted)
    one, again, other = (fit(planted, rows, QUICK, seed=seed) for seed in (1, 1, 2))
    assert_same_training(one, again)
    assert not np.array_equal(one.parameters["tokens"], other.parameters["tokens"])
    before = torch.random.get_rng_state()
    fit(planted, rows, QUICK, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_what_it_was_fitted_on_tells_apart_all_that_it_depends_on(planted):
    rows, settings = rows_of(planted), QUICK.model_copy(update={"epochs": 1, "variant": "released"})

    def fitted_on(*, seed=1, settings=settings, **changes):
        changed = TrainingRows(**{**vars(rows), **changes})
        return fit(planted, changed, settings, seed=seed).fitted_on

    variants = [
        fitted_on(),
        fitted_on(seed=2),
        fitted_on(settings=settings.model_copy(update={"contrastive": 0.1})),
        fitted_on(images=rows.images * np.float32(1.5)),
        fitted_on(labels=1 - rows.labels),
        fitted_on(groups=("Black", "Indian")),
        fitted_on(captions=("another", *rows.captions[1:])),
        fitted_on(image_ids=("another", *rows.image_ids[1:])),
    ]
    assert len(set(variants)) == len(variants) and fitted_on() == variants[0]


def test_it_says_what_it_was_fitted_with(planted):
    rows = rows_of(planted)
    fitted = fit(planted, rows, QUICK, seed=1)
    assert fitted.train_ids == rows.image_ids
    assert fitted.settings == QUICK.model_dump(mode="json") | {"seed": 1}
    assert fitted.method == "prompt_array"


def test_more_tokens_than_the_word_has_repeat_it(encoder):
    own = encoder.token_vectors("a").numpy()
    many = initial_tokens(encoder, 2 * len(own) + 1).numpy()
    np.testing.assert_array_equal(many, np.concatenate([own, own, own[:1]]))


@pytest.mark.parametrize("family", ["bridgetower", "owlv2"])
def test_a_family_without_text_gradients_is_a_clear_error(family, planted):
    with pytest.raises(ConfigError, match=r"Prompt Array needs[\s\S]*text_gradients"):
        fit(SimpleNamespace(family=family), rows_of(planted), QUICK, seed=1)


def test_a_text_without_room_for_the_tokens_is_a_clear_error(planted):
    rows = rows_of(planted)
    long = TrainingRows(**{**vars(rows), "captions": ("a very long caption " * 40,) * len(rows.captions)})
    with pytest.raises(EncodingError, match="no room for the learned tokens"):
        fit(planted, long, QUICK, seed=1)


@pytest.mark.parametrize("variant", ["adversarial", "released"])
def test_a_loss_that_is_not_finite_is_a_clear_error_and_nothing_is_kept(planted, variant):
    rows, store = rows_of(planted), Kept()
    broken = rows.images.copy()
    broken[7] = np.nan
    rows = TrainingRows(**{**vars(rows), "images": broken})
    settings = QUICK.model_copy(update={"variant": variant})
    with pytest.raises(MetricError, match=r"not finite[\s\S]*step \d"):
        fit(planted, rows, settings, seed=1, store=store)
    assert store.states == {}


def test_applying_tokens_embeds_the_texts_anew_at_their_old_length(encoder):
    texts = TEXTS * 30
    features = encoder.embed_texts(texts)
    fitted = fit(encoder, rows_of(encoder), QUICK, seed=1)
    changed = PromptArraySettings.apply(fitted, encoder, texts, features)
    assert changed.dtype == np.float32 and changed.shape == features.shape
    np.testing.assert_allclose(np.linalg.norm(changed, axis=1), np.linalg.norm(features, axis=1), rtol=1e-5)
    with torch.no_grad():
        own = encoder.differentiable_texts(TEXTS, torch.from_numpy(fitted.parameters["tokens"])).numpy()
    own *= (np.linalg.norm(features, axis=1) / np.linalg.norm(np.tile(own, (30, 1)), axis=1))[:3, None]
    np.testing.assert_allclose(changed, np.tile(own, (30, 1)), rtol=1e-4, atol=1e-5)


def test_tokens_that_are_a_words_own_are_that_word_before_every_text(planted):
    tokens = planted.token_vectors("white").numpy()
    tokens.flags.writeable = False
    fitted = FittedMitigation({"method": "prompt_array", "variant": "adversarial"}, {"tokens": tokens}, "x")
    texts = ["thief", "hero"]
    changed = PromptArraySettings.apply(fitted, planted, texts, planted.embed_texts(texts))
    written = planted.embed_texts(["white thief", "white hero"])
    written *= np.linalg.norm(changed, axis=1, keepdims=True) / np.linalg.norm(written, axis=1, keepdims=True)
    np.testing.assert_allclose(changed, written, rtol=1e-4, atol=1e-5)


def test_no_text_gives_no_features(planted):
    none = planted.embed_texts(["a"])[:0]
    for fitted in (
        fit(planted, rows_of(planted), QUICK.model_copy(update={"variant": variant}), seed=1)
        for variant in ("adversarial", "released")
    ):
        assert PromptArraySettings.apply(fitted, planted, [], none).shape == (0, planted.width)


def test_the_released_variant_is_seven_steps_of_adam_on_the_hinge(planted):
    rows = rows_of(planted, 64)
    settings = PromptArraySettings(attribute="race", variant="released", epochs=5, tokens=3)
    fitted = fit(planted, rows, settings, seed=4)
    vectors, hinge = fitted.parameters["vectors"], fitted.losses["hinge"]
    assert vectors.shape == (16, planted.width) and hinge.shape == (7,)
    # With 64 images every batch holds each of them seven times in seven, in some order: the loss is that of all.
    pairs = load_sensitive_queries().pairs
    positive, negative = (planted.embed_texts([pair[i] for pair in pairs]).astype(float) for i in (0, 1))
    images = rows.images / np.linalg.norm(rows.images, axis=1, keepdims=True)
    mean = torch.tensor(first_mean(planted.width, seed=4), requires_grad=True)
    adam = torch.optim.Adam([mean], lr=1e-3)
    for value in hinge:
        sides = [torch.from_numpy(side) + mean for side in (positive, negative)]
        near, far = (torch.from_numpy(images).double() @ (s / s.norm(dim=1, keepdim=True)).T for s in sides)
        loss = (far - near + 0.05).clamp(min=0).mean()
        assert abs(value - loss.item()) < 0.01
        adam.zero_grad()
        loss.backward()
        adam.step()
    np.testing.assert_allclose(vectors.mean(axis=0), mean.detach().numpy(), atol=1e-3)
    assert np.abs(vectors.mean(axis=0) - first_mean(planted.width, seed=4)).max() > 5e-3


def first_mean(width, *, seed):
    from plumbline.statistics.seeds import generator

    return generator(seed, "prompt_array", "vectors").normal(0, 0.02, (16, width)).mean(axis=0)


def test_applying_added_vectors_keeps_lengths_and_nothing_changes_at_zero(planted):
    features = planted.embed_texts(TEXTS)
    settings = {"method": "prompt_array", "variant": "released"}
    zero = FittedMitigation(settings, {"vectors": np.zeros((16, planted.width), np.float32)}, "x")
    np.testing.assert_array_equal(PromptArraySettings.apply(zero, planted, TEXTS, features), features)
    vectors = np.zeros((16, planted.width), np.float32)
    vectors[0, 0] = 16.0
    moved = features + np.eye(planted.width)[0]
    moved *= np.linalg.norm(features, axis=1, keepdims=True) / np.linalg.norm(moved, axis=1, keepdims=True)
    one = FittedMitigation(settings, {"vectors": vectors}, "x")
    np.testing.assert_allclose(PromptArraySettings.apply(one, planted, TEXTS, features), moved, rtol=1e-5)


def test_the_adversarys_layers_are_those_of_the_paper():
    network = new_adversary(17, 7, seed=1, device="cpu")
    shapes = [tuple(layer.weight.shape) for layer in network if isinstance(layer, torch.nn.Linear)]
    assert shapes == [(32, 17), (32, 32), (32, 32), (7, 32)]
    assert [type(layer).__name__ for layer in network] == ["Linear", "ReLU"] * 3 + ["Linear"]
    assert network[0].weight.abs().max() <= 17**-0.5 < network[2].bias.abs().max() * 17**0.5 + 1
