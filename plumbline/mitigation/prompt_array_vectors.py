"""Prompt Array as a released audit has it: vectors added to the text feature, trained with a hinge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.mitigation.optimiser_state import descend, optimiser_arrays, restore_optimiser
from plumbline.mitigation.training import Arrays
from plumbline.statistics.seeds import generator

if TYPE_CHECKING:
    from plumbline.encoders.encoder import DualEncoder

VECTORS, STEPS, BATCH = 16, 7, 64
LEARNING_RATE, MARGIN, SPREAD = 1e-3, 0.05, 0.02


class AddedVectors:
    """Vectors in training; implements `plumbline.mitigation.training.Trainable`.

    Seven steps of Adam (learning rate 1e-3, batch 64) on the mean over images and pairs of
    ReLU(cos(image, neg + m) - cos(image, pos + m) + 0.05), m the mean of 16 vectors. Labels are not used.

    What is known of this variant are these numbers and the form of the hinge. Decided here: `pos` and `neg`
    are the features of the two sensitive queries of a pair, the favourable one and its opposite, so that
    every image, whatever its group, is drawn to the favourable one; `m` is added to features as the encoder
    gives them, before they are normalised; the vectors begin as normal draws of standard deviation 0.02.

    Parameters
    ----------
    encoder : DualEncoder
    images : (n, d) float32
        Of the training rows.
    pairs : sequence of (str, str)
        Queries, the favourable one first.
    seed : int
        Of the first vectors and of the images that are drawn.
    """

    def __init__(
        self,
        encoder: DualEncoder,
        images: NDArray[np.float32],
        pairs: Sequence[tuple[str, str]],
        *,
        seed: int,
    ) -> None:
        import torch

        device = encoder.device
        self._images = torch.nn.functional.normalize(torch.tensor(images, device=device))
        self._drawn = _draws(len(images), seed)
        self._positive, self._negative = (
            torch.from_numpy(encoder.embed_texts([pair[side] for pair in pairs])).to(device)
            for side in (0, 1)
        )
        first = generator(seed, "prompt_array", "vectors").normal(0, SPREAD, (VECTORS, images.shape[1]))
        self._vectors = torch.from_numpy(first.astype(np.float32)).to(device).requires_grad_()
        self._adam = torch.optim.Adam([self._vectors], lr=LEARNING_RATE)
        self._steps = 0

    @property
    def vectors(self) -> NDArray[np.float32]:
        """Return the (16, d) vectors as they are now."""
        return np.array(self._vectors.detach().cpu().numpy(), dtype=np.float32)

    def step(self, rows: NDArray[np.int64]) -> Mapping[str, float]:
        """Take one step; `rows` are positions among the `STEPS` × `BATCH` drawn images.

        Raises
        ------
        MetricError
            If the loss is not finite, or the step leaves a vector that is not.
        """
        import torch
        from torch.nn.functional import normalize

        images = self._images[torch.from_numpy(self._drawn[rows]).to(self._images.device)]
        added = self._vectors.mean(dim=0)
        positive, negative = (images @ normalize(side + added).T for side in (self._positive, self._negative))
        loss = torch.relu(negative - positive + MARGIN).mean()
        self._steps += 1
        descend(loss, self._adam, {"vectors": self._vectors}, step=self._steps)
        return {"hinge": loss.item()}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return vectors, optimiser state and the number of steps as arrays."""
        return {"steps": np.array(self._steps), **optimiser_arrays(self._adam, {"vectors": self._vectors})}

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self._steps = int(state["steps"])
        restore_optimiser(self._adam, {"vectors": self._vectors}, state)


def _draws(n: int, seed: int) -> NDArray[np.int64]:
    """Return `STEPS` × `BATCH` rows of n: none twice before all have come once."""
    rng = generator(seed, "prompt_array", "images")
    shuffles = [rng.permutation(n) for _ in range(-(-STEPS * BATCH // n))]
    return np.concatenate(shuffles)[: STEPS * BATCH]
