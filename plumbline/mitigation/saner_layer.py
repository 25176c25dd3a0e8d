"""The layer of SANER in training: its three losses, and one step of Adam at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.mitigation.optimiser_state import descend, optimiser_arrays, restore_optimiser
from plumbline.mitigation.training import Arrays
from plumbline.statistics.seeds import generator

if TYPE_CHECKING:
    import torch

NAMES = ("weight_in", "bias_in", "weight_out", "bias_out")
# Keeps the gradient of the spread finite where all cosines are equal.
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class SanerFeatures:
    """Unit features of what SANER is trained on, from the frozen encoder.

    Attributes
    ----------
    neutral : (t, d) float32
    variants : (t, g, d) float32
        Of each neutral text.
    images : (n, d) float32
    of_row : (n,) int64
        Neutral text of each image.
    without_image : (k,) int64
        Neutral texts that belong to no image.
    logit_scale : float
        Factor from cosine to logit.
    """

    neutral: NDArray[np.float32]
    variants: NDArray[np.float32]
    images: NDArray[np.float32]
    of_row: NDArray[np.int64]
    without_image: NDArray[np.int64]
    logit_scale: float


@dataclass(frozen=True)
class Weights:
    """Weights of the three losses: α, β and γ of the paper."""

    debiasing: float
    reconstruction: float
    contrastive: float


def layer(parameters: Mapping[str, torch.Tensor], u: torch.Tensor) -> torch.Tensor:
    """Return u + W_out ReLU(W_in u + b_in) + b_out for (b, d) unit features."""
    hidden = (u @ parameters["weight_in"].T + parameters["bias_in"]).relu()
    return u + hidden @ parameters["weight_out"].T + parameters["bias_out"]


def first_parameters(width: int, hidden: int, *, seed: int) -> dict[str, NDArray[np.float32]]:
    """Draw parameters to start from: the last layer is zero, so that features pass unchanged.

    The first layer is uniform in ±√(6/d) (He et al. 2015), its biases are zero.
    """
    bound = (6 / width) ** 0.5
    weight = generator(seed, "saner", "layer").uniform(-bound, bound, (hidden, width))
    return {
        "weight_in": weight.astype(np.float32),
        "bias_in": np.zeros(hidden, dtype=np.float32),
        "weight_out": np.zeros((width, hidden), dtype=np.float32),
        "bias_out": np.zeros(width, dtype=np.float32),
    }


@dataclass(frozen=True)
class Pairs:
    """Images of a batch with the texts that belong to them.

    Attributes
    ----------
    images : (m, d) tensor
        Unit length.
    texts : (m,) int tensor
        Which text each one has; equal numbers are one text.
    scale : float
        Factor from cosine to logit.
    """

    images: torch.Tensor
    texts: torch.Tensor
    scale: float

    def loss(self, unit: torch.Tensor) -> torch.Tensor:
        """Return CLIP's symmetric cross-entropy of images and their (m, d) unit texts.

        Neutral captions repeat: an image's targets are all texts of the batch that are the same as its own,
        in equal shares, so that no true pair counts as a false one. Without repetition it is the usual loss.
        """
        logits = self.scale * self.images @ unit.T
        same = (self.texts[:, None] == self.texts[None]).to(logits.dtype)
        targets = same / same.sum(dim=1, keepdim=True)
        by_image, by_text = (
            -(targets * side.log_softmax(dim=1)).sum(dim=1).mean() for side in (logits, logits.T)
        )
        return (by_image + by_text) / 2


def losses(
    debiased: torch.Tensor, original: torch.Tensor, variants: torch.Tensor, pairs: Pairs | None
) -> dict[str, torch.Tensor]:
    """Return the three losses of SANER (Hirota et al. 2025, section 3), each a mean over its texts or pairs.

    debiasing: standard deviation over the g variants of cos(debiased, variant), 0 where they are equally
    near; reconstruction: squared distance ‖debiased - original‖²; contrastive: see `Pairs.loss`, 0 without
    pairs.

    Parameters
    ----------
    debiased, original : (b, d) tensors
        The original features are of unit length, the debiased ones as the layer gives them.
    variants : (b, g, d) tensor
        Unit length.
    pairs : Pairs or None
        Images of the first texts.
    """
    unit = debiased / debiased.norm(dim=1, keepdim=True)
    cosines = (variants @ unit[:, :, None])[:, :, 0]
    return {
        "debiasing": (cosines.var(dim=1, correction=0) + _LEAST_VARIANCE).sqrt().mean(),
        "reconstruction": (debiased - original).square().sum(dim=1).mean(),
        "contrastive": pairs.loss(unit[: len(pairs.images)]) if pairs else unit.new_zeros(()),
    }


class SanerLayer:
    """The layer in training; implements `plumbline.mitigation.training.Trainable`.

    A batch is images with their texts and, where there are texts without an image, as many of these, drawn by
    seed and step; the contrastive loss is over the images alone. Without any image it is texts.

    Parameters
    ----------
    features : SanerFeatures
    hidden : int
        Units of the layer.
    weights : Weights
    learning_rate : float
        Of Adam.
    seed : int
        Of the first parameters, and of the draws.
    device : str
        Where it trains.
    """

    def __init__(
        self,
        features: SanerFeatures,
        *,
        hidden: int,
        weights: Weights,
        learning_rate: float,
        seed: int,
        device: str,
    ) -> None:
        import torch

        self._of_row, self._without_image, self._seed = features.of_row, features.without_image, seed
        self._weights, self._scale, self._steps = weights, features.logit_scale, 0
        self._neutral, self._variants, self._images = (
            torch.from_numpy(array).to(device)
            for array in (features.neutral, features.variants, features.images)
        )
        first = first_parameters(features.neutral.shape[1], hidden, seed=seed)
        self._parameters = {
            name: torch.from_numpy(array).to(device).requires_grad_() for name, array in first.items()
        }
        self._adam = torch.optim.Adam(self._parameters.values(), lr=learning_rate)

    @property
    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Return the parameters as they are now, by name."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._parameters.items()}

    def step(self, rows: NDArray[np.int64]) -> Mapping[str, float]:
        """Take one step on a batch of images, or of texts where there are no images.

        Raises
        ------
        MetricError
            If the loss is not finite.
        """
        with_images = len(self._of_row) > 0
        chosen = (
            np.concatenate([self._of_row[rows], self._drawn(len(rows))])
            if with_images
            else self._without_image[rows]
        )
        texts, pairs = self._indices(chosen), None
        if with_images and self._weights.contrastive:
            pairs = Pairs(self._images[self._indices(rows)], texts[: len(rows)], self._scale)
        original = self._neutral[texts]
        found = losses(layer(self._parameters, original), original, self._variants[texts], pairs)
        total = sum(weight * found[name] for name, weight in vars(self._weights).items())
        values = {name: loss.item() for name, loss in found.items()} | {"total": total.item()}
        self._steps += 1
        if not np.isfinite(list(values.values())).all():
            raise MetricError(
                "SANER's loss is no finite number, and the training is not kept",
                where=f"step {self._steps}",
                found=", ".join(f"{name} {value}" for name, value in values.items()),
                hint="lower the learning rate, or look for embeddings that are not finite",
            )
        descend(total, self._adam, self._parameters, step=self._steps)
        return values

    def state(self) -> dict[str, NDArray[Any]]:
        """Return parameters, optimiser state and the number of steps."""
        return {"steps": np.array(self._steps)} | optimiser_arrays(self._adam, self._parameters)

    def restore(self, state: Arrays) -> None:
        """Continue from a state."""
        self._steps = int(state["steps"])
        restore_optimiser(self._adam, self._parameters, state)

    def _drawn(self, rows: int) -> NDArray[np.int64]:
        """Draw as many texts without an image as there are rows, or all where there are fewer."""
        known = self._without_image
        if len(known) <= rows:
            return known
        return generator(self._seed, "saner", "captions", self._steps).choice(known, rows, replace=False)

    def _indices(self, positions: NDArray[np.int64]) -> torch.Tensor:
        import torch

        return torch.from_numpy(np.ascontiguousarray(positions)).to(self._neutral.device)
