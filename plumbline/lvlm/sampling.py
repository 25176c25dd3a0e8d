"""Drawing tokens so that a row's draws are its own: they depend on its key and the step, on nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import GenerationError
from plumbline.lvlm.backend import ROW_KEY_DIGITS, Decoding

if TYPE_CHECKING:
    import torch


def row_uniforms(keys: Sequence[str], steps: int) -> NDArray[np.float64]:
    """Return (rows, steps) uniform numbers in [0, 1): row i, step t depends on keys[i] and t alone.

    Each row has a counter-based generator of its own, numpy's Philox, whose 128 key bits are the row's key (Salmon et
    al., 2011, "Parallel random numbers: as easy as 1, 2, 3"); step t takes the t-th number of its stream.

    Parameters
    ----------
    keys : sequence of str
        Of `plumbline.lvlm.backend.row_key`: 32 hexadecimal digits.
    """
    drawn = [
        np.random.Generator(np.random.Philox(key=int(key[:ROW_KEY_DIGITS], 16))).random(steps) for key in keys
    ]
    return np.stack(drawn) if drawn else np.empty((0, steps))


class RowSeeded:
    """Draws the next token of every row by inverting its distribution at the row's own uniform number.

    The distribution is transformers' own: its temperature, top-k and top-p, in its order. The cumulative sum runs in
    the order of the vocabulary, so that a last-bit change of a probability, as another batch may give it, moves a
    token's interval by as little, and hardly ever changes the token.

    Parameters
    ----------
    keys : sequence of str, length n
        Keys of the rows.
    decoding : Decoding
        Greedy at temperature 0: the most likely token, the first of equal ones.
    device : str
    """

    def __init__(self, keys: Sequence[str], decoding: Decoding, device: str) -> None:
        import torch

        self._warpers = _warpers(decoding)
        self._greedy = decoding.temperature == 0
        uniforms = np.empty((len(keys), 0)) if self._greedy else row_uniforms(keys, decoding.max_new_tokens)
        # All steps at once, on the host: nothing is drawn or moved while tokens are made.
        self._uniforms = torch.from_numpy(np.ascontiguousarray(uniforms.T)).to(device)

    def tokens(self, logits: torch.Tensor, step: int, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return the (b,) next tokens.

        Parameters
        ----------
        logits : (b, v) tensor
        step : int
            0 for the first new token.
        rows : (b,) int tensor, optional
            Which rows these are; all of them when absent.

        Raises
        ------
        GenerationError
            If a row has no distribution: its logits are NaN.
        """
        import torch

        scores = logits.float()
        if self._greedy:
            _refuse_nan(scores.amax(-1))
            return scores.argmax(-1)
        for warper in self._warpers:
            scores = warper(None, scores)
        sums = scores.double().softmax(-1).cumsum(-1)
        totals = sums[:, -1:]
        _refuse_nan(totals)
        uniforms = self._uniforms[step] if rows is None else self._uniforms[step][rows]
        # Below the total and counted from the right, so that a token of probability 0 is never drawn.
        at = (uniforms[:, None] * totals).minimum(totals.nextafter(torch.zeros_like(totals)))
        return torch.searchsorted(sums, at, right=True)[:, 0]


def _warpers(decoding: Decoding) -> list[Any]:
    """Return transformers' own steps from logits to a distribution, in its order."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    if decoding.temperature == 0:
        return []
    steps: list[Any] = []
    if decoding.temperature != 1:
        steps.append(TemperatureLogitsWarper(decoding.temperature))
    if decoding.top_k:
        steps.append(TopKLogitsWarper(decoding.top_k))
    if decoding.top_p < 1:
        steps.append(TopPLogitsWarper(decoding.top_p))
    return steps


def _refuse_nan(values: torch.Tensor) -> None:
    if bool(values.isnan().any()):
        raise GenerationError(
            "the model gave logits that are not numbers",
            found="NaN",
            expected="numbers",
            hint="in half precision, try `dtype: bfloat16` or `float32`; else check the weights",
        )
