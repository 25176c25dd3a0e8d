"""What every adapter of a torch model shares: offline, placed on a device, with an identity and a forward context."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_json
from plumbline.encoders.addresses import CheckpointFiles
from plumbline.encoders.encoder import Crop, EncoderIdentity, Placement
from plumbline.encoders.pixels import Normalisation

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


class TorchEncoder:
    """A loaded model on its device; the part of `plumbline.encoders.encoder.Encoder` that no family changes.

    Parameters
    ----------
    files : CheckpointFiles
    placement : Placement
    model : torch.nn.Module
        With the weights in float32.
    library : str
        Distribution that the model's code comes from, such as `open_clip_torch`.
    processor : mapping
        Everything that decides the image transform and the tokenisation; its digest is part of the identity.
    normalisation : Normalisation
        From `prepare`d pixels to what the model takes.
    crop : Crop or None
    """

    def __init__(
        self,
        files: CheckpointFiles,
        placement: Placement,
        *,
        model: torch.nn.Module,
        library: str,
        processor: Mapping[str, Any],
        normalisation: Normalisation,
        crop: Crop | None,
    ) -> None:
        self._model: Any = model.to(placement.device).eval().requires_grad_(False)
        self._placement = placement
        self._normalisation = normalisation
        self.family = files.family
        self.device = placement.device
        self.crop = crop
        self.weights_sha256 = files.weights_sha256
        self.parameters = sum(p.numel() for p in model.parameters())
        self.identity = EncoderIdentity(
            weights=files.digest,
            # Pixels travel as grey levels and are normalised on the device: other last bits than before it.
            processor=digest_json({"family": files.family, "normalised": "on the device", **processor}),
            backend=_backend(library, placement),
            decoder=f"pillow-{version('pillow')}",
            dtype=placement.dtype,
        )

    def prepare(self, image: Image) -> torch.Tensor:
        """See `Encoder`."""
        raise NotImplementedError

    def _compile(self, towers: Iterable[torch.nn.Module]) -> None:
        """Have `torch.compile` take the towers on their first call, where the placement says so."""
        if self._placement.compiled:
            for tower in towers:
                tower.compile()

    @contextmanager
    def _forward(self, *, gradients: bool = False) -> Iterator[None]:
        """Run a model: no gradients unless asked for, in the number type of the placement."""
        import torch

        kind = self.device.split(":")[0]
        with (
            torch.inference_mode(not gradients),
            torch.autocast(kind, torch.bfloat16, enabled=self._placement.dtype == "bfloat16"),
        ):
            yield

    def _pixels(self, batch: torch.Tensor) -> torch.Tensor:
        return self._normalisation(batch, device=self.device)


def as_rows(rows: torch.Tensor) -> NDArray[np.float32]:
    """Return a tensor as a float32 array."""
    return np.asarray(rows.float().cpu().numpy(), dtype=np.float32)


def go_offline() -> None:
    """Keep this process from downloading, whatever its environment says: a run uses what is on disk."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import constants

    # The variable is read once, at import, which may have been long ago.
    constants.HF_HUB_OFFLINE = True


def first_line(error: Exception) -> str:
    """Return what an error of a library says first, or its type where it says nothing."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _backend(library: str, placement: Placement) -> str:
    name = library.removesuffix("_torch")
    parts = [
        f"{name}-{version(library)}",
        f"torch-{version('torch').split('+')[0]}",
        placement.device.split(":")[0],
    ]
    return "/".join([*parts, "compiled"] if placement.compiled else parts)
