"""What every encoder offers, whatever its family: the small interface between models and the embedding engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_json

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


@dataclass(frozen=True)
class EncoderIdentity:
    """Everything about an encoder that its embeddings depend on, by content, never by name or time.

    Attributes
    ----------
    weights : str
        Digest of weights, configuration and tokenizer files.
    processor : str
        Digest of the image transform and of the text tokenisation.
    backend : str
        Library and version that runs the model.
    decoder : str
        Library and version that turns files into pixels.
    dtype : str
        Number type of the forward pass.
    """

    weights: str
    processor: str
    backend: str
    decoder: str
    dtype: str

    def cache_key(self, kind: str, *, inputs: str, batch_rows: int) -> str:
        """Return the key of a shard: sha256 of canonical JSON of identity, kind, inputs' digest and batch size.

        The batch size is part of it because the last bits of a product depend on it.
        """
        return digest_json(
            {"kind": kind, "schema": 1, "inputs": inputs, "batch_rows": batch_rows, **asdict(self)}
        )


class Encoder(Protocol):
    """A dual encoder on a device.

    Attributes
    ----------
    identity : EncoderIdentity
    weights_sha256 : str
        Of the weights file alone, as `sha256sum` prints it.
    width : int
        Length d of an embedding.
    logit_scale : float
        The checkpoint's own exponentiated temperature.
    parameters : int
        Number of weights.
    device : str
        Such as `cpu` or `cuda:0`.
    """

    identity: EncoderIdentity
    weights_sha256: str
    width: int
    logit_scale: float
    parameters: int
    device: str

    def prepare(self, image: Image) -> torch.Tensor:
        """Turn an RGB image into the (3, h, w) float tensor that the checkpoint was trained on."""
        ...

    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:
        """Return (b, d) embeddings of a (b, 3, h, w) batch, float32 and not normalised."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, d) embeddings of texts, float32 and not normalised."""
        ...
