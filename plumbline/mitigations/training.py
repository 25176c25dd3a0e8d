"""Training in epochs that can be interrupted: finite steps of Adam, its state as arrays, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.statistics.seeds import generator
from plumbline.storage import ShardCache

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]
"""Called with (batches done, batches in all) of this run."""

_ENTRIES = ("step", "exp_avg", "exp_avg_sq")


class Descent:
    """Adam on named parameters.

    Parameters
    ----------
    parameters : mapping of str to tensor
        Under the names that their arrays are to begin with.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor], learning_rate: float) -> None:
        import torch

        self.parameters = parameters
        self._adam = torch.optim.Adam(parameters.values(), lr=learning_rate)

    def step(self, loss: torch.Tensor, *, number: int) -> None:
        """Take one step down a loss.

        Parameters
        ----------
        number : int
            Steps of the training so far, for the message.

        Raises
        ------
        MetricError
            If the loss is not finite, or a parameter is not after the step.
        """
        finite = bool(loss.isfinite())
        if finite:
            self._adam.zero_grad()
            loss.backward()
            self._adam.step()
        spoilt = [name for name, tensor in self.parameters.items() if not bool(tensor.isfinite().all())]
        if not finite or spoilt:
            raise MetricError(
                "training gave a number that is not finite, and is not kept",
                where=f"step {number + 1}",
                found=f"loss {loss.item()}" + (f", {', '.join(spoilt)}" if spoilt else ""),
                expected="finite numbers",
                hint="lower the learning rate",
            )

    def values(self) -> dict[str, NDArray[np.float32]]:
        """Return the parameters by name."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.parameters.items()}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the parameters with all that Adam knows of them: nothing yet where it has taken no step."""
        known = self._adam.state_dict()["state"]
        return self.values() | {
            f"{name}.{entry}": tensor.cpu().numpy().copy()
            for i, name in enumerate(self.parameters)
            for entry, tensor in known.get(i, {}).items()
        }

    def restore(self, state: Arrays) -> None:
        """Write the arrays of `state` back into the parameters and the optimiser, on their device."""
        import torch

        with torch.no_grad():
            for name, tensor in self.parameters.items():
                tensor.copy_(torch.tensor(state[name]))
        known = {
            i: {entry: torch.tensor(state[f"{name}.{entry}"]) for entry in _ENTRIES}
            for i, name in enumerate(self.parameters)
            if f"{name}.step" in state
        }
        self._adam.load_state_dict(self._adam.state_dict() | {"state": known})


class Trainable(Protocol):
    """A model in training; all that its next step depends on is in its descents and the step's number."""

    @property
    def descents(self) -> Sequence[Descent]:
        """Return the optimisers, no two with a parameter of one name."""

    def step(self, rows: NDArray[np.int64], number: int) -> Mapping[str, float]:
        """Take the optimisation step of a number, from 0, on rows of the training set; return its losses by name."""


def train(
    model: Trainable,
    *,
    rows: int,
    batch: int,
    epochs: int,
    seed: int,
    key: str,
    store: ShardCache | None = None,
    progress: Progress | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Train for some epochs over shuffled batches, going on after the last epoch that was kept.

    Parameters
    ----------
    rows, batch : int
        Rows of the training set, and of a batch; the last batch of an epoch is left out where it is smaller, unless
        it is the only one.
    seed : int
        Of the order of every epoch: an interrupted training sees the same batches as one that was not.
    key : str
        Digest of all that training depends on; the state after each epoch is kept under it.

    Returns
    -------
    dict of str to (steps,) float64
        Loss curves, of earlier runs too.
    """
    per_epoch = max(rows // batch, 1)
    saved = store.load(key) if store else None
    curves: dict[str, list[float]] = {}
    done = 0
    if saved is not None:
        done = int(saved.arrays["epochs"])
        curves = {name[5:]: array.tolist() for name, array in saved.arrays.items() if name.startswith("loss.")}
        for descent in model.descents:
            descent.restore({name[6:]: a for name, a in saved.arrays.items() if name.startswith("state.")})
    for epoch in range(done, epochs):
        order = generator(seed, "epoch", epoch).permutation(rows)
        for i in range(per_epoch):
            for name, value in model.step(order[i * batch : (i + 1) * batch], epoch * per_epoch + i).items():
                curves.setdefault(name, []).append(value)
            if progress:
                progress((epoch - done) * per_epoch + i + 1, (epochs - done) * per_epoch)
        if store:
            state = {f"state.{name}": a for descent in model.descents for name, a in descent.state().items()}
            losses = {f"loss.{name}": np.array(curve) for name, curve in curves.items()}
            store.commit(key, {"epochs": np.array(epoch + 1)} | state | losses, details={"epochs": epoch + 1})
    return {name: np.array(curve) for name, curve in curves.items()}
