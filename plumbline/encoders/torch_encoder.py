"""Base of all torch adapters: pixels, placement, identity, forward context, learned tokens."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.checkpoints.loading import clone_weights
from plumbline.digests import digest_json
from plumbline.encoders.encoder import Crop, EncoderIdentity
from plumbline.encoders.families import find_family
from plumbline.errors import EncodingError
from plumbline.images.decoding import DECODING_VERSION
from plumbline.version import library_version

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

    kept_in_float32: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of weights that stay float32 in a model that runs in bfloat16."""

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
        clone_weights(self._model)
        if placement.dtype == "bfloat16":
            hold_in_bfloat16(self._model, self.kept_in_float32)
        self._placement = placement
        self._normalisation = normalisation
        self.family = files.family
        self.device = placement.device
        self.crop = crop
        self.weights_sha256 = files.weights_sha256
        self.parameters = sum(p.numel() for p in model.parameters())
        self.identity = EncoderIdentity(
            weights=files.digest,
            processor=digest_json({"family": files.family, "adapter": find_family(files.family).version, **processor}),
            backend=_backend(library, placement, attention),
            decoder=f"pillow-{library_version('pillow')}/plumbline-{DECODING_VERSION}",
            dtype=placement.dtype,
        )

    def prepare(self, image: Image) -> torch.Tensor:
        """See `Encoder`."""
        raise NotImplementedError

    def _compile(self, towers: Iterable[torch.nn.Module]) -> None:
        """Have `torch.compile` take the towers on their first call, where the placement says so."""
        if self._placement.compiled:
            compile_privately()
            for tower in towers:
                tower.compile()

    @contextmanager
    def _forward(self, *, gradients: bool = False) -> Iterator[None]:
        """Run a model: no gradients unless asked for; float32 is float32."""
        import torch

        with without_tf32(), torch.inference_mode(not gradients):
            yield

    def _pixels(self, batch: torch.Tensor) -> torch.Tensor:
        """Return what the image tower takes, normalised, in the number type of its weights."""
        import torch

        return self._normalisation(batch, device=self.device).to(getattr(torch, self._placement.dtype))


_OF_LOGITS = ("logit_scale", "logit_bias", "temperature")
"""Names of the numbers from cosine to logit."""


def hold_in_bfloat16(model: torch.nn.Module, in_float32: tuple[str, ...] = ()) -> None:
    """Round the weights of a model to bfloat16, in place, and cut its images into patches by a matrix product.

    Autocast would round them anew for every pass and carry float32 from layer to layer, which takes 1.4 to 1.8 times as
    long on a GPU and comes no nearer to float32; the library's convolution of patches takes a sixth of a ViT-B/32.

    Parameters
    ----------
    model : torch.nn.Module
        Scale and bias of its logits stay as they are.
    in_float32 : strings
        Beginnings of the names of weights that stay too.
    """
    import torch

    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        kept = name.startswith(in_float32) or name.rpartition(".")[2] in _OF_LOGITS
        if tensor.is_floating_point() and not kept:
            tensor.data = tensor.data.bfloat16()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d) and _cuts_patches(layer):
            layer.forward = partial(_project_patches, layer)  # type: ignore[method-assign]


def _cuts_patches(layer: torch.nn.Conv2d) -> bool:
    """Return whether every pixel falls under the kernel once: no overlap, no gap, no border."""
    unpadded = layer.padding in ((0, 0), "valid")
    return layer.stride == layer.kernel_size and unpadded and layer.dilation == (1, 1) and layer.groups == 1


def _project_patches(layer: torch.nn.Conv2d, pixels: torch.Tensor) -> torch.Tensor:
    """Return what the convolution returns, (b, d, rows, columns); pixels that fill no patch are left, as there."""
    import torch

    height, width = layer.kernel_size
    rows, columns = pixels.shape[2] // height, pixels.shape[3] // width
    whole = pixels[..., : rows * height, : columns * width]
    cut = whole.unflatten(3, (columns, width)).unflatten(2, (rows, height)).permute(0, 2, 4, 1, 3, 5).flatten(3)
    return torch.nn.functional.linear(cut, layer.weight.flatten(1), layer.bias).permute(0, 3, 1, 2)


@cache
def compile_privately() -> None:
    """Have torch keep what it compiles in a folder of this process alone, and nothing of it as a pickle.

    By default both lie where another user of the machine can foresee them.
    """
    import torch._functorch.config
    import torch._inductor.config

    for settings, name in (
        (torch._inductor.config, "fx_graph_cache"),
        (torch._functorch.config, "enable_autograd_cache"),
    ):
        setattr(settings, name, False)
    folder = tempfile.mkdtemp(prefix="plumbline-compiled-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


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
        f"{name}-{library_version(library)}",
        f"torch-{library_version('torch').split('+')[0]}",
        placement.device_kind,
        *(["weights-bfloat16"] if placement.dtype == "bfloat16" else []),
        *([f"attention-{attention}"] if attention else []),
    ]
    return "/".join([*parts, "compiled"] if placement.compiled else parts)


# Learned tokens before the words of a text, for prompts that are trained by gradient.


def require_start(ids: torch.Tensor, starts: Sequence[int | None]) -> None:
    """Refuse tokens without a start token: a word would be lost where one is expected.

    Parameters
    ----------
    ids : (b, n) int tensor
    starts : sequence of int or None
        What the tokenizer calls the beginning of a text, under any of its names.

    Raises
    ------
    EncodingError
        If a row begins with another token, as those of SigLIP's tokenizers do.
    """
    known = [start for start in starts if start is not None]
    others = [first for first in ids[:, 0].tolist() if first not in known]
    if others:
        raise EncodingError(
            "learned tokens stand after a start token, and this tokenizer puts none before a text",
            found=f"first token {others[0]}",
            expected=f"start token {' or '.join(map(str, known))}" if known else "a tokenizer with a start token",
        )


def with_placeholders(ids: torch.Tensor, count: int) -> torch.Tensor:
    """Insert `count` placeholder tokens after the first token of every row, and drop as many at its end.

    Parameters
    ----------
    ids : (b, n) int tensor
        Rows that begin with the start token (see `require_start`) and end in padding.

    Returns
    -------
    (b, n) int tensor
        The placeholder is the start token: it is never taken for the end of a text or for padding.

    Raises
    ------
    EncodingError
        If a row has no room: what would be dropped is not padding alone.
    """
    import torch

    if count and not bool((ids[:, -count:] == ids[:, -1:]).all() and (ids[:, -count - 1] == ids[:, -1]).all()):
        raise EncodingError(
            "a text leaves no room for the learned tokens",
            found=f"{ids.shape[1]} tokens in all",
            expected=f"at least {count} of them free",
        )
    start = ids[:, :1].expand(-1, count)
    return torch.cat([ids[:, :1], start, ids[:, 1 : ids.shape[1] - count]], dim=1)


@contextmanager
def replaced_embeddings(layer: Any, learned: torch.Tensor) -> Iterator[None]:
    """Have a token-embedding layer give (k, w) learned vectors at positions 1 to k; gradients flow into them."""
    import torch

    def replace(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        rows = learned.to(output.dtype).expand(output.shape[0], -1, -1)
        return torch.cat([output[:, :1], rows, output[:, 1 + learned.shape[0] :]], dim=1)

    handle = layer.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
