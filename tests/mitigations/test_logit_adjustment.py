"""The batched logit adjustment against torch, one image at a time."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from plumbline.errors import MetricError
from plumbline.mitigations import LogitAdjustment, apply_logit_adjustment, fit_logit_adjustment
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings, learn, winners_by_trial

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "logit_adjustment.json").read_text())


def draw(seed=0, n=150, classes=3, probes=None):
    """Draw logits whose probe column wins too often."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    shape = (n, classes + 1) if probes is None else (probes, n, classes + 1)
    logits = rng.normal(20, 1, shape)
    logits[..., np.arange(n), labels] += 0.8
    logits[..., -1] += 1.5
    return logits, labels


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["source"])
def test_by_hand(case):
    inputs = {name: np.array(x) if isinstance(x, list) else x for name, x in case["inputs"].items()}
    fitted = fit_logit_adjustment(**inputs, trials=1, seed=0)
    for name, expected in case["expected"].items():
        np.testing.assert_allclose(getattr(fitted, name)[0], expected, atol=case["tol"], rtol=0)


def released_loop(logits, labels, train, *, n_classes, epochs, learning_rate, mode="multiplicative"):
    """Fit one probe and trial image by image: factors and losses of every epoch, by torch's own Adam."""
    size = logits.shape[1]
    start = torch.ones(size) if mode == "multiplicative" else torch.zeros(size)
    factors = torch.nn.Parameter(start.double())
    optimiser = torch.optim.Adam([factors], lr=learning_rate)
    path, losses = [factors.detach().clone().numpy()], []
    for _ in range(epochs + 1):
        optimiser.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for row in train:
            z = torch.from_numpy(logits[row])
            adjusted = z * factors if mode == "multiplicative" else z + factors
            loss = loss - torch.log_softmax(adjusted, dim=0)[labels[row]]
        loss = loss / len(train)
        losses.append(loss.item())
        loss.backward()
        optimiser.step()
        path.append(factors.detach().clone().numpy())
    return np.array(path[:-1]), np.array(losses)


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_one_batched_optimisation_equals_a_torch_loop_for_every_probe_and_trial(mode):
    logits, labels = draw(probes=2)
    fitted = fit_logit_adjustment(logits, labels, n_classes=3, per_class=6, trials=2, epochs=12, seed=4, mode=mode)
    assert fitted.factors.shape == (2, 2, 4) and fitted.losses.shape == (2, 2, 13)
    for probe in range(2):
        for trial in range(2):
            path, losses = released_loop(
                logits[probe], labels, fitted.train_rows[trial],
                n_classes=3, epochs=12, learning_rate=0.01, mode=mode,
            )  # fmt: skip
            np.testing.assert_allclose(fitted.losses[probe, trial], losses, atol=1e-9)
            chosen = fitted.chosen_epochs[probe, trial]
            assert chosen == losses.argmin()
            np.testing.assert_allclose(fitted.factors[probe, trial], path[chosen], atol=1e-5)


def macro(logits, factors, labels, rows):
    top = (logits[rows] * factors).argmax(axis=1)
    return np.mean([(top[labels[rows] == c] == c).mean() for c in np.unique(labels[rows])])


def test_the_released_rule_lets_test_accuracy_choose_the_epoch():
    logits, labels = draw(seed=3, n=90)
    settings = {"n_classes": 3, "per_class": 5, "trials": 3, "epochs": 15, "learning_rate": 0.02, "seed": 2}
    fitted = fit_logit_adjustment(logits, labels, selection="released", **settings)
    clean = fit_logit_adjustment(logits, labels, **settings)
    assert fitted.settings.leaking and not clean.settings.leaking
    np.testing.assert_array_equal(fitted.train_rows, clean.train_rows)
    for trial, train in enumerate(fitted.train_rows):
        path, _ = released_loop(logits, labels, train, n_classes=3, epochs=15, learning_rate=0.02)
        test = np.setdiff1d(np.arange(len(labels)), train)
        best, kept = 0.0, 0
        for epoch in range(1, 16):
            if macro(logits, path[epoch - 1], labels, train) > best:
                best, kept = macro(logits, path[epoch], labels, test), epoch
        assert fitted.chosen_epochs[trial] == kept
        np.testing.assert_allclose(fitted.factors[trial], path[kept], atol=1e-5)


