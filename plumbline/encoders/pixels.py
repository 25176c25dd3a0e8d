"""Pixels on their way into a model: whole grey levels, then on the device the numbers it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


@dataclass(frozen=True)
class Normalisation:
    """(x * scale + offset - mean) / std for each channel, with x the grey level.

    Attributes
    ----------
    mean, std : three floats
        The checkpoint's own.
    scale, offset : float
        1/255 and 0 for nearly every family, so that uint8 becomes 0 to 1. Not applied to float batches, which are
        rescaled already.
    """

    mean: Sequence[float]
    std: Sequence[float]
    scale: float = 1 / 255
    offset: float = 0.0

    def __call__(self, batch: torch.Tensor, *, device: str) -> torch.Tensor:
        """Move a (b, 3, h, w) uint8 or float32 batch to the device and return it as float32, normalised."""
        import torch

        whole = batch.dtype == torch.uint8
        pixels = batch.to(device, non_blocking=True).float()
        if whole:
            pixels = pixels.mul_(self.scale).add_(self.offset)
        mean, std = (torch.tensor(v, device=pixels.device).view(1, 3, 1, 1) for v in (self.mean, self.std))
        return pixels.sub(mean).div_(std)


def grey_levels(image: Image) -> torch.Tensor:
    """Return an RGB image as a (3, h, w) uint8 tensor."""
    import torch

    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).contiguous()
