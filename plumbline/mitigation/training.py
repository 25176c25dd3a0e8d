"""Training in epochs that can be interrupted: after each one, everything the next needs is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plumbline.statistics.seeds import generator

Arrays = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]
"""Called with (batches done, batches in all) of this run."""


class EpochStore(Protocol):
    """Where the state after an epoch is kept, under the digest of all that training depends on."""

    def load(self, key: str) -> Arrays | None:
        """Return what was saved last under a key, or None."""

    def save(self, key: str, state: Arrays) -> None:
        """Replace what was saved under a key, whole or not at all."""


class Trainable(Protocol):
    """A model in training; a batch is rows of the training set."""

    def step(self, rows: NDArray[np.int64]) -> Mapping[str, float]:
        """Take one optimisation step on a batch and return its losses by name."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return parameters and optimiser state as arrays: all that the next step depends on."""

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""


@dataclass(frozen=True)
class Trained:
    """What training gave: loss curves, and how many epochs were found done."""

    losses: dict[str, NDArray[np.float64]]
    resumed_epochs: int


def train(
    model: Trainable,
    *,
    rows: int,
    batch: int,
    epochs: int,
    seed: int,
    key: str,
    store: EpochStore | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train for some epochs over shuffled batches, going on after the last epoch that was kept.

    Parameters
    ----------
    rows, batch : int
        Rows of the training set, and of a batch; the last batch of an epoch is left out where it is smaller, unless
        it is the only one.
    seed : int
        Of the order of every epoch: an interrupted training sees the same batches as one that was not.
    key : str
        Digest of all that training depends on.
    """
    per_epoch = max(rows // batch, 1)
    saved = store.load(key) if store else None
    done = int(saved["epochs"]) if saved is not None else 0
    curves: dict[str, list[float]] = {}
    if saved is not None:
        model.restore({name[6:]: array for name, array in saved.items() if name.startswith("state.")})
        curves = {name[5:]: array.tolist() for name, array in saved.items() if name.startswith("loss.")}
    resumed = done
    for epoch in range(done, epochs):
        order = generator(seed, "epoch", epoch).permutation(rows)
        for i in range(per_epoch):
            for name, value in model.step(order[i * batch : (i + 1) * batch]).items():
                curves.setdefault(name, []).append(value)
            if progress:
                progress((epoch - resumed) * per_epoch + i + 1, (epochs - resumed) * per_epoch)
        if store:
            store.save(
                key,
                {"epochs": np.array(epoch + 1)}
                | {f"state.{name}": array for name, array in model.state().items()}
                | {f"loss.{name}": np.array(curve) for name, curve in curves.items()},
            )
    return Trained({name: np.array(curve) for name, curve in curves.items()}, resumed)