def test_without_leakage_test_rows_change_nothing():
    logits, labels = draw(seed=5)
    for selection, moves in (("train_loss", False), ("train_accuracy", False), ("released", True)):
        settings = {"n_classes": 3, "per_class": 5, "seed": 1, "selection": selection, "epochs": 30}
        first = fit_logit_adjustment(logits, labels, **settings)
        changed = logits.copy()
        everywhere_test = first.test_rows(len(labels)).all(axis=0)
        # Perfect test answers raise the released rule's bar to 1, which no later training accuracy exceeds.
        changed[everywhere_test] = 50.0 * (labels[everywhere_test, None] == np.arange(4))
        second = fit_logit_adjustment(changed, labels, **settings)
        assert (not np.array_equal(first.factors, second.factors)) == moves, selection


def test_choosing_by_training_accuracy_takes_the_best_epoch_and_then_the_lower_loss():
    logits, labels = draw(seed=6)
    fitted = fit_logit_adjustment(
        logits, labels, n_classes=3, per_class=8, trials=1, epochs=25, seed=1, selection="train_accuracy"
    )
    train = fitted.train_rows[0]
    path, losses = released_loop(logits, labels, train, n_classes=3, epochs=25, learning_rate=0.01)
    scores = np.array([macro(logits, factors, labels, train) for factors in path])
    best = np.flatnonzero(scores >= scores.max() - 1e-12)
    assert fitted.chosen_epochs[0] == best[losses[best].argmin()]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=4), st.integers(1, 4), st.integers(0, 99))
