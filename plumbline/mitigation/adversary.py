"""The adversary of Prompt Array: it guesses a person's group from how well their image matches some texts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from plumbline.statistics.seeds import generator

if TYPE_CHECKING:
    import torch

HIDDEN = 32


def new_adversary(queries: int, groups: int, *, seed: int, device: str) -> torch.nn.Sequential:
    """Return an untrained adversary: queries → 32 → 32 → 32 → groups, ReLU between the layers.

    Weights and biases are uniform on ±1/√inputs, torch's own choice, but drawn from `seed`: no global
    generator is touched, and the CPU and the GPU begin alike.

    Parameters
    ----------
    queries : int
        Similarities that it sees of an image.
    groups : int
        Values of the protected attribute.

    Returns
    -------
    torch.nn.Sequential
        (b, queries) float32 to (b, groups) float32 logits, for a softmax. (The released code has a sigmoid
        before it, which the paper does not mention and which keeps any guess below e : 1; there is none
        here.)
    """
    import torch

    rng = generator(seed, "prompt_array", "adversary")
    widths = (queries, HIDDEN, HIDDEN, HIDDEN, groups)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
        with torch.no_grad():
            for parameter in (layer.weight, layer.bias):
                drawn = rng.uniform(-(inputs**-0.5), inputs**-0.5, size=tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(drawn))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(device)
