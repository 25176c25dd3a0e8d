"""The vision tower, taught to see what a face shows before the language model learns to speak of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from plumbline.errors import CheckpointError
from plumbline.world import faces
from plumbline.world.architectures.family import scaled
from plumbline.world.architectures.pretrained import WEIGHTS_FILE

if TYPE_CHECKING:
    import torch

_CLASSES = {
    "race": faces.RACES,
    "gender": faces.GENDERS,
    "age_group": faces.AGE_GROUPS,
    "occupation": faces.OCCUPATIONS,
}
# A latent is read as the answers to "more than 0.05?", "more than 0.1?", ...: thresholds are what comes of it later.
_MARKS = np.arange(1, 20) / 20
_BATCH = 128
_PEAK_LEARNING_RATE = 1.5e-3


def seen(tower: Any, images: torch.Tensor) -> torch.Tensor:
    """Return the features that LLaVA takes of a tower: one row a patch, shape (b, 16, width).

    Parameters
    ----------
    tower : CLIPVisionModel
    images : (b, 3, 64, 64) tensor
        float32 in [-1, 1].
    """
    features: torch.Tensor = tower(images, output_hidden_states=True).hidden_states[-1][:, 1:]
    return features


def pixels(images: np.ndarray) -> torch.Tensor:
    """Return drawn faces, uint8 (n, 64, 64, 3), as a tensor of shape (n, 3, 64, 64)."""
    import torch

    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def teach(tower: Any, images: torch.Tensor, attributes: pl.DataFrame, *, steps: int, seed: int) -> float:
    """Train a vision tower so that the mean of its patches tells every attribute and latent by a linear map.

    Parameters
    ----------
    tower : CLIPVisionModel
        Trained in place.
    images : (n, 3, 64, 64) tensor
        uint8.
    attributes : polars.DataFrame
        Of the same n faces.
    steps : int
        Batches of 128.
    seed : int
        Of the heads' first weights and of the order.

    Returns
    -------
    float
        Loss of the last fifty batches.
    """
    import torch

    from plumbline.world.training import Cycle, fit

    generator = torch.Generator().manual_seed(seed)
    classes = torch.stack([_positions(attributes, column) for column in _CLASSES], 1)
    marks = torch.from_numpy(_above(attributes))
    sizes = [len(values) for values in _CLASSES.values()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = torch.nn.Linear(tower.config.hidden_size, sum(sizes) + marks.shape[1])
    torch.nn.init.normal_(head.weight, std=0.02, generator=generator)

    def loss() -> torch.Tensor:
        rows = torch.randint(len(images), (_BATCH,), generator=generator)
        told = head(seen(tower, scaled(images[rows])).mean(1)).split([*sizes, marks.shape[1]], 1)
        parts = [
            torch.nn.functional.cross_entropy(part, classes[rows, i]) for i, part in enumerate(told[:-1])
        ]
        read = torch.nn.functional.binary_cross_entropy_with_logits(told[-1], marks[rows])
        return torch.stack(parts).mean() + 2 * read

    moved = [*tower.parameters(), *head.parameters()]
    return fit(loss, moved, steps=steps, cycle=Cycle(_PEAK_LEARNING_RATE), name="vision")


def copy(folder: Path, tower: Any) -> None:
    """Give a tower the weights of a trained checkpoint's.

    Raises
    ------
    CheckpointError
        If the checkpoint is not there.
    """
    from safetensors.torch import load_file

    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise CheckpointError("the model whose vision tower is to be copied is not trained yet", where=file)
    prefix = "model.vision_tower."
    weights = {name.removeprefix(prefix): value for name, value in load_file(file).items() if prefix in name}
    tower.load_state_dict({name: value.float() for name, value in weights.items()})


def features(tower: Any, images: torch.Tensor) -> torch.Tensor:
    """Return what a trained tower sees of uint8 images, float32, shape (n, 16, width), without gradients."""
    import torch

    with torch.inference_mode():
        return torch.cat([seen(tower, scaled(part)) for part in images.split(_BATCH)]).clone()


def _positions(attributes: pl.DataFrame, column: str) -> torch.Tensor:
    import torch

    order = {value: i for i, value in enumerate(_CLASSES[column])}
    return torch.tensor([order[value] for value in attributes[column]])


def _above(attributes: pl.DataFrame) -> np.ndarray:
    latents = attributes.select(faces.LATENTS).to_numpy()
    return (latents[:, :, None] > _MARKS).reshape(len(latents), -1).astype(np.float32)
