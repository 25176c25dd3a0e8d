"""Steps of Adam that must stay finite, and Adam as arrays, so that training goes on as if never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError

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


def optimiser_arrays(
    optimiser: torch.optim.Adam, parameters: Mapping[str, torch.Tensor]
) -> dict[str, NDArray[Any]]:
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
    optimiser: torch.optim.Adam,
    parameters: Mapping[str, torch.Tensor],
    arrays: Mapping[str, NDArray[Any]],
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
                    entry: torch.from_numpy(np.array(arrays[key])).to(
                        "cpu" if entry == "step" else tensor.device
                    )
                    for entry, key in found.items()
                }


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return np.array(tensor.detach().cpu().numpy())
