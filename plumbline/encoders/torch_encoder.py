"""What every adapter of a torch model shares: placed on a device, with an identity and a forward context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_json
from plumbline.encoders.addresses import CheckpointFiles
from plumbline.encoders.encoder import Crop, EncoderIdentity, Placement
from plumbline.encoders.families import find_family
from plumbline.encoders.pixels import Normalisation
from plumbline.encoders.whole_models import own_memory
from plumbline.images.decoding import DECODING_VERSION

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
        With the weights in float32. They may lie in the mapped file: they are copied.
    library : str
        Distribution that the model's code comes from, such as `open_clip_torch`.
    processor : mapping
        Everything that decides the image transform and the tokenisation; its digest is part of the identity.
    normalisation : Normalisation
        From `prepare`d pixels to what the model takes.
    crop : Crop or None
    attention : str, optional
        Name of the implementation of attention, where the library has several; part of the identity.
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
        attention: str | None = None,
    ) -> None:
        self._model: Any = model.to(placement.device).eval().requires_grad_(False)
        own_memory(self._model)
        self._placement = placement
        self._normalisation = normalisation
        self.family = files.family
        self.device = placement.device
        self.crop = crop
        self.weights_sha256 = files.weights_sha256
        self.parameters = sum(p.numel() for p in model.parameters())
        self.identity = EncoderIdentity(
            weights=files.digest,
            processor=digest_json(
                {"family": files.family, "adapter": find_family(files.family).version, **processor}
            ),
            backend=_backend(library, placement, attention),
            decoder=f"pillow-{version('pillow')}/plumbline-{DECODING_VERSION}",
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
        """Run a model: no gradients unless asked for, in the number type of the placement; float32 is float32."""
        import torch

        with (
            without_tf32(),
            torch.inference_mode(not gradients),
            torch.autocast(
                self._placement.device_kind, torch.bfloat16, enabled=self._placement.dtype == "bfloat16"
            ),
        ):
            yield

    def _pixels(self, batch: torch.Tensor) -> torch.Tensor:
        return self._normalisation(batch, device=self.device)


@contextmanager
def without_tf32() -> Iterator[None]:
    """Multiply and convolve float32 as float32, where a GPU would cut the mantissa to 10 bits; put back after it."""
    import torch

    backends: Any = torch.backends
    operators = (backends.cuda.matmul, backends.cudnn.conv)
    before = [operator.fp32_precision for operator in operators]
    try:
        for operator in operators:
            operator.fp32_precision = "ieee"
        yield
    finally:
        for operator, precision in zip(operators, before, strict=True):
            operator.fp32_precision = precision


def as_rows(rows: torch.Tensor) -> NDArray[np.float32]:
    """Return a tensor as a float32 array."""
    return np.asarray(rows.float().cpu().numpy(), dtype=np.float32)


def _backend(library: str, placement: Placement, attention: str | None) -> str:
    name = library.removesuffix("_torch")
    parts = [
        f"{name}-{version(library)}",
        f"torch-{version('torch').split('+')[0]}",
        placement.device_kind,
        *([f"attention-{attention}"] if attention else []),
    ]
    return "/".join([*parts, "compiled"] if placement.compiled else parts)
