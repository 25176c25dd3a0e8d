"""Pictures on their way into a model that answers: those that were recorded, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.digests import digest_bytes
from plumbline.encoders.image_processor import ImageProcessor
from plumbline.errors import GenerationError, ImageRejected
from plumbline.images.decoding import decode, read_image_file

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


def pixels_of(paths: Mapping[str, Path | None], images: ImageProcessor, *, device: str) -> torch.Tensor:
    """Return (n, 3, h, w) float32 pixels on the device, as the checkpoint's own preprocessing gives them.

    Parameters
    ----------
    paths : mapping
        sha256 of each file to where it is.

    Raises
    ------
    GenerationError
        If a subject has no image, or it cannot be read, or is no longer the one that was recorded.
    """
    import torch

    prepared = torch.stack([images.prepare(_recorded(path, image)) for image, path in paths.items()])
    return images.normalisation(prepared, device=device)


def _recorded(path: Path | None, image_id: str) -> Image:
    """Return the picture of a file, which must still be the one that was recorded."""
    if path is None:
        raise GenerationError("this model looks at images, and a subject has none", where=image_id)
    try:
        data = read_image_file(path)
        if digest_bytes(data) != image_id:
            raise GenerationError(
                "an image is no longer the one that was recorded",
                where=path,
                found=f"sha256 {digest_bytes(data)}",
                expected=f"sha256 {image_id}",
                hint="materialise the dataset again",
            )
        return decode(data)
    except ImageRejected as error:
        raise GenerationError("an image cannot be read", where=path, found=error.what) from error
