"""A transformers image processor, cut where its pixels stop being whole grey levels or lie between 0 and 1."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.encoder import Crop
from plumbline.encoders.pixels import Normalisation
from plumbline.errors import CheckpointError, EncodingError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}
# Odd sizes and proportions, so that a step of another kind shows.
_PROBE_SIZE = (61, 87)
_TOLERANCE = 1e-4


class ImageProcessor:
    """The checkpoint's own preprocessing: `prepare` up to the normalisation, `normalisation` from there on.

    Parameters
    ----------
    processor : transformers.ProcessorMixin
        With the family's own defaults; its image processor must run on PIL.
    folder : Path
        For messages.

    Attributes
    ----------
    normalisation : Normalisation
    crop : Crop or None

    Raises
    ------
    CheckpointError
        If the image processor is another than the one that runs on PIL, or the two parts together give other pixels
        than the whole.
    """

    def __init__(self, processor: Any, *, folder: Path) -> None:
        self._whole = processor
        self._images = processor.image_processor
        # What the joined processor of a family asks of its image processor, whatever the checkpoint's own default.
        self._defaults = dict(getattr(type(processor), "images_kwargs", None) or {})
        self._defaults.pop("return_tensors", None)
        backend = getattr(self._images, "backend", None)
        if backend != "pil":
            raise CheckpointError(
                "this image processor does not run on PIL, and another would give other pixels",
                where=folder,
                found=f"{type(self._images).__name__}, backend {backend}",
                expected="backend pil",
            )
        # OWLv2 rescales, then resizes: its pixels are never whole grey levels afterwards.
        self._rescaled_first = type(self._images).__name__.startswith("Owlv2")
        self.normalisation = self._normalisation()
        self.crop = self._simple_crop()
        self._require_own_pixels(folder)

    def prepare(self, image: Image) -> torch.Tensor:
        """Return (3, h, w): uint8, or float32 in 0 to 1 for a processor that rescales before it resizes.

        Raises
        ------
        EncodingError
            If the processor cannot take an image of this size.
        """
        import torch

        options = {**self._defaults, "do_rescale": self._rescaled_first, "do_normalize": False}
        if hasattr(self._images, "include_top"):
            options["include_top"] = False
        try:
            pixels = self._images(image, return_tensors="np", **options)["pixel_values"][0]
        except ValueError as error:
            raise EncodingError(
                "the checkpoint's own preprocessing cannot take this image",
                where=f"an image of {image.width} x {image.height} pixels",
                found=error,
                hint="BridgeTower rounds the sides down to a multiple of 32, so that a narrow strip has none left",
            ) from error
        kind = np.float32 if self._rescaled_first else np.uint8
        return torch.from_numpy(np.ascontiguousarray(pixels.astype(kind, copy=False)))

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the pixels, for a digest."""
        own = {
            k: v for k, v in self._images.to_dict().items() if k not in ("_name_or_path", "processor_class")
        }
        settings = {
            "class": type(self._images).__name__,
            "backend": "pil",
            "own": own,
            "joined": self._defaults,
        }
        return {**settings, "scipy": version("scipy")} if self._rescaled_first else settings

    def _option(self, name: str, default: Any = None) -> Any:
        return self._defaults.get(name, getattr(self._images, name, default))

    def _normalisation(self) -> Normalisation:
        mean, std = [0.0] * 3, [1.0] * 3
        own_std = [float(v) for v in self._option("image_std") or std]
        if self._option("do_normalize"):
            mean, std = [float(v) for v in self._option("image_mean") or mean], own_std
        if self._option("include_top"):
            # EfficientNet's classification preprocessing divides by the deviation once more.
            std = [a * b for a, b in zip(std, own_std, strict=True)]
        if not self._option("do_rescale"):
            return Normalisation(mean=mean, std=std, scale=1.0)
        offset = -1.0 if self._option("rescale_offset") else 0.0
        return Normalisation(mean=mean, std=std, scale=float(self._option("rescale_factor")), offset=offset)

    def _simple_crop(self) -> Crop | None:
        """Return the crop where the steps are exactly: shorter side, centre."""
        from transformers.image_processing_backends import PilBackend

        own = type(self._images)
        plain = own.resize is PilBackend.resize and own.center_crop is PilBackend.center_crop
        steps = self._option("do_resize") and self._option("do_center_crop") and not self._option("do_pad")
        if not (plain and steps):
            return None
        size, crop = ({k: v for k, v in dict(self._option(n)).items() if v} for n in ("size", "crop_size"))
        interpolation = _INTERPOLATIONS.get(int(self._option("resample")))
        if size.keys() != {"shortest_edge"} or interpolation is None:
            return None
        side = int(size["shortest_edge"])
        return Crop(side, interpolation) if crop == {"height": side, "width": side} else None

    def _require_own_pixels(self, folder: Path) -> None:
        """Prove on one image that the two parts together are the checkpoint's own preprocessing."""
        from PIL import Image

        probe = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*_PROBE_SIZE, 3), dtype=np.uint8))
        own: NDArray[np.float32] = self._whole(images=probe, return_tensors="np")["pixel_values"]
        ours = self.normalisation(self.prepare(probe)[None], device="cpu").numpy()
        if own.shape != ours.shape or not np.allclose(own, ours, atol=_TOLERANCE):
            raise CheckpointError(
                "the preprocessing of this checkpoint has a step that is not known here",
                where=folder,
                found=f"{type(self._images).__name__}: pixels {own.shape}, {ours.shape} in two parts"
                + (f", {np.abs(own - ours).max():.3g} apart" if own.shape == ours.shape else ""),
                expected=f"the same pixels to {_TOLERANCE}",
            )