def test_training_rows_are_drawn_by_the_rule(sizes, per_class, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    logits = np.zeros((len(labels), len(sizes) + 1))
    if max(sizes) < 2:
        with pytest.raises(MetricError):
            fit_logit_adjustment(logits, labels, n_classes=len(sizes), per_class=per_class, seed=seed)
        return
    fitted = fit_logit_adjustment(logits, labels, n_classes=len(sizes), per_class=per_class, epochs=1, seed=seed)
    for train, test in zip(fitted.train_rows, fitted.test_rows(len(labels))):
        assert len(set(train)) == len(train) and not test[train].any()
        assert test.sum() + len(train) == len(labels)
        for c, size in enumerate(sizes):
            expected = per_class if size >= 2 * per_class else size // 2
            assert (labels[train] == c).sum() == expected


def test_draws_depend_on_the_seed_and_the_trial_and_on_nothing_else():
    logits, labels = draw(probes=2)
    settings = {"n_classes": 3, "per_class": 6, "epochs": 2}
    one = fit_logit_adjustment(logits, labels, seed=1, **settings)
    again = fit_logit_adjustment(logits, labels, seed=1, **settings)
    alone = fit_logit_adjustment(logits[1], labels, seed=1, **settings)
    other = fit_logit_adjustment(logits, labels, seed=2, **settings)
    np.testing.assert_array_equal(one.factors, again.factors)
    np.testing.assert_allclose(one.factors[1], alone.factors, rtol=1e-12)
    assert one.fitted_on == again.fitted_on != other.fitted_on
    assert not np.array_equal(one.train_rows, other.train_rows)
    assert not np.array_equal(one.train_rows[0], one.train_rows[1])


def test_the_adjustment_takes_back_what_the_probe_had_won():
    logits, labels = draw(seed=8, n=600)
    fitted = fit_logit_adjustment(logits, labels, n_classes=3, seed=1, epochs=40)
    adjusted = apply_logit_adjustment(fitted, logits)
    assert adjusted.shape == (3, 600, 4)
    np.testing.assert_allclose(adjusted[1], logits * fitted.factors[1])
    for trial, test in enumerate(fitted.test_rows(600)):
        before, after = (np.mean(z[test].argmax(axis=1) == 3) for z in (logits, adjusted[trial]))
        assert after < before / 2
        assert macro(logits, fitted.factors[trial], labels, np.flatnonzero(test)) > macro(
            logits, np.ones(4), labels, np.flatnonzero(test)
        )


def test_many_probes_apply_like_one_each():
    logits, labels = draw(probes=2)
    for mode in ("multiplicative", "additive"):
        fitted = fit_logit_adjustment(logits, labels, n_classes=3, seed=1, epochs=3, mode=mode)
        adjusted = apply_logit_adjustment(fitted, logits)
        assert adjusted.shape == (2, 3, 150, 4)
        factors = fitted.factors[1, 2]
        by_hand = logits[1] * factors if mode == "multiplicative" else logits[1] + factors
        np.testing.assert_allclose(adjusted[1, 2], by_hand)


def test_winners_by_trial_are_those_of_the_adjusted_logits():
    logits, labels = draw(probes=2)
    fitted = fit_logit_adjustment(logits, labels, n_classes=3, seed=1, epochs=30)
    tops = winners_by_trial(fitted, logits)
    np.testing.assert_array_equal(tops, apply_logit_adjustment(fitted, logits).argmax(axis=-1))
    one = fit_logit_adjustment(logits[1], labels, n_classes=3, seed=1, epochs=30)
    np.testing.assert_array_equal(winners_by_trial(one, logits[1]), tops[1])


def test_trials_with_learning_rates_of_their_own_are_descents_of_their_own():
    logits, labels = draw(seed=9, probes=2)
    train = np.array([[0, 4, 8, 9, 13], [0, 4, 8, 9, 13], [1, 2, 3, 4, 5]])
    common = {"n_classes": 3, "settings": LogitAdjustmentSettings(epochs=7)}
    together = learn(logits, labels, train, learning_rates=np.array([0.01, 0.1, 0.03]), **common)
    for trial, rate in enumerate((0.01, 0.1, 0.03)):
        alone = learn(logits, labels, train[[trial]], learning_rates=np.array([rate]), **common)
        np.testing.assert_allclose(together.factors[:, trial], alone.factors[:, 0], rtol=1e-12)
        np.testing.assert_array_equal(together.chosen[:, trial], alone.chosen[:, 0])


def test_several_candidates_may_follow_the_classes():
    rng = np.random.default_rng(3)
    labels = rng.permutation(np.arange(60) % 2)
    logits = rng.normal(10, 1, (60, 5))
    fitted = fit_logit_adjustment(logits, labels, n_classes=2, per_class=5, epochs=9, trials=1, seed=1)
    path, losses = released_loop(logits, labels, fitted.train_rows[0], n_classes=2, epochs=9, learning_rate=0.01)
    np.testing.assert_allclose(fitted.losses[0], losses, atol=1e-9)
    np.testing.assert_allclose(fitted.factors[0], path[fitted.chosen_epochs[0]], atol=1e-5)


def test_parameters_survive_safetensors():
    logits, labels = draw(probes=2)
    fitted = fit_logit_adjustment(logits, labels, n_classes=3, seed=1, epochs=3, selection="released")
    stored = load(save(fitted.parameters(), metadata=fitted.metadata()))
    restored = LogitAdjustment.from_parameters(stored, fitted.metadata())
    np.testing.assert_array_equal(restored.factors, fitted.factors)
    assert restored.metadata() == fitted.metadata() and restored.metadata()["leaking"] == "true"
    composite = replace(fitted, settings=fitted.settings.model_copy(update={"candidates": "composite"}))
    assert LogitAdjustment.from_parameters(stored, composite.metadata()).settings == composite.settings
    with pytest.raises(MetricError):
        LogitAdjustment.from_parameters({}, fitted.metadata())


@pytest.mark.parametrize(
    "wrong",
    [
        {"logits": np.zeros((4, 3))},
        {"logits": np.zeros((5, 4))},
        {"logits": np.full((4, 4), np.nan)},
        {"logits": np.full((4, 4), np.inf)},
        {"labels": np.array([0, 1, 2, 3])},
        {"labels": np.array([0, 1, 2, -1])},
        {"labels": np.array([0.0, 1.0, 2.0, 0.0])},
        {"per_class": 0},
        {"learning_rate": 0.0},
        {"epochs": 0},
        {"trials": 0},
        {"mode": "exponential"},
        {"selection": "test_accuracy"},
    ],
)
def test_bad_input_is_refused(wrong):
    good = {"logits": np.zeros((4, 4)), "labels": np.array([0, 0, 1, 1]), "n_classes": 3, "seed": 0}
    fit_logit_adjustment(**good)
    with pytest.raises(MetricError):
        fit_logit_adjustment(**good | wrong)


def test_foreign_logits_are_not_adjusted():
    logits, labels = draw()
    fitted = fit_logit_adjustment(logits, labels, n_classes=3, seed=0, epochs=1)
    for foreign in (np.zeros((5, 3)), np.zeros((2, 5, 4)), np.zeros(4)):
        with pytest.raises(MetricError):
            apply_logit_adjustment(fitted, foreign)
