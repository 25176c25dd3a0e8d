"""The optimisation behind the logit adjustment: full-batch Adam, all probes and trials at once."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Mode = Literal["multiplicative", "additive"]

# Adam as published (Kingma & Ba 2015) and as torch has it by default.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


def winners(logits: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the top-1 over the last axis, ties to the lower index: `argmax`, quicker for few candidates."""
    best, winner = logits[..., 0], np.zeros(logits.shape[:-1], dtype=np.int64)
    for candidate in range(1, logits.shape[-1]):
        value = logits[..., candidate]
        winner[value > best] = candidate
        best = np.maximum(best, value)
    return winner


def macro_accuracy(
    correct: NDArray[np.bool_], labels: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64]:
    """Return the mean over the classes that are not empty of the share correct.

    Parameters
    ----------
    correct : (..., n) bool
    labels : (n,) int
    """
    member = (labels == np.arange(n_classes)[:, None]).astype(np.float64)
    size = member.sum(axis=1)
    seen = size > 0
    return (correct @ (member[seen] / size[seen, None]).T).mean(axis=-1)


def adjust(x: NDArray[Any], factors: NDArray[np.float64], mode: Mode) -> NDArray[Any]:
    """Return logits (..., n, K) times, or plus, factors (..., K)."""
    spread = factors[..., None, :].astype(x.dtype, copy=False)
    return x * spread if mode == "multiplicative" else x + spread


def descend(
    x: NDArray[np.float64], y: NDArray[np.int64], *, mode: Mode, learning_rate: float, epochs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run Adam on (p, t, m, K) logits; return factors (epochs + 1, p, t, K) and losses (epochs + 1, p, t)."""
    factors = np.full((*x.shape[:2], x.shape[-1]), 1.0 if mode == "multiplicative" else 0.0)
    first, second = np.zeros_like(factors), np.zeros_like(factors)
    target = np.broadcast_to(y[None, ..., None], (*x.shape[:-1], 1))
    path, losses = [factors], []
    for step in range(1, epochs + 2):
        loss, gradient = _loss_and_gradient(x, target, factors, mode)
        losses.append(loss)
        if step > epochs:
            break
        first = _BETA1 * first + (1 - _BETA1) * gradient
        second = _BETA2 * second + (1 - _BETA2) * gradient**2
        scale = np.sqrt(second / (1 - _BETA2**step)) + _EPSILON
        factors = factors - learning_rate * (first / (1 - _BETA1**step)) / scale
        path.append(factors)
    return np.stack(path), np.stack(losses)


def _loss_and_gradient(
    x: NDArray[np.float64], target: NDArray[np.int64], factors: NDArray[np.float64], mode: Mode
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    z = adjust(x, factors, mode)
    z = z - z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    total = e.sum(axis=-1, keepdims=True)
    loss = (np.log(total) - np.take_along_axis(z, target, axis=-1)).mean(axis=(-2, -1))
    excess = e / total
    np.put_along_axis(excess, target, np.take_along_axis(excess, target, axis=-1) - 1, axis=-1)
    return loss, (excess * x if mode == "multiplicative" else excess).mean(axis=-2)


def _train_accuracy(
    path: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, mode: Mode
) -> NDArray[np.float64]:
    """Return the macro accuracy (epochs + 1, p, t) of every epoch's factors on the training rows."""
    accuracy = np.empty(path.shape[:-1])
    for trial in range(y.shape[0]):
        correct = winners(adjust(x[None, :, trial], path[:, :, trial], mode)) == y[trial]
        accuracy[:, :, trial] = macro_accuracy(correct, y[trial], n_classes)
    return accuracy


def by_train_accuracy(
    path: NDArray[np.float64],
    losses: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    n_classes: int,
    mode: Mode,
) -> NDArray[np.int64]:
    """Choose the epoch of the highest training macro accuracy, ties to the lower loss: (p, t)."""
    accuracy = _train_accuracy(path, x, y, n_classes, mode)
    best = accuracy >= accuracy.max(axis=0) - 1e-12
    return np.where(best, losses, np.inf).argmin(axis=0)


def by_released_rule(
    path: NDArray[np.float64],
    inputs: NDArray[np.float64],
    targets: NDArray[np.int64],
    x: NDArray[Any],
    y: NDArray[np.int64],
    train: NDArray[np.int64],
    n_classes: int,
    mode: Mode,
) -> NDArray[np.int64]:
    """Choose as the published code does: (p, t).

    The factors after a step are kept if the training accuracy before it exceeds the *test* accuracy of the
    last kept ones.
    """
    before = _train_accuracy(path, inputs, targets, n_classes, mode)
    kept, bar = np.zeros(path.shape[1:-1], dtype=np.int64), np.zeros(path.shape[1:-1])
    for trial, rows in enumerate(train):
        test = np.delete(np.arange(len(y)), rows)
        x_test, y_test = np.ascontiguousarray(x[:, test]), y[test]
        for epoch in range(1, len(path)):
            accepted = before[epoch - 1, :, trial] > bar[:, trial]
            if not accepted.any():
                continue
            adjusted = adjust(x_test[accepted], path[epoch, accepted, trial], mode)
            bar[accepted, trial] = macro_accuracy(winners(adjusted) == y_test, y_test, n_classes)
            kept[accepted, trial] = epoch
    return kept
