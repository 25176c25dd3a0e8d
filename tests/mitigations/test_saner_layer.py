"""The layer of SANER: how it is applied, its losses, and a step of its training, each against the slow way."""

import numpy as np
import pytest
import torch
from untrained_saner import HELD_OUT, SPECIFIC, identity

from plumbline.mitigations.saner import (
    SanerFeatures,
    SanerLayer,
    SanerSettings,
    contrastive_loss,
    first_parameters,
    layer,
    specific_pattern,
    text_losses,
)
from plumbline.mitigations.text_mitigations import FittedMitigation


def test_the_layer_begins_as_the_identity():
    features = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32) * 3
    texts = ("a photo of a thief", *SPECIFIC)
    assert SanerSettings.apply(identity(7), None, texts, features).tobytes() == features.tobytes()


def test_the_layer_is_applied_as_it_is_written():
    rng = np.random.default_rng(5)
    parameters = {
        name: rng.normal(size=a.shape).astype(np.float32) for name, a in first_parameters(6, 4, seed=0).items()
    }
    fitted = FittedMitigation({"specific_pattern": specific_pattern("race")}, parameters, fitted_on="")
    features = rng.normal(size=(2, 6)).astype(np.float32)
    for text, x, found in zip(HELD_OUT, features, SanerSettings.apply(fitted, None, HELD_OUT[:2], features)):
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
    unit = [y / np.sqrt(sum(y**2)) for y in debiased]
    found = text_losses(*(torch.from_numpy(np.array(rows)) for rows in (debiased, unit, u, others)))
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
    contrastive = contrastive_loss(
        torch.from_numpy(images), torch.from_numpy(np.array(unit[:3])), torch.tensor(texts), scale
    )
    assert contrastive.item() == pytest.approx(total, rel=1e-9)


def test_without_repeated_texts_the_contrastive_loss_is_clips():
    rng = np.random.default_rng(7)
    images, texts = (torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(4, 5)))) for _ in range(2))
    logits, targets = 3 * images @ texts.T, torch.arange(4)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = (cross_entropy(logits, targets) + cross_entropy(logits.T, targets)) / 2
    assert contrastive_loss(images, texts, targets, 3.0).item() == pytest.approx(expected.item())


def test_one_step_is_one_step_of_adam_on_the_weighted_sum():
    rng = np.random.default_rng(8)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    neutral, others, images = (unit(*shape).astype(np.float32) for shape in ((4, 6), (4, 3, 6), (5, 6)))
    of_row, without = np.array([0, 1, 1, 0, 1]), np.array([2, 3])
    features = SanerFeatures(*map(torch.from_numpy, (neutral, others, images)), of_row, without, logit_scale=4.0)
    settings = SanerSettings(width=8, debiasing=2, reconstruction=0.5, contrastive=0.1, learning_rate=0.01)
    model = SanerLayer(features, settings, seed=9)
    first = {name: torch.from_numpy(array).requires_grad_() for name, array in model.descent.values().items()}
    values = model.step(np.array([1, 2, 3]), 0)
    # Three rows bring along what there is of texts without an image, which are two.
    chosen = torch.tensor([1, 1, 0, 2, 3])
    u = torch.from_numpy(neutral)[chosen]
    debiased = layer(first, u)
    unit = torch.nn.functional.normalize(debiased)
    expected = text_losses(debiased, unit, u, torch.from_numpy(others)[chosen])
    expected["contrastive"] = contrastive_loss(torch.from_numpy(images)[[1, 2, 3]], unit[:3], chosen[:3], 4.0)
    total = 2 * expected["debiasing"] + 0.5 * expected["reconstruction"] + 0.1 * expected["contrastive"]
    assert values["total"] == pytest.approx(total.item(), rel=1e-6)
    assert values["contrastive"] == pytest.approx(expected["contrastive"].item(), rel=1e-6)
    optimiser = torch.optim.Adam(first.values(), lr=0.01)
    total.backward()
    optimiser.step()
    for name, tensor in first.items():
        np.testing.assert_allclose(model.descent.values()[name], tensor.detach(), atol=1e-6)


def test_texts_without_an_image_are_as_many_as_the_rows_and_change_from_step_to_step():
    features = SanerFeatures(
        *(torch.ones(shape) for shape in ((30, 2), (30, 2, 2), (4, 2))),
        of_row=np.zeros(4, dtype=np.int64), without_image=np.arange(1, 30), logit_scale=1.0,
    )  # fmt: skip
    settings = SanerSettings(width=2, debiasing=1, reconstruction=1, contrastive=0, learning_rate=0.1)
    model = SanerLayer(features, settings, seed=1)
    drawn = [model.drawn(4, number).tolist() for number in (0, 1)]
    assert all(len(set(one)) == 4 and set(one) <= set(range(1, 30)) for one in drawn)
    assert drawn[0] != drawn[1]


def test_no_texts_and_a_zero_row_are_no_error():
    assert SanerSettings.apply(identity(7), None, (), np.ones((0, 7), dtype=np.float32)).shape == (0, 7)
    assert not SanerSettings.apply(identity(7), None, HELD_OUT[:1], np.zeros((1, 7), dtype=np.float32)).any()
