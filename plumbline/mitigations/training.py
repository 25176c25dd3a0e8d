"""Training in epochs that can be interrupted: finite steps of Adam, its state as arrays, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.statistics.seeds import generator
from plumbline.storage import ShardCache

if TYPE_CHECKING:
    import torch

_ENTRIES = ("step", "exp_avg", "exp_avg_sq")


def descend(
    loss: torch.Tensor, optimiser: torch.optim.Adam, parameters: Mapping[str, torch.Tensor], *, step: int
) -> None:
    """Take one step of an optimiser down a loss.

    Parameters
    ----------
    parameters : mapping of str to tensor
        Those of the optimiser, by name.
    step : int
        Number of the step, for the message.

    Raises
    ------
    MetricError
        If the loss is not finite, or a parameter is not after the step.
    """
    finite = bool(loss.isfinite())
    if finite:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    spoilt = [name for name, tensor in parameters.items() if not bool(tensor.isfinite().all())]
    if not finite or spoilt:
        raise MetricError(
            "training gave a number that is not finite, and is not kept",
            where=f"step {step}",
            found=f"loss {loss.item()}" + (f", {', '.join(spoilt)}" if spoilt else ""),
            expected="finite numbers",
            hint="lower the learning rate",
        )


def optimiser_arrays(optimiser: torch.optim.Adam, parameters: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    """Return parameters by name with all that Adam knows of them: nothing yet where it has taken no step.

    Parameters
    ----------
    parameters : mapping of str to tensor
        Those of the optimiser, under the names that the arrays are to begin with.
    """
    arrays = {name: _array(tensor) for name, tensor in parameters.items()}
    for name, tensor in parameters.items():
        # Asked for with `get`: the mapping makes an empty entry of whatever is missing.
        known = optimiser.state.get(tensor, {})
        arrays |= {f"{name}.{entry}": _array(known[entry]) for entry in _ENTRIES if entry in known}
    return arrays


def restore_optimiser(
    optimiser: torch.optim.Adam, parameters: Mapping[str, torch.Tensor], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write the arrays of `optimiser_arrays` back into the parameters and the optimiser, on their device."""
    import torch

    with torch.no_grad():
        for name, tensor in parameters.items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name])))
            found = {entry: f"{name}.{entry}" for entry in _ENTRIES if f"{name}.{entry}" in arrays}
            if found:
                optimiser.state[tensor] = {
                    # Adam counts its steps on the CPU, whatever the device of the parameter.
                    entry: torch.from_numpy(np.array(arrays[key])).to("cpu" if entry == "step" else tensor.device)
                    for entry, key in found.items()
                }


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return np.array(tensor.detach().cpu().numpy())


# --- Training in epochs that can be interrupted: after each one, everything the next needs is kept.

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


# --- Training that is kept on disk after every epoch, under the digest of all that it depends on.


@dataclass(frozen=True)
class TrainingCheckpoints:
    """Implements `plumbline.mitigations.training.EpochStore` over a cache of arrays."""

    cache: ShardCache

    def load(self, key: str) -> Arrays | None:
        """Return the state after the last finished epoch, or None where nothing whole was saved."""
        stored = self.cache.load(key)
        return None if stored is None else stored.arrays

    def save(self, key: str, state: Arrays) -> None:
        """Replace what was saved; a reader sees the old state or the new one, never a mix."""
        self.cache.commit(key, state, details={"epochs": int(state["epochs"])})
