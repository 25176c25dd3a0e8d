"""The optimisation behind the logit adjustment: full-batch Adam, all probes and trials at once."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Mode = Literal["multiplicative", "additive"]

# Adam as published (Kingma & Ba 2015) and as torch has it by default.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


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


class Descent(NamedTuple):
    """What a descent went through.

    Attributes
    ----------
    factors : (epochs + 1, p, t, K) float64
        After 0, 1, .. epochs steps.
    losses : (epochs + 1, p, t) float64
        The mean cross-entropy that they give.
    """

    factors: NDArray[np.float64]
    losses: NDArray[np.float64]


def descend(
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    *,
    mode: Mode,
    learning_rate: float | NDArray[np.float64],
    epochs: int,
) -> Descent:
    """Run Adam from the factors that change nothing, on every probe's and trial's training rows at once.

    Parameters
    ----------
    x : (p, t, m, K) float64
        Logits of the training rows.
    y : (t, m) int64
        True classes, which the probes share.
    learning_rate : float or (t,) float64
        One for all trials, or each its own.
    """
    rate = np.asarray(learning_rate, dtype=np.float64)[..., None]
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
        factors = factors - rate * (first / (1 - _BETA1**step)) / scale
        path.append(factors)
    return Descent(np.stack(path), np.stack(losses))


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
