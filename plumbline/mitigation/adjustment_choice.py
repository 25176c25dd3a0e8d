"""Which epoch's factors a logit adjustment keeps: by training rows alone, or as the published code does."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.mitigation.adjustment_descent import Mode, adjust, descend, macro_accuracy

Selection = Literal["train_loss", "train_accuracy", "released"]
"""Which epoch's factors are kept.

`train_loss`: those of the lowest training loss. `train_accuracy`: of the highest training macro accuracy, ties to the
lower loss. `released`: as the published code does, which compares the training accuracy with the test accuracy of the
last accepted epoch and so lets test labels in; for comparison with published numbers only, and marked `leaking`.
"""


def rows_left(train: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    """Return the (t, n) mask of the rows that are no training rows, (t, m), of their trial."""
    mask = np.ones((len(train), n), dtype=bool)
    np.put_along_axis(mask, train, False, axis=1)
    return mask


class Learned(NamedTuple):
    """What one descent learned.

    Attributes
    ----------
    factors : (p, t, K) float64
        Those of the chosen epoch.
    chosen : (p, t) int64
        The epoch; 0 is no adjustment.
    losses : (epochs + 1, p, t) float64
        Training loss of every epoch.
    inputs : (p, t, m, K) float64
        The training logits.
    targets : (t, m) int64
        Their classes.
    """

    factors: NDArray[np.float64]
    chosen: NDArray[np.int64]
    losses: NDArray[np.float64]
    inputs: NDArray[np.float64]
    targets: NDArray[np.int64]


def learn(
    x: NDArray[Any],
    y: NDArray[np.int64],
    train: NDArray[np.int64],
    *,
    n_classes: int,
    mode: Mode,
    learning_rate: float | NDArray[np.float64],
    epochs: int,
    selection: Selection,
) -> Learned:
    """Descend on the training rows, and keep the epoch that the rule chooses.

    Parameters
    ----------
    x : (p, n, K) float
        Logits of all labelled rows; only the released rule looks at those that are no training rows.
    y : (n,) int64
        True classes.
    train : (t, m) int64
        Training rows by trial. Equal rows may come in several trials, each with its own learning rate.
    learning_rate : float or (t,) float64
    """
    inputs, targets = x[:, train].astype(np.float64), y[train]
    path, losses = descend(inputs, targets, mode=mode, learning_rate=learning_rate, epochs=epochs)
    if selection == "train_loss":
        chosen = losses.argmin(axis=0)
    elif selection == "train_accuracy":
        chosen = _by_train_accuracy(path, losses, inputs, targets, n_classes, mode)
    else:
        chosen = _by_released_rule(path, inputs, targets, x, y, train, n_classes, mode)
    factors = np.take_along_axis(path, chosen[None, ..., None], axis=0)[0]
    return Learned(factors, chosen, losses, inputs, targets)


def _train_accuracy(
    path: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, mode: Mode
) -> NDArray[np.float64]:
    """Return the macro accuracy (epochs + 1, p, t) of every epoch's factors on the training rows."""
    accuracy = np.empty(path.shape[:-1])
    for trial in range(y.shape[0]):
        correct = adjust(x[None, :, trial], path[:, :, trial], mode).argmax(axis=-1) == y[trial]
        accuracy[:, :, trial] = macro_accuracy(correct, y[trial], n_classes)
    return accuracy


def _by_train_accuracy(
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


def _by_released_rule(
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
            bar[accepted, trial] = macro_accuracy(adjusted.argmax(axis=-1) == y_test, y_test, n_classes)
            kept[accepted, trial] = epoch
    return kept
